"""The launch source of a group: a launch template, a mixed instances policy or a launch configuration."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from localcloud.aws.autoscaling import run_instance
from localcloud.aws.autoscaling.allocation import override_instance_types, weights
from localcloud.aws.autoscaling.mixed_instances_policy import merge_policy
from localcloud.aws.autoscaling.model import Group
from localcloud.aws.errors import AwsError, validation_error

EXACTLY_ONE = "Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy parameter."
SPOT_AND_MIXED = (
    "Incompatible launch template: You cannot use a launch template that is set to request Spot Instances (InstanceMarketOptions) when you "
    "configure an Auto Scaling group with a mixed instances policy. Add a different launch template to the group and try again."
)
SPOT_AND_WARM = "You can't add a warm pool to an Auto Scaling group that launches Spot Instances."
WEIGHTS_AND_WARM = "You can't add a warm pool to an Auto Scaling group that uses a mixed instances policy with instance weights."


@dataclass(frozen=True)
class Source:
    """Launch data in the shape of a launch template's, and its origin: a template version or a launch configuration."""

    data: dict[str, Any]
    template: dict[str, str] = field(default_factory=dict)
    configuration: str | None = None

    @property
    def spot(self) -> bool:
        """Whether it requests Spot Instances."""
        return (self.data.get("InstanceMarketOptions") or {}).get("MarketType") == "spot"


def current_source(simulator: Any, group: Group) -> Source:
    """The current launch source of the group. Raises Auto Scaling's error if it is invalid."""
    if group.configuration:
        return Source(simulator.launch_configurations.get(group.configuration).launch_data(), {}, group.configuration)
    source = template_source(simulator, group.template_specification)
    if group.policy and source.spot:
        raise validation_error(SPOT_AND_MIXED)
    return source


def template_source(simulator: Any, specification: dict[str, Any]) -> Source:
    """The template version that a LaunchTemplateSpecification refers to now."""
    template, version = run_instance.resolve(simulator, specification)
    where = {"LaunchTemplateId": template.id, "LaunchTemplateName": template.name, "Version": str(version.number)}
    return Source(version.data, where)


def with_override(source: Source, group: Group, instance_type: str | None, spot: bool) -> Source:
    """The source with an instance type and a purchase option of the group's policy."""
    data = source.data | ({"InstanceType": instance_type} if instance_type else {})
    if spot:
        price = group.distribution.get("SpotMaxPrice")
        data["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": {"MaxPrice": price} if price else {}}
    return replace(source, data=data)


def named_template(params: dict[str, Any]) -> str | None:
    """The id or the name of the launch template in the parameters of a call, also of a mixed instances policy."""
    policy = (params.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}
    specification = params.get("LaunchTemplate") or policy.get("LaunchTemplateSpecification") or {}
    return specification.get("LaunchTemplateId") or specification.get("LaunchTemplateName")


def set_launch_source(simulator: Any, group: Group, params: dict[str, Any], subnets: list[str]) -> None:
    """Set the launch source of a group. It replaces a source of another kind. An invalid source changes nothing."""
    template, configuration, policy = (params.get(name) for name in ("LaunchTemplate", "LaunchConfigurationName", "MixedInstancesPolicy"))
    if sum(map(bool, (template, configuration, policy))) != 1:
        raise validation_error(EXACTLY_ONE)
    if configuration:
        simulator.launch_configurations.get(configuration)
    before = group.template, group.policy, group.configuration
    wanted = validate_policy(simulator, group, policy, subnets) if policy else None
    group.template = validate_template(simulator, template, subnets, {}) if template else {}
    group.policy, group.configuration = wanted, configuration or None
    try:
        if group.pool:
            reject_warm_pool(simulator, group)
    except AwsError:
        group.template, group.policy, group.configuration = before
        raise
    update_weights(group)


def reject_warm_pool(simulator: Any, group: Group) -> None:
    """Reject a warm pool for a group that launches Spot Instances or uses weights."""
    if weights(group):
        raise validation_error(WEIGHTS_AND_WARM)
    if group.policy and group.distribution["OnDemandPercentageAboveBaseCapacity"] < 100 or current_source(simulator, group).spot:
        raise validation_error(SPOT_AND_WARM)


def validate_policy(simulator: Any, group: Group, given: dict[str, Any], subnets: list[str]) -> dict[str, Any]:
    """Validate a mixed instances policy as Auto Scaling does, merged with the group's current one."""
    policy = merge_policy(group.policy, given)
    template, overrides = policy["LaunchTemplate"], policy["LaunchTemplate"]["Overrides"]
    first = {"InstanceType": overrides[0]["InstanceType"]} if overrides else {}
    specification = template["LaunchTemplateSpecification"]
    if group.policy and specification == group.policy["LaunchTemplate"]["LaunchTemplateSpecification"]:
        specification = group.template_specification
    if template_source(simulator, specification).spot:
        raise validation_error(SPOT_AND_MIXED)
    template["LaunchTemplateSpecification"] = validate_template(simulator, specification, subnets, first)
    check_weights(group, policy)
    return policy


def check_weights(group: Group, policy: dict[str, Any]) -> None:
    """Check that weights which are new to a group cover every instance type that runs in it."""
    overrides = policy["LaunchTemplate"]["Overrides"]
    if weights(group) or not any(override.get("WeightedCapacity") for override in overrides):
        return
    missing = sorted({member.instance_type for member in group.counted_members()} - {override["InstanceType"] for override in overrides})
    if missing:
        message = "The launch template overrides must include the instance types that are running in the group"
        raise validation_error(f"{message}: {', '.join(missing)}.")


def update_weights(group: Group) -> None:
    """Set the members' weights by the policy. A type that is no longer listed keeps its last weight."""
    known = weights(group)
    for member in group.members.values():
        member.weight = known.get(member.instance_type, member.weight) if known else None


def validate_template(simulator: Any, specification: dict[str, Any], subnets: list[str], changes: dict[str, Any]) -> dict[str, str]:
    """Validate a launch template as Auto Scaling does when a group refers to it."""
    source = template_source(simulator, specification)
    reason = run_instance.launch_problem(simulator, source.data | changes, subnets)
    if reason:
        raise validation_error(run_instance.PREFIX + reason)
    where = {key: source.template[key] for key in ("LaunchTemplateId", "LaunchTemplateName")}
    return where | ({"Version": str(specification["Version"])} if specification.get("Version") else {})


def offered_zones(simulator: Any, group: Group) -> list[str]:
    """The zones of the group that offer an instance type which it launches."""
    wanted = override_instance_types(group) or [run_instance.instance_type_of(current_source(simulator, group).data)]
    unsupported_reason = simulator.instance_type_catalog.unsupported_reason
    return [zone for zone in group.zones if not all(unsupported_reason(instance_type, zone) for instance_type in wanted)]
