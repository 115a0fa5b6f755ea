"""The data of managed node groups.

Follows the Amazon EKS API Reference, data types Nodegroup, NodegroupResources and Issue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from localcloud.aws.autoscaling.model import now
from localcloud.aws.errors import AwsError


def invalid_parameter(message: str) -> AwsError:
    """EKS's error for an invalid parameter."""
    return AwsError("InvalidParameterException", message)


def issue(code: str, message: str, resources: list[str | None]) -> dict[str, Any]:
    """An issue as DescribeNodegroup returns it."""
    return {"code": code, "message": message, "resourceIds": [resource for resource in resources if resource]}


@dataclass
class NodeGroup:
    """A managed node group.

    `request` is the call that created it. `settings` has the fields of the API. `group` is the name of its scaling
    group. `template_releases` maps each version of its launch template to a Kubernetes version and a release.
    `injected_issues` are failures that a test set for an operation. `delays` overrides EKS's delays for this group.
    """

    cluster: str
    name: str
    arn: str
    uuid: str
    request: dict[str, Any]
    settings: dict[str, Any]
    version: str
    release: str
    status: str = "CREATING"
    issues: list[dict[str, Any]] = field(default_factory=list)
    created: datetime = field(default_factory=now)
    modified: datetime = field(default_factory=now)
    group: str | None = None
    template: str | None = None
    security_group: str | None = None
    template_releases: dict[str, tuple[str, str]] = field(default_factory=dict)
    surge: int = 0
    injected_issues: dict[str, dict[str, Any]] = field(default_factory=dict)
    delays: dict[str, float] = field(default_factory=dict)

    @property
    def resource_name(self) -> str:
        """The name of its launch template and instance profile."""
        return f"eks-{self.uuid}"

    @property
    def tags(self) -> dict[str, str]:
        """Its tags. Changes to them are effective."""
        return self.settings["tags"]

    @property
    def windows(self) -> bool:
        """Whether its nodes run Windows."""
        return self.settings["amiType"].startswith("WINDOWS")

    @property
    def entry_type(self) -> str:
        """The type of access entry that its role needs."""
        return "EC2_WINDOWS" if self.windows else "EC2_LINUX"

    def max_unavailable(self, desired: int) -> int:
        """How many nodes are replaced in parallel: a number, or a percentage of the desired nodes, at least one."""
        wanted = self.settings["updateConfig"]
        share = wanted.get("maxUnavailablePercentage")
        return max(1, desired * share // 100) if share else wanted["maxUnavailable"]

    def describe(self) -> dict[str, Any]:
        """The node group as DescribeNodegroup returns it."""
        resources: dict[str, Any] = {}
        if self.group:
            resources["autoScalingGroups"] = [{"name": self.group}]
        if self.security_group:
            resources["remoteAccessSecurityGroup"] = self.security_group
        return {
            **self.settings,
            "nodegroupName": self.name,
            "nodegroupArn": self.arn,
            "clusterName": self.cluster,
            "version": self.version,
            "releaseVersion": self.release,
            "createdAt": self.created,
            "modifiedAt": self.modified,
            "status": self.status,
            "resources": resources,
            "health": {"issues": list(self.issues)},
        }
