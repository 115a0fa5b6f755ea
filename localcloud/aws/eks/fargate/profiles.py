"""Fargate profiles: they take their time, and the cluster makes or deletes one at a time.

Follows the Amazon EKS API Reference (CreateFargateProfile, DescribeFargateProfile, ListFargateProfiles,
DeleteFargateProfile, FargateProfile) and the User Guide, "Define which Pods use AWS Fargate when launched" and "Delete a
Fargate profile". Whether EKS takes the pod execution role out of aws-auth, or deletes its access entry, when a profile goes
is not documented: here both stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from moto.core.responses import ActionResult

from localcloud.aws.eks.fargate import validation as fargate_input
from localcloud.aws.eks.clusters import in_use
from localcloud.aws.eks.operations import cluster_of, page, parameters, put, repeated
from localcloud.aws.errors import Refused
from localcloud.aws.eks.fargate.pods import Pods

ISSUES = {
    "AccessDenied": "The pod execution role may not be used by Amazon EKS.",
    "ClusterUnreachable": "Amazon EKS was unable to reach the Kubernetes API server of the cluster.",
    "InternalFailure": "Amazon EKS failed internally. Try again.",
    "PodExecutionRoleAlreadyInUse": "The pod execution role is in use by a node group of the cluster.",
}
FAILED = {"CREATING": "CREATE_FAILED", "DELETING": "DELETE_FAILED"}


@dataclass
class Profile:
    """One Fargate profile; `request` is the call that made it."""

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
        """The profile as DescribeFargateProfile shows it."""
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
    """The Fargate profiles of the cluster, by name, and what shall fail of them."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.profiles: dict[str, Profile] = {}
        self.failures: dict[tuple[str, str], tuple[str, str]] = {}
        self.pods = Pods(world, self)
        world.tagged.append(self.profiles.values)
        world.access.owners.append(self.roles)

    def roles(self) -> list[tuple[Any, str]]:
        """The pod execution roles, which EKS lets in by itself."""
        roles = [fargate_input.role_of(self.world, profile.role) for profile in self.profiles.values()]
        return [(role, "FARGATE_LINUX") for role in roles if role]

    def get(self, name: str) -> Profile:
        """The profile of that name."""
        if name not in self.profiles:
            raise Refused("ResourceNotFoundException", f"No Fargate Profile found with name: {name}.")
        return self.profiles[name]

    def check_turn(self, what: str) -> None:
        """Whether nothing else of the kind goes on in the cluster."""
        cluster = self.world.eks.clusters[self.world.settings.cluster_name]
        if self.world.updates.running():
            raise in_use(what, cluster)
        for other in self.profiles.values():
            if other.status in FAILED:
                message = f"{what} because cluster {cluster.name} currently has Fargate profile {other.name} in status {other.status}"
                raise Refused("ResourceInUseException", message)

    def create(self, params: dict[str, Any]) -> Profile:
        """Begin to make a profile, and let its role in."""
        settings, name = self.world.settings, params["fargateProfileName"]
        subnets = fargate_input.check(self.world, params)
        if name in self.profiles:
            raise Refused("ResourceInUseException", "A Fargate Profile already exists with this name in this cluster.")
        self.check_turn(f"Cannot create Fargate Profile {name}")
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
        self.show(profile)
        self.world.access.admit(fargate_input.role_of(self.world, profile.role), "FARGATE_LINUX")
        self.world.timers.after(settings.delays.profile, lambda: self.created(profile))
        return profile

    def created(self, profile: Profile) -> None:
        """The profile is made: pods are matched with it first, then it is shown as ACTIVE."""
        if not self.fails(profile):
            lag = self.pods.match(self.active() + [profile])
            self.world.timers.after(lag, lambda: self.enter(profile, "ACTIVE"))

    def active(self) -> list[Profile]:
        """The profiles that pods are matched with."""
        return [profile for profile in self.profiles.values() if profile.status == "ACTIVE"]

    def delete(self, profile: Profile) -> None:
        """Begin to delete a profile, with the pods that run by it."""
        self.check_turn(f"Cannot Delete Fargate Profile {profile.name}")
        self.enter(profile, "DELETING")
        lag = self.pods.match(self.active())
        self.world.timers.after(lag, lambda: self.pods.evict(profile.name))
        self.world.timers.after(lag + self.world.settings.delays.profile_gone, lambda: self.deleted(profile))

    def deleted(self, profile: Profile) -> None:
        """The profile is gone, unless that was to fail."""
        if not self.fails(profile):
            self.pods.evict(profile.name)
            del self.profiles[profile.name]
            self.world.log.state("fargate-profile", profile.name, state="gone")

    def fails(self, profile: Profile) -> bool:
        """Whether making or deleting the profile was to fail, which shows as an issue of its health."""
        state = FAILED[profile.status]
        failure = self.failures.get((profile.name, state)) or self.failures.get(("*", state))
        if failure:
            code, message = failure
            profile.issues = [{"code": code, "message": message, "resourceIds": [profile.role]}]
            self.enter(profile, state)
        return failure is not None

    def enter(self, profile: Profile, status: str) -> None:
        """The profile comes into a state."""
        profile.status = status
        if status not in FAILED.values():
            profile.issues = []
        self.show(profile)

    def show(self, profile: Profile) -> None:
        """Write a profile's state into the event log."""
        more = {"selectors": profile.selectors, "role": profile.role, "issues": profile.issues or None}
        self.world.log.state("fargate-profile", profile.name, state=profile.status, **more)


def mend(world: Any) -> None:
    """Put the operations into moto, which makes and deletes profiles at once."""

    class Operations:
        """Methods for moto's response class; `self` is that class's instance."""

        def create_fargate_profile(self) -> ActionResult:
            params = opened(world, self)
            profile = repeated(world.fargate.profiles.values(), params) or world.fargate.create(params)
            return ActionResult({"fargateProfile": profile.describe()})

        def describe_fargate_profile(self) -> ActionResult:
            profile = world.fargate.get(opened(world, self)["fargateProfileName"])
            return ActionResult({"fargateProfile": profile.describe()})

        def list_fargate_profiles(self) -> ActionResult:
            names, token = page(sorted(world.fargate.profiles), opened(world, self))
            return ActionResult({"fargateProfileNames": names, "nextToken": token})

        def delete_fargate_profile(self) -> ActionResult:
            profile = world.fargate.get(opened(world, self)["fargateProfileName"])
            world.fargate.delete(profile)
            return ActionResult({"fargateProfile": profile.describe()})

    put(Operations)


def opened(world: Any, response: Any) -> dict[str, Any]:
    """The parameters of a call about a cluster that is there."""
    params = parameters(response)
    cluster_of(world, params["clusterName"])
    return params
