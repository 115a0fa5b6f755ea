"""Fargate profiles. Creation and deletion take time, and the cluster changes one profile at a time.

Follows the Amazon EKS API Reference (CreateFargateProfile, DescribeFargateProfile, ListFargateProfiles,
DeleteFargateProfile, FargateProfile) and the User Guide, "Define which Pods use AWS Fargate when launched" and "Delete
a Fargate profile". AWS does not document whether deleting a profile removes the pod execution role from aws-auth, or
its access entry. Here both remain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from moto.core.responses import ActionResult

from localcloud.aws.eks.clusters import update_in_progress
from localcloud.aws.eks.fargate import validation
from localcloud.aws.eks.fargate.pods import FargatePods
from localcloud.aws.eks.operations import add_operations, find_repeated_call, get_cluster, page, request_params
from localcloud.aws.errors import AwsError
from localcloud.aws.iam import callers

ISSUES = {
    "AccessDenied": "The pod execution role may not be used by Amazon EKS.",
    "ClusterUnreachable": "Amazon EKS was unable to reach the Kubernetes API server of the cluster.",
    "InternalFailure": "Amazon EKS failed internally. Try again.",
    "PodExecutionRoleAlreadyInUse": "The pod execution role is in use by a node group of the cluster.",
}
FAILED = {"CREATING": "CREATE_FAILED", "DELETING": "DELETE_FAILED"}


@dataclass
class Profile:
    """One Fargate profile. `request` is the call that created it."""

    arn: str
    cluster: str
    name: str
    role: str
    subnets: list[str]
    selectors: list[dict[str, Any]]
    tags: dict[str, str]
    request: dict[str, Any]
    status: str = "CREATING"
    issues: list[dict[str, Any]] = field(default_factory=list)
    created: datetime = field(default_factory=lambda: datetime.now(UTC))

    def describe(self) -> dict[str, Any]:
        """The profile as DescribeFargateProfile returns it."""
        return {
            "fargateProfileName": self.name,
            "fargateProfileArn": self.arn,
            "clusterName": self.cluster,
            "createdAt": self.created,
            "podExecutionRoleArn": self.role,
            "subnets": self.subnets,
            "selectors": self.selectors,
            "status": self.status,
            "tags": self.tags,
            "health": {"issues": self.issues},
        }


class Fargate:
    """The Fargate profiles of the cluster by name, and the injected failures."""

    def __init__(self, simulator: Any) -> None:
        self.simulator = simulator
        self.profiles: dict[str, Profile] = {}
        self.failures: dict[tuple[str, str], tuple[str, str]] = {}
        self.pods = FargatePods(simulator, self)
        simulator.taggable_resources.append(self.profiles.values)
        simulator.access_entries.role_sources.append(self.roles)

    def roles(self) -> list[tuple[Any, str]]:
        """The pod execution roles, which EKS itself authorizes."""
        roles = [validation.find_role(self.simulator, profile.role) for profile in self.profiles.values()]
        return [(role, "FARGATE_LINUX") for role in roles if role]

    def get(self, name: str) -> Profile:
        """The profile of that name. Raises EKS's error if it does not exist."""
        if name not in self.profiles:
            raise AwsError("ResourceNotFoundException", f"No Fargate Profile found with name: {name}.")
        return self.profiles[name]

    def check_no_other_change(self, what: str) -> None:
        """Reject a change while another profile or the cluster is being changed."""
        cluster = self.simulator.eks.clusters[self.simulator.settings.cluster_name]
        if self.simulator.updates.running():
            raise update_in_progress(what, cluster)
        for other in self.profiles.values():
            if other.status in FAILED:
                message = f"{what} because cluster {cluster.name} currently has Fargate profile {other.name} in status {other.status}"
                raise AwsError("ResourceInUseException", message)

    def create(self, params: dict[str, Any]) -> Profile:
        """Start to create a profile, and authorize its role."""
        settings, name = self.simulator.settings, params["fargateProfileName"]
        subnets = validation.check(self.simulator, params)
        if name in self.profiles:
            raise AwsError("ResourceInUseException", "A Fargate Profile already exists with this name in this cluster.")
        self.check_no_other_change(f"Cannot create Fargate Profile {name}")
        profile = Profile(
            arn=f"arn:aws:eks:{settings.region}:{settings.account}:fargateprofile/{settings.cluster_name}/{name}/{uuid4()}",
            cluster=settings.cluster_name,
            name=name,
            role=params["podExecutionRoleArn"],
            subnets=subnets,
            selectors=[{key: value for key, value in s.items() if value} for s in params["selectors"]],
            tags=dict(params.get("tags") or {}),
            request=params,
        )
        self.profiles[name] = profile
        self.log_state(profile)
        self.simulator.access_entries.authorize_role(validation.find_role(self.simulator, profile.role), "FARGATE_LINUX")
        self.simulator.timers.after(settings.delays.profile, lambda: self.finish_creation(profile))
        return profile

    def finish_creation(self, profile: Profile) -> None:
        """Match pods with the new profile, then set its status to ACTIVE."""
        if not self.check_failure(profile):
            self.pods.match(self.active() + [profile], lambda: self.set_status(profile, "ACTIVE"))

    def active(self) -> list[Profile]:
        """The profiles that pods are matched with."""
        return [profile for profile in self.profiles.values() if profile.status == "ACTIVE"]

    def delete(self, profile: Profile) -> None:
        """Start to delete a profile and its pods."""
        self.check_no_other_change(f"Cannot Delete Fargate Profile {profile.name}")
        self.set_status(profile, "DELETING")
        self.pods.match(self.active(), lambda: self.delete_pods(profile))

    def delete_pods(self, profile: Profile) -> None:
        """Delete the pods of a profile, then the profile."""
        self.pods.evict(profile.name)
        self.simulator.timers.after(self.simulator.settings.delays.profile_gone, lambda: self.finish_deletion(profile))

    def finish_deletion(self, profile: Profile) -> None:
        """Remove the profile, unless a failure was injected."""
        if not self.check_failure(profile):
            self.pods.evict(profile.name)
            del self.profiles[profile.name]
            self.simulator.log.state("fargate-profile", profile.name, state="gone")

    def check_failure(self, profile: Profile) -> bool:
        """Apply an injected failure, with its health issue. Returns whether there was one."""
        state = FAILED[profile.status]
        failure = self.failures.get((profile.name, state)) or self.failures.get(("*", state))
        if failure:
            code, message = failure
            profile.issues = [{"code": code, "message": message, "resourceIds": [profile.role]}]
            self.set_status(profile, state)
        return failure is not None

    def set_status(self, profile: Profile, status: str) -> None:
        """Set the status of a profile."""
        profile.status = status
        if status not in FAILED.values():
            profile.issues = []
        self.log_state(profile)

    def log_state(self, profile: Profile) -> None:
        """Write a profile's state to the event log."""
        more = {"selectors": profile.selectors, "role": profile.role, "issues": profile.issues or None}
        self.simulator.log.state("fargate-profile", profile.name, state=profile.status, **more)


