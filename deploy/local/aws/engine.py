"""How scaling groups come to have the instances that they should have.

Every method runs under the world's lock; time passes only through the world's timers.
Follows the Amazon EC2 Auto Scaling User Guide: "Amazon EC2 Auto Scaling instance lifecycle",
"Suspend and resume processes", "Control which instances terminate".
"""

from __future__ import annotations

from typing import Any

from moto.core.exceptions import ServiceException

from . import launch
from .errors import Refused
from .groups import Group, Member, now
from .lifecycle import Lifecycle
from .templates import Template, Version


class Engine(Lifecycle):
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
        settled = all(member.state in ("InService", "Standby") for member in group.members.values())
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
