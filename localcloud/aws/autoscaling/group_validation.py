"""Validation of the parameters of Auto Scaling operations.

Follows the Amazon EC2 Auto Scaling API Reference: the pages of the named operations and data types.
"""

from __future__ import annotations

import re
from typing import Any

from localcloud.aws.autoscaling.model import LAUNCHING, METRICS, PROCESSES, TERMINATING, Group
from localcloud.aws.errors import AwsError, too_long_error, validation_error

HEALTH_CHECKS = {"EC2", "EBS", "ELB", "VPC_LATTICE"}
POLICIES = {
    "Default",
    "AllocationStrategy",
    "OldestInstance",
    "NewestInstance",
    "OldestLaunchConfiguration",
    "OldestLaunchTemplate",
    "ClosestToNextInstanceHour",
}


def check_name(name: str | None) -> str:
    """Check a group's name: 1 to 255 printable ASCII characters without spaces and colons."""
    if not name:
        raise validation_error(
            "1 validation error detected: Value null at 'autoScalingGroupName' failed to satisfy constraint: Member must not be null"
        )
    if len(name) > 255:
        raise too_long_error(name, "autoScalingGroupName", 255)
    if not re.fullmatch(r"[!-9;-~]+", name):
        raise validation_error("The name may contain any ASCII character from 33 to 126 but the colon")
    return name


def check_sizes(low: int | None, high: int | None, desired: int | None) -> None:
    """Check minimum, maximum and desired capacity at creation or update."""
    if low is None or high is None:
        raise validation_error(
            "1 validation error detected: Value null at 'minSize' or 'maxSize' failed to satisfy constraint: Member must not be null"
        )
    if low < 0 or high < 0:
        raise validation_error("Min and max sizes must be non-negative")
    if low > high:
        raise validation_error(f"Max bound, {high}, must be greater than or equal to min bound, {low}")
    if desired is not None and not low <= desired <= high:
        raise validation_error(f"Desired capacity:{desired} must be between the specified min size:{low} and max size:{high}")


def check_common(params: dict[str, Any]) -> None:
    """The checks that CreateAutoScalingGroup and UpdateAutoScalingGroup share."""
    if params.get("InstanceId"):
        raise AwsError("NotSimulated", "InstanceId is not simulated: use LaunchTemplate")
    kinds = set((params.get("HealthCheckType") or "EC2").split(","))
    if not kinds <= HEALTH_CHECKS:
        raise validation_error(f"Invalid HealthCheckType: {params['HealthCheckType']}")
    unknown = [p for p in params.get("TerminationPolicies", []) if p not in POLICIES and not p.startswith("arn:")]
    if unknown:
        raise validation_error(f"Invalid termination policy: {', '.join(unknown)}")
    protection = params.get("DeletionProtection", "none")
    if protection not in ("none", "prevent-force-deletion", "prevent-all-deletion"):
        raise validation_error(f"Invalid DeletionProtection: {protection}")
    lifetime = params.get("MaxInstanceLifetime")
    if lifetime and not 86400 <= lifetime <= 31536000:
        raise validation_error("Maximum instance lifetime must be between 86400 and 31536000 seconds")


def check_tag(tag: dict[str, Any]) -> None:
    """Check a tag's key and value."""
    key, value = tag.get("Key") or "", tag.get("Value") or ""
    if not key:
        raise validation_error(
            "1 validation error detected: Value '' at 'tags.1.member.key' failed to satisfy constraint: "
            "Member must have length greater than or equal to 1"
        )
    if len(key) > 128:
        raise too_long_error(key, "tags.1.member.key", 128)
    if len(value) > 256:
        raise too_long_error(value, "tags.1.member.value", 256)
    if key.lower().startswith("aws:"):
        raise validation_error("Tag keys beginning with 'aws:' are reserved for system use")


def put_tags(group: Group, tags: list[dict[str, Any]]) -> None:
    """Create or overwrite tags of a group, all or none."""
    for tag in tags:
        check_tag(tag)
        if tag.get("ResourceType") not in (None, "auto-scaling-group"):
            raise validation_error(f"Invalid resource type: {tag['ResourceType']}")
    merged = dict(group.tags)
    for tag in tags:
        merged[tag["Key"]] = {
            "Key": tag["Key"],
            "Value": tag.get("Value") or "",
            "PropagateAtLaunch": bool(tag.get("PropagateAtLaunch", False)),
            "ResourceId": group.name,
            "ResourceType": "auto-scaling-group",
        }
    if len(merged) > 50:
        raise AwsError("LimitExceeded", "The number of tags of the Auto Scaling group would exceed the limit of 50")
    group.tags = merged


def check_hook(params: dict[str, Any], group: Group | None) -> None:
    """Check the parameters of a lifecycle hook."""
    name = params.get("LifecycleHookName") or ""
    if not 1 <= len(name) <= 255:
        raise too_long_error(name, "lifecycleHookName", 255)
    transition = params.get("LifecycleTransition")
    if transition not in (LAUNCHING, TERMINATING) and not (transition is None and group and name in group.hooks):
        raise validation_error(f"Lifecycle Transition: {transition} must be one of [{LAUNCHING}, {TERMINATING}]")
    heartbeat = params.get("HeartbeatTimeout")
    if heartbeat is not None and not 30 <= heartbeat <= 7200:
        raise validation_error("Heartbeat timeout must be between 30 and 7200 seconds")
    result = params.get("DefaultResult")
    if result is not None and result not in ("CONTINUE", "ABANDON"):
        raise validation_error(f"Default result: {result} must be one of [CONTINUE, ABANDON]")
    target, given = params.get("NotificationTargetARN") or "", bool(params.get("RoleARN"))
    if given and not target or not given and target and ":lambda:" not in target:
        raise validation_error("Notification target and role must be given together")
    if len(params.get("NotificationMetadata") or "") > 1023:
        raise too_long_error(params["NotificationMetadata"], "notificationMetadata", 1023)


def check_processes(names: list[str]) -> list[str]:
    """Check the names of processes. An empty list means all processes."""
    for name in names:
        if name not in PROCESSES:
            raise validation_error(f"Invalid process name: {name}. Supported processes are: {', '.join(PROCESSES)}")
    return names or list(PROCESSES)


def check_metrics(names: list[str]) -> list[str]:
    """Check the names of group metrics. An empty list means all metrics."""
    for name in names:
        if name not in METRICS:
            raise validation_error(f"Invalid metric: {name}")
    return names or list(METRICS)
