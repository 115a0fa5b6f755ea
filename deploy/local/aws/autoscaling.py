"""The Auto Scaling actions, put into moto's dispatcher over our own groups."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult

from . import launch
from .ec2 import plain
from .engine import Engine, hook_from
from .errors import Refused, invalid
from .group_input import check_common, check_hook, check_metrics, check_name, check_processes, check_sizes, put_tags
from .group_output import describe_group, describe_hook, describe_member, group_matches, page, tag_matches
from .groups import GONE_OR_GOING, Group, Member, Refresh, now

ACTIVE_REFRESH = ("Pending", "InProgress", "Cancelling")


def mend(world: Any) -> None:
    """Put these actions into moto."""
    for name, method in vars(Actions).items():
        if not name.startswith("_"):
            setattr(AutoScalingResponse, name, method)
    AutoScalingResponse.world = world


def engine(response: Any) -> Engine:
    """The engine behind a response object."""
    return response.world.engine


def params_of(response: Any) -> dict[str, Any]:
    """The parameters of the call as plain values."""
    return plain(dict(response._get_params()))


def group_of(response: Any, name: str | None) -> Group:
    """The group of that name, or Auto Scaling's error for its absence."""
    group = engine(response).groups.get(name or "")
    if group is None:
        raise invalid(f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")
    if group.deleting:
        raise invalid(f"AutoScalingGroup '{name}' is pending delete")
    return group


def member_of(response: Any, identifier: str | None) -> tuple[Group, Member]:
    """The member of that id, or Auto Scaling's error for its absence."""
    found = engine(response).member(identifier or "")
    if found is None:
        raise invalid(f"Instance Id not found - No managed instance found for instance ID: {identifier}")
    return found


def checked_template(world: Any, specification: dict[str, Any], subnets: list[str]) -> dict[str, str]:
    """Check a launch template as Auto Scaling does when a group refers to it."""
    template, version = launch.resolve(world, specification)
    reason = launch.problem(world, version.data, subnets)
    if reason:
        raise invalid(launch.PREFIX + reason)
    result = {"LaunchTemplateId": template.id, "LaunchTemplateName": template.name}
    return result | ({"Version": str(specification["Version"])} if specification.get("Version") else {})


class Actions:
    """Methods for moto's response class; `self` is that class's instance."""

    def create_auto_scaling_group(self) -> ActionResult:
        params, world = params_of(self), self.world
        name = check_name(params.get("AutoScalingGroupName"))
        check_common(params)
        if name in engine(self).groups:
            raise Refused("AlreadyExists", f"AutoScalingGroup by this name already exists - A group with the name {name} already exists")
        check_sizes(params.get("MinSize"), params.get("MaxSize"), params.get("DesiredCapacity"))
        if not params.get("LaunchTemplate"):
            raise invalid("Valid requests must contain either LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy parameter.")
        if not params.get("VPCZoneIdentifier"):
            raise invalid("At least one Availability Zone or VPC Subnet is required.")
        subnets, zones = launch.check_subnets(world, params["VPCZoneIdentifier"])
        template = checked_template(world, params["LaunchTemplate"], subnets)
        hooks = params.get("LifecycleHookSpecificationList", [])
        for hook in hooks:
            check_hook(hook, None)
        low, desired = params["MinSize"], params.get("DesiredCapacity")
        arn = f"arn:aws:autoscaling:{world.settings.region}:{world.settings.account}:autoScalingGroup:{uuid4()}:autoScalingGroupName/{name}"
        group = Group(name, arn, low, params["MaxSize"], low if desired is None else desired, subnets, zones, template, now())
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
        if params.get("LaunchTemplate"):
            group.template = checked_template(self.world, params["LaunchTemplate"], subnets)
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
        if group.members and not params.get("ForceDelete"):
            raise Refused("ResourceInUse", "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance request(s) still in the group.")
        if not group.members:
            engine(self).remove(group)
            return EmptyResult()
        group.deleting, group.desired, group.min_size, group.max_size = True, 0, 0, 0
        engine(self).poke(group)
        return EmptyResult()

    def set_desired_capacity(self) -> ActionResult:
        params = params_of(self)
        group, wanted = group_of(self, params.get("AutoScalingGroupName")), params["DesiredCapacity"]
        for bad, word, bound in ((wanted > group.max_size, "above max", group.max_size), (wanted < group.min_size, "below min", group.min_size)):
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
        pairs = [(g, m) for g in engine(self).groups.values() for m in g.members.values() if not wanted or m.id in wanted]
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
        for member in members_of(group, params.get("InstanceIds", [])):
            member.protected = params["ProtectedFromScaleIn"]
        return EmptyResult()

    def enter_standby(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        members = members_of(group, params.get("InstanceIds", []))
        for member in members:
            if member.state != "InService":
                raise invalid(f"The instance {member.id} is not in InService or Standby.")
        if params.get("ShouldDecrementDesiredCapacity"):
            shrink(group, members, "Moving instances to Standby")
        activities = [move(self, group, member, "Standby", "Moving EC2 instance to Standby") for member in members]
        return ActionResult({"Activities": activities})

    def exit_standby(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        members = members_of(group, params.get("InstanceIds", []))
        if any(member.state != "Standby" for member in members):
            raise invalid("The instances must be in Standby")
        if group.desired + len(members) > group.max_size:
            raise invalid(f"Currently, desiredSize equals maxSize ({group.max_size}). Exiting Standby would violate the group's max size constraint.")
        group.desired += len(members)
        activities = [move(self, group, member, "InService", "Moving EC2 instance out of Standby") for member in members]
        return ActionResult({"Activities": activities})

    def suspend_processes(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        for name in check_processes(params.get("ScalingProcesses", [])):
            group.suspended[name] = f"User suspended at {now():%Y-%m-%dT%H:%M:%SZ}"
        return EmptyResult()

    def resume_processes(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        for name in check_processes(params.get("ScalingProcesses", [])):
            group.suspended.pop(name, None)
        engine(self).poke(group)
        return EmptyResult()

    def enable_metrics_collection(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        if params.get("Granularity") != "1Minute":
            raise invalid(f"Invalid granularity: {params.get('Granularity')}. The only valid value is 1Minute")
        group.metrics |= set(check_metrics(params.get("Metrics", [])))
        return EmptyResult()

    def disable_metrics_collection(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        group.metrics -= set(check_metrics(params.get("Metrics", [])))
        return EmptyResult()

    def create_or_update_tags(self) -> ActionResult:
        tags = params_of(self).get("Tags", [])
        groups = {tag.get("ResourceId"): group_of(self, tag.get("ResourceId")) for tag in tags}
        for name, group in groups.items():
            put_tags(group, [tag for tag in tags if tag.get("ResourceId") == name])
        return EmptyResult()

    def delete_tags(self) -> ActionResult:
        for tag in params_of(self).get("Tags", []):
            group = group_of(self, tag.get("ResourceId"))
            if tag.get("Value") in (None, group.tags.get(tag["Key"], {}).get("Value")):
                group.tags.pop(tag["Key"], None)
        return EmptyResult()

    def describe_tags(self) -> ActionResult:
        params = params_of(self)
        found = [tag for group in engine(self).groups.values() for tag in group.tags.values()]
        for condition in params.get("Filters", []):
            found = [tag for tag in found if tag_matches(tag, condition["Name"], condition.get("Values", []))]
        found, token = page(found, params.get("NextToken"), params.get("MaxRecords"))
        return ActionResult({"Tags": found, "NextToken": token})

    def put_lifecycle_hook(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        check_hook(params, group)
        name = params["LifecycleHookName"]
        if name not in group.hooks and len(group.hooks) >= 50:
            raise Refused("LimitExceeded", "The number of lifecycle hooks of the group would exceed the limit of 50")
        before = describe_hook(group, group.hooks[name]) if name in group.hooks else {}
        group.hooks[name] = hook_from({k: v for k, v in before.items() if v is not None} | params)
        return EmptyResult()

    def delete_lifecycle_hook(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        hook = group.hooks.pop(params.get("LifecycleHookName"), None)
        if hook is None:
            raise invalid(f"No Lifecycle Hook found with name {params.get('LifecycleHookName')} for Auto Scaling group {group.name}")
        for member in list(group.members.values()):
            member.hooks_left = [h for h in member.hooks_left if h is not hook]
            if member.waiting and member.waiting.hook is hook:
                engine(self).complete(group, member, "CONTINUE" if hook.default_result == "CONTINUE" else "ABANDON")
        return EmptyResult()

    def describe_lifecycle_hooks(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        wanted = params.get("LifecycleHookNames", [])
        hooks = [h for h in group.hooks.values() if not wanted or h.name in wanted]
        return ActionResult({"LifecycleHooks": [describe_hook(group, hook) for hook in hooks]})

    def complete_lifecycle_action(self) -> ActionResult:
        params = params_of(self)
        group, member = waiting_member(self, params)
        if params.get("LifecycleActionResult") not in ("CONTINUE", "ABANDON"):
            raise invalid(f"Lifecycle action result: {params.get('LifecycleActionResult')} must be one of [CONTINUE, ABANDON]")
        engine(self).complete(group, member, params["LifecycleActionResult"])
        return EmptyResult()

    def record_lifecycle_action_heartbeat(self) -> ActionResult:
        group, member = waiting_member(self, params_of(self))
        member.waiting.beats += 1
        engine(self).time_hook(group, member, member.waiting)
        return EmptyResult()

    def describe_warm_pool(self) -> ActionResult:
        group_of(self, params_of(self).get("AutoScalingGroupName"))
        return ActionResult({"Instances": []})

    def start_instance_refresh(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        if any(refresh.status in ACTIVE_REFRESH for refresh in group.refreshes):
            raise Refused("InstanceRefreshInProgress", "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh.")
        refresh = Refresh(str(uuid4()), "InProgress", now(), preferences=params.get("Preferences") or {})
        group.refreshes.insert(0, refresh)
        return ActionResult({"InstanceRefreshId": refresh.id})

    def cancel_instance_refresh(self) -> ActionResult:
        group = group_of(self, params_of(self).get("AutoScalingGroupName"))
        for refresh in group.refreshes:
            if refresh.status in ACTIVE_REFRESH:
                refresh.status, refresh.ended = "Cancelled", now()
                return ActionResult({"InstanceRefreshId": refresh.id})
        raise Refused("ActiveInstanceRefreshNotFound", f"No in progress or pending Instance Refresh found for Auto Scaling group {group.name}")

    def describe_instance_refreshes(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        wanted = params.get("InstanceRefreshIds", [])
        found, token = page([r for r in group.refreshes if not wanted or r.id in wanted], params.get("NextToken"), params.get("MaxRecords"))
        items = [
            {"InstanceRefreshId": r.id, "AutoScalingGroupName": group.name, "Status": r.status, "StartTime": r.started, "EndTime": r.ended, "PercentageComplete": 0, "InstancesToUpdate": len(group.members), "Preferences": r.preferences}
            for r in found
        ]
        return ActionResult({"InstanceRefreshes": items, "NextToken": token})


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


def members_of(group: Group, identifiers: list[str]) -> list[Member]:
    """Members of a group by id."""
    for identifier in identifiers:
        if identifier not in group.members:
            raise invalid(f"The instance {identifier} is not part of Auto Scaling group {group.name}.")
    return [group.members[identifier] for identifier in identifiers]


def move(response: Any, group: Group, member: Member, state: str, description: str) -> dict[str, Any]:
    """Move a member into or out of Standby."""
    member.state = state
    activity = engine(response).activity(group, f"{description}: {member.id}", f"instance {member.id} was moved in response to a user request.")
    engine(response).finish(activity, "Successful")
    engine(response).show(group, member)
    engine(response).poke(group)
    return activity


def waiting_member(response: Any, params: dict[str, Any]) -> tuple[Group, Member]:
    """The member that waits for a lifecycle action, by instance id or token."""
    group = group_of(response, params.get("AutoScalingGroupName"))
    for member in group.members.values():
        waiting = member.waiting
        if waiting and waiting.hook.name == params.get("LifecycleHookName"):
            if member.id == params.get("InstanceId") or waiting.token == params.get("LifecycleActionToken"):
                return group, member
    raise invalid(f"No active Lifecycle Action found with instance ID {params.get('InstanceId')}")
