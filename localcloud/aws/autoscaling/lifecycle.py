"""What an instance of a scaling group passes through, from running to gone.

Follows the Amazon EC2 Auto Scaling User Guide: "Amazon EC2 Auto Scaling instance lifecycle", "Lifecycle hooks",
"Temporarily remove instances from your Auto Scaling group".
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from localcloud.aws.autoscaling import instance_launch as launch
from localcloud.aws.autoscaling.model import (
    GONE_OR_GOING,
    LAUNCHING,
    STANDBY,
    TERMINATING,
    Group,
    Hook,
    Member,
    Waiting,
    now,
)

KEPT_ACTIVITIES = 500
SHOWN_TERMINATED = 600.0
"""For so many seconds EC2 still shows a terminated instance."""


class Lifecycle:
    """The part of the engine that moves single instances; :class:`localcloud.aws.autoscaling.engine.Engine` completes it."""

    world: Any

    def running(self, group: Group, member: Member, instance: Any) -> None:
        """The EC2 instance runs: it boots while lifecycle hooks may hold it back."""
        if instance.state != "pending":
            return
        instance._state.name, instance._state.code = "running", 16
        self.world.kubelets.boot(instance.id, group.name, member.template, member.warm)
        if member.phase == "Pending":
            self.hooked(group, member)

    def hooked(self, group: Group, member: Member) -> None:
        """Let the launch hooks hold the instance."""
        member.hooks_left = list(group.hooks_for(LAUNCHING))
        self.next_hook(group, member)

    def launched(self, group: Group, member: Member) -> None:
        """No hook holds the instance any more."""
        self.in_pool(group, member) if member.warm else self.in_service(group, member)

    def next_hook(self, group: Group, member: Member) -> None:
        """Wait for the next hook, or go on when there is none."""
        launching = member.phase.startswith("Pending")
        if not member.hooks_left:
            member.waiting = None
            self.launched(group, member) if launching else self.shut_down(group, member)
            return
        hook = member.hooks_left.pop(0)
        member.waiting = waiting = Waiting(hook, str(uuid4()))
        member.enter("Pending:Wait" if launching else "Terminating:Wait")
        member.activity["StatusCode"] = "MidLifecycleAction"
        self.show(group, member, hook=hook.name)
        self.time_hook(group, member, waiting)
        self.world.nodegroups.held(group, member)

    def time_hook(self, group: Group, member: Member, waiting: Waiting) -> None:
        """End the wait with the hook's default when its heartbeat stops."""
        beats = waiting.beats
        seconds = waiting.hook.heartbeat * self.world.settings.delays.heartbeat_scale

        def expire() -> None:
            if member.waiting is waiting and waiting.beats == beats:
                self.complete(group, member, waiting.hook.default_result)

        self.world.timers.after(seconds, expire)

    def complete(self, group: Group, member: Member, result: str) -> None:
        """End the wait for a hook: ABANDON ends a launch, and skips what hooks a termination has left."""
        member.waiting = None
        if member.phase == "Pending:Wait":
            if result == "ABANDON":
                self.finish(member.activity, "Cancelled", "Instance failed to complete user's Lifecycle Action: the launch was abandoned")
                self.terminate(group, member, "in response to a lifecycle action that was abandoned")
                return
            if not member.hooks_left:
                member.enter("Pending:Proceed")
        elif result == "ABANDON":
            member.hooks_left = []
        self.next_hook(group, member)

    def in_service(self, group: Group, member: Member) -> None:
        """The instance takes up its service."""
        member.state = "InService"
        self.finish(member.activity, "Successful")
        self.show(group, member)
        self.poke(group)

    def enter_standby(self, group: Group, member: Member, why: str) -> dict[str, Any]:
        """Take an instance out of service; it stays in the group, and its node in the cluster."""
        member.activity = activity = self.activity(group, f"Moving EC2 instance to Standby: {member.id}", why)
        activity["Progress"] = 50
        member.state = "EnteringStandby"
        self.show(group, member)
        self.world.timers.after(self.world.settings.delays.move, lambda: self.in_standby(group, member))
        self.poke(group)
        return activity

    def in_standby(self, group: Group, member: Member) -> None:
        """The instance stands by until somebody takes it back."""
        if member.state == "EnteringStandby":
            member.state = "Standby"
            self.finish(member.activity, "Successful")
            self.show(group, member)

    def exit_standby(self, group: Group, member: Member, why: str) -> dict[str, Any]:
        """Take an instance back; only now its health counts again."""
        member.activity = activity = self.activity(group, f"Moving EC2 instance out of Standby: {member.id}", why)
        activity |= {"Progress": 30, "StatusCode": "PreInService"}
        if self.world.ec2.get_instance(member.id).state != "running":
            member.health = "Unhealthy"
        member.state = "Pending"
        self.show(group, member)
        self.world.timers.after(self.world.settings.delays.move, lambda: self.back(group, member))
        self.poke(group)
        return activity

    def back(self, group: Group, member: Member) -> None:
        """The instance is in service again."""
        if member.state == "Pending":
            self.in_service(group, member)

    def terminate(self, group: Group, member: Member, why: str) -> dict[str, Any]:
        """Begin to terminate an instance; its replacement does not wait for the end."""
        if member.phase in GONE_OR_GOING:
            return member.activity
        if member.activity and "EndTime" not in member.activity:
            self.finish(member.activity, "Cancelled")
        activity = self.activity(group, f"Terminating EC2 instance: {member.id}", f"instance {member.id} was taken out of service {why}.")
        was_running = self.world.ec2.get_instance(member.id).state != "pending"
        member.activity, member.waiting = activity, None
        member.enter("Terminating")
        self.show(group, member, why=why)
        member.hooks_left = list(group.hooks_for(TERMINATING)) if was_running and not group.deleting else []
        self.next_hook(group, member)
        self.poke(group)
        return activity

    def shut_down(self, group: Group, member: Member) -> None:
        """EC2 takes the instance down."""
        if member.phase == "Terminating:Wait":
            member.enter("Terminating:Proceed")
            self.show(group, member)
        instance = self.world.ec2.get_instance(member.id)
        if instance.state not in ("shutting-down", "terminated"):
            instance._state.name, instance._state.code = "shutting-down", 32
        self.world.kubelets.stop(member.id)
        self.world.timers.after(self.world.settings.delays.terminate, lambda: self.gone(group, member, instance))

    def gone(self, group: Group, member: Member, instance: Any) -> None:
        """EC2 has terminated the instance."""
        if instance.state != "terminated":
            instance.terminate()
        (group.warm if member.warm else group.members).pop(member.id, None)
        self.finish(member.activity, "Successful")
        self.world.log.state("instance", member.id, group=group.name, state="gone", version=member.template.get("Version"))
        self.world.kubelets.gone(member.id)
        self.world.timers.after(SHOWN_TERMINATED, lambda: launch.forget(self.world, instance))
        self.poke(group)

    def terminated_behind(self, identifier: str) -> None:
        """EC2's TerminateInstances on a member: the group sees it at its next health check."""
        group, member = self.member(identifier)
        instance = self.world.ec2.get_instance(identifier)
        if instance.state not in ("shutting-down", "terminated"):
            instance._state.name, instance._state.code = "shutting-down", 32
            self.world.kubelets.stop(identifier)
        if member.state not in STANDBY:
            member.health = "Unhealthy"
        self.poke(group)
        if member.state in STANDBY or {"ReplaceUnhealthy", "Terminate"} & set(group.suspended):
            self.world.timers.after(self.world.settings.delays.terminate, lambda: self.ended_behind(instance))

    def ended_behind(self, instance: Any) -> None:
        """End an instance that its group may not replace; it stays a member, unhealthy."""
        if instance.state != "terminated":
            instance.terminate()
            self.world.kubelets.gone(instance.id)

    def activity(self, group: Group, description: str, cause: str) -> dict[str, Any]:
        """Begin an activity."""
        started = now()
        activity = {
            "ActivityId": str(uuid4()),
            "AutoScalingGroupName": group.name,
            "AutoScalingGroupARN": group.arn,
            "Description": description,
            "Cause": f"At {started:%Y-%m-%dT%H:%M:%SZ} {cause}",
            "StartTime": started,
            "StatusCode": "InProgress",
            "Progress": 0,
            "Details": "{}",
        }
        group.activities.insert(0, activity)
        del group.activities[KEPT_ACTIVITIES:]
        return activity

    def finish(self, activity: dict[str, Any], code: str, message: str | None = None) -> None:
        """End an activity."""
        activity |= {"StatusCode": code, "EndTime": now(), "Progress": 100}
        if message:
            activity["StatusMessage"] = message

    def show(self, group: Group, member: Member, **more: Any) -> None:
        """Write an instance's state into the event log."""
        self.world.log.state(
            "instance",
            member.id,
            group=group.name,
            zone=member.zone,
            state=member.state,
            template=member.template.get("LaunchTemplateName"),
            version=member.template.get("Version"),
            desired=group.desired,
            **({"configuration": member.configuration} if member.configuration else {}),
            **({"lifecycle": "spot"} if member.spot else {}),
            **more,
        )


def hook_from(params: dict[str, Any]) -> Hook:
    """A hook from the parameters of PutLifecycleHook or of a LifecycleHookSpecification."""
    return Hook(
        name=params["LifecycleHookName"],
        transition=params.get("LifecycleTransition", LAUNCHING),
        heartbeat=params.get("HeartbeatTimeout", 3600),
        default_result=params.get("DefaultResult", "ABANDON"),
        metadata=params.get("NotificationMetadata"),
        target_arn=params.get("NotificationTargetARN"),
        role_arn=params.get("RoleARN"),
    )
