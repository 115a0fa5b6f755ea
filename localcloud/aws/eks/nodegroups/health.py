"""Health checks of managed node groups.

Every method runs while holding the simulator's lock. Follows the Amazon EKS API Reference, data type Issue, and the
Amazon EKS User Guide, "Amazon EKS node IAM role" and "Troubleshoot problems with Amazon EKS clusters and nodes".
"""

from __future__ import annotations

from typing import Any

import yaml

from localcloud.aws.autoscaling.model import Group, Member
from localcloud.aws.ec2.subnets import is_public
from localcloud.aws.eks.nodegroups.model import NodeGroup, issue
from localcloud.aws.nodes.authenticator import AUTHORIZATION_PROBLEMS

NO_ACCESS = (
    "Your worker nodes do not have access to the cluster. Verify if the node instance role is present and correctly configured in "
    "the aws-auth ConfigMap."
)
INVALID = "The aws-auth ConfigMap in your cluster is invalid"
NO_ADDRESSES = (
    "One or more Amazon EC2 Subnets of the node group does not automatically assign public IP addresses to instances launched into it. "
    "If you want your instances to be assigned a public IP address, then you need to enable auto-assign public IP address for the subnet."
)
NETWORK_POLICIES = {"AmazonEKS_CNI_Policy"}
IMAGE_POLICIES = {
    "AmazonEC2ContainerRegistryReadOnly",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonEC2ContainerRegistryPowerUser",
    "AmazonEC2ContainerRegistryFullAccess",
}


class Health:
    """The part of the node groups that checks their health. See
    :class:`localcloud.aws.eks.nodegroups.lifecycle.NodeGroups`.
    """

    simulator: Any
    has_nodes: bool

    def ready_members(self, group: Group) -> list[Member]:
        """The members in service with ready nodes. Without a cluster, all members in service."""
        members = [member for member in group.members.values() if member.state == "InService"]
        return [member for member in members if self.state_of(member) == "ready"]

    def state_of(self, member: Member) -> str:
        """The kubelet state of an instance."""
        if not self.has_nodes:
            return "ready"
        kubelet = self.simulator.kubelets.all.get(member.id)
        return kubelet.state if kubelet else "booting"

    def node_of(self, member: Member) -> str:
        """The name of an instance's node, or an empty string."""
        kubelet = self.simulator.kubelets.all.get(member.id)
        return kubelet.node if kubelet else ""

    def why_not_ready(self, found: NodeGroup, group: Group) -> dict[str, Any]:
        """The issue because of which the group's nodes are not ready."""
        failed = launch_failure(group)
        if failed and len(group.counted_members()) < group.desired:
            return issue(*failed, [group.name])
        if self.simulator.authentication_mode == "CONFIG_MAP" and not is_yaml_list(self.simulator.kubelets.map_roles):
            return issue("AccessDenied", INVALID, [])
        members = [member for member in group.members.values() if self.state_of(member) != "ready"]
        not_joined = [member.id for member in members if self.state_of(member) not in ("joined", "never-ready", "dead")]
        if not_joined or not members:
            return issue("NodeCreationFailure", "Instances failed to join the kubernetes cluster", not_joined)
        return issue("NodeCreationFailure", "Unhealthy nodes in the kubernetes cluster", [member.id for member in members])

    def missing_group(self, found: NodeGroup) -> dict[str, Any]:
        """The issue of a deleted scaling group."""
        return issue("AutoScalingGroupNotFound", f"Couldn't find the Auto Scaling group {found.group} of the node group", [found.group])

    def refresh_health(self, found: NodeGroup) -> None:
        """Update the health of an idle node group."""
        if found.status not in ("ACTIVE", "DEGRADED"):
            return
        issues = self.problems(found)
        status = "DEGRADED" if issues else "ACTIVE"
        if (status, issues) != (found.status, found.issues):
            self.set_status(found, status, issues)

    def problems(self, found: NodeGroup) -> list[dict[str, Any]]:
        """The issues of a group's resources."""
        issues, role = [], found.settings["nodeRole"]
        if "degraded" in found.injected_issues:
            issues.append(found.injected_issues["degraded"])
        if self.role_of(found) is None:
            issues.append(issue("IamNodeRoleNotFound", f"Couldn't find the IAM role {role} of the node group", [role]))
        if found.template and found.template not in self.simulator.templates.by_id:
            issues.append(issue("Ec2LaunchTemplateNotFound", f"Couldn't find the launch template {found.template}", [found.template]))
        group = self.scaling_group(found)
        if group is None:
            return [*issues, self.missing_group(found)]
        failed = launch_failure(group)
        if failed and len(group.counted_members()) < group.desired:
            issues.append(issue(*failed, [group.name]))
        unauthorized = [member.id for member in group.members.values() if self.is_unauthorized(member)]
        return [*issues, issue("AccessDenied", NO_ACCESS, unauthorized)] if unauthorized else issues

    def is_unauthorized(self, member: Member) -> bool:
        """Whether the cluster no longer authorizes an instance's node."""
        kubelet = self.simulator.kubelets.all.get(member.id)
        return kubelet is not None and kubelet.state == "dead" and kubelet.reason.startswith(AUTHORIZATION_PROBLEMS)

    def never_becomes_ready(self, kubelet: Any) -> bool:
        """Whether a node never becomes ready, because its role lacks the policies for networking or images."""
        if self.find_by_scaling_group(kubelet.group) is None:
            return False
        role = self.simulator.kubelets.role_of(kubelet)
        if role is None or role.policies or any(":iam::aws:policy/" not in arn for arn in role.managed_policies):
            return False
        names = {arn.rsplit("/", 1)[1] for arn in role.managed_policies}
        return not (names & NETWORK_POLICIES and names & IMAGE_POLICIES)


def subnets_without_public_ips(simulator: Any, found: NodeGroup) -> list[dict[str, Any]]:
    """The issue of public subnets that assign no public addresses, if there are any."""
    subnets = [simulator.ec2.get_subnet(identifier) for identifier in found.settings["subnets"]]
    subnet_ids = [s.id for s in subnets if is_public(simulator, s) and str(s.map_public_ip_on_launch).lower() != "true"]
    return [issue("Ec2SubnetInvalidConfiguration", NO_ADDRESSES, subnet_ids)] if subnet_ids else []


def is_yaml_list(map_roles: str | None) -> bool:
    """Whether mapRoles of aws-auth is a list, so that EKS can add an entry."""
    try:
        return isinstance(yaml.safe_load(map_roles or "[]") or [], list)
    except yaml.YAMLError:
        return False


def launch_failure(group: Group) -> tuple[str, str] | None:
    """Code and message of EKS's issue for the group's last launch, if it failed."""
    last = next((activity for activity in group.activities if activity["Description"].startswith("Launching")), None)
    if last is None or last["StatusCode"] != "Failed":
        return None
    message = last["StatusMessage"]
    code = "InstanceLimitExceeded" if "vCPU" in message else "AsgInstanceLaunchFailures"
    return code, f"Could not launch instances. {message}"
