"""The managed node groups of the cluster: how they come into being, what makes them fail, and how they go.

Every method runs under the world's lock. Follows the Amazon EKS API Reference, CreateNodegroup, DeleteNodegroup and data type
Issue, and the Amazon EKS User Guide, "Simplify node lifecycle with managed node groups" and "Delete a managed node group".
"""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import yaml

from . import launch
from .auth import REASONS
from .errors import Refused
from .fargate_input import public
from .group_input import put_tags
from .groups import TERMINATING, Group, Hook, Member, now
from .kube import Kube
from .nodegroup import NodeGroup, issue
from .nodegroup_kube import NodeManager
from .nodegroup_releases import releases
from .nodegroup_updates import Updates
from .nodegroup_userdata import user_data
from .source import take
from .templates import Template

POLL = 0.2
"""How often EKS looks after a group that changes, in seconds."""
NO_ACCESS = (
    "Your worker nodes do not have access to the cluster. Verify if the node instance role is present and correctly configured in "
    "the aws-auth ConfigMap."
)
INVALID = "The aws-auth ConfigMap in your cluster is invalid"
NO_ADDRESSES = (
    "One or more Amazon EC2 Subnets of the node group does not automatically assign public IP addresses to instances launched into it. "
    "If you want your instances to be assigned a public IP address, then you need to enable auto-assign public IP address for the subnet."
)
HOOK = "Terminate-LC-Hook"
NETWORK = ("AmazonEKS_CNI_Policy",)
IMAGES = (
    "AmazonEC2ContainerRegistryReadOnly",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonEC2ContainerRegistryPowerUser",
    "AmazonEC2ContainerRegistryFullAccess",
)


