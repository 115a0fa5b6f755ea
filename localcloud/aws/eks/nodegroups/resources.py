"""The AWS resources of a managed node group: launch template, instance profile, scaling group, and security group for
SSH.

Every method runs while holding the simulator's lock. Follows the Amazon EKS User Guide, "Managed node groups concepts",
"Managed node group capacity types" and "Customize managed nodes with launch templates".
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from localcloud.aws.autoscaling import run_instance
from localcloud.aws.autoscaling.group_validation import put_tags
from localcloud.aws.autoscaling.launch_source import set_launch_source
from localcloud.aws.autoscaling.model import TERMINATING, Group, Hook, now
from localcloud.aws.ec2.launch_templates import LaunchTemplate
from localcloud.aws.eks.nodegroups.model import NodeGroup
from localcloud.aws.eks.nodegroups.releases import releases
from localcloud.aws.eks.nodegroups.user_data import user_data

TERMINATE_HOOK = "Terminate-LC-Hook"
"""The lifecycle hook with which EKS drains a node before its instance is terminated."""


class Resources:
    """The part of the node groups that creates these. See :class:`localcloud.aws.eks.nodegroups.lifecycle.NodeGroups`."""

    simulator: Any

    def make_security_group(self, found: NodeGroup) -> None:
        """Create the security group that allows SSH, if a key was given."""
        if not found.settings.get("remoteAccess", {}).get("ec2SshKey"):
            return
        vpc = self.simulator.ec2.get_subnet(found.settings["subnets"][0]).vpc_id
        name, tags = f"eks-remoteAccess-{found.uuid}", self.tags(found)
        description = "Security group for all nodes in the nodeGroup to allow SSH access"
        made = self.simulator.ec2.create_security_group(name, description, vpc, tags)
        found.security_group = made.id

    def make_template(self, found: NodeGroup) -> None:
        """Create the launch template and its instance profile."""
        iam, name = self.simulator.iam, found.resource_name
        if not any(profile.name == name for profile in iam.instance_profiles.values()):
            profile = iam.create_instance_profile(name, "/", [], [])
            iam.add_role_to_instance_profile(name, found.settings["nodeRole"].rsplit("/", 1)[1])
            self.simulator.changed_profiles.pop(profile.id, None)
        template = LaunchTemplate(f"lt-{found.uuid.replace('-', '')[:17]}", name, now())
        self.simulator.templates.by_id[template.id] = template
        self.simulator.ec2.create_tags([template.id], self.tags(found))
        found.template = template.id
        self.add_version(found, found.version, found.release)

    def add_version(self, found: NodeGroup, version: str, release: str) -> str:
        """Create a launch template version for this Kubernetes version and release. Returns its number."""
        data, template = self.launch_data(found, version, release), self.simulator.templates.by_id[found.template]
        number = str(template.add(data, None).number)
        found.template_releases[number] = version, release
        return number

    def launch_data(self, found: NodeGroup, version: str, release: str) -> dict[str, Any]:
        """The launch template data of the group."""
        settings, ami = found.settings, releases(self.simulator, found.settings["amiType"], version)[release]
        cluster = self.simulator.eks.clusters[found.cluster]
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
            "UserData": user_data(self.simulator, found, ami),
        }
        key = settings.get("remoteAccess", {}).get("ec2SshKey")
        return data | ({"KeyName": key} if key else {})

    def tags(self, found: NodeGroup) -> dict[str, str]:
        """The tags that EKS sets on these resources. The node group's own tags are not propagated."""
        return {"eks:cluster-name": found.cluster, "eks:nodegroup-name": found.name}

    def make_scaling_group(self, found: NodeGroup) -> None:
        """Create the scaling group, with the tags that the Cluster Autoscaler uses."""
        simulator, settings, sizes = self.simulator, found.settings, found.settings["scalingConfig"]
        name, spot = f"eks-{found.name}-{found.uuid}", settings["capacityType"] == "SPOT"
        subnets, zones = run_instance.check_subnets(simulator, ",".join(settings["subnets"]))
        place = simulator.settings
        arn = f"arn:aws:autoscaling:{place.region}:{place.account}:autoScalingGroup:{uuid4()}:autoScalingGroupName/{name}"
        group = Group(name, arn, sizes["minSize"], sizes["maxSize"], sizes["desiredSize"], subnets, zones, now())
        group.capacity_rebalance = spot or None
        group.termination_policies = ["AllocationStrategy", "OldestLaunchTemplate", "OldestInstance"]
        group.hooks[TERMINATE_HOOK] = Hook(TERMINATE_HOOK, TERMINATING, 1800, "CONTINUE")
        distribution = {
            "OnDemandAllocationStrategy": "prioritized",
            "OnDemandPercentageAboveBaseCapacity": 0 if spot else 100,
            "SpotAllocationStrategy": "price-capacity-optimized",
        }
        template = {
            "LaunchTemplateSpecification": {"LaunchTemplateId": found.template, "Version": "1"},
            "Overrides": [{"InstanceType": kind} for kind in settings["instanceTypes"]],
        }
        policy = {"LaunchTemplate": template, "InstancesDistribution": distribution}
        set_launch_source(simulator, group, {"MixedInstancesPolicy": policy}, subnets)
        owned = {f"kubernetes.io/cluster/{found.cluster}": "owned", f"k8s.io/cluster-autoscaler/{found.cluster}": "owned"}
        shown = {**self.tags(found), **owned, "k8s.io/cluster-autoscaler/enabled": "true"}
        put_tags(group, [{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in shown.items()])
        simulator.engine.groups[name] = group
        found.group = name
        simulator.engine.reconcile_soon(group)

    def use_version(self, found: NodeGroup, number: str) -> None:
        """Set the launch template version of the scaling group."""
        group = self.scaling_group(found)
        specification = {"LaunchTemplateId": found.template, "Version": number}
        policy = {"LaunchTemplate": {"LaunchTemplateSpecification": specification}}
        set_launch_source(self.simulator, group, {"MixedInstancesPolicy": policy}, group.subnets)

    def remove_resources(self, found: NodeGroup) -> None:
        """Delete the group's resources."""
        group = self.scaling_group(found)
        if group:
            self.simulator.engine.remove(group)
        self.simulator.templates.by_id.pop(found.template, None)
        self.simulator.ec2.tags.pop(found.template, None)
        for identifier, profile in list(self.simulator.iam.instance_profiles.items()):
            if profile.name == found.resource_name:
                del self.simulator.iam.instance_profiles[identifier]
        if found.security_group:
            self.simulator.ec2.delete_security_group(group_id=found.security_group)
