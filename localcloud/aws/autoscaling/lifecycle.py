"""The lifecycle of an instance in a scaling group, from running to terminated.

Follows the Amazon EC2 Auto Scaling User Guide: "Amazon EC2 Auto Scaling instance lifecycle", "Lifecycle hooks",
"Temporarily remove instances from your Auto Scaling group".
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from moto.ec2.models.instances import StateReason

from localcloud.aws.autoscaling import run_instance
from localcloud.aws.autoscaling.model import (
    LAUNCHING,
    STANDBY,
    TERMINATING,
    TERMINATING_STATES,
    Group,
    Hook,
    LifecycleAction,
    Member,
    now,
)

MAX_ACTIVITIES = 500
TERMINATED_RETENTION = 600.0
"""Time in seconds that EC2 still returns a terminated instance."""


def terminate(instance: Any) -> None:
    """The end of an EC2 instance. What EC2 ended keeps its reason when Auto Scaling terminates it too."""
    instance.terminate()
    instance.state_reason = getattr(instance, "ended_by_ec2", instance.state_reason)


class Lifecycle:
    """The part of the engine that changes single instances. See :class:`localcloud.aws.autoscaling.engine.Engine`."""

    simulator: Any

    def on_running(self, group: Group, member: Member, instance: Any) -> None:
        """The EC2 instance is running. It boots while lifecycle hooks may hold it."""
        if instance.state != "pending":
            return
        instance._state.name, instance._state.code = "running", 16
        self.simulator.kubelets.on_running(instance.id, group.name, member.template, member.warm)
        if member.phase == "Pending":
            self.start_launch_hooks(group, member)

    def start_launch_hooks(self, group: Group, member: Member) -> None:
        """Start the lifecycle hooks of the launch."""
        member.pending_hooks = list(group.hooks_for(LAUNCHING))
        self.next_hook(group, member)

    def finish_launch(self, group: Group, member: Member) -> None:
        """All launch hooks are complete."""
        self.enter_pool(group, member) if member.warm else self.enter_service(group, member)

    def next_hook(self, group: Group, member: Member) -> None:
        """Wait for the next lifecycle hook, or continue if there is none."""
        launching = member.phase.startswith("Pending")
        if not member.pending_hooks:
            member.lifecycle_action = None
            self.finish_launch(group, member) if launching else self.shut_down(group, member)
            return
        hook = member.pending_hooks.pop(0)
        member.lifecycle_action = lifecycle_action = LifecycleAction(hook, str(uuid4()))
        member.enter("Pending:Wait" if launching else "Terminating:Wait")
        member.activity["StatusCode"] = "MidLifecycleAction"
        self.log_state(group, member, hook=hook.name)
        self.start_heartbeat_timer(group, member, lifecycle_action)
        self.simulator.nodegroups.on_terminate_hook(group, member)

    def start_heartbeat_timer(self, group: Group, member: Member, lifecycle_action: LifecycleAction) -> None:
        """Complete the lifecycle action with the hook's default result when its heartbeat times out."""
        heartbeats = lifecycle_action.heartbeats
        seconds = lifecycle_action.hook.heartbeat * self.simulator.settings.delays.heartbeat_scale

        def expire() -> None:
            if member.lifecycle_action is lifecycle_action and lifecycle_action.heartbeats == heartbeats:
                self.complete(group, member, lifecycle_action.hook.default_result)

        self.simulator.timers.after(seconds, expire)

    def complete(self, group: Group, member: Member, result: str) -> None:
        """Complete a lifecycle action. ABANDON ends a launch, and skips the remaining hooks of a termination."""
        member.lifecycle_action = None
        if member.phase == "Pending:Wait":
            if result == "ABANDON":
                self.finish(member.activity, "Cancelled", "Instance failed to complete user's Lifecycle Action: the launch was abandoned")
                self.terminate(group, member, "in response to a lifecycle action that was abandoned")
                return
            if not member.pending_hooks:
                member.enter("Pending:Proceed")
        elif result == "ABANDON":
            member.pending_hooks = []
        self.next_hook(group, member)

    def enter_service(self, group: Group, member: Member) -> None:
        """The instance enters service."""
        member.state = "InService"
        self.finish(member.activity, "Successful")
        self.log_state(group, member)
        self.reconcile_soon(group)

    def enter_standby(self, group: Group, member: Member, why: str) -> dict[str, Any]:
        """Move an instance to Standby. It stays in the group, and its node in the cluster."""
        member.activity = activity = self.activity(group, f"Moving EC2 instance to Standby: {member.id}", why)
        activity["Progress"] = 50
        member.state = "EnteringStandby"
        self.log_state(group, member)
        self.simulator.timers.after(self.simulator.settings.delays.move, lambda: self.reach_standby(group, member))
        self.reconcile_soon(group)
        return activity

    def reach_standby(self, group: Group, member: Member) -> None:
        """The instance has reached Standby."""
        if member.state == "EnteringStandby":
            member.state = "Standby"
            self.finish(member.activity, "Successful")
            self.log_state(group, member)

    def detach(self, group: Group, member: Member, why: str) -> dict[str, Any]:
        """Let an instance leave its group. It runs on, and its node stays in the cluster."""
        activity = self.activity(group, f"Detaching EC2 instance: {member.id}", why)
        group.members.pop(member.id)
        self.finish(activity, "Successful")
        self.simulator.log.state("instance", member.id, group=group.name, state="detached", version=member.template.get("Version"))
        self.reconcile_soon(group)
        return activity

    def exit_standby(self, group: Group, member: Member, why: str) -> dict[str, Any]:
        """Return an instance to service. From now on, health checks apply again."""
        member.activity = activity = self.activity(group, f"Moving EC2 instance out of Standby: {member.id}", why)
        activity |= {"Progress": 30, "StatusCode": "PreInService"}
        if self.simulator.ec2.get_instance(member.id).state != "running":
            member.health = "Unhealthy"
        member.state = "Pending"
        self.log_state(group, member)
        self.simulator.timers.after(self.simulator.settings.delays.move, lambda: self.return_to_service(group, member))
        self.reconcile_soon(group)
        return activity

    def return_to_service(self, group: Group, member: Member) -> None:
        """The instance is in service again."""
        if member.state == "Pending":
            self.enter_service(group, member)

    def terminate(self, group: Group, member: Member, why: str) -> dict[str, Any]:
        """Start to terminate an instance. Its replacement is launched meanwhile."""
        if member.phase in TERMINATING_STATES:
            return member.activity
        if member.activity and "EndTime" not in member.activity:
            self.finish(member.activity, "Cancelled")
        activity = self.activity(group, f"Terminating EC2 instance: {member.id}", f"instance {member.id} was taken out of service {why}.")
        was_running = self.simulator.ec2.get_instance(member.id).state != "pending"
        member.activity, member.lifecycle_action = activity, None
        member.enter("Terminating")
        self.log_state(group, member, why=why)
        member.pending_hooks = list(group.hooks_for(TERMINATING)) if was_running and not group.deleting else []
        self.next_hook(group, member)
        self.reconcile_soon(group)
        return activity

    def shut_down(self, group: Group, member: Member) -> None:
        """Shut the EC2 instance down."""
        if member.phase == "Terminating:Wait":
            member.enter("Terminating:Proceed")
            self.log_state(group, member)
        instance = self.simulator.ec2.get_instance(member.id)
        if instance.state not in ("shutting-down", "terminated"):
            instance._state.name, instance._state.code = "shutting-down", 32
        self.simulator.kubelets.on_shutting_down(member.id)
        self.simulator.timers.after(self.simulator.settings.delays.terminate, lambda: self.on_terminated(group, member, instance))

    def on_terminated(self, group: Group, member: Member, instance: Any) -> None:
        """EC2 has terminated the instance."""
        if instance.state != "terminated":
            terminate(instance)
        (group.warm if member.warm else group.members).pop(member.id, None)
        self.finish(member.activity, "Successful")
        self.simulator.log.state("instance", member.id, group=group.name, state="gone", version=member.template.get("Version"))
        self.simulator.kubelets.on_terminated(member.id)
        self.simulator.timers.after(TERMINATED_RETENTION, lambda: run_instance.forget_instance(self.simulator, instance))
        self.reconcile_soon(group)

    def terminate_externally(self, identifier: str, state_reason: tuple[str, str] | None = None) -> None:
        """EC2 terminates a member: TerminateInstances, or by itself with this StateReason (code and message).

        The group replaces it at its next health check.
        """
        group, member = self.member(identifier)
        instance = self.simulator.ec2.get_instance(identifier)
        if state_reason:
            code, message = state_reason
            instance.ended_by_ec2 = instance.state_reason = StateReason(message, code)
        if instance.state not in ("shutting-down", "terminated"):
            instance._state.name, instance._state.code = "shutting-down", 32
            self.simulator.kubelets.on_shutting_down(identifier)
        if member.state not in STANDBY:
            member.health = "Unhealthy"
        self.reconcile_soon(group)
        if member.state in STANDBY or {"ReplaceUnhealthy", "Terminate"} & set(group.suspended):
            self.simulator.timers.after(self.simulator.settings.delays.terminate, lambda: self.finish_external_termination(instance))

    def on_stopped_externally(self, identifier: str) -> None:
        """EC2's StopInstances on any instance. Health checks take a member that does not run for unhealthy, except in Standby."""
        self.simulator.kubelets.on_stopped(identifier)
        found = self.member(identifier)
        if found and found[1].state not in STANDBY and not found[1].warm:
            found[1].health = "Unhealthy"
            self.reconcile_soon(found[0])

    def finish_external_termination(self, instance: Any) -> None:
        """End an instance that its group may not replace. It stays a member, unhealthy."""
        if instance.state != "terminated":
            terminate(instance)
            self.simulator.kubelets.on_terminated(instance.id)

    def activity(self, group: Group, description: str, cause: str) -> dict[str, Any]:
        """Start a scaling activity."""
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
        del group.activities[MAX_ACTIVITIES:]
        return activity

    def finish(self, activity: dict[str, Any], code: str, message: str | None = None) -> None:
        """End a scaling activity."""
        activity |= {"StatusCode": code, "EndTime": now(), "Progress": 100}
        if message:
            activity["StatusMessage"] = message

    def log_state(self, group: Group, member: Member, **more: Any) -> None:
        """Write an instance's state to the event log."""
        self.simulator.log.state(
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


def parse_hook(params: dict[str, Any]) -> Hook:
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
