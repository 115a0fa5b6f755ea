"""The Auto Scaling actions on warm pools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moto.core.responses import ActionResult, EmptyResult

from localcloud.aws.errors import Refused, invalid
from localcloud.aws.autoscaling.lookup import engine, group_of, params_of
from localcloud.aws.autoscaling.descriptions import describe_member, describe_pool, page
from localcloud.aws.autoscaling.model import WarmPool
from localcloud.aws.autoscaling.launch_source import refuse_spot
from localcloud.aws.autoscaling.warm_pools import READY


class WarmPoolActions:
    """Methods for moto's response class; `self` is that class's instance."""

    def put_warm_pool(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        refuse_spot(self.world, group)
        if group.pool and group.pool.deleting:
            raise Refused("ResourceContention", f"The warm pool of Auto Scaling group {group.name} is pending delete.")
        group.pool = changed(group.pool or WarmPool(), params)
        engine(self).poke(group)
        return EmptyResult()

    def describe_warm_pool(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        found, token = page(list(group.warm.values()), params.get("NextToken"), params.get("MaxRecords"), limit=50)
        shown = [describe_member(member) for member in found]
        return ActionResult({"WarmPoolConfiguration": describe_pool(group), "Instances": shown, "NextToken": token})

    def delete_warm_pool(self) -> ActionResult:
        params = params_of(self)
        group = group_of(self, params.get("AutoScalingGroupName"))
        if group.pool is None:
            raise invalid(f"No warm pool found for Auto Scaling group {group.name}")
        if group.warm and not params.get("ForceDelete"):
            if all(member.phase in READY for member in group.warm.values()):
                raise Refused("ResourceInUse", "You cannot delete a warm pool while there are instances still in it.")
            message = "You cannot delete a warm pool while there are scaling activities in progress for it."
            raise Refused("ScalingActivityInProgress", message)
        group.pool.deleting = True
        engine(self).empty(group)
        return EmptyResult()


def changed(pool: WarmPool, params: dict[str, Any]) -> WarmPool:
    """The pool after a call; what the call leaves out stays."""
    low, most = params.get("MinSize", pool.min_size), params.get("MaxGroupPreparedCapacity")
    state, policy = params.get("PoolState", pool.state), params.get("InstanceReusePolicy") or {}
    if low < 0:
        raise invalid("MinSize of a warm pool must not be negative.")
    if most is not None and most < -1:
        raise invalid("MaxGroupPreparedCapacity must be -1, or not negative.")
    if state not in READY:
        raise invalid(f"Invalid PoolState: {state}. Valid values: {', '.join(READY)}")
    most = pool.max_prepared if most is None else most
    reuse = policy.get("ReuseOnScaleIn", pool.reuse)
    return replace(pool, min_size=low, max_prepared=None if most == -1 else most, state=state, reuse=reuse)
