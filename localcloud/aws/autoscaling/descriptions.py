"""Groups, members and hooks in the shape of the API's responses."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from localcloud.aws.autoscaling.model import Group, Hook, Member
from localcloud.aws.ec2.filters import matches
from localcloud.aws.errors import AwsError, validation_error

GLOBAL_TIMEOUT = 172800


def describe_member(member: Member) -> dict[str, Any]:
    """An instance as DescribeAutoScalingGroups returns it."""
    return {
        "InstanceId": member.id,
        "InstanceType": member.instance_type,
        "AvailabilityZone": member.zone,
        "LifecycleState": member.state,
        "HealthStatus": member.health,
        "LaunchTemplate": dict(member.template) or None,
        "LaunchConfigurationName": member.configuration,
        "ProtectedFromScaleIn": member.protected,
        "WeightedCapacity": None if member.weight is None else str(member.weight),
    }


def describe_pool(group: Group) -> dict[str, Any] | None:
    """The configuration of a group's warm pool."""
    pool = group.pool
    if pool is None:
        return None
    return {
        "MinSize": pool.min_size,
        "MaxGroupPreparedCapacity": pool.max_prepared,
        "PoolState": pool.state,
        "Status": "PendingDelete" if pool.deleting else None,
        "InstanceReusePolicy": None if pool.reuse is None else {"ReuseOnScaleIn": pool.reuse},
    }


def describe_group(group: Group, account: str) -> dict[str, Any]:
    """A group as DescribeAutoScalingGroups returns it."""
    return {
        "AutoScalingGroupName": group.name,
        "AutoScalingGroupARN": group.arn,
        "LaunchTemplate": dict(group.template) or None,
        "MixedInstancesPolicy": group.policy,
        "LaunchConfigurationName": group.configuration,
        "MinSize": group.min_size,
        "MaxSize": group.max_size,
        "DesiredCapacity": group.desired,
        "DefaultCooldown": group.cooldown,
        "AvailabilityZones": group.zones,
        "LoadBalancerNames": [],
        "TargetGroupARNs": [],
        "TrafficSources": [],
        "HealthCheckType": group.health_check_type,
        "HealthCheckGracePeriod": group.health_check_grace,
        "Instances": [describe_member(member) for member in group.members.values()],
        "CreatedTime": group.created,
        "SuspendedProcesses": [{"ProcessName": name, "SuspensionReason": why} for name, why in group.suspended.items()],
        "VPCZoneIdentifier": ",".join(group.subnets),
        "EnabledMetrics": [{"Metric": name, "Granularity": "1Minute"} for name in sorted(group.metrics)],
        "Status": "Delete in progress" if group.deleting else None,
        "Tags": [group.tags[key] for key in sorted(group.tags)],
        "TerminationPolicies": group.termination_policies,
        "NewInstancesProtectedFromScaleIn": group.protect_new,
        "DeletionProtection": group.deletion_protection,
        "ServiceLinkedRoleARN": f"arn:aws:iam::{account}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
        "MaxInstanceLifetime": group.max_instance_lifetime,
        "CapacityRebalance": group.capacity_rebalance,
        "WarmPoolConfiguration": describe_pool(group),
        "WarmPoolSize": len(group.warm) if group.pool else None,
    }


def describe_hook(group: Group, hook: Hook) -> dict[str, Any]:
    """A hook as DescribeLifecycleHooks returns it."""
    return {
        "LifecycleHookName": hook.name,
        "AutoScalingGroupName": group.name,
        "LifecycleTransition": hook.transition,
        "HeartbeatTimeout": hook.heartbeat,
        "GlobalTimeout": min(GLOBAL_TIMEOUT, hook.heartbeat * 100),
        "DefaultResult": hook.default_result,
        "NotificationMetadata": hook.metadata,
        "NotificationTargetARN": hook.target_arn,
        "RoleARN": hook.role_arn,
    }


def tag_matches(tag: dict[str, Any], name: str, values: list[str]) -> bool:
    """Whether a tag matches one filter of DescribeTags."""
    match name:
        case "auto-scaling-group":
            return matches(tag["ResourceId"], values)
        case "key":
            return matches(tag["Key"], values)
        case "value":
            return matches(tag["Value"], values)
        case "propagate-at-launch":
            return str(tag["PropagateAtLaunch"]).lower() in [value.lower() for value in values]
    raise validation_error(f"Filter type {name} is not correct. Allowed Filter types are: auto-scaling-group key value propagate-at-launch")


def group_matches(group: Group, name: str, values: list[str]) -> bool:
    """Whether a group matches one filter of DescribeAutoScalingGroups."""
    if name == "tag-key":
        return any(matches(key, values) for key in group.tags)
    if name == "tag-value":
        return any(matches(tag["Value"], values) for tag in group.tags.values())
    if name.startswith("tag:"):
        return name[4:] in group.tags and matches(group.tags[name[4:]]["Value"], values)
    raise validation_error(f"Invalid filter: {name}")


def page(items: list[Any], token: str | None, size: int | None, default: int = 50, limit: int = 100) -> tuple[list[Any], str | None]:
    """Return one page and the token of the next. Too many records or an invalid token are errors."""
    if size is not None and not 1 <= size <= limit:
        raise validation_error(
            f"1 validation error detected: Value '{size}' at 'maxRecords' failed to satisfy constraint: "
            f"Member must have value less than or equal to {limit}"
        )
    try:
        start = int(base64.b64decode(token)) if token else 0
    except (ValueError, binascii.Error):
        raise AwsError("InvalidNextToken", "The token is invalid.") from None
    end = start + (size or default)
    return items[start:end], base64.b64encode(str(end).encode()).decode() if end < len(items) else None
