"""Creation and deletion of managed node groups.

Every method runs while holding the simulator's lock. Follows the Amazon EKS API Reference, CreateNodegroup and
DeleteNodegroup, and the Amazon EKS User Guide, "Simplify node lifecycle with managed node groups" and "Delete a managed
node group".
"""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from localcloud.aws.autoscaling.model import Group, Member, now
from localcloud.aws.eks.nodegroups.health import Health, subnets_without_public_ips
from localcloud.aws.eks.nodegroups.model import NodeGroup, issue
from localcloud.aws.eks.nodegroups.node_manager import NodeManager
from localcloud.aws.eks.nodegroups.resources import TERMINATE_HOOK, Resources
from localcloud.aws.eks.nodegroups.updates import Updates
from localcloud.aws.errors import AwsError
from localcloud.aws.kubernetes import KubernetesClient

POLL_SECONDS = 0.2
"""Interval at which EKS checks a changing group."""


SHARE_OF_TERMINATION = 1 / 3
"""How long a node that is terminated may be drained, as a share of the time that an update gives it: 5 minutes ("Delete a
managed node group") of 15 ("Understand each phase of node updates").
"""


class NodeGroups(Resources, Health, Updates):
    """All managed node groups of the cluster, by name."""

    def __init__(self, simulator: Any, kube: dict[str, str] | None) -> None:
        self.simulator = simulator
        self.all: dict[str, NodeGroup] = {}
        self.manager = NodeManager(KubernetesClient(kube) if kube else None)
        self.has_nodes = kube is not None
        simulator.taggable_resources.append(self.all.values)
        simulator.access_entries.role_sources.append(self.roles)

    def roles(self) -> list[tuple[Any, str]]:
        """The roles of all groups, with the types of their access entries."""
        return [(self.role_of(found), found.entry_type) for found in self.all.values() if self.role_of(found)]

    def role_of(self, found: NodeGroup) -> Any:
        """The role of a group's nodes, if it still exists."""
        return next((role for role in self.simulator.iam.roles.values() if role.arn == found.settings["nodeRole"]), None)

    def find_by_scaling_group(self, name: str) -> NodeGroup | None:
        """The node group of a scaling group, or None."""
        return next((found for found in self.all.values() if found.group == name), None)

    def scaling_group(self, found: NodeGroup) -> Group | None:
        """The scaling group of a node group, if it exists."""
        return self.simulator.engine.groups.get(found.group or "")

    def version_of(self, template: dict[str, str]) -> str:
        """The Kubernetes version that a launch template version starts. Other nodes have the local cluster's version."""
        for found in self.all.values():
            if found.template and found.template == template.get("LaunchTemplateId"):
                return found.template_releases[template["Version"]][0]
        return self.simulator.settings.cluster_version

    def set_status(self, found: NodeGroup, status: str, issues: list[dict[str, Any]] | None = None) -> None:
        """Set the status and the issues of a group."""
        found.status, found.issues, found.modified = status, issues or [], now()
        self.simulator.log.state("nodegroup", found.name, state=status, issues=[issue["code"] for issue in found.issues])

    def after(self, function: Any, seconds: float = POLL_SECONDS) -> None:
        """Continue with a group after a delay."""
        self.simulator.timers.after(seconds, function)

    def create(self, cluster: Any, request: dict[str, Any], settings: dict[str, Any], version: str, release: str) -> NodeGroup:
        """Start to create a node group."""
        simulator_settings, uuid, name = self.simulator.settings, str(uuid4()), request["nodegroupName"]
        arn = f"arn:aws:eks:{simulator_settings.region}:{simulator_settings.account}:nodegroup/{cluster.name}/{name}/{uuid}"
        found = self.all[name] = NodeGroup(cluster.name, name, arn, uuid, request, settings, version, release)
        self.set_status(found, "CREATING")
        self.after(lambda: self.provision(found), self.delay(found, "nodegroup"))
        return found

    def provision(self, found: NodeGroup) -> None:
        """Authorize its role, then create its launch template and its scaling group."""
        role = self.role_of(found)
        if role is None:
            self.set_status(found, "CREATE_FAILED", self.problems(found))
            return
        subnet_issues = subnets_without_public_ips(self.simulator, found)
        if subnet_issues:
            self.set_status(found, "CREATE_FAILED", subnet_issues)
            return
        self.simulator.access_entries.authorize_role(role, found.entry_type)
        try:
            self.make_security_group(found)
            self.make_template(found)
            self.make_scaling_group(found)
        except AwsError as error:
            self.set_status(found, "CREATE_FAILED", [issue("AsgInstanceLaunchFailures", error.message, [found.name])])
            return
        self.wait_for_nodes(found, time.monotonic())

    def wait_for_nodes(self, found: NodeGroup, started: float) -> None:
        """Wait until the desired number of nodes is ready, or fail after a timeout."""
        if found.status != "CREATING":
            return
        group, injected = self.scaling_group(found), found.injected_issues.get("create")
        if injected:
            self.set_status(found, "CREATE_FAILED", [injected])
        elif group is None:
            self.set_status(found, "CREATE_FAILED", [self.missing_group(found)])
        elif len(self.ready_members(group)) >= group.desired:
            self.set_status(found, "ACTIVE")
        elif time.monotonic() - started > self.delay(found, "node_join_timeout"):
            self.set_status(found, "CREATE_FAILED", [self.why_not_ready(found, group)])
        else:
            self.after(lambda: self.wait_for_nodes(found, started))

    def on_terminate_hook(self, group: Group, member: Member) -> None:
        """Cordon and drain the node of an instance, then complete its terminate hook."""
        lifecycle_action, found = member.lifecycle_action, self.find_by_scaling_group(group.name)
        if found is None or lifecycle_action.hook.name != TERMINATE_HOOK:
            return
        node = self.node_of(member)
        if node:
            self.manager.cordon(node, True)

        def done(_left: list[str]) -> None:
            with self.simulator.lock:
                if member.lifecycle_action is lifecycle_action:
                    self.simulator.engine.complete(group, member, "CONTINUE")

        timeout = self.delay(found, "drain") * SHARE_OF_TERMINATION
        self.simulator.timers.after(0, lambda: self.manager.drain(node, timeout, False, done))

    def delete(self, found: NodeGroup) -> None:
        """Start to delete a group. Its instances are drained and terminated."""
        self.set_status(found, "DELETING")
        group = self.scaling_group(found)
        if group:
            group.min_size = group.max_size = group.desired = 0
            self.simulator.engine.reconcile_soon(group)
        self.after(lambda: self.wait_until_empty(found), self.delay(found, "nodegroup"))

    def wait_until_empty(self, found: NodeGroup) -> None:
        """Wait until the last instance is terminated, then delete the group's resources."""
        group, injected = self.scaling_group(found), found.injected_issues.get("delete")
        if injected:
            self.set_status(found, "DELETE_FAILED", [injected])
        elif group and group.all_instances():
            self.after(lambda: self.wait_until_empty(found))
        else:
            self.remove(found)

    def remove(self, found: NodeGroup) -> None:
        """Remove a group. Its role is removed from aws-auth, unless another group uses it. Access entries remain."""
        self.remove_resources(found)
        del self.all[found.name]
        role = found.settings["nodeRole"]
        if self.simulator.authentication_mode != "API" and all(other.settings["nodeRole"] != role for other in self.all.values()):
            self.manager.remove_role_from_aws_auth(role)
        self.simulator.log.state("nodegroup", found.name, state="gone")