def install(simulator: Any) -> None:
    """Replace moto's operations, which create and delete profiles immediately."""

    class Operations:
        """Methods for moto's response class. `self` is an instance of that class."""

        def create_fargate_profile(self) -> ActionResult:
            params = cluster_params(simulator, self)
            profile = find_repeated_call(simulator.fargate.profiles.values(), params)
            if profile is None:
                callers.check_service_linked_role(simulator, self, "AWSServiceRoleForAmazonEKSForFargate")
                profile = simulator.fargate.create(params)
            return ActionResult({"fargateProfile": profile.describe()})

        def describe_fargate_profile(self) -> ActionResult:
            profile = simulator.fargate.get(cluster_params(simulator, self)["fargateProfileName"])
            return ActionResult({"fargateProfile": profile.describe()})

        def list_fargate_profiles(self) -> ActionResult:
            names, token = page(sorted(simulator.fargate.profiles), cluster_params(simulator, self))
            return ActionResult({"fargateProfileNames": names, "nextToken": token})

        def delete_fargate_profile(self) -> ActionResult:
            profile = simulator.fargate.get(cluster_params(simulator, self)["fargateProfileName"])
            simulator.fargate.delete(profile)
            return ActionResult({"fargateProfile": profile.describe()})

    add_operations(Operations)


def cluster_params(simulator: Any, response: Any) -> dict[str, Any]:
    """The parameters of a call. The cluster must exist."""
    params = request_params(response)
    get_cluster(simulator, params["clusterName"])
    return params
