"""The Auto Scaling actions, put into moto's dispatcher over our own groups."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult

from localcloud.aws.autoscaling import instance_launch as launch, launch_source as source
from localcloud.aws.autoscaling.launch_configuration_operations import ConfigurationActions
from localcloud.aws.autoscaling.process_operations import ProcessActions
from localcloud.aws.autoscaling.standby_operations import StandbyActions
from localcloud.aws.autoscaling.warm_pool_operations import WarmPoolActions
from localcloud.aws.errors import Refused, invalid
from localcloud.aws.autoscaling.group_validation import check_common, check_hook, check_name, check_sizes, put_tags
from localcloud.aws.autoscaling.lookup import engine, group_of, member_of, members_of, params_of
from localcloud.aws.autoscaling.descriptions import describe_group, describe_member, group_matches, page
from localcloud.aws.autoscaling.model import GONE_OR_GOING, STANDBY, Group, Member, now
from localcloud.aws.autoscaling.lifecycle import hook_from


SOURCES = ("LaunchTemplate", "LaunchConfigurationName", "MixedInstancesPolicy")


def mend(world: Any) -> None:
    """Put these actions into moto."""
    for actions in (GroupActions, ProcessActions, StandbyActions, ConfigurationActions, WarmPoolActions):
        for name, method in vars(actions).items():
            if not name.startswith("_"):
                setattr(AutoScalingResponse, name, method)
    AutoScalingResponse.world = world


class GroupActions:
    """Methods for moto's response class; `self` is that class's instance."""

    def create_auto_scaling_group(self) -> ActionResult:
        params, world = params_of(self), self.world
        name = check_name(params.get("AutoScalingGroupName"))
        check_common(params)
        if name in engine(self).groups:
            raise Refused("AlreadyExists", f"AutoScalingGroup by this name already exists - A group with the name {name} already exists")
        check_sizes(params.get("MinSize"), params.get("MaxSize"), params.get("DesiredCapacity"))
        if not params.get("VPCZoneIdentifier"):
            raise invalid("At least one Availability Zone or VPC Subnet is required.")
        subnets, zones = launch.check_subnets(world, params["VPCZoneIdentifier"])
        hooks = params.get("LifecycleHookSpecificationList", [])
        for hook in hooks:
            check_hook(hook, None)
        low, desired = params["MinSize"], params.get("DesiredCapacity")
        arn = f"arn:aws:autoscaling:{world.settings.region}:{world.settings.account}:autoScalingGroup:{uuid4()}:autoScalingGroupName/{name}"
        group = Group(name, arn, low, params["MaxSize"], low if desired is None else desired, subnets, zones, now())
        source.take(world, group, params, subnets)
        put_tags(group, params.get("Tags", []))
        set_options(group, params)
        group.hooks = {hook["LifecycleHookName"]: hook_from(hook) for hook in hooks}
        engine(self).groups[name] = group
        engine(self).poke(group)
        return EmptyResult()

    def update_auto_scaling_group(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        check_common(params)
        low, high = params.get("MinSize", group.min_size), params.get("MaxSize", group.max_size)
        check_sizes(low, high, params.get("DesiredCapacity"))
        subnets, zones = group.subnets, group.zones
        if params.get("VPCZoneIdentifier"):
            subnets, zones = launch.check_subnets(self.world, params["VPCZoneIdentifier"])
        if any(params.get(name) for name in SOURCES):
            source.take(self.world, group, params, subnets)
        group.subnets, group.zones = subnets, zones
        group.min_size, group.max_size = low, high
        group.desired = params.get("DesiredCapacity", min(max(group.desired, low), high))
        set_options(group, params)
        group.relaunch_due = False
        engine(self).poke(group)
        return EmptyResult()

    def delete_auto_scaling_group(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        if group.everyone() and not params.get("ForceDelete"):
            raise Refused(
                "ResourceInUse",
                "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) still in the group.",
            )
        if not group.everyone():
            engine(self).remove(group)
            return EmptyResult()
        group.deleting, group.desired, group.min_size, group.max_size = True, 0, 0, 0
        engine(self).poke(group)
        return EmptyResult()

    def set_desired_capacity(self) -> ActionResult:
        params = params_of(self)
        group, wanted = group_of(self, params.get("AutoScalingGroupName")), params["DesiredCapacity"]
        for bad, word, bound in (
            (wanted > group.max_size, "above max", group.max_size),
            (wanted < group.min_size, "below min", group.min_size),
        ):
            if bad:
                raise invalid(f"New SetDesiredCapacity value {wanted} is {word} value {bound} for the AutoScalingGroup.")
        group.desired = wanted
        engine(self).poke(group)
        return EmptyResult()

    def describe_auto_scaling_groups(self) -> ActionResult:
        params = params_of(self)
        names, size = params.get("AutoScalingGroupNames", []), params.get("MaxRecords")
        groups = engine(self).groups
        if len(names) > (size or 50):
            raise invalid(f"The number of group names that may be passed in is limited to {size or 50}")
        found = [groups[name] for name in dict.fromkeys(names) if name in groups] if names else list(groups.values())
        for condition in params.get("Filters", []):
            found = [g for g in found if group_matches(g, condition["Name"], condition.get("Values", []))]
        found, token = page(found, params.get("NextToken"), size)
        account = self.world.settings.account
        return ActionResult({"AutoScalingGroups": [describe_group(g, account) for g in found], "NextToken": token})

    def describe_auto_scaling_instances(self) -> ActionResult:
        params = params_of(self)
        wanted = set(params.get("InstanceIds", []))
        pairs = [(g, m) for g in engine(self).groups.values() for m in g.everyone() if not wanted or m.id in wanted]
        pairs, token = page(pairs, params.get("NextToken"), params.get("MaxRecords"), limit=50)
        items = [describe_member(m) | {"AutoScalingGroupName": g.name, "HealthStatus": m.health.upper()} for g, m in pairs]
        return ActionResult({"AutoScalingInstances": items, "NextToken": token})

    def describe_scaling_activities(self) -> ActionResult:
        params = params_of(self)
        name, wanted = params.get("AutoScalingGroupName"), params.get("ActivityIds", [])
        found = [a for g in engine(self).groups.values() for a in g.activities]
        if params.get("IncludeDeletedGroups"):
            found += engine(self).deleted_activities
        if name:
            found = [a for a in found if a["AutoScalingGroupName"] == name]
            if not found and name not in engine(self).groups:
                raise invalid(f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")
        if wanted:
            found = [a for a in found if a["ActivityId"] in wanted]
        found.sort(key=lambda activity: activity["StartTime"], reverse=True)
        found, token = page(found, params.get("NextToken"), params.get("MaxRecords"), default=100)
        return ActionResult({"Activities": found, "NextToken": token})

    def terminate_instance_in_auto_scaling_group(self) -> ActionResult:
        params = params_of(self)
        group, member = member_of(self, params.get("InstanceId"))
        if member.warm:
            raise invalid(f"The instance {member.id} is in a warm pool. This operation cannot be called on instances in a warm pool.")
        decrement = params.get("ShouldDecrementDesiredCapacity", False)
        if member.state not in GONE_OR_GOING:
            if decrement:
                shrink(group, [member], "Terminating instance without replacement")
            engine(self).terminate(group, member, "in response to a user request")
        return ActionResult({"Activity": member.activity})

    def set_instance_health(self) -> ActionResult:
        params = params_of(self)
        group, member = member_of(self, params.get("InstanceId"))
        if params.get("HealthStatus") not in ("Healthy", "Unhealthy"):
            raise invalid("Valid instance health states are: [Healthy, Unhealthy]")
        member.health = params["HealthStatus"]
        engine(self).poke(group)
        return EmptyResult()

    def set_instance_protection(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        members = members_of(group, params.get("InstanceIds", []))
        for member in members:
            if member.state not in ("InService", *STANDBY):
                raise invalid(f"The instance {member.id} is not in InService or EnteringStandby or Standby.")
        for member in members:
            member.protected = params["ProtectedFromScaleIn"]
        return EmptyResult()


def set_options(group: Group, params: dict[str, Any]) -> None:
    """The plain settings that creation and update share."""
    names = {
        "DefaultCooldown": "cooldown",
        "HealthCheckType": "health_check_type",
        "HealthCheckGracePeriod": "health_check_grace",
        "TerminationPolicies": "termination_policies",
        "NewInstancesProtectedFromScaleIn": "protect_new",
        "CapacityRebalance": "capacity_rebalance",
        "MaxInstanceLifetime": "max_instance_lifetime",
    }
    for name, attribute in names.items():
        if params.get(name) is not None:
            setattr(group, attribute, params[name])


def shrink(group: Group, members: list[Member], doing: str) -> None:
    """Lower the desired capacity with the members that leave, never below the minimum."""
    if group.desired - len(members) < group.min_size:
        raise invalid(
            f"Currently, desiredSize equals minSize ({group.min_size}). {doing} will violate group's min size constraint. "
            "Either set shouldDecrementDesiredCapacity flag to false or lower group's min size."
        )
    group.desired -= len(members)
