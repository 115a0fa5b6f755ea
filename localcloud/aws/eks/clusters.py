"""The EKS clusters. All of them have the endpoint of the local API server.

Follows the Amazon EKS API Reference, CreateCluster, DescribeCluster, data type Cluster, and UpdateClusterConfig. Only updates of the
authentication mode are validated and take time. moto handles the other updates.
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult
from moto.eks.models import eks_backends
from moto.eks.responses import EKSResponse

from localcloud.aws.eks.access_entries import AccessEntries
from localcloud.aws.eks.access_entry_validation import check_change
from localcloud.aws.eks.operations import find_repeated_call, get_cluster, request_params
from localcloud.aws.errors import AwsError


def create_cluster(simulator: Any, subnets: list[str], security_group: str) -> None:
    """Create the cluster in moto, with the endpoint and the CA of the real API server."""
    settings = simulator.settings
    backend = eks_backends[settings.account][settings.region]
    backend.create_cluster(
        name=settings.cluster_name,
        version=settings.cluster_version,
        role_arn=f"arn:aws:iam::{settings.account}:role/eks-cluster",
        resources_vpc_config={"subnetIds": subnets, "securityGroupIds": [security_group]},
        kubernetes_network_config={"serviceIpv4Cidr": settings.service_cidr, "ipFamily": "ipv4"},
    )


def describe(simulator: Any, cluster: Any) -> dict[str, Any]:
    """The cluster as AWS returns it, including fields that moto omits."""
    config = cluster.resources_vpc_config
    subnets = config.get("subnetIds", [])
    return {
        "name": cluster.name,
        "arn": cluster.arn,
        "createdAt": cluster.created_at,
        "version": cluster.version,
        "endpoint": simulator.endpoint,
        "roleArn": cluster.role_arn,
        "resourcesVpcConfig": {
            "subnetIds": subnets,
            "securityGroupIds": config.get("securityGroupIds", []),
            "clusterSecurityGroupId": (config.get("securityGroupIds") or [""])[0],
            "vpcId": simulator.ec2.get_subnet(subnets[0]).vpc_id if subnets else "",
            "endpointPublicAccess": True,
            "endpointPrivateAccess": True,
            "publicAccessCidrs": ["0.0.0.0/0"],
        },
        "kubernetesNetworkConfig": network_config(cluster.kubernetes_network_config or {}),
        "logging": cluster.logging,
        "identity": cluster.identity,
        "status": cluster.status,
        "certificateAuthority": {"data": simulator.ca_data},
        "platformVersion": "eks.1",
        "tags": cluster.tags,
        "accessConfig": {"authenticationMode": simulator.access_of(cluster.name)[0]},
        "health": {"issues": []},
        "upgradePolicy": {"supportType": "STANDARD"},
    }


def network_config(requested: dict[str, Any]) -> dict[str, Any]:
    """The service range in the cluster's IP family. EKS assigns an IPv6 range from fc00::/7; users cannot choose it."""
    if requested.get("ipFamily") == "ipv6":
        return {"ipFamily": "ipv6", "serviceIpv6Cidr": "fd30:1c53:5f8a::/108"}
    return {"ipFamily": "ipv4", "serviceIpv4Cidr": requested.get("serviceIpv4Cidr") or "10.100.0.0/16"}


def service_range(cluster: Any) -> str:
    """The service range of a cluster."""
    config = network_config(cluster.kubernetes_network_config or {})
    return config.get("serviceIpv6Cidr") or config["serviceIpv4Cidr"]


def change_mode(simulator: Any, cluster: Any, params: dict[str, Any]) -> dict[str, Any]:
    """Start to change the authentication mode. Returns the update."""
    mode = params["accessConfig"]["authenticationMode"]
    if simulator.updates.running():
        raise update_in_progress(f"Cannot update cluster {cluster.name}", cluster)
    check_change(simulator.authentication_mode, mode)
    update = simulator.updates.begin("AccessConfigUpdate", {"AuthenticationMode": mode}, params)
    cluster.status = "UPDATING"

    def done() -> None:
        cluster.status = "ACTIVE"
        set_mode(simulator, mode)
        simulator.updates.end(update)

    simulator.timers.after(simulator.settings.delays.update, done)
    return update.describe()


def set_mode(simulator: Any, mode: str) -> None:
    """Set the authentication mode. EKS then creates access entries for the roles that it added to aws-auth itself."""
    had_access_entries, simulator.authentication_mode = simulator.authentication_mode != "CONFIG_MAP", mode
    simulator.log.state("cluster", simulator.settings.cluster_name, state=mode)
    if mode != "CONFIG_MAP" and not had_access_entries:
        for role, kind in simulator.access_entries.managed_roles():
            simulator.access_entries.authorize_role(role, kind)
    simulator.kubelets.reevaluate_authorization()


def update_in_progress(what: str, cluster: Any) -> AwsError:
    """EKS's error while the cluster is being updated."""
    return AwsError("ResourceInUseException", f"{what} because cluster {cluster.name} currently has an update in progress")


def install(simulator: Any) -> None:
    """Replace moto's operations."""
    create, update_cluster_config = EKSResponse.create_cluster, EKSResponse.update_cluster_config

    def create_cluster(self: Any) -> ActionResult:
        params = request_params(self)
        created, mode = create(self), params.get("accessConfig", {}).get("authenticationMode", "CONFIG_MAP")
        simulator.other_clusters[params["name"]] = mode, AccessEntries(simulator, params["name"])
        return created

    def describe_cluster(self: Any) -> ActionResult:
        cluster = self.eks_backend.describe_cluster(name=self._get_param("name"))
        return ActionResult({"cluster": describe(simulator, cluster)})

    def changed_cluster_config(self: Any) -> ActionResult:
        params = request_params(self)
        cluster = get_cluster(simulator, params["name"])
        if "accessConfig" not in params:
            return update_cluster_config(self)
        before = find_repeated_call(simulator.updates.all, params)
        return ActionResult({"update": before.describe() if before else change_mode(simulator, cluster, params)})

    EKSResponse.create_cluster = create_cluster
    EKSResponse.describe_cluster, EKSResponse.update_cluster_config = describe_cluster, changed_cluster_config
