"""How scaling groups come to have the instances that they should have.

Every method runs under the world's lock; time passes only through the world's timers.
Follows the Amazon EC2 Auto Scaling User Guide: "Amazon EC2 Auto Scaling instance lifecycle",
"Suspend and resume processes", "Control which instances terminate".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from localcloud.aws.errors import Refused
from localcloud.aws.autoscaling.model import Group, Member
from localcloud.aws.autoscaling.allocation import capacity, unfit, weights
from localcloud.aws.autoscaling.launch_source import Source, current, served
from localcloud.aws.autoscaling.scale_in import victims
from localcloud.aws.autoscaling.warm_pools import WarmPools


class Engine(WarmPools):
    """The scaling groups of the region and what drives them."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.groups: dict[str, Group] = {}
        self.deleted_activities: list[dict[str, Any]] = []
        self.launch_failures: dict[tuple[str, str | None], tuple[str, str]] = {}
        self._queued: set[str] = set()

    def member(self, identifier: str) -> tuple[Group, Member] | None:
        """The member of that instance id, or the instance of a warm pool, with its group."""
        for group in self.groups.values():
            for where in (group.members, group.warm):
                if identifier in where:
                    return group, where[identifier]
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
            for member in group.everyone():
                self.terminate(group, member, "the group was deleted with force")
            if not group.everyone():
                self.remove(group)
            return
        self.replace_unhealthy(group, group.counted())
        have = capacity(group, group.counted())
        if have < group.desired:
            self.grow(group, have)
        elif not self.surplus_pending(group) and not (have > group.desired and self.shrink(group, have)):
            if have == group.desired or weights(group):
                self.rebalance(group)
        self.tend(group)

    def grow(self, group: Group, have: int) -> None:
        """Take from the warm pool, then launch, until the desired capacity is there or a launch fails."""
        if "Launch" in group.suspended or group.relaunch_due:
            return
        why = f"increasing the capacity from {have} to {group.desired}"
        while capacity(group, group.counted()) < group.desired:
            warmed = self.warmed(group)
            if warmed:
                self.leave_pool(group, warmed, why)
            elif not self.launch(group, why):
                return

    def shrink(self, group: Group, have: int) -> bool:
        """Terminate what is too much; whether there was something."""
        if "Terminate" in group.suspended:
            return False
        chosen = victims(group, self.source(group))
        back = chosen[: self.vacancies(group)]
        for member in back:
            self.return_to_pool(group, member)
        for member in chosen[len(back) :]:
            self.terminate(group, member, f"shrinking the capacity from {have} to {group.desired}")
        return bool(chosen)

    def source(self, group: Group) -> Source | None:
        """What the group launches now, if that can be found."""
        try:
            return current(self.world, group)
        except Refused:
            return None

    def remove(self, group: Group) -> None:
        """Forget a group."""
        self.deleted_activities += group.activities
        self.groups.pop(group.name, None)
        self.world.log.state("group", group.name, state="gone")

    def replace_unhealthy(self, group: Group, members: Iterable[Member]) -> None:
        """Terminate what failed its health check."""
        if {"ReplaceUnhealthy", "Terminate"} & set(group.suspended):
            return
        for member in list(members):
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
        """Move one instance to where it is due: launch first, then terminate.

        That is from the fullest zone to the emptiest, or to the purchase option that the policy wants more of.
        """
        if {"Launch", "Terminate"} & set(group.suspended) or group.relaunch_due or self.source(group) is None:
            return
        if not all(member.state in ("InService", "Standby") for member in group.members.values()):
            return
        if "AZRebalance" not in group.suspended and self.lopsided(group):
            why = "rebalancing the Availability Zones"
        elif unfit(group):
            why = "rebalancing the purchase options"
        else:
            return
        made = self.launch(group, why)
        group.surplus = made.id if made else None

    def lopsided(self, group: Group) -> bool:
        """Whether one zone has two instances more than another that could have one."""
        zones = served(self.world, group)
        counts = [count for zone, count in group.per_zone().items() if count or zone in zones]
        return len(counts) > 1 and max(counts) - min(counts) > 1
