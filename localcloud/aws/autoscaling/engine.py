"""Reconciles scaling groups with their desired capacity.

Every method runs while holding the simulator's lock. Delays use the simulator's timers. Follows the Amazon EC2 Auto
Scaling User Guide: "Amazon EC2 Auto Scaling instance lifecycle", "Suspend and resume processes", "Control which
instances terminate".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from localcloud.aws.autoscaling.allocation import capacity, purchase_options_unbalanced, weight_of, weights
from localcloud.aws.autoscaling.launch_source import Source, current_source, offered_zones
from localcloud.aws.autoscaling.model import Group, Member
from localcloud.aws.autoscaling.scale_in import instances_outside, instances_to_terminate
from localcloud.aws.autoscaling.warm_pools import WarmPools
from localcloud.aws.errors import AwsError


class Engine(WarmPools):
    """The scaling groups of the region, and the control loop that reconciles them."""

    def __init__(self, simulator: Any) -> None:
        self.simulator = simulator
        self.groups: dict[str, Group] = {}
        self.deleted_activities: list[dict[str, Any]] = []
        self.launch_failures: dict[tuple[str, str | None, str | None], tuple[str, str]] = {}
        self.launch_ends: dict[str, tuple[str, str]] = {}
        self.decrements_by_weight: set[str] = set()
        self._queued: set[str] = set()

    def member(self, identifier: str) -> tuple[Group, Member] | None:
        """The member or warm pool instance with that instance id, and its group. None if there is none."""
        for group in self.groups.values():
            for where in (group.members, group.warm):
                if identifier in where:
                    return group, where[identifier]
        return None

    def reconcile_soon(self, group: Group, delay: float = 0.0) -> None:
        """Schedule a reconcile of the group. Several requests without a delay are merged into one."""
        if delay == 0.0:
            if group.name in self._queued:
                return
            self._queued.add(group.name)
        self.simulator.timers.after(delay, lambda: self.reconcile(group))

    def reconcile(self, group: Group) -> None:
        """Bring a group closer to its desired state."""
        self._queued.discard(group.name)
        if self.groups.get(group.name) is not group:
            return
        if group.deleting:
            for member in group.all_instances():
                self.terminate(group, member, "the group was deleted with force")
            if not group.all_instances():
                self.remove(group)
            return
        self.replace_unhealthy(group, group.counted_members())
        current_capacity = capacity(group, group.counted_members())
        if current_capacity < group.desired:
            self.scale_out(group, current_capacity)
        elif not self.rebalance_in_progress(group) and not (current_capacity > group.desired and self.scale_in(group, current_capacity)):
            if current_capacity == group.desired or weights(group):
                self.rebalance(group)
        self.reconcile_warm_pool(group)

    def scale_out(self, group: Group, current_capacity: int) -> None:
        """Take instances from the warm pool, then launch, until the desired capacity is reached or a launch fails."""
        if "Launch" in group.suspended or group.launch_backoff:
            return
        why = f"increasing the capacity from {current_capacity} to {group.desired}"
        while capacity(group, group.counted_members()) < group.desired:
            next_warm_instance = self.next_warm_instance(group)
            if next_warm_instance:
                self.start_from_pool(group, next_warm_instance, why)
            elif not self.launch(group, why):
                return

    def scale_in(self, group: Group, current_capacity: int) -> bool:
        """Terminate excess instances. Returns whether there were any."""
        if "Terminate" in group.suspended:
            return False
        selected = instances_to_terminate(group, self.find_source(group))
        to_pool = selected[: self.reusable_slots(group)]
        for member in to_pool:
            self.return_to_pool(group, member)
        for member in selected[len(to_pool) :]:
            self.terminate(group, member, f"shrinking the capacity from {current_capacity} to {group.desired}")
        return bool(selected)

    def find_source(self, group: Group) -> Source | None:
        """The launch source of the group, or None if it is invalid."""
        try:
            return current_source(self.simulator, group)
        except AwsError:
            return None

    def decrement(self, group: Group, member: Member) -> int:
        """By how much a decrement lowers the desired capacity when this member leaves.

        The Amazon EC2 Auto Scaling API Reference, TerminateInstanceInAutoScalingGroup, says only that the size of the group is
        decremented. So it is one, or the member's weight where the control endpoint asks for it.
        """
        return weight_of(group, member) if {group.name, "*"} & self.decrements_by_weight else 1

    def remove(self, group: Group) -> None:
        """Delete a group."""
        self.deleted_activities += group.activities
        self.groups.pop(group.name, None)
        self.simulator.log.state("group", group.name, state="gone")

    def replace_unhealthy(self, group: Group, members: Iterable[Member]) -> None:
        """Terminate instances that failed their health check."""
        if {"ReplaceUnhealthy", "Terminate"} & set(group.suspended):
            return
        for member in list(members):
            if member.health == "Unhealthy":
                self.terminate(group, member, f"in response to {self.failed_health_check(member)}")

    def failed_health_check(self, member: Member) -> str:
        """What AWS calls it (AWS re:Post knowledge center, "Why did Amazon EC2 Auto Scaling terminate an instance?")."""
        if self.simulator.ec2.get_instance(member.id).state in ("pending", "running"):
            return "a user health-check" if member.is_marked_unhealthy else "an EC2 instance status checks failure"
        return "an EC2 health check indicating it has been terminated or stopped"

    def rebalance_in_progress(self, group: Group) -> bool:
        """Whether the instance that rebalancing launched is not in service yet."""
        member = group.members.get(group.rebalance_instance or "")
        if member is None or member.state == "InService" or not member.counts:
            group.rebalance_instance = None
            return False
        return True

    def rebalance(self, group: Group) -> None:
        """Move one instance: launch first, then terminate.

        It moves from the zone with the most instances to the one with the fewest, or to the purchase option that the
        policy requires more of.
        """
        if {"Launch", "Terminate"} & set(group.suspended) or group.launch_backoff or self.find_source(group) is None:
            return
        if not all(member.state in ("InService", "Standby") for member in group.members.values()):
            return
        if "AZRebalance" not in group.suspended and self.zones_unbalanced(group):
            why = "rebalancing the Availability Zones"
        elif purchase_options_unbalanced(group):
            why = "rebalancing the purchase options"
        else:
            return
        launched = self.launch(group, why, rebalances=True)
        group.rebalance_instance = launched.id if launched else None

    def zones_unbalanced(self, group: Group) -> bool:
        """Whether one zone has two instances more than another one that offers the type, or the group no longer has a zone.

        Amazon EC2 Auto Scaling User Guide, "Auto Scaling benefits", Rebalancing activities: a change of the group's
        Availability Zones leads to rebalancing, which also empties a zone that was removed.
        """
        zones = offered_zones(self.simulator, group)
        if zones and instances_outside(group, group.counted_members()):
            return True
        counts = [count for zone, count in group.per_zone().items() if count or zone in zones]
        return len(counts) > 1 and max(counts) - min(counts) > 1
