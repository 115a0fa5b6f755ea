"""The purchase options and instance types that a mixed instances policy launches.

Pure: these functions only read groups. Follows the Amazon EC2 Auto Scaling User Guide: "Auto Scaling groups with
multiple instance types and purchase options", "Allocation strategies" and "Configure an Auto Scaling group to use
instance weights". Instead of market prices, a type's price is computed from its vCPUs and memory. Instead of spare Spot
capacity, the types with the fewest running instances of the group come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from moto.ec2.models.instance_types import INSTANCE_TYPES

from localcloud.aws.autoscaling.model import Group, Member

GIB = 1024
MEMORY_SHARE = 0.1
"""The price of a GiB of memory, as a share of the price of a vCPU."""


def override_instance_types(group: Group) -> list[str]:
    """The instance types of the policy's overrides, without duplicates. An empty list means the template's own type."""
    return list(dict.fromkeys(o["InstanceType"] for o in group.overrides if o.get("InstanceType")))


def weights(group: Group) -> dict[str, int]:
    """The weight of each type. Empty if the group counts instances."""
    return {o["InstanceType"]: int(o["WeightedCapacity"]) for o in group.overrides if o.get("WeightedCapacity")}


def weight_of(group: Group, member: Member) -> int:
    """A member's weight: the policy's, or its last known one. 1 if the group counts instances."""
    known = weights(group)
    return known.get(member.instance_type, member.weight or 1) if known else 1


def capacity(group: Group, members: Iterable[Member]) -> int:
    """The total capacity of these members."""
    return sum(weight_of(group, member) for member in members)


def on_demand_target(group: Group, total: int | None = None) -> int:
    """The On-Demand part of a capacity, the desired one by default: the base, and a share of the rest, rounded up."""
    total = group.desired if total is None else total
    base = min(total, group.distribution["OnDemandBaseCapacity"])
    return base + -(-(total - base) * group.distribution["OnDemandPercentageAboveBaseCapacity"] // 100)


def on_demand(group: Group, members: Iterable[Member]) -> int:
    """The On-Demand capacity of these members."""
    return capacity(group, [member for member in members if not member.spot])


def next_is_spot(group: Group) -> bool:
    """Whether a mixed group launches a Spot Instance next. The On-Demand part is filled first, also above the desired capacity."""
    members = group.counted_members()
    if capacity(group, members) >= group.desired and not purchase_options_unbalanced(group):
        # It moves an instance to another zone. Scale-in takes one of the fullest zone next, and not what was launched.
        zones = group.per_zone()
        leaving = [m for m in members if m.zone not in group.zones] or [m for m in members if zones[m.zone] == max(zones.values())]
        if not any(member.spot for member in leaving):
            return False
    return on_demand(group, members) >= on_demand_target(group, max(group.desired, capacity(group, members) + 1))


def scale_in_spot_first(group: Group, members: list[Member]) -> bool | None:
    """Whether scale-in takes Spot Instances (True) or On-Demand Instances (False) first. None without a policy."""
    if group.policy is None:
        return None
    target, have = on_demand_target(group), on_demand(group, members)
    return lacks_on_demand(group, members) or not any(not m.spot and have - weight_of(group, m) >= target for m in members)


def lacks_on_demand(group: Group, members: list[Member]) -> bool:
    """Whether the members have less On-Demand capacity than the policy requires."""
    return group.policy is not None and on_demand(group, members) < on_demand_target(group)


def purchase_options_unbalanced(group: Group) -> bool:
    """Whether a member has a purchase option of which the group has more than the policy requires."""
    members = group.counted_members()
    if group.policy is None or not members:
        return False
    if lacks_on_demand(group, members):
        return any(member.spot for member in members)
    return not scale_in_spot_first(group, members)


def relative_price(instance_type: str) -> float:
    """A relative price that grows with the type's size."""
    facts = INSTANCE_TYPES.get(instance_type)
    return facts["VCpuInfo"]["DefaultVCpus"] + MEMORY_SHARE * facts["MemoryInfo"]["SizeInMiB"] / GIB if facts else float("inf")


def instance_type_order(group: Group, spot: bool, zone: str) -> list[str]:
    """The types to try in a zone, in order of preference."""
    listed, known = override_instance_types(group), weights(group)
    strategy = group.distribution["SpotAllocationStrategy" if spot else "OnDemandAllocationStrategy"]
    if strategy in ("prioritized", "capacity-optimized-prioritized"):
        return listed
    by_price = sorted(listed, key=lambda instance_type: (relative_price(instance_type) / known.get(instance_type, 1), instance_type))
    if not spot:
        return by_price
    running = Counter(m.instance_type for m in group.counted_members() if m.spot and m.zone == zone)
    if strategy == "lowest-price":
        pools = group.distribution["SpotInstancePools"]
        return sorted(by_price[:pools], key=lambda instance_type: running[instance_type]) + by_price[pools:]
    order = by_price if strategy == "price-capacity-optimized" else listed
    return sorted(order, key=lambda instance_type: running[instance_type])
