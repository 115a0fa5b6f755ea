"""Warm pools: pre-initialized instances beside a group.

Follows the Amazon EC2 Auto Scaling User Guide, "Decrease latency for applications with long boot times using warm
pools" with "Use lifecycle hooks with a warm pool", and the API Reference, PutWarmPool.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from moto.core.utils import utcnow

from localcloud.aws.autoscaling.group_launches import GroupLaunches
from localcloud.aws.autoscaling.model import TERMINATING, TERMINATING_STATES, Group, Member

READY = ("Stopped", "Running", "Hibernated")


class WarmPools(GroupLaunches):
    """The part of the engine that maintains warm pools. See :class:`localcloud.aws.autoscaling.engine.Engine`."""

    def desired_pool_size(self, group: Group) -> int:
        """The desired number of warm instances: the capacity by which the group can still grow, at least the pool's
        minimum.
        """
        pool = group.pool
        limit = group.max_size if pool.max_prepared is None else pool.max_prepared
        return max(pool.min_size, limit - group.desired)

    def reconcile_warm_pool(self, group: Group) -> None:
        """Bring the pool closer to its size."""
        pool = group.pool
        if pool is None:
            return
        if pool.deleting:
            self.drain_warm_pool(group)
            return
        self.replace_unhealthy(group, group.warm.values())
        current = [member for member in group.warm.values() if member.phase not in TERMINATING_STATES]
        missing = self.desired_pool_size(group) - len(current)
        if missing > 0 and "Launch" not in group.suspended:
            while missing and not group.launch_backoff and self.launch(group, f"filling the warm pool with {missing} more", warm=True):
                missing -= 1
        elif missing < 0 and "Terminate" not in group.suspended:
            for member in sorted(current, key=lambda m: m.launched)[:-missing]:
                self.terminate(group, member, f"shrinking the warm pool from {len(current)} to {len(current) + missing}")

    def drain_warm_pool(self, group: Group) -> None:
        """Terminate the instances of a pool that is being deleted. The pool is removed with the last one."""
        for member in list(group.warm.values()):
            self.terminate(group, member, "the warm pool was deleted with force")
        if not group.warm:
            group.pool = None
            self.simulator.log.state("warm-pool", group.name, group=group.name, state="gone")

    def next_warm_instance(self, group: Group) -> Member | None:
        """The ready instance that leaves the pool next. The zone with the fewest members comes first."""
        counts = group.per_zone()
        ready = [m for m in group.warm.values() if m.phase in READY and m.health == "Healthy" and m.zone in group.zones]
        return min(ready, key=lambda m: (counts[m.zone], m.launched), default=None)

    def start_from_pool(self, group: Group, member: Member, why: str) -> None:
        """Put a warm instance into service. A stopped instance boots again."""
        cause = f"an instance was started in response to a difference between desired and actual capacity, {why}."
        member.activity = self.activity(group, f"Launching a new EC2 instance from warm pool: {member.id}", cause)
        group.members[member.id] = group.warm.pop(member.id)
        was_stopped, member.warm = member.phase != "Running", False
        member.enter("Pending")
        self.log_state(group, member)
        instance = self.simulator.ec2.get_instance(member.id)
        if not was_stopped:
            self.start_launch_hooks(group, member)
            return
        instance._state.name, instance._state.code = "pending", 0
        instance.launch_time = utcnow()
        self.simulator.timers.after(self.simulator.settings.delays.pending, lambda: self.on_running(group, member, instance))

    def return_to_pool(self, group: Group, member: Member) -> None:
        """Return an instance to the pool after a scale-in."""
        why = f"instance {member.id} was returned to the warm pool, shrinking the capacity to {group.desired}."
        member.activity = self.activity(group, f"Moving EC2 instance to warm pool: {member.id}", why)
        group.warm[member.id] = group.members.pop(member.id)
        member.warm = True
        member.enter("Pending")
        self.log_state(group, member)
        member.pending_hooks = list(group.hooks_for(TERMINATING))
        self.next_hook(group, member)

    def enter_pool(self, group: Group, member: Member) -> None:
        """The instance is initialized. Stop it, if the pool keeps stopped instances."""
        if group.pool.state == "Running":
            self.finish_pool_entry(group, member, "Running")
            return
        instance = self.simulator.ec2.get_instance(member.id)
        instance._state.name, instance._state.code = "stopping", 64
        self.simulator.kubelets.on_stopped(member.id)
        self.simulator.timers.after(self.simulator.settings.delays.move, lambda: self.on_stopped(group, member, instance))

    def on_stopped(self, group: Group, member: Member, instance: Any) -> None:
        """EC2 has stopped the instance."""
        if instance.state == "stopping":
            instance.stop()
            self.finish_pool_entry(group, member, "Hibernated" if group.pool.state == "Hibernated" else "Stopped")

    def finish_pool_entry(self, group: Group, member: Member, phase: str) -> None:
        """The instance is ready in the pool."""
        member.enter(phase)
        self.finish(member.activity, "Successful")
        self.log_state(group, member)
        self.reconcile_soon(group)

    def reusable_slots(self, group: Group) -> int:
        """The number of instances of a scale-in that the pool takes back."""
        if group.pool is None or group.pool.deleting or not group.pool.reuse:
            return 0
        current = Counter(member.phase in TERMINATING_STATES for member in group.warm.values())[False]
        return max(0, self.desired_pool_size(group) - current)
