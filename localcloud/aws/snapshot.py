"""The state of the whole simulated account as one JSON value, for tests that compare two states."""

from __future__ import annotations

from typing import Any

from localcloud.aws.autoscaling.descriptions import describe_group, describe_hook, describe_member
from localcloud.aws.request import redact_user_data


def snapshot(simulator: Any) -> dict[str, Any]:
    """All groups, templates, managed node groups, roles, instance profiles, access entries and Fargate profiles by
    name.

    User data is replaced by its hash. The cluster's endpoint and certificate do not count in it: two clouds differ in them.
    """
    with simulator.lock:
        return {
            "groups": {name: group(simulator, g) for name, g in sorted(simulator.engine.groups.items())},
            "templates": {t.name: template(simulator, t) for t in sorted(simulator.templates.by_id.values(), key=lambda t: t.name)},
            "configurations": {name: redact(simulator, c.given) for name, c in sorted(simulator.launch_configurations.by_name.items())},
            "roles": {r.name: role(r) for r in sorted(simulator.iam.roles.values(), key=lambda r: r.name)},
            "nodegroups": {name: dict(simulator.nodegroups.describe(found)) for name, found in sorted(simulator.nodegroups.all.items())},
            "profiles": {p.name: profile(p) for p in sorted(simulator.iam.instance_profiles.values(), key=lambda p: p.name)},
            "access": {arn: entry.describe() for arn, entry in sorted(simulator.access_entries.entries.items())},
            "fargate": {name: made.describe() for name, made in sorted(simulator.fargate.profiles.items())},
        }


def redact(simulator: Any, data: Any) -> Any:
    """Launch data without its user data."""
    return redact_user_data(data, {simulator.endpoint: "endpoint", simulator.ca_data: "certificate"})


def group(simulator: Any, item: Any) -> dict[str, Any]:
    """A scaling group with its hooks and the instances of its warm pool."""
    shown = describe_group(item, simulator.settings.account)
    warm = [describe_member(member) for member in item.warm.values()]
    return shown | {"WarmPool": warm, "LifecycleHooks": [describe_hook(item, item.hooks[name]) for name in sorted(item.hooks)]}


def template(simulator: Any, item: Any) -> dict[str, Any]:
    """A launch template with all its versions."""
    versions = {str(v.number): {"data": redact(simulator, v.data), "description": v.description} for v in item.versions.values()}
    tags = dict(sorted(simulator.ec2.tags.get(item.id, {}).items()))
    return {"id": item.id, "default": item.default, "latest": item.latest, "versions": versions, "tags": tags}


def tags_of(item: Any) -> dict[str, str]:
    """The tags of a role or instance profile. moto stores these in two shapes."""
    tags = item.tags.values() if isinstance(item.tags, dict) else item.tags
    return {tag["Key"]: tag["Value"] for tag in tags}


def role(item: Any) -> dict[str, Any]:
    """A role with its policies."""
    return {
        "arn": item.arn,
        "trust": item.assume_role_policy_document,
        "policies": sorted(item.managed_policies),
        "inline": dict(sorted(item.policies.items())),
        "tags": tags_of(item),
    }


def profile(item: Any) -> dict[str, Any]:
    """An instance profile with its roles."""
    return {"arn": item.arn, "roles": [r.name for r in item.roles], "tags": tags_of(item)}
