"""The Auto Scaling operations that take instances out of service or out of their group: Standby and DetachInstances."""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult

from localcloud.aws.autoscaling.lookup import engine, get_group, get_members, request_params
from localcloud.aws.autoscaling.model import Group, Member
from localcloud.aws.errors import validation_error

MAX_INSTANCES = 20
"""Maximum number of instances in one call."""


class StandbyOperations:
    """Methods for moto's response class. `self` is an instance of that class."""

    def enter_standby(self) -> ActionResult:
        params = request_params(self)
        group, members = get_members_in_state(self, params, "InService")
        why = "was moved to standby in response to a user request" + decrement(group, members, params, "place into standby")
        activities = [engine(self).enter_standby(group, member, f"instance {member.id} {why}.") for member in members]
        return ActionResult({"Activities": activities})

    def exit_standby(self) -> ActionResult:
        group, members = get_members_in_state(self, request_params(self), "Standby")
        if "Launch" in group.suspended:
            message = f"The process Launch of AutoScalingGroup {group.name} is suspended. Resume it to return instances to service."
            raise validation_error(message)
        before = group.desired
        if before + len(members) > group.max_size:
            raise validation_error(size_conflict(group, f"To place into service {instance_count(members)}"))
        group.desired += len(members)
        why = f"was moved out of standby in response to a user request, increasing the capacity from {before} to {group.desired}"
        activities = [engine(self).exit_standby(group, member, f"instance {member.id} {why}.") for member in members]
        return ActionResult({"Activities": activities})


    def detach_instances(self) -> ActionResult:
        params = request_params(self)
        group, members = get_members_in_state(self, params, "InService")
        why = "was detached in response to a user request" + decrement(group, members, params, "detach")
        activities = [engine(self).detach(group, member, f"instance {member.id} {why}.") for member in members]
        return ActionResult({"Activities": activities})


def decrement(group: Group, members: list[Member], params: dict[str, Any], action: str) -> str:
    """Lower the desired capacity if the call asks for it. Returns what its activities say about that."""
    if not params.get("ShouldDecrementDesiredCapacity"):
        return ""
    before = group.desired
    if before - len(members) < group.min_size:
        raise validation_error(size_conflict(group, f"To {action} {instance_count(members)}"))
    group.desired -= len(members)
    return f", shrinking the capacity from {before} to {group.desired}"


def get_members_in_state(response: Any, params: dict[str, Any], state: str) -> tuple[Group, list[Member]]:
    """The group and the instances of the call, all of which must be in that state."""
    group = get_group(response, params.get("AutoScalingGroupName"))
    members = get_members(group, params.get("InstanceIds", []))
    if not 1 <= len(members) <= MAX_INSTANCES:
        raise validation_error(f"The number of instances must be between 1 and {MAX_INSTANCES}.")
    for member in members:
        if member.state != state:
            raise validation_error(f"The instance {member.id} is not in {state}.")
    return group, members


def size_conflict(group: Group, action: str) -> str:
    """The error message if the group's sizes do not allow the move."""
    now = f"min-size={group.min_size}, max-size={group.max_size}, and desired-size={group.desired}"
    return f"AutoScalingGroup {group.name} has {now}. {action}, please update the AutoScalingGroup sizes appropriately."


def instance_count(members: list[Member]) -> str:
    """The number of instances as text."""
    return f"{len(members)} instance{'s' if len(members) > 1 else ''}"
