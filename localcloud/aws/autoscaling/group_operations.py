"""The Auto Scaling operations on groups and their instances."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult

from localcloud.aws.autoscaling import launch_source, run_instance
from localcloud.aws.autoscaling.descriptions import describe_group, describe_member, group_matches, page
from localcloud.aws.autoscaling.group_validation import check_common, check_hook, check_name, check_sizes, put_tags
from localcloud.aws.autoscaling.launch_configuration_operations import LaunchConfigurationOperations
from localcloud.aws.autoscaling.lifecycle import parse_hook
from localcloud.aws.autoscaling.lookup import engine, get_group, get_member, get_members, request_params
from localcloud.aws.autoscaling.model import STANDBY, TERMINATING_STATES, Group, Member, now
from localcloud.aws.autoscaling.process_operations import ProcessOperations
from localcloud.aws.autoscaling.standby_operations import StandbyOperations
from localcloud.aws.autoscaling.warm_pool_operations import WarmPoolOperations
from localcloud.aws.errors import AwsError, validation_error
from localcloud.aws.iam import callers


LAUNCH_SOURCES = ("LaunchTemplate", "LaunchConfigurationName", "MixedInstancesPolicy")


def install(simulator: Any) -> None:
    """Add the Auto Scaling operations to moto."""
    for operations in (GroupOperations, ProcessOperations, StandbyOperations, LaunchConfigurationOperations, WarmPoolOperations):
        for name, method in vars(operations).items():
            if not name.startswith("_"):
                setattr(AutoScalingResponse, name, method)
    AutoScalingResponse.simulator = simulator


class GroupOperations:
    """Methods for moto's response class. `self` is an instance of that class."""

    def create_auto_scaling_group(self) -> ActionResult:
        params, simulator = request_params(self), self.simulator
        name = check_name(params.get("AutoScalingGroupName"))
        check_common(params)
        if name in engine(self).groups:
            raise AwsError("AlreadyExists", f"AutoScalingGroup by this name already exists - A group with the name {name} already exists")
        check_sizes(params.get("MinSize"), params.get("MaxSize"), params.get("DesiredCapacity"))
        if not params.get("VPCZoneIdentifier"):
            raise validation_error("At least one Availability Zone or VPC Subnet is required.")
        subnets, zones = run_instance.check_subnets(simulator, params["VPCZoneIdentifier"])
        hooks = params.get("LifecycleHookSpecificationList", [])
        for hook in hooks:
            check_hook(hook, None)
        low, desired = params["MinSize"], params.get("DesiredCapacity")
        arn = f"arn:aws:autoscaling:{simulator.settings.region}:{simulator.settings.account}"
        arn += f":autoScalingGroup:{uuid4()}:autoScalingGroupName/{name}"
        group = Group(name, arn, low, params["MaxSize"], low if desired is None else desired, subnets, zones, now())
        callers.check_launch_template(simulator, self, launch_source.named_template(params))
        launch_source.set_launch_source(simulator, group, params, subnets)
        put_tags(group, params.get("Tags", []))
        apply_options(group, params)
        group.hooks = {hook["LifecycleHookName"]: parse_hook(hook) for hook in hooks}
        engine(self).groups[name] = group
        engine(self).reconcile_soon(group)
        return EmptyResult()

    def update_auto_scaling_group(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        check_common(params)
        low, high = params.get("MinSize", group.min_size), params.get("MaxSize", group.max_size)
        check_sizes(low, high, params.get("DesiredCapacity"))
        subnets, zones = group.subnets, group.zones
        if params.get("VPCZoneIdentifier"):
            subnets, zones = run_instance.check_subnets(self.simulator, params["VPCZoneIdentifier"])
        if any(params.get(name) for name in LAUNCH_SOURCES):
            callers.check_launch_template(self.simulator, self, launch_source.named_template(params))
            launch_source.set_launch_source(self.simulator, group, params, subnets)
        group.subnets, group.zones = subnets, zones
        group.min_size, group.max_size = low, high
        group.desired = params.get("DesiredCapacity", min(max(group.desired, low), high))
        apply_options(group, params)
        group.launch_backoff = False
        engine(self).reconcile_soon(group)
        return EmptyResult()

    def delete_auto_scaling_group(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        # Amazon EC2 Auto Scaling User Guide, "Protect your Auto Scaling group from deletion". The wording of the error is not documented.
        refusing = ("prevent-all-deletion", "prevent-force-deletion") if params.get("ForceDelete") else ("prevent-all-deletion",)
        if group.deletion_protection in refusing:
            raise validation_error(f"AutoScalingGroup {group.name} cannot be deleted: its deletion protection is {group.deletion_protection}.")
        if group.all_instances() and not params.get("ForceDelete"):
            raise AwsError(
                "ResourceInUse",
                "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) still in the group.",
            )
        if not group.all_instances():
            engine(self).remove(group)
            return EmptyResult()
        group.deleting, group.desired, group.min_size, group.max_size = True, 0, 0, 0
        engine(self).reconcile_soon(group)
        return EmptyResult()

    def set_desired_capacity(self) -> ActionResult:
        params = request_params(self)
        group, wanted = get_group(self, params.get("AutoScalingGroupName")), params["DesiredCapacity"]
        for bad, word, bound in (
            (wanted > group.max_size, "above max", group.max_size),
            (wanted < group.min_size, "below min", group.min_size),
        ):
            if bad:
                raise validation_error(f"New SetDesiredCapacity value {wanted} is {word} value {bound} for the AutoScalingGroup.")
        group.desired = wanted
        engine(self).reconcile_soon(group)
        return EmptyResult()

    def describe_auto_scaling_groups(self) -> ActionResult:
        params = request_params(self)
        names, size = params.get("AutoScalingGroupNames", []), params.get("MaxRecords")
        groups = engine(self).groups
        if len(names) > (size or 50):
            raise validation_error(f"The number of group names that may be passed in is limited to {size or 50}")
        found = [groups[name] for name in dict.fromkeys(names) if name in groups] if names else list(groups.values())
        for condition in params.get("Filters", []):
            found = [g for g in found if group_matches(g, condition["Name"], condition.get("Values", []))]
        found, token = page(found, params.get("NextToken"), size)
        account = self.simulator.settings.account
        return ActionResult({"AutoScalingGroups": [describe_group(g, account) for g in found], "NextToken": token})

    def describe_auto_scaling_instances(self) -> ActionResult:
        params = request_params(self)
        wanted = set(params.get("InstanceIds", []))
        pairs = [(g, m) for g in engine(self).groups.values() for m in g.all_instances() if not wanted or m.id in wanted]
        pairs, token = page(pairs, params.get("NextToken"), params.get("MaxRecords"), limit=50)
        items = [describe_member(m) | {"AutoScalingGroupName": g.name, "HealthStatus": m.health.upper()} for g, m in pairs]
        return ActionResult({"AutoScalingInstances": items, "NextToken": token})

    def describe_scaling_activities(self) -> ActionResult:
        params = request_params(self)
        name, wanted = params.get("AutoScalingGroupName"), params.get("ActivityIds", [])
        found = [a for g in engine(self).groups.values() for a in g.activities]
        if params.get("IncludeDeletedGroups"):
            found += engine(self).deleted_activities
        if name:
            found = [a for a in found if a["AutoScalingGroupName"] == name]
            if not found and name not in engine(self).groups:
                raise validation_error(f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")
        if wanted:
            found = [a for a in found if a["ActivityId"] in wanted]
        found.sort(key=lambda activity: activity["StartTime"], reverse=True)
        found, token = page(found, params.get("NextToken"), params.get("MaxRecords"), default=100)
        return ActionResult({"Activities": found, "NextToken": token})

    def terminate_instance_in_auto_scaling_group(self) -> ActionResult:
        params = request_params(self)
        group, member = get_member(self, params.get("InstanceId"))
        if member.warm:
            message = f"The instance {member.id} is in a warm pool. This operation cannot be called on instances in a warm pool."
            raise validation_error(message)
        check_activity(member)
        decrement = params.get("ShouldDecrementDesiredCapacity", False)
        # The operation has no idempotency token, and AWS documents no exception for an instance that already terminates.
        # Clients report that repeated calls lower the desired capacity again.
        if decrement:
            decrement_desired_capacity(group, engine(self).decrement(group, member), "Terminating instance without replacement")
            engine(self).reconcile_soon(group)
        if member.state not in TERMINATING_STATES:
            engine(self).terminate(group, member, "in response to a user request")
        return ActionResult({"Activity": member.activity})

    def set_instance_health(self) -> ActionResult:
        params = request_params(self)
        group, member = get_member(self, params.get("InstanceId"))
        if params.get("HealthStatus") not in ("Healthy", "Unhealthy"):
            raise validation_error("Valid instance health states are: [Healthy, Unhealthy]")
        member.health = params["HealthStatus"]
        member.is_marked_unhealthy = params["HealthStatus"] == "Unhealthy"
        engine(self).reconcile_soon(group)
        return EmptyResult()

    def set_instance_protection(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        members = get_members(group, params.get("InstanceIds", []))
        for member in members:
            if member.state not in ("InService", *STANDBY):
                raise validation_error(f"The instance {member.id} is not in InService or EnteringStandby or Standby.")
        for member in members:
            member.protected = params["ProtectedFromScaleIn"]
        return EmptyResult()


def apply_options(group: Group, params: dict[str, Any]) -> None:
    """Apply the settings that creation and update share."""
    names = {
        "DefaultCooldown": "cooldown",
        "HealthCheckType": "health_check_type",
        "HealthCheckGracePeriod": "health_check_grace",
        "TerminationPolicies": "termination_policies",
        "NewInstancesProtectedFromScaleIn": "protect_new",
        "CapacityRebalance": "capacity_rebalance",
        "DeletionProtection": "deletion_protection",
        "MaxInstanceLifetime": "max_instance_lifetime",
    }
    for name, attribute in names.items():
        if params.get(name) is not None:
            setattr(group, attribute, params[name])


def check_activity(member: Member) -> None:
    """Refuse to terminate an instance that is being launched, or moved into or out of Standby.

    Amazon EC2 Auto Scaling API Reference, TerminateInstanceInAutoScalingGroup, Errors: ScalingActivityInProgress. The wording, and
    that a launch counts, are from "Rolling Update Should Retry on ScalingActivityInProgress" of kubernetes/kops and
    "Implement event-based instance replacement" of LeanerCloud/AutoSpotting; that a move to Standby counts, from
    "Terminate may fail and proceed in case transition to standby takes too long" of keikoproj/upgrade-manager. Repeated terminations are accepted.
    """
    is_moving = member.state.startswith("Pending") or member.state == "EnteringStandby"
    if is_moving and member.activity and "EndTime" not in member.activity:
        raise AwsError("ScalingActivityInProgress", f"Activity {member.activity['ActivityId']} is in progress.")


def decrement_desired_capacity(group: Group, units: int, action: str) -> None:
    """Lower the desired capacity. Rejected below the minimum."""
    if group.desired - units < group.min_size:
        raise validation_error(
            f"Currently, desiredSize equals minSize ({group.min_size}). {action} will violate group's min size constraint. "
            "Either set shouldDecrementDesiredCapacity flag to false or lower group's min size."
        )
    group.desired -= units
