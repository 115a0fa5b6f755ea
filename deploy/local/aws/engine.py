"""How scaling groups come to have the instances that they should have.

Every method runs under the world's lock; time passes only through the world's timers.
Follows the Amazon EC2 Auto Scaling User Guide: "Amazon EC2 Auto Scaling instance lifecycle",
"Suspend and resume processes", "Lifecycle hooks", "Control which instances terminate".
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from moto.core.exceptions import ServiceException

from . import launch
from .errors import Refused
from .groups import (
    GONE_OR_GOING,
    LAUNCHING,
    TERMINATING,
    Group,
    Hook,
    Member,
    Waiting,
    now,
)
from .templates import Template, Version

KEPT_ACTIVITIES = 500
SHOWN_TERMINATED = 600.0
"""For so many seconds EC2 still shows a terminated instance."""


class Engine:
    """The scaling groups of the region and what drives them."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.groups: dict[str, Group] = {}
        self.deleted_activities: list[dict[str, Any]] = []
        self.launch_failures: dict[str, tuple[str, str]] = {}
        self._queued: set[str] = set()

    def member(self, identifier: str) -> tuple[Group, Member] | None:
        """The member of that instance id, with its group."""
        for group in self.groups.values():
            if identifier in group.members:
                return group, group.members[identifier]
        return None

    def poke(self, group: Group, delay: float = 0.0) -> None:
        """Look at a group soon; several wishes become one look."""
        if delay == 0.0:
            if group.name in self._queued:
                return
            self._queued.add(group.name)
        self.world.timers.after(delay, lambda: self.look(group))

    def look(self, group: Group) -> None:
        """Bring a group closer to what it should be."""
        self._queued.discard(group.name)
        if self.groups.get(group.name) is not group:
            return
        if group.deleting:
            for member in list(group.members.values()):
                self.terminate(group, member, "the group was deleted with force")
            if not group.members:
                self.remove(group)
            return
        self.replace_unhealthy(group)
        counted = group.counted()
        missing = group.desired - len(counted)
        if missing > 0 and "Launch" not in group.suspended and not group.relaunch_due:
            for _ in range(missing):
                if not self.launch(group, f"increasing the capacity from {len(counted)} to {group.desired}"):
                    break
        elif missing < 0 and "Terminate" not in group.suspended and not self.surplus_pending(group):
            for member in self.victims(group, -missing):
                self.terminate(group, member, f"shrinking the capacity from {len(counted)} to {group.desired}")
        elif missing == 0:
            self.rebalance(group)

    def remove(self, group: Group) -> None:
        """Forget a group."""
        self.deleted_activities += group.activities
        self.groups.pop(group.name, None)
        self.world.log.state("group", group.name, state="gone")

    def replace_unhealthy(self, group: Group) -> None:
        """Terminate what failed its health check."""
        if {"ReplaceUnhealthy", "Terminate"} & set(group.suspended):
            return
        for member in group.counted():
            if member.health == "Unhealthy":
                self.terminate(group, member, "in response to a health check: it has been marked as unhealthy")

    def surplus_pending(self, group: Group) -> bool:
        """Whether the instance that rebalancing added is still on its way."""
        member = group.members.get(group.surplus or "")
        if member is None or member.state == "InService" or not member.counts:
            group.surplus = None
            return False
        return True

    def rebalance(self, group: Group) -> None:
        """Move one instance from the fullest zone to the emptiest: launch first, then terminate."""
        if {"AZRebalance", "Launch", "Terminate"} & set(group.suspended) or len(group.zones) < 2:
            return
        served = self.served(group)
        counts = {zone: count for zone, count in group.per_zone().items() if count or zone in served}
        settled = all(member.state == "InService" for member in group.members.values())
        if settled and counts and max(counts.values()) - min(counts.values()) > 1:
            self.launch(group, "rebalancing the Availability Zones")
            group.surplus = next(reversed(group.members), None)

    def served(self, group: Group) -> list[str]:
        """The zones that offer what the group launches now."""
        try:
            _, version = launch.resolve(self.world, group.pin)
        except Refused:
            return []
        return [zone for zone in group.zones if not self.world.catalogue.problem(launch.kind_of(version.data), zone)]

    def victims(self, group: Group, count: int) -> list[Member]:
        """Whom a scale-in terminates."""
        chosen: list[Member] = []
        policy = group.termination_policies[0]
        template, version = self.current(group)
        for _ in range(count):
            left = [m for m in group.counted() if not m.protected and m not in chosen]
            if not left:
                break
            zones = group.per_zone()
            for member in chosen:
                zones[member.zone] -= 1
            fullest = max(zones[m.zone] for m in left)
            left = [m for m in left if zones[m.zone] == fullest]
            if policy == "NewestInstance":
                chosen.append(max(left, key=lambda m: m.launched))
                continue
            old = [m for m in left if (m.template["LaunchTemplateId"], m.template["Version"]) != (template, version)]
            chosen.append(min(old if policy == "Default" and old else left, key=lambda m: m.launched))
        return chosen

    def current(self, group: Group) -> tuple[str, str]:
        """Template id and version that the group launches now."""
        try:
            template, version = launch.resolve(self.world, group.pin)
            return template.id, str(version.number)
        except Refused:
            return "", ""

    def launch(self, group: Group, why: str) -> bool:
        """Launch one instance in the emptiest zone that offers its type; else try again later."""
        counts = group.per_zone()
        for zone in sorted(group.zones, key=lambda z: (counts[z], z)):
            refused = self.launch_in(group, zone, why)
            if refused is None:
                return True
            if refused != "Unsupported":
                break
        group.relaunch_due = True
        self.world.timers.after(self.world.settings.delays.relaunch, lambda: self.relaunch(group))
        return False

    def launch_in(self, group: Group, zone: str, why: str) -> str | None:
        """Launch one instance in a zone, or record why that failed and return the error's code."""
        cause = f"an instance was started in response to a difference between desired and actual capacity, {why}."
        activity = self.activity(group, "Launching a new EC2 instance", cause)
        try:
            subnet = next(s for s in group.subnets if self.world.ec2.get_subnet(s).availability_zone == zone)
            activity["Details"] = f'{{"Subnet ID":"{subnet}","Availability Zone":"{zone}"}}'
            template, version = self.launchable(group)
            instance = launch.run(self.world, group, template, version, subnet)
        except ServiceException as refused:
            self.launch_failed(group, activity, refused.message)
            return refused.code
        specification = {"LaunchTemplateId": template.id, "LaunchTemplateName": template.name, "Version": str(version.number)}
        kind = instance.instance_type
        member = Member(instance.id, zone, subnet, kind, specification, now(), protected=group.protect_new, activity=activity)
        group.members[instance.id] = member
        activity["Description"] = f"Launching a new EC2 instance: {instance.id}"
        self.show(group, member)
        self.world.timers.after(self.world.settings.delays.pending, lambda: self.running(group, member, instance))
        return None

    def launchable(self, group: Group) -> tuple[Template, Version]:
        """The template and version to launch now, unless EC2 would refuse them."""
        template, version = launch.resolve(self.world, group.pin)
        failure = self.launch_failures.get(group.name) or self.launch_failures.get("*")
        if failure:
            raise Refused(*failure)
        reason = launch.problem(self.world, version.data, group.subnets)
        if reason:
            raise Refused("ValidationError", f"{reason.rstrip('.')}. Launching EC2 instance failed.")
        return template, version

    def launch_failed(self, group: Group, activity: dict[str, Any], reason: str) -> None:
        """Record why a launch failed."""
        activity["Description"] += f".  Status Reason: {reason}"
        self.finish(activity, "Failed", reason)
        self.world.log.state("group", group.name, state="launch-failed", reason=reason)

    def relaunch(self, group: Group) -> None:
        """Try again after a failed launch."""
        group.relaunch_due = False
        self.look(group)

    def running(self, group: Group, member: Member, instance: Any) -> None:
        """The EC2 instance runs: it boots while lifecycle hooks may hold it back."""
        if instance.state != "pending":
            return
        instance._state.name, instance._state.code = "running", 16
        self.world.kubelets.boot(instance.id, group.name, member.template)
        if member.state != "Pending":
            return
        member.hooks_left = list(group.hooks_for(LAUNCHING))
        self.next_hook(group, member)

    def next_hook(self, group: Group, member: Member) -> None:
        """Wait for the next hook, or go on when there is none."""
        launching = member.state.startswith("Pending")
        if not member.hooks_left:
            member.waiting = None
            self.in_service(group, member) if launching else self.shut_down(group, member)
            return
        hook = member.hooks_left.pop(0)
        member.waiting = waiting = Waiting(hook, str(uuid4()))
        member.state = "Pending:Wait" if launching else "Terminating:Wait"
        member.activity["StatusCode"] = "MidLifecycleAction"
        self.show(group, member, hook=hook.name)
        self.time_hook(group, member, waiting)

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
        if member.state == "Pending:Wait":
            if result == "ABANDON":
                self.finish(member.activity, "Cancelled", "Instance failed to complete user's Lifecycle Action: the launch was abandoned")
                self.terminate(group, member, "in response to a lifecycle action that was abandoned")
                return
            if not member.hooks_left:
                member.state = "Pending:Proceed"
        elif result == "ABANDON":
            member.hooks_left = []
        self.next_hook(group, member)

    def in_service(self, group: Group, member: Member) -> None:
        """The instance takes up its service."""
        member.state = "InService"
        self.finish(member.activity, "Successful")
        self.show(group, member)
        self.poke(group)

    def terminate(self, group: Group, member: Member, why: str) -> dict[str, Any]:
        """Begin to terminate an instance; its replacement does not wait for the end."""
        if member.state in GONE_OR_GOING:
            return member.activity
        if member.activity and "EndTime" not in member.activity:
            self.finish(member.activity, "Cancelled")
        activity = self.activity(group, f"Terminating EC2 instance: {member.id}", f"instance {member.id} was taken out of service {why}.")
        was_running = member.state != "Pending"
        member.state, member.activity, member.waiting = "Terminating", activity, None
        self.show(group, member, why=why)
        member.hooks_left = list(group.hooks_for(TERMINATING)) if was_running and not group.deleting else []
        self.next_hook(group, member)
        self.poke(group)
        return activity

    def shut_down(self, group: Group, member: Member) -> None:
        """EC2 takes the instance down."""
        if member.state == "Terminating:Wait":
            member.state = "Terminating:Proceed"
            self.show(group, member)
        instance = self.world.ec2.get_instance(member.id)
        if instance.state in ("pending", "running"):
            instance._state.name, instance._state.code = "shutting-down", 32
        self.world.kubelets.stop(member.id)
        self.world.timers.after(self.world.settings.delays.terminate, lambda: self.gone(group, member, instance))

    def gone(self, group: Group, member: Member, instance: Any) -> None:
        """EC2 has terminated the instance."""
        if instance.state != "terminated":
            instance.terminate()
        group.members.pop(member.id, None)
        self.finish(member.activity, "Successful")
        self.world.log.state("instance", member.id, group=group.name, state="gone", version=member.template["Version"])
        self.world.kubelets.gone(member.id)
        self.world.timers.after(SHOWN_TERMINATED, lambda: launch.forget(self.world, instance))
        self.poke(group)

    def terminated_behind(self, identifier: str) -> None:
        """EC2's TerminateInstances on a member: the group sees it at its next health check."""
        group, member = self.member(identifier)
        instance = self.world.ec2.get_instance(identifier)
        if instance.state in ("pending", "running"):
            instance._state.name, instance._state.code = "shutting-down", 32
            self.world.kubelets.stop(identifier)
        member.health = "Unhealthy"
        self.poke(group)
        if "ReplaceUnhealthy" in group.suspended or "Terminate" in group.suspended:
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
            template=member.template["LaunchTemplateName"],
            version=member.template["Version"],
            desired=group.desired,
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
