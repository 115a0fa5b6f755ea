"""Selects the instances that a scale-in terminates.

Follows the Amazon EC2 Auto Scaling User Guide, "Control which Auto Scaling instances terminate during scale in".
"""

from __future__ import annotations

from localcloud.aws.autoscaling.allocation import capacity, lacks_on_demand, scale_in_spot_first, weight_of
from localcloud.aws.autoscaling.launch_source import Source
from localcloud.aws.autoscaling.model import Group, Member


def instances_to_terminate(group: Group, source: Source | None) -> list[Member]:
    """The members to terminate. The desired capacity remains. `source` is the group's current launch source."""
    selected: list[Member] = []
    while True:
        rest = [m for m in group.counted_members() if m not in selected]
        excess = capacity(group, rest) - group.desired
        candidates = [m for m in rest if not m.protected and weight_of(group, m) <= excess]
        if not candidates:
            return selected
        option = scale_in_spot_first(group, rest)
        preferred = [m for m in candidates if m.spot is option]
        if not preferred and lacks_on_demand(group, rest):
            # Each On-Demand Instance that left would be launched again, forever.
            return selected
        candidates = preferred or candidates
        if "AZRebalance" not in group.suspended:
            candidates = instances_outside(group, candidates) or candidates
        zones = group.per_zone()
        for member in selected:
            zones[member.zone] -= 1
        fullest = max(zones[m.zone] for m in candidates)
        selected.append(first_by_termination_policy(group, source, [m for m in candidates if zones[m.zone] == fullest]))


def instances_outside(group: Group, members: list[Member]) -> list[Member]:
    """The members in zones that the group does not have anymore. Rebalancing terminates these first."""
    return [member for member in members if member.zone not in group.zones]


def first_by_termination_policy(group: Group, source: Source | None, candidates: list[Member]) -> Member:
    """The member that the group's termination policy selects first."""
    policy = group.termination_policies[0]
    if policy == "NewestInstance":
        return max(candidates, key=lambda m: m.launched)
    old = [m for m in candidates if source is None or (m.template, m.configuration) != (source.template, source.configuration)]
    return min(old if policy == "Default" and old else candidates, key=lambda m: m.launched)
