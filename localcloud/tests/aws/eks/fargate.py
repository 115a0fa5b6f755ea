"""Helpers for tests of Fargate profiles."""

import json

from localcloud.tests.aws.support import wait_until

FARGATE = json.dumps({
    "Version": "2012-10-17",
    "Statement": [{
        "Effect": "Allow",
        "Principal": {"Service": "eks-fargate-pods.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {"ArnLike": {"aws:SourceArn": "arn:aws:eks:us-west-2:123456789012:fargateprofile/demo/*"}},
    }],
})  # fmt: skip
"""The trust policy of a pod execution role of this cluster."""


class Profiles:
    """Creates, reads and deletes the profiles of a cluster."""

    def __init__(self, eks, cluster):
        self.eks, self.cluster = eks, cluster

    def names(self):
        """The names of all profiles."""
        return self.eks.list_fargate_profiles(clusterName=self.cluster)["fargateProfileNames"]

    def show(self, name):
        """A profile as EKS returns it, or None."""
        try:
            return self.eks.describe_fargate_profile(clusterName=self.cluster, fargateProfileName=name)["fargateProfile"]
        except self.eks.exceptions.ResourceNotFoundException:
            return None

    def status(self, name):
        """A profile's status, or None."""
        return (self.show(name) or {}).get("status")

    def settle(self, name):
        """Wait until a profile is not changing."""
        wait_until(lambda: self.status(name) not in ("CREATING", "DELETING"), f"the profile {name} to settle")

    def make(self, call, **changes):
        """Create a profile and wait until it is ACTIVE."""
        self.eks.create_fargate_profile(**call | changes)
        name = (call | changes)["fargateProfileName"]
        wait_until(lambda: self.status(name) == "ACTIVE", f"the profile {name} to be ACTIVE")

    def delete(self, name):
        """Start to delete a profile. Returns the profile."""
        return self.eks.delete_fargate_profile(clusterName=self.cluster, fargateProfileName=name)["fargateProfile"]
