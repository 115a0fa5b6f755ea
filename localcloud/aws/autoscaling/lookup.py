"""Looks up the groups and members that an Auto Scaling call refers to."""

from __future__ import annotations

from typing import Any

from localcloud.aws.autoscaling.engine import Engine
from localcloud.aws.autoscaling.model import Group, Member
from localcloud.aws.errors import validation_error
from localcloud.aws.parameters import to_plain


def engine(response: Any) -> Engine:
    """The engine of the account that a response object belongs to."""
    return response.simulator.engine


def request_params(response: Any) -> dict[str, Any]:
    """The parameters of the call as plain values."""
    return to_plain(dict(response._get_params()))


def get_group(response: Any, name: str | None) -> Group:
    """The group of that name. Raises Auto Scaling's error if it does not exist."""
    group = engine(response).groups.get(name or "")
    if group is None:
        raise validation_error(f"AutoScalingGroup name not found - AutoScalingGroup '{name}' not found")
    if group.deleting:
        raise validation_error(f"AutoScalingGroup '{name}' is pending delete")
    return group


def get_tagged_group(response: Any, name: str | None) -> Group:
    """The group that a tag call names. These calls have another message for a missing group."""
    if (name or "") not in engine(response).groups:
        raise validation_error(f"AutoScalingGroup not found - AutoScaling Group {name} not found")
    return get_group(response, name)


def get_member(response: Any, identifier: str | None) -> tuple[Group, Member]:
    """The member with that instance id. Raises Auto Scaling's error if it does not exist."""
    found = engine(response).member(identifier or "")
    if found is None:
        raise validation_error(f"Instance Id not found - No managed instance found for instance ID: {identifier}")
    return found


def get_members(group: Group, identifiers: list[str]) -> list[Member]:
    """The members of a group with these instance ids."""
    for identifier in identifiers:
        if identifier not in group.members:
            raise validation_error(f"The instance {identifier} is not part of Auto Scaling group {group.name}.")
    return [group.members[identifier] for identifier in identifiers]
