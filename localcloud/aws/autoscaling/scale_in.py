"""Whom a scale-in terminates.

Follows the Amazon EC2 Auto Scaling User Guide, "Control which Auto Scaling instances terminate during scale in".
"""

from __future__ import annotations

from localcloud.aws.autoscaling.model import Group, Member
from localcloud.aws.autoscaling.allocation import capacity, leaves_first, weight_of
from localcloud.aws.autoscaling.launch_source import Source


def victims(group: Group, source: Source | None) -> list[Member]:
    """Members to terminate, so that the desired capacity is still there; the source is what the group launches now."""
    chosen: list[Member] = []
    while True:
        rest = [m for m in group.counted() if m not in chosen]
        spare = capacity(group, rest) - group.desired
        left = [m for m in rest if not m.protected and weight_of(group, m) <= spare]
        if not left:
            return chosen
        option = leaves_first(group, rest)
        left = [m for m in left if m.spot is option] or left
        zones = group.per_zone()
        for member in chosen:
            zones[member.zone] -= 1
        fullest = max(zones[m.zone] for m in left)
        chosen.append(worst(group, source, [m for m in left if zones[m.zone] == fullest]))


def worst(group: Group, source: Source | None, left: list[Member]) -> Member:
    """The first to go by the group's termination policy."""
    policy = group.termination_policies[0]
    if policy == "NewestInstance":
        return max(left, key=lambda m: m.launched)
    old = [m for m in left if source is None or (m.template, m.configuration) != (source.template, source.configuration)]
    return min(old if policy == "Default" and old else left, key=lambda m: m.launched)
