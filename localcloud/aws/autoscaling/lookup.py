"""From a call's parameters to the groups and members that it means."""

from __future__ import annotations

from typing import Any

from localcloud.aws.ec2.operations import plain
from localcloud.aws.autoscaling.engine import Engine
from localcloud.aws.errors import invalid
from localcloud.aws.autoscaling.model import Group, Member


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


def members_of(group: Group, identifiers: list[str]) -> list[Member]:
    """Members of a group by id."""
    for identifier in identifiers:
        if identifier not in group.members:
            raise invalid(f"The instance {identifier} is not part of Auto Scaling group {group.name}.")
    return [group.members[identifier] for identifier in identifiers]