class NodeGroups(Updates):
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
        bare = [subnet for subnet in found.settings["subnets"] if gives_no_address(self.world, subnet)]
        if bare:
            self.enter(found, "CREATE_FAILED", [issue("Ec2SubnetInvalidConfiguration", NO_ADDRESSES, bare)])
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

    def make_security_group(self, found: NodeGroup) -> None:
        """The group that opens SSH, when a key was given."""
        if not found.settings.get("remoteAccess", {}).get("ec2SshKey"):
            return
        vpc = self.world.ec2.get_subnet(found.settings["subnets"][0]).vpc_id
        name, tags = f"eks-remoteAccess-{found.uuid}", self.tags(found)
        made = self.world.ec2.create_security_group(name, "Security group for all nodes in the nodeGroup to allow SSH access", vpc, tags)
        found.security_group = made.id

    def make_template(self, found: NodeGroup) -> None:
        """The launch template, and the instance profile that it names."""
        iam, name = self.world.iam, found.resource_name
        if not any(profile.name == name for profile in iam.instance_profiles.values()):
            profile = iam.create_instance_profile(name, "/", [], [])
            iam.add_role_to_instance_profile(name, found.settings["nodeRole"].rsplit("/", 1)[1])
            self.world.visible_profiles.pop(profile.id, None)
        template = Template(f"lt-{found.uuid.replace('-', '')[:17]}", name, now())
        self.world.templates.by_id[template.id] = template
        self.world.ec2.create_tags([template.id], self.tags(found))
        found.template = template.id
        self.add_version(found, found.version, found.release)

    def add_version(self, found: NodeGroup, version: str, release: str) -> str:
        """A version of the launch template that starts nodes of this version and release; its number."""
        data, template = self.launch_data(found, version, release), self.world.templates.by_id[found.template]
        number = str(template.add(data, None).number)
        found.marks[number] = version, release
        return number

    def launch_data(self, found: NodeGroup, version: str, release: str) -> dict[str, Any]:
        """What instances of the group are launched with."""
        settings, ami = found.settings, releases(self.world, found.settings["amiType"], version)[release]
        cluster = self.world.eks.clusters[found.cluster]
        groups = [cluster.resources_vpc_config["securityGroupIds"][0], found.security_group]
        tags = [{"Key": key, "Value": value} for key, value in self.tags(found).items()]
        device = "/dev/sda1" if found.windows else "/dev/xvda"
        data = {
            "ImageId": ami,
            "IamInstanceProfile": {"Name": found.resource_name},
            "SecurityGroupIds": [group for group in groups if group],
            "BlockDeviceMappings": [
                {"DeviceName": device, "Ebs": {"VolumeSize": settings["diskSize"], "VolumeType": "gp3", "DeleteOnTermination": True}}
            ],
            "MetadataOptions": {"HttpPutResponseHopLimit": 2},
            "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume")],
            "UserData": user_data(self.world, found, ami),
        }
        key = settings.get("remoteAccess", {}).get("ec2SshKey")
        return data | ({"KeyName": key} if key else {})

    def tags(self, found: NodeGroup) -> dict[str, str]:
        """The tags that EKS puts on what it makes; the group's own tags stay on the group."""
        return {"eks:cluster-name": found.cluster, "eks:nodegroup-name": found.name}

    def make_group(self, found: NodeGroup) -> None:
        """The scaling group, which the Cluster Autoscaler finds by its tags."""
        world, settings, sizes = self.world, found.settings, found.settings["scalingConfig"]
        name, spot = f"eks-{found.name}-{found.uuid}", settings["capacityType"] == "SPOT"
        subnets, zones = launch.check_subnets(world, ",".join(settings["subnets"]))
        place = world.settings
        arn = f"arn:aws:autoscaling:{place.region}:{place.account}:autoScalingGroup:{uuid4()}:autoScalingGroupName/{name}"
        group = Group(name, arn, sizes["minSize"], sizes["maxSize"], sizes["desiredSize"], subnets, zones, now())
        group.capacity_rebalance = spot or None
        group.termination_policies = ["AllocationStrategy", "OldestLaunchTemplate", "OldestInstance"]
        group.hooks[HOOK] = Hook(HOOK, TERMINATING, 1800, "CONTINUE")
        distribution = {
            "OnDemandAllocationStrategy": "prioritized",
            "OnDemandPercentageAboveBaseCapacity": 0 if spot else 100,
            "SpotAllocationStrategy": "price-capacity-optimized",
        }
        template = {
            "LaunchTemplateSpecification": {"LaunchTemplateId": found.template, "Version": "1"},
            "Overrides": [{"InstanceType": kind} for kind in settings["instanceTypes"]],
        }
        take(world, group, {"MixedInstancesPolicy": {"LaunchTemplate": template, "InstancesDistribution": distribution}}, subnets)
        owned = {f"kubernetes.io/cluster/{found.cluster}": "owned", f"k8s.io/cluster-autoscaler/{found.cluster}": "owned"}
        shown = {**self.tags(found), **owned, "k8s.io/cluster-autoscaler/enabled": "true"}
        put_tags(group, [{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in shown.items()])
        world.engine.groups[name] = group
        found.group = name
        world.engine.poke(group)

    def use_version(self, found: NodeGroup, number: str) -> None:
        """Let the scaling group launch from a version of the template."""
        group = self.scaling_group(found)
        specification = {"LaunchTemplateId": found.template, "Version": number}
        take(self.world, group, {"MixedInstancesPolicy": {"LaunchTemplate": {"LaunchTemplateSpecification": specification}}}, group.subnets)

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

    def ready_members(self, group: Group) -> list[Member]:
        """The members in service whose nodes are ready; where there are no nodes, those in service."""
        members = [member for member in group.members.values() if member.state == "InService"]
        return [member for member in members if self.state_of(member) == "ready"]

    def state_of(self, member: Member) -> str:
        """What became of the kubelet of an instance."""
        if not self.has_nodes:
            return "ready"
        kubelet = self.world.kubelets.all.get(member.id)
        return kubelet.state if kubelet else "booting"

    def node_of(self, member: Member) -> str:
        """The name of an instance's node, or nothing."""
        kubelet = self.world.kubelets.all.get(member.id)
        return kubelet.node if kubelet else ""

    def why_not_ready(self, found: NodeGroup, group: Group) -> dict[str, Any]:
        """The issue that keeps a group from having its nodes."""
        failed = launch_failure(group)
        if failed and len(group.counted()) < group.desired:
            return issue(*failed, [group.name])
        if self.world.authentication_mode == "CONFIG_MAP" and not is_list(self.world.kubelets.map_roles):
            return issue("AccessDenied", INVALID, [])
        members = [member for member in group.members.values() if self.state_of(member) != "ready"]
        alone = [member.id for member in members if self.state_of(member) not in ("joined", "never-ready", "dead")]
        if alone or not members:
            return issue("NodeCreationFailure", "Instances failed to join the kubernetes cluster", alone)
        return issue("NodeCreationFailure", "Unhealthy nodes in the kubernetes cluster", [member.id for member in members])

    def missing_group(self, found: NodeGroup) -> dict[str, Any]:
        """The issue of a scaling group that somebody deleted."""
        return issue("AutoScalingGroupNotFound", f"Couldn't find the Auto Scaling group {found.group} of the node group", [found.group])

    def look(self, found: NodeGroup) -> None:
        """See whether a group that rests is still in order, as EKS does now and then."""
        if found.status not in ("ACTIVE", "DEGRADED"):
            return
        issues = self.problems(found)
        status = "DEGRADED" if issues else "ACTIVE"
        if (status, issues) != (found.status, found.issues):
            self.enter(found, status, issues)

    def problems(self, found: NodeGroup) -> list[dict[str, Any]]:
        """What is wrong with a group's resources."""
        issues, role = [], found.settings["nodeRole"]
        if "degraded" in found.planned:
            issues.append(found.planned["degraded"])
        if self.role_of(found) is None:
            issues.append(issue("IamNodeRoleNotFound", f"Couldn't find the IAM role {role} of the node group", [role]))
        if found.template and found.template not in self.world.templates.by_id:
            issues.append(issue("Ec2LaunchTemplateNotFound", f"Couldn't find the launch template {found.template}", [found.template]))
        group = self.scaling_group(found)
        if group is None:
            return [*issues, self.missing_group(found)]
        failed = launch_failure(group)
        if failed and len(group.counted()) < group.desired:
            issues.append(issue(*failed, [group.name]))
        shut_out = [member.id for member in group.members.values() if self.is_shut_out(member)]
        return [*issues, issue("AccessDenied", NO_ACCESS, shut_out)] if shut_out else issues

    def is_shut_out(self, member: Member) -> bool:
        """Whether the cluster no longer lets an instance's node in."""
        kubelet = self.world.kubelets.all.get(member.id)
        return kubelet is not None and kubelet.state == "dead" and kubelet.reason.startswith(REASONS)

    def unready(self, kubelet: Any) -> bool:
        """Whether a node of a managed group never becomes ready: its role gives it no network, or no images."""
        if self.of_group(kubelet.group) is None:
            return False
        role = self.world.kubelets.role_of(kubelet)
        if role is None or role.policies or any(":iam::aws:policy/" not in arn for arn in role.managed_policies):
            return False
        names = {arn.rsplit("/", 1)[1] for arn in role.managed_policies}
        return not (names & set(NETWORK) and names & set(IMAGES))

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
            self.remove(found, group)

    def remove(self, found: NodeGroup, group: Group | None) -> None:
        """Remove what EKS made and, if no other group has the role, its entry in aws-auth; an access entry stays."""
        if group:
            self.world.engine.remove(group)
        self.world.templates.by_id.pop(found.template, None)
        self.world.ec2.tags.pop(found.template, None)
        for identifier, profile in list(self.world.iam.instance_profiles.items()):
            if profile.name == found.resource_name:
                del self.world.iam.instance_profiles[identifier]
        if found.security_group:
            self.world.ec2.delete_security_group(group_id=found.security_group)
        del self.all[found.name]
        role = found.settings["nodeRole"]
        if self.world.authentication_mode != "API" and all(other.settings["nodeRole"] != role for other in self.all.values()):
            self.manager.forbid(role)
        self.world.log.state("nodegroup", found.name, state="gone")


def gives_no_address(world: Any, identifier: str) -> bool:
    """Whether a subnet is public, and gives its instances no public address."""
    subnet = world.ec2.get_subnet(identifier)
    return public(world, subnet) and str(subnet.map_public_ip_on_launch).lower() != "true"


def is_list(map_roles: str | None) -> bool:
    """Whether EKS can add an entry to mapRoles of aws-auth."""
    try:
        return isinstance(yaml.safe_load(map_roles or "[]") or [], list)
    except yaml.YAMLError:
        return False


def launch_failure(group: Group) -> tuple[str, str] | None:
    """Code and message of EKS's issue for the group's last launch, if that failed."""
    last = next((activity for activity in group.activities if activity["Description"].startswith("Launching")), None)
    if last is None or last["StatusCode"] != "Failed":
        return None
    message = last["StatusMessage"]
    code = "InstanceLimitExceeded" if "vCPU" in message else "AsgInstanceLaunchFailures"
    return code, f"Could not launch instances. {message}"
