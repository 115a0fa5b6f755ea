"""The Auto Scaling operations on processes, metrics, tags, lifecycle hooks and instance refreshes."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from moto.core.responses import ActionResult, EmptyResult

from localcloud.aws.autoscaling.descriptions import describe_hook, page, tag_matches
from localcloud.aws.autoscaling.group_validation import check_hook, check_metrics, check_processes, put_tags
from localcloud.aws.autoscaling.lifecycle import parse_hook
from localcloud.aws.autoscaling.lookup import engine, get_group, get_tagged_group, request_params
from localcloud.aws.autoscaling.model import LAUNCHING, Group, Member, Refresh, now
from localcloud.aws.errors import AwsError, validation_error

ACTIVE_REFRESH = ("Pending", "InProgress", "Cancelling")


class ProcessOperations:
    """Methods for moto's response class. `self` is an instance of that class."""

    def suspend_processes(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        for name in check_processes(params.get("ScalingProcesses", [])):
            group.suspended[name] = f"User suspended at {now():%Y-%m-%dT%H:%M:%SZ}"
        return EmptyResult()

    def resume_processes(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        for name in check_processes(params.get("ScalingProcesses", [])):
            group.suspended.pop(name, None)
        engine(self).reconcile_soon(group)
        return EmptyResult()

    def enable_metrics_collection(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        if params.get("Granularity") != "1Minute":
            raise validation_error(f"Invalid granularity: {params.get('Granularity')}. The only valid value is 1Minute")
        group.metrics |= set(check_metrics(params.get("Metrics", [])))
        return EmptyResult()

    def disable_metrics_collection(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        group.metrics -= set(check_metrics(params.get("Metrics", [])))
        return EmptyResult()

    def create_or_update_tags(self) -> ActionResult:
        tags = request_params(self).get("Tags", [])
        groups = {tag.get("ResourceId"): get_tagged_group(self, tag.get("ResourceId")) for tag in tags}
        for name, group in groups.items():
            put_tags(group, [tag for tag in tags if tag.get("ResourceId") == name])
        return EmptyResult()

    def delete_tags(self) -> ActionResult:
        for tag in request_params(self).get("Tags", []):
            group = get_tagged_group(self, tag.get("ResourceId"))
            if tag.get("Value") in (None, group.tags.get(tag["Key"], {}).get("Value")):
                group.tags.pop(tag["Key"], None)
        return EmptyResult()

    def describe_tags(self) -> ActionResult:
        params = request_params(self)
        found = [tag for group in engine(self).groups.values() for tag in group.tags.values()]
        for condition in params.get("Filters", []):
            found = [tag for tag in found if tag_matches(tag, condition["Name"], condition.get("Values", []))]
        found, token = page(found, params.get("NextToken"), params.get("MaxRecords"))
        return ActionResult({"Tags": found, "NextToken": token})

    def put_lifecycle_hook(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        check_hook(params, group)
        name = params["LifecycleHookName"]
        if name not in group.hooks and len(group.hooks) >= 50:
            raise AwsError("LimitExceeded", "The number of lifecycle hooks of the group would exceed the limit of 50")
        before = describe_hook(group, group.hooks[name]) if name in group.hooks else {}
        group.hooks[name] = parse_hook({k: v for k, v in before.items() if v is not None} | params)
        return EmptyResult()

    def delete_lifecycle_hook(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        hook = group.hooks.pop(params.get("LifecycleHookName"), None)
        if hook is None:
            name = params.get("LifecycleHookName")
            raise validation_error(f"No Lifecycle Hook found with name {name} for Auto Scaling group {group.name}")
        for member in group.all_instances():
            member.pending_hooks = [h for h in member.pending_hooks if h is not hook]
            if member.lifecycle_action and member.lifecycle_action.hook is hook:
                # By transition, whatever the hook's default result.
                engine(self).complete(group, member, "ABANDON" if hook.transition == LAUNCHING else "CONTINUE")
        return EmptyResult()

    def describe_lifecycle_hooks(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        wanted = params.get("LifecycleHookNames", [])
        hooks = [h for h in group.hooks.values() if not wanted or h.name in wanted]
        return ActionResult({"LifecycleHooks": [describe_hook(group, hook) for hook in hooks]})

    def complete_lifecycle_action(self) -> ActionResult:
        params = request_params(self)
        group, member = member_in_lifecycle_action(self, params)
        if params.get("LifecycleActionResult") not in ("CONTINUE", "ABANDON"):
            raise validation_error(f"Lifecycle action result: {params.get('LifecycleActionResult')} must be one of [CONTINUE, ABANDON]")
        engine(self).complete(group, member, params["LifecycleActionResult"])
        return EmptyResult()

    def record_lifecycle_action_heartbeat(self) -> ActionResult:
        group, member = member_in_lifecycle_action(self, request_params(self))
        member.lifecycle_action.heartbeats += 1
        engine(self).start_heartbeat_timer(group, member, member.lifecycle_action)
        return EmptyResult()

    def start_instance_refresh(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        if any(refresh.status in ACTIVE_REFRESH for refresh in group.refreshes):
            raise AwsError(
                "InstanceRefreshInProgress", "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh."
            )
        refresh = Refresh(str(uuid4()), "InProgress", now(), preferences=params.get("Preferences") or {})
        group.refreshes.insert(0, refresh)
        return ActionResult({"InstanceRefreshId": refresh.id})

    def cancel_instance_refresh(self) -> ActionResult:
        group = get_group(self, request_params(self).get("AutoScalingGroupName"))
        for refresh in group.refreshes:
            if refresh.status in ACTIVE_REFRESH:
                refresh.status, refresh.ended = "Cancelled", now()
                return ActionResult({"InstanceRefreshId": refresh.id})
        raise AwsError(
            "ActiveInstanceRefreshNotFound", f"No in progress or pending Instance Refresh found for Auto Scaling group {group.name}"
        )

    def describe_instance_refreshes(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        wanted = params.get("InstanceRefreshIds", [])
        found, token = page([r for r in group.refreshes if not wanted or r.id in wanted], params.get("NextToken"), params.get("MaxRecords"))
        items = [
            {
                "InstanceRefreshId": r.id,
                "AutoScalingGroupName": group.name,
                "Status": r.status,
                "StartTime": r.started,
                "EndTime": r.ended,
                "PercentageComplete": 0,
                "InstancesToUpdate": len(group.members),
                "Preferences": r.preferences,
            }
            for r in found
        ]
        return ActionResult({"InstanceRefreshes": items, "NextToken": token})


def member_in_lifecycle_action(response: Any, params: dict[str, Any]) -> tuple[Group, Member]:
    """The member that waits for a lifecycle action, by instance id or token."""
    group = get_group(response, params.get("AutoScalingGroupName"))
    for member in group.all_instances():
        lifecycle_action = member.lifecycle_action
        if lifecycle_action and lifecycle_action.hook.name == params.get("LifecycleHookName"):
            if member.id == params.get("InstanceId") or lifecycle_action.token == params.get("LifecycleActionToken"):
                return group, member
    raise validation_error(f"No active Lifecycle Action found with instance ID {params.get('InstanceId')}")
