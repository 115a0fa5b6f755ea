"""Version updates of a managed node group: new nodes are launched first, then old nodes are drained and terminated.

Every method runs while holding the simulator's lock. Follows the Amazon EKS User Guide, "Understand each phase of node
updates", with these simplifications. Instead of "up to twice the number of Availability Zones", it adds one node for
each zone with nodes. The last old nodes are not replaced, which merges the scale down phase with the upgrade phase.
After a failure, nodes that were not drained are uncordoned, surplus new nodes are terminated, and replaced nodes stay.
"""

from __future__ import annotations

import time
from typing import Any

from localcloud.aws.autoscaling.model import Group, Member
from localcloud.aws.eks.nodegroups.model import NodeGroup, issue
from localcloud.aws.eks.updates import Update


class RollingUpdate:
    """One version update of one node group."""

    def __init__(self, groups: Any, found: NodeGroup, update: Update, target: tuple[str, str], force: bool) -> None:
        self.groups, self.found, self.update, self.target, self.force = groups, found, update, target, force
        self.simulator = groups.simulator
        self.previous_version = str(groups.scaling_group(found).template_specification["Version"])
        self.minimal = found.settings["updateConfig"].get("updateStrategy") == "MINIMAL"
        self.draining: set[str] = set()
        self.parallel = found.max_unavailable(self.group.desired)
        self.finished = False

    @property
    def group(self) -> Group:
        """The scaling group."""
        return self.groups.scaling_group(self.found)

    def is_new(self, member: Member) -> bool:
        """Whether an instance runs the target version and release."""
        return self.found.template_releases.get(member.template.get("Version", "")) == self.target

    def old(self) -> list[Member]:
        """The instances that must still be replaced."""
        return [member for member in self.group.counted_members() if not self.is_new(member)]

    def start(self) -> None:
        """Setup phase, and first half of the scale up phase."""
        groups, group = self.groups, self.group
        groups.use_version(self.found, groups.add_version(self.found, *self.target))
        old = self.old()
        if not old:
            self.succeed()
            return
        if not self.minimal:
            self.found.surge = max(len({member.zone for member in old}), min(self.parallel, len(old)))
            group.max_size += self.found.surge
            group.desired += self.found.surge
            self.simulator.engine.reconcile_soon(group)
        self.wait_for_new_nodes(self.found.surge, self.cordon_old_nodes)

    def wait_for_new_nodes(self, count: int, then: Any) -> None:
        """Wait until this number of new nodes is ready, or fail."""
        started = time.monotonic()

        def poll() -> None:
            if self.finished or not self.exists():
                return
            if len([m for m in self.groups.ready_members(self.group) if self.is_new(m)]) >= count:
                then()
            elif time.monotonic() - started > self.groups.delay(self.found, "node_join_timeout"):
                new = [m.id for m in self.group.members.values() if self.is_new(m) and self.groups.state_of(m) != "ready"]
                message = f"Couldn't proceed with upgrade process as new nodes are not joining node group {self.found.name}"
                self.fail(issue("NodeCreationFailure", message, new))
            else:
                self.groups.after(poll)

        poll()

    def exists(self) -> bool:
        """Whether the scaling group still exists. Otherwise the update fails."""
        if self.groups.scaling_group(self.found) is None and not self.finished:
            self.finished = True
            self.found.surge = 0
            self.groups.finish(self.found, self.update, self.groups.missing_group(self.found))
        return not self.finished

    def cordon_old_nodes(self) -> None:
        """Second half of the scale up phase: cordon the old nodes."""
        for member in self.old():
            if self.groups.node_of(member):
                self.groups.manager.cordon(self.groups.node_of(member), True)
        self.continue_upgrade()

    def continue_upgrade(self) -> None:
        """Upgrade phase: drain as many nodes as may be unavailable."""
        if self.finished or not self.exists():
            return
        injected = self.found.injected_issues.get("update")
        if injected:
            self.fail(injected)
            return
        old = [member for member in self.old() if member.id not in self.draining]
        if not old and not self.draining:
            self.wait_for_new_nodes(self.group.desired - self.found.surge, self.succeed)
            return
        for member in old[: max(0, self.parallel - len(self.draining))]:
            self.draining.add(member.id)
            self.drain(member)

    def drain(self, member: Member) -> None:
        """Evict the pods of one node."""
        node = self.groups.node_of(member)
        self.simulator.log.state("nodegroup", self.found.name, state="draining", node=node, instance=member.id)

        def done(left: list[str]) -> None:
            with self.simulator.lock:
                self.drained(member, node, left)

        timeout = self.groups.delay(self.found, "drain")
        self.simulator.timers.after(0, lambda: self.groups.manager.drain(node, timeout, self.force, done))

    def drained(self, member: Member, node: str, left: list[str]) -> None:
        """The drain of a node is complete, or failed."""
        if self.finished or not self.exists():
            return
        if left:
            message = f"Reached max retries while trying to evict pods from nodes in node group {self.found.name}"
            self.fail(issue("PodEvictionFailure", message, [node]))
            return
        self.groups.after(lambda: self.terminate(member), self.groups.delay(self.found, "cordoned"))

    def terminate(self, member: Member) -> None:
        """Terminate a drained node. It is replaced while there are more old nodes than surge nodes."""
        if self.finished or not self.exists():
            return
        self.draining.discard(member.id)
        group, remaining = self.group, len(self.old())
        if member.counts and self.found.surge and remaining <= self.found.surge:
            group.desired -= 1
            group.max_size -= 1
            self.found.surge -= 1
        if member.counts:
            self.simulator.engine.terminate(group, member, "in response to an update of the managed node group")
        self.wait_for_new_nodes(self.expected(), self.continue_upgrade)

    def expected(self) -> int:
        """The number of new nodes that must be ready before the next old node is terminated."""
        if self.minimal:
            return max(0, self.group.desired - len(self.old()) - self.parallel + 1)
        return self.group.desired - len(self.old())

    def succeed(self) -> None:
        """Scale down phase. The update ends with the last old instance."""
        if self.finished or not self.exists():
            return
        if not all(self.is_new(member) for member in self.group.members.values()):
            self.groups.after(self.succeed)
            return
        self.finished = True
        self.remove_surge()
        self.found.version, self.found.release = self.target
        self.groups.finish(self.found, self.update)

    def fail(self, problem: dict[str, Any]) -> None:
        """Roll back as far as possible, and report the issue."""
        self.finished = True
        groups, group = self.groups, self.group
        groups.use_version(self.found, self.previous_version)
        for member in self.old():
            node = groups.node_of(member)
            if node and node not in problem["resourceIds"]:
                groups.manager.cordon(node, False)
        surge_members = [member for member in reversed(group.counted_members()) if self.is_new(member)][: self.found.surge]
        self.remove_surge()
        for member in surge_members:
            self.simulator.engine.terminate(group, member, "in response to a failed update of the managed node group")
        groups.finish(self.found, self.update, problem)

    def remove_surge(self) -> None:
        """Restore the sizes that the update increased."""
        group = self.group
        group.desired, group.max_size, self.found.surge = group.desired - self.found.surge, group.max_size - self.found.surge, 0
        self.simulator.engine.reconcile_soon(group)
