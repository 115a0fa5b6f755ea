"""Validation and defaults of mixed instances policies.

Follows the Amazon EC2 Auto Scaling API Reference: MixedInstancesPolicy, InstancesDistribution and
LaunchTemplateOverrides.
"""

from __future__ import annotations

import re
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from localcloud.aws.ec2.spot_options import is_price
from localcloud.aws.errors import AwsError, validation_error

ON_DEMAND_STRATEGIES = ("prioritized", "lowest-price")
SPOT_STRATEGIES = ("lowest-price", "capacity-optimized", "capacity-optimized-prioritized", "price-capacity-optimized")
MAX_OVERRIDES = 40
DEFAULT_SPOT_POOLS = 2


def merge_policy(before: dict[str, Any] | None, given: dict[str, Any]) -> dict[str, Any]:
    """The policy after a call. Omitted fields keep their values, or get AWS's defaults."""
    template, old = given.get("LaunchTemplate") or {}, before or {"LaunchTemplate": {}, "InstancesDistribution": {}}
    specification = template.get("LaunchTemplateSpecification") or old["LaunchTemplate"].get("LaunchTemplateSpecification")
    if not specification:
        raise validation_error("MixedInstancesPolicy must contain a LaunchTemplate with a LaunchTemplateSpecification.")
    overrides = template.get("Overrides", old["LaunchTemplate"].get("Overrides", []))
    check_overrides(overrides)
    return {
        "LaunchTemplate": {"LaunchTemplateSpecification": specification, "Overrides": overrides},
        "InstancesDistribution": merge_distribution(old["InstancesDistribution"], given.get("InstancesDistribution") or {}),
    }


def check_overrides(overrides: list[dict[str, Any]]) -> None:
    """Check instance types and weights. Either all overrides have a weight, or none."""
    if len(overrides) > MAX_OVERRIDES:
        raise validation_error(f"The number of launch template overrides, {len(overrides)}, exceeds the limit of {MAX_OVERRIDES}.")
    for override in overrides:
        for name in ("LaunchTemplateSpecification", "InstanceRequirements", "ImageId"):
            if override.get(name):
                raise AwsError("NotSimulated", f"{name} of an override is not simulated")
        kind = override.get("InstanceType")
        if kind not in INSTANCE_TYPES:
            raise validation_error(f"The instance type '{kind}' of a launch template override does not exist.")
    weights = [override.get("WeightedCapacity") for override in overrides]
    if any(weights) and not all(weights):
        raise validation_error("WeightedCapacity must be specified for all launch template overrides, or for none of them.")
    for weight in filter(None, weights):
        if not re.fullmatch(r"[1-9]\d{0,2}", str(weight)):
            raise validation_error(f"Invalid WeightedCapacity: {weight}. It must be between 1 and 999.")


def merge_distribution(before: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The instances distribution after a call."""
    if given.get("DistributionSegments"):
        raise AwsError("NotSimulated", "DistributionSegments are not simulated")
    wanted = {
        "OnDemandAllocationStrategy": "prioritized",
        "OnDemandBaseCapacity": 0,
        "OnDemandPercentageAboveBaseCapacity": 100,
        "SpotAllocationStrategy": "lowest-price",
        **before,
        **given,
    }
    check_strategies(wanted)
    pools = wanted.pop("SpotInstancePools", None) or DEFAULT_SPOT_POOLS
    if wanted["SpotAllocationStrategy"] == "lowest-price":
        if not 1 <= pools <= 20:
            raise validation_error(f"Invalid SpotInstancePools: {pools}. It must be between 1 and 20.")
        wanted["SpotInstancePools"] = pools
    elif given.get("SpotInstancePools"):
        raise validation_error("SpotInstancePools option is only available with the lowest-price allocation strategy.")
    if not wanted.get("SpotMaxPrice"):
        wanted.pop("SpotMaxPrice", None)
    elif not is_price(wanted["SpotMaxPrice"]):
        raise validation_error(f"Invalid SpotMaxPrice: {wanted['SpotMaxPrice']}")
    return wanted


def check_strategies(wanted: dict[str, Any]) -> None:
    """Check the names of strategies, and the On-Demand share."""
    for name, allowed in (("OnDemandAllocationStrategy", ON_DEMAND_STRATEGIES), ("SpotAllocationStrategy", SPOT_STRATEGIES)):
        if wanted[name] not in allowed:
            raise validation_error(f"Invalid {name}: {wanted[name]}. Valid values: {', '.join(allowed)}")
    if wanted["OnDemandBaseCapacity"] < 0:
        raise validation_error("OnDemandBaseCapacity must not be negative.")
    if not 0 <= wanted["OnDemandPercentageAboveBaseCapacity"] <= 100:
        raise validation_error("OnDemandPercentageAboveBaseCapacity must be between 0 and 100.")
