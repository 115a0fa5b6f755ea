"""Access entries, which moto lacks.

Follows the Amazon EKS API Reference (the operations, and data type AccessEntry) and the User Guide, "Create access
entries", "Change authentication mode to use access entries" and "Migrating existing aws-auth ConfigMap entries".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from localcloud.aws.eks.access_entry_validation import ARN
from localcloud.aws.nodes import authenticator

NODES = ["system:nodes"]
IDENTITIES = {
    "EC2_LINUX": (authenticator.USERNAME, NODES),
    "EC2_WINDOWS": (authenticator.USERNAME, [authenticator.WINDOWS_GROUP, *NODES]),
    "FARGATE_LINUX": (authenticator.FARGATE_USERNAME, ["system:node-proxier", *NODES]),
    "HYBRID_LINUX": (authenticator.FARGATE_USERNAME, NODES),
    "EC2": (authenticator.USERNAME, NODES),
    "HYPERPOD_LINUX": (authenticator.FARGATE_USERNAME, NODES),
}
"""The user name and groups that EKS sets for each type except STANDARD."""


@dataclass
class AccessEntry:
    """One access entry.

    `principal_id` is the unique id of the role or user at creation. A recreated principal has another id.
    """

    arn: str
    cluster: str
    principal: str
    principal_id: str
    type: str
    username: str
    groups: list[str]
    tags: dict[str, str]
    request: dict[str, Any] = field(default_factory=dict)
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    modified: datetime = field(default_factory=lambda: datetime.now(UTC))

    def describe(self) -> dict[str, Any]:
        """The entry as DescribeAccessEntry returns it."""
        return {
            "clusterName": self.cluster,
            "principalArn": self.principal,
            "kubernetesGroups": self.groups,
            "accessEntryArn": self.arn,
            "createdAt": self.created,
            "modifiedAt": self.modified,
            "tags": self.tags,
            "username": self.username,
            "type": self.type,
        }


class AccessEntries:
    """The access entries of a cluster by principal, and those that are already effective in its API server."""

    def __init__(self, simulator: Any, cluster: str) -> None:
        self.simulator = simulator
        self.cluster = cluster
        self.entries: dict[str, AccessEntry] = {}
        self.effective: dict[str, AccessEntry] = {}
        self.role_sources: list[Callable[[], Iterable[tuple[Any, str]]]] = []
        """Functions that return the roles that EKS itself authorizes, with the types of their entries."""

    def managed_roles(self) -> list[tuple[Any, str]]:
        """The roles of managed node groups and Fargate profiles."""
        return [pair for owner in self.role_sources for pair in owner()]

    def add(self, principal: str, principal_id: str, kind: str, request: dict[str, Any]) -> AccessEntry:
        """Create an entry. EKS sets the fields that the call omits."""
        settings = self.simulator.settings
        _, principal_type, name = ARN.fullmatch(principal).groups()
        username, groups = IDENTITIES.get(kind) or (default_username(principal, principal_type, name), [])
        entry = AccessEntry(
            arn=f"arn:aws:eks:{settings.region}:{settings.account}:access-entry/{self.cluster}/"
            f"{principal_type}/{settings.account}/{name}/{uuid4()}",
            cluster=self.cluster,
            principal=principal,
            principal_id=principal_id,
            type=kind,
            username=request.get("username") or username,
            groups=list(request.get("kubernetesGroups") or groups),
            tags=dict(request.get("tags") or {}),
            request=request,
        )
        self.entries[principal] = entry
        self.on_change(principal)
        return entry

    def remove(self, principal: str) -> None:
        """Delete an entry."""
        del self.entries[principal]
        self.on_change(principal)

    def on_change(self, principal: str) -> None:
        """Log an entry's change, and make it effective after a delay."""
        entry = self.entries.get(principal)
        self.simulator.log.state("access-entry", principal, state="present" if entry else "gone", type=entry.type if entry else None)
        self.simulator.timers.after(self.simulator.settings.delays.access, lambda: self.take_effect(principal))

    def take_effect(self, principal: str) -> None:
        """Make the current entry of a principal effective in the API server."""
        entry = self.entries.get(principal)
        if entry:
            self.effective[principal] = entry
        else:
            self.effective.pop(principal, None)
        self.simulator.kubelets.reevaluate_authorization()

    def effective_entry(self, role: Any) -> AccessEntry | None:
        """The effective entry of this role. A role that was recreated has none."""
        entry = self.effective.get(role.arn)
        return entry if entry and entry.principal_id == role.id else None

    def authorize_role(self, role: Any, kind: str) -> None:
        """Authorize the role of a managed node group or Fargate profile, as EKS does: by an access entry, or in
        aws-auth.
        """
        if self.simulator.authentication_mode != "CONFIG_MAP":
            if role.arn not in self.entries:
                self.add(role.arn, role.id, kind, {})
        elif self.simulator.kubelets.kube:
            kubelets, entry = self.simulator.kubelets, authenticator.aws_auth_entry(role.arn, kind)
            kubelets.worker.after(0, lambda: kubelets.kube.add_aws_auth_entry(entry))


def default_username(principal: str, principal_type: str, name: str) -> str:
    """The user name that EKS sets for a principal of type STANDARD. For a role, it is that of its sessions, without the
    path.
    """
    if principal_type == "user":
        return principal
    prefix = principal.partition(":role/")[0].replace(":iam:", ":sts:")
    return f"{prefix}:assumed-role/{name}/{{{{SessionName}}}}"
