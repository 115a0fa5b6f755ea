"""What Auto Scaling refuses in a mixed instances policy, and what it adds to one.

Follows the Amazon EC2 Auto Scaling API Reference: MixedInstancesPolicy, InstancesDistribution and LaunchTemplateOverrides.
"""

from __future__ import annotations

import re
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from localcloud.aws.errors import Refused, invalid
from localcloud.aws.ec2.spot_options import is_price

ON_DEMAND = ("prioritized", "lowest-price")
SPOT = ("lowest-price", "capacity-optimized", "capacity-optimized-prioritized", "price-capacity-optimized")
OVERRIDES = 40
POOLS = 2


def merged(before: dict[str, Any] | None, given: dict[str, Any]) -> dict[str, Any]:
    """The policy after a call: what the call leaves out stays, or is AWS's default."""
    template, old = given.get("LaunchTemplate") or {}, before or {"LaunchTemplate": {}, "InstancesDistribution": {}}
    specification = template.get("LaunchTemplateSpecification") or old["LaunchTemplate"].get("LaunchTemplateSpecification")
    if not specification:
        raise invalid("MixedInstancesPolicy must contain a LaunchTemplate with a LaunchTemplateSpecification.")
    overrides = template.get("Overrides", old["LaunchTemplate"].get("Overrides", []))
    check_overrides(overrides)
    return {
        "LaunchTemplate": {"LaunchTemplateSpecification": specification, "Overrides": overrides},
        "InstancesDistribution": distribution(old["InstancesDistribution"], given.get("InstancesDistribution") or {}),
    }


def check_overrides(overrides: list[dict[str, Any]]) -> None:
    """Instance types and their weights: all have one or none has."""
    if len(overrides) > OVERRIDES:
        raise invalid(f"The number of launch template overrides, {len(overrides)}, exceeds the limit of {OVERRIDES}.")
    for override in overrides:
        for name in ("LaunchTemplateSpecification", "InstanceRequirements", "ImageId"):
            if override.get(name):
                raise Refused("NotSimulated", f"{name} of an override is not simulated")
        kind = override.get("InstanceType")
        if kind not in INSTANCE_TYPES:
            raise invalid(f"The instance type '{kind}' of a launch template override does not exist.")
    weights = [override.get("WeightedCapacity") for override in overrides]
    if any(weights) and not all(weights):
        raise invalid("WeightedCapacity must be specified for all launch template overrides, or for none of them.")
    for weight in filter(None, weights):
        if not re.fullmatch(r"[1-9]\d{0,2}", str(weight)):
            raise invalid(f"Invalid WeightedCapacity: {weight}. It must be between 1 and 999.")


def distribution(before: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The instances distribution after a call."""
    if given.get("DistributionSegments"):
        raise Refused("NotSimulated", "DistributionSegments are not simulated")
    wanted = {
        "OnDemandAllocationStrategy": "prioritized",
        "OnDemandBaseCapacity": 0,
        "OnDemandPercentageAboveBaseCapacity": 100,
        "SpotAllocationStrategy": "lowest-price",
        **before,
        **given,
    }
    check_strategies(wanted)
    pools = wanted.pop("SpotInstancePools", None) or POOLS
    if wanted["SpotAllocationStrategy"] == "lowest-price":
        if not 1 <= pools <= 20:
            raise invalid(f"Invalid SpotInstancePools: {pools}. It must be between 1 and 20.")
        wanted["SpotInstancePools"] = pools
    elif given.get("SpotInstancePools"):
        raise invalid("SpotInstancePools option is only available with the lowest-price allocation strategy.")
    if not wanted.get("SpotMaxPrice"):
        wanted.pop("SpotMaxPrice", None)
    elif not is_price(wanted["SpotMaxPrice"]):
        raise invalid(f"Invalid SpotMaxPrice: {wanted['SpotMaxPrice']}")
    return wanted


def check_strategies(wanted: dict[str, Any]) -> None:
    """Names of strategies, and the share of On-Demand."""
    for name, allowed in (("OnDemandAllocationStrategy", ON_DEMAND), ("SpotAllocationStrategy", SPOT)):
        if wanted[name] not in allowed:
            raise invalid(f"Invalid {name}: {wanted[name]}. Valid values: {', '.join(allowed)}")
    if wanted["OnDemandBaseCapacity"] < 0:
        raise invalid("OnDemandBaseCapacity must not be negative.")
    if not 0 <= wanted["OnDemandPercentageAboveBaseCapacity"] <= 100:
        raise invalid("OnDemandPercentageAboveBaseCapacity must be between 0 and 100.")
