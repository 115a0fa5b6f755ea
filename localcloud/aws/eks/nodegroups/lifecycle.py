"""The managed node groups of the cluster: how they come into being, and how they go.

Every method runs under the world's lock. Follows the Amazon EKS API Reference, CreateNodegroup and DeleteNodegroup, and the
Amazon EKS User Guide, "Simplify node lifecycle with managed node groups" and "Delete a managed node group".
"""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from localcloud.aws.errors import Refused
from localcloud.aws.autoscaling.model import Group, Member, now
from localcloud.aws.kubernetes import Kube
from localcloud.aws.eks.nodegroups.model import NodeGroup, issue
from localcloud.aws.eks.nodegroups.health import Health, bare_subnets
from localcloud.aws.eks.nodegroups.node_manager import NodeManager
from localcloud.aws.eks.nodegroups.resources import HOOK, Resources
from localcloud.aws.eks.nodegroups.updates import Updates

POLL = 0.2
"""How often EKS looks after a group that changes, in seconds."""


class NodeGroups(Resources, Health, Updates):
    """All managed node groups of the cluster, by name."""

    def __init__(self, world: Any, kube: dict[str, str] | None) -> None:
        self.world = world
        self.all: dict[str, NodeGroup] = {}
        self.manager = NodeManager(Kube(kube) if kube else None)
        self.has_nodes = kube is not None
        world.tagged.append(self.all.values)
        world.access.owners.append(self.roles)

    def roles(self) -> list[tuple[Any, str]]:
        """The roles of all groups, with the type of their access entries."""
        return [(self.role_of(found), found.entry_type) for found in self.all.values() if self.role_of(found)]

    def role_of(self, found: NodeGroup) -> Any:
        """The role of a group's nodes, if it is still there."""
        return next((role for role in self.world.iam.roles.values() if role.arn == found.settings["nodeRole"]), None)

    def of_group(self, name: str) -> NodeGroup | None:
        """The node group that a scaling group belongs to."""
        return next((found for found in self.all.values() if found.group == name), None)

    def scaling_group(self, found: NodeGroup) -> Group | None:
        """The scaling group of a node group, if it has one and nobody deleted it."""
        return self.world.engine.groups.get(found.group or "")

    def version_of(self, template: dict[str, str]) -> str:
        """The Kubernetes version that a launch template's version starts; nodes outside managed groups follow the cluster."""
        for found in self.all.values():
            if found.template and found.template == template.get("LaunchTemplateId"):
                return found.marks[template["Version"]][0]
        return self.world.settings.cluster_version

    def enter(self, found: NodeGroup, status: str, issues: list[dict[str, Any]] | None = None) -> None:
        """Pass into a status, with these issues."""
        found.status, found.issues, found.modified = status, issues or [], now()
        self.world.log.state("nodegroup", found.name, state=status, issues=[issue["code"] for issue in found.issues])

    def after(self, function: Any, seconds: float = POLL) -> None:
        """Go on with a group later."""
        self.world.timers.after(seconds, function)

    def create(self, cluster: Any, request: dict[str, Any], settings: dict[str, Any], version: str, release: str) -> NodeGroup:
        """Begin to make a node group."""
        place, uuid, name = self.world.settings, str(uuid4()), request["nodegroupName"]
        arn = f"arn:aws:eks:{place.region}:{place.account}:nodegroup/{cluster.name}/{name}/{uuid}"
        found = self.all[name] = NodeGroup(cluster.name, name, arn, uuid, request, settings, version, release)
        self.enter(found, "CREATING")
        self.after(lambda: self.provision(found), self.delay(found, "nodegroup"))
        return found

    def provision(self, found: NodeGroup) -> None:
        """Let its role in, make what it launches from, and its scaling group."""
        role = self.role_of(found)
        if role is None:
            self.enter(found, "CREATE_FAILED", self.problems(found))
            return
        bare = bare_subnets(self.world, found)
        if bare:
            self.enter(found, "CREATE_FAILED", bare)
            return
        self.world.access.admit(role, found.entry_type)
        try:
            self.make_security_group(found)
            self.make_template(found)
            self.make_group(found)
        except Refused as refused:
            self.enter(found, "CREATE_FAILED", [issue("AsgInstanceLaunchFailures", refused.message, [found.name])])
            return
        self.settle(found, time.monotonic())

    def settle(self, found: NodeGroup, since: float) -> None:
        """Wait until as many nodes are ready as are desired, or for too long."""
        if found.status != "CREATING":
            return
        group, planned = self.scaling_group(found), found.planned.get("create")
        if planned:
            self.enter(found, "CREATE_FAILED", [planned])
        elif group is None:
            self.enter(found, "CREATE_FAILED", [self.missing_group(found)])
        elif len(self.ready_members(group)) >= group.desired:
            self.enter(found, "ACTIVE")
        elif time.monotonic() - since > self.delay(found, "patience"):
            self.enter(found, "CREATE_FAILED", [self.why_not_ready(found, group)])
        else:
            self.after(lambda: self.settle(found, since))

    def held(self, group: Group, member: Member) -> None:
        """An instance waits for EKS before it is terminated: its node is cordoned and drained, then it may go."""
        waiting, found = member.waiting, self.of_group(group.name)
        if found is None or waiting.hook.name != HOOK:
            return
        node = self.node_of(member)
        if node:
            self.manager.cordon(node, True)

        def done(_left: list[str]) -> None:
            with self.world.lock:
                if member.waiting is waiting:
                    self.world.engine.complete(group, member, "CONTINUE")

        self.world.timers.after(0, lambda: self.manager.drain(node, self.delay(found, "drain"), False, done))

    def delete(self, found: NodeGroup) -> None:
        """Begin to delete: no instance is wanted any more, and each is drained before it goes."""
        self.enter(found, "DELETING")
        group = self.scaling_group(found)
        if group:
            group.min_size = group.max_size = group.desired = 0
            self.world.engine.poke(group)
        self.after(lambda: self.empty(found), self.delay(found, "nodegroup"))

    def empty(self, found: NodeGroup) -> None:
        """Wait until the last instance is gone, then remove what EKS made."""
        group, planned = self.scaling_group(found), found.planned.get("delete")
        if planned:
            self.enter(found, "DELETE_FAILED", [planned])
        elif group and group.everyone():
            self.after(lambda: self.empty(found))
        else:
            self.remove(found)

    def remove(self, found: NodeGroup) -> None:
        """Forget a group; if no other has its role, that leaves aws-auth. An access entry stays."""
        self.remove_resources(found)
        del self.all[found.name]
        role = found.settings["nodeRole"]
        if self.world.authentication_mode != "API" and all(other.settings["nodeRole"] != role for other in self.all.values()):
            self.manager.forbid(role)
        self.world.log.state("nodegroup", found.name, state="gone")
