"""The Auto Scaling operations on warm pools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from moto.core.responses import ActionResult, EmptyResult

from localcloud.aws.autoscaling.descriptions import describe_member, describe_pool, page
from localcloud.aws.autoscaling.launch_source import reject_warm_pool
from localcloud.aws.autoscaling.lookup import engine, get_group, request_params
from localcloud.aws.autoscaling.model import WarmPool
from localcloud.aws.autoscaling.warm_pools import READY
from localcloud.aws.errors import AwsError, validation_error


class WarmPoolOperations:
    """Methods for moto's response class. `self` is an instance of that class."""

    def put_warm_pool(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        reject_warm_pool(self.simulator, group)
        if group.pool and group.pool.deleting:
            raise AwsError("ResourceContention", f"The warm pool of Auto Scaling group {group.name} is pending delete.")
        group.pool = merge_warm_pool(group.pool or WarmPool(), params)
        engine(self).reconcile_soon(group)
        return EmptyResult()

    def describe_warm_pool(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        found, token = page(list(group.warm.values()), params.get("NextToken"), params.get("MaxRecords"), limit=50)
        shown = [describe_member(member) for member in found]
        return ActionResult({"WarmPoolConfiguration": describe_pool(group), "Instances": shown, "NextToken": token})

    def delete_warm_pool(self) -> ActionResult:
        params = request_params(self)
        group = get_group(self, params.get("AutoScalingGroupName"))
        if group.pool is None:
            raise validation_error(f"No warm pool found for Auto Scaling group {group.name}")
        if group.warm and not params.get("ForceDelete"):
            if all(member.phase in READY for member in group.warm.values()):
                raise AwsError("ResourceInUse", "You cannot delete a warm pool while there are instances still in it.")
            message = "You cannot delete a warm pool while there are scaling activities in progress for it."
            raise AwsError("ScalingActivityInProgress", message)
        group.pool.deleting = True
        engine(self).drain_warm_pool(group)
        return EmptyResult()


def merge_warm_pool(pool: WarmPool, params: dict[str, Any]) -> WarmPool:
    """The warm pool after a call. Omitted fields keep their values, except the reuse policy: its documented default is to
    terminate instances, and AWS documents no way to omit it and keep it.
    """
    low, max_prepared = params.get("MinSize", pool.min_size), params.get("MaxGroupPreparedCapacity")
    state, policy = params.get("PoolState", pool.state), params.get("InstanceReusePolicy") or {}
    if low < 0:
        raise validation_error("MinSize of a warm pool must not be negative.")
    if max_prepared is not None and max_prepared < -1:
        raise validation_error("MaxGroupPreparedCapacity must be -1, or not negative.")
    if state not in READY:
        raise validation_error(f"Invalid PoolState: {state}. Valid values: {', '.join(READY)}")
    max_prepared = pool.max_prepared if max_prepared is None else max_prepared
    reuse = policy.get("ReuseOnScaleIn")
    return replace(pool, min_size=low, max_prepared=None if max_prepared == -1 else max_prepared, state=state, reuse=reuse)
