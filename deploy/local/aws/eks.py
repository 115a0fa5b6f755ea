"""The EKS cluster that stands for the local API server.

Follows the Amazon EKS API Reference, DescribeCluster and data type Cluster.
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.eks.models import eks_backends
from moto.eks.responses import EKSResponse


def create_cluster(world: Any, subnets: list[str], security_group: str) -> None:
    """Make the cluster in moto; its endpoint and CA are those of the real API server."""
    settings = world.settings
    backend = eks_backends[settings.account][settings.region]
    backend.create_cluster(
        name=settings.cluster_name,
        version=settings.cluster_version,
        role_arn=f"arn:aws:iam::{settings.account}:role/eks-cluster",
        resources_vpc_config={"subnetIds": subnets, "securityGroupIds": [security_group]},
        kubernetes_network_config={"serviceIpv4Cidr": settings.service_cidr, "ipFamily": "ipv4"},
    )


def describe(world: Any, cluster: Any) -> dict[str, Any]:
    """The cluster as AWS shows it, with what moto leaves out."""
    config = cluster.resources_vpc_config
    subnets = config.get("subnetIds", [])
    return {
        "name": cluster.name,
        "arn": cluster.arn,
        "createdAt": cluster.created_at,
        "version": cluster.version,
        "endpoint": world.endpoint,
        "roleArn": cluster.role_arn,
        "resourcesVpcConfig": {
            "subnetIds": subnets,
            "securityGroupIds": config.get("securityGroupIds", []),
            "clusterSecurityGroupId": (config.get("securityGroupIds") or [""])[0],
            "vpcId": world.ec2.get_subnet(subnets[0]).vpc_id if subnets else "",
            "endpointPublicAccess": True,
            "endpointPrivateAccess": True,
            "publicAccessCidrs": ["0.0.0.0/0"],
        },
        "kubernetesNetworkConfig": cluster.kubernetes_network_config,
        "logging": cluster.logging,
        "identity": cluster.identity,
        "status": cluster.status,
        "certificateAuthority": {"data": world.ca_data},
        "platformVersion": "eks.1",
        "tags": cluster.tags,
        "accessConfig": {"authenticationMode": world.authentication_mode},
        "health": {"issues": []},
        "upgradePolicy": {"supportType": "STANDARD"},
    }


def mend(world: Any) -> None:
    """Put the mended answer into moto."""

    def describe_cluster(self: Any) -> ActionResult:
        cluster = self.eks_backend.describe_cluster(name=self._get_param("name"))
        return ActionResult({"cluster": describe(world, cluster)})

    EKSResponse.describe_cluster = describe_cluster
