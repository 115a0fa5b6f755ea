"""Helpers for tests of managed node groups."""

import contextlib
import json
import time

from botocore.exceptions import ClientError

from localcloud.tests.aws.support import NUMBERS, TIMEOUT, TRUST, events, wait_until

POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly")
RELEASES = tuple(f"1.32.0-{date}" for date in ("20250101", "20250601", "20251001"))
"""What EKS knows of AL2023 for Kubernetes 1.32; the first is the one that it recommends."""


class NodeGroups:
    """Creates managed node groups in a simulator, with clients for `eks`, `iam`, `autoscaling` and `ec2`."""

    def __init__(self, aws, facts):
        self.aws, self.facts, self.made = aws, facts, []
        self.cluster = {"clusterName": facts["cluster_name"]}

    def role(self, policies=POLICIES, trust=TRUST, path="/"):
        """Create a role with these AWS managed policies. Returns its ARN."""
        name = f"managed-{next(NUMBERS)}-{time.time_ns()}"
        arn = self.aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust, Path=path)["Role"]["Arn"]
        for policy in policies:
            self.aws.iam.attach_role_policy(RoleName=name, PolicyArn=f"arn:aws:iam::aws:policy/{policy}")
        return arn

    def parameters(self, size=1, **changes):
        """Valid parameters of CreateNodegroup."""
        return {
            **self.cluster,
            "nodegroupName": f"managed-{next(NUMBERS)}-{time.time_ns()}",
            "subnets": self.facts["subnets"],
            "nodeRole": changes.get("nodeRole") or self.role(),
            "instanceTypes": ["m5.large"],
            "scalingConfig": {"minSize": 0, "maxSize": 9, "desiredSize": size},
            **changes,
        }

    def make(self, size=1, wait="ACTIVE", **changes):
        """Create a node group. Returns its name."""
        parameters = self.parameters(size, **changes)
        name = parameters["nodegroupName"]
        self.aws.eks.create_nodegroup(**parameters)
        self.made.append(name)
        if wait:
            self.settle(name, wait)
        return name

    def show(self, name):
        """The node group as EKS returns it, or None."""
        try:
            return self.aws.eks.describe_nodegroup(**self.cluster, nodegroupName=name)["nodegroup"]
        except self.aws.eks.exceptions.ResourceNotFoundException:
            return None

    def settle(self, name, status="ACTIVE", seconds=TIMEOUT):
        """Wait until it has that status. None waits until it is deleted."""

        def reached():
            shown = self.show(name)
            return (shown and shown["status"]) == status and (shown or True)

        return wait_until(reached, f"{name} to be {status or 'gone'}", seconds)

    def scaling_group(self, name):
        """Its scaling group as Auto Scaling returns it, or None."""
        (group,) = self.show(name)["resources"]["autoScalingGroups"]
        found = self.aws.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group["name"]])["AutoScalingGroups"]
        return found[0] if found else None

    def configure(self, name, **changes):
        """Start an UpdateNodegroupConfig. Returns the update."""
        return self.aws.eks.update_nodegroup_config(**self.cluster, nodegroupName=name, **changes)["update"]

    def upgrade(self, name, **changes):
        """Start an UpdateNodegroupVersion. Returns the update."""
        return self.aws.eks.update_nodegroup_version(**self.cluster, nodegroupName=name, **changes)["update"]

    def update(self, name, identifier):
        """An update as EKS returns it."""
        return self.aws.eks.describe_update(name=self.facts["cluster_name"], nodegroupName=name, updateId=identifier)["update"]

    def wait_for_update(self, name, update, seconds=TIMEOUT):
        """Wait until an update has ended. Returns the update."""

        def ended():
            shown = self.update(name, update["id"])
            return shown["status"] != "InProgress" and shown

        return wait_until(ended, f"the end of an update of {name}", seconds)

    def delete(self, name):
        """Start to delete it. Returns the node group."""
        return self.aws.eks.delete_nodegroup(**self.cluster, nodegroupName=name)["nodegroup"]

    def log(self, name, **wanted):
        """The lines of the event log about it, in order."""
        return events(self.facts["aws_log"], kind="state", object="nodegroup", id=name, **wanted)

    def clear(self):
        """Delete all created groups, and wait until they are deleted."""
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not [name for name in self.made if self.delete_if_possible(name)], "all groups to be gone")

    def delete_if_possible(self, name):
        """Delete a group if its status allows that. Returns whether it still exists."""
        shown = self.show(name)
        if shown and shown["status"] not in ("CREATING", "UPDATING", "DELETING"):
            with contextlib.suppress(ClientError):
                self.delete(name)
        return shown is not None


def trust(service):
    """A trust policy for a service."""
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})
