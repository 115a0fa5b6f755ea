"""Warm pools: instances that are launched ahead of time, and wait beside their group.

Follows the Amazon EC2 Auto Scaling User Guide, "Decrease latency for applications with long boot times using warm pools"
with "Use lifecycle hooks with a warm pool", and the API Reference, PutWarmPool.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from moto.core.utils import utcnow

from localcloud.aws.autoscaling.launching import Launching
from localcloud.aws.autoscaling.model import TERMINATING, TERMINATING_STATES, Group, Member

READY = ("Stopped", "Running", "Hibernated")


class WarmPools(Launching):
    """The part of the engine that keeps warm pools; :class:`localcloud.aws.autoscaling.engine.Engine` completes it."""

    def desired_pool_size(self, group: Group) -> int:
        """How many instances the pool is to have: what the group may still grow by, and at least its minimum."""
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
        """Terminate what is in a pool that is to go; the last one takes the pool with it."""
        for member in list(group.warm.values()):
            self.terminate(group, member, "the warm pool was deleted with force")
        if not group.warm:
            group.pool = None
            self.simulator.log.state("warm-pool", group.name, group=group.name, state="gone")

    def next_warm_instance(self, group: Group) -> Member | None:
        """The instance that leaves the pool next: one that is ready, for the emptiest zone."""
        counts = group.per_zone()
        ready = [m for m in group.warm.values() if m.phase in READY and m.health == "Healthy" and m.zone in group.zones]
        return min(ready, key=lambda m: (counts[m.zone], m.launched), default=None)

    def start_from_pool(self, group: Group, member: Member, why: str) -> None:
        """Put a warmed instance into service; one that was stopped boots again."""
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
        """Put an instance that a scale-in took out of service into the pool."""
        why = f"instance {member.id} was returned to the warm pool, shrinking the capacity to {group.desired}."
        member.activity = self.activity(group, f"Moving EC2 instance to warm pool: {member.id}", why)
        group.warm[member.id] = group.members.pop(member.id)
        member.warm = True
        member.enter("Pending")
        self.log_state(group, member)
        member.pending_hooks = list(group.hooks_for(TERMINATING))
        self.next_hook(group, member)

    def enter_pool(self, group: Group, member: Member) -> None:
        """The instance is prepared: it is stopped, if the pool keeps its instances so."""
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
        """The instance waits in the pool."""
        member.enter(phase)
        self.finish(member.activity, "Successful")
        self.log_state(group, member)
        self.reconcile_soon(group)

    def reusable_slots(self, group: Group) -> int:
        """How many instances of a scale-in the pool takes back."""
        if group.pool is None or group.pool.deleting or not group.pool.reuse:
            return 0
        current = Counter(member.phase in TERMINATING_STATES for member in group.warm.values())[False]
        return max(0, self.desired_pool_size(group) - current)
