"""The EKS cluster."""

import base64

import pytest

from localcloud.tests.aws.support import client_error


@pytest.mark.patched
def test_describe_cluster_returns_vpc_endpoint_and_authentication_mode(aws, simulator):
    """Amazon EKS API Reference, Cluster: endpoint, certificateAuthority, resourcesVpcConfig, kubernetesNetworkConfig, accessConfig."""
    cluster = aws.eks.describe_cluster(name=simulator.cluster_name)["cluster"]
    assert (cluster["status"], cluster["version"]) == ("ACTIVE", simulator.cluster_version)
    assert cluster["resourcesVpcConfig"]["vpcId"] == simulator.vpc
    assert cluster["resourcesVpcConfig"]["subnetIds"] == simulator.subnets
    assert cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "10.96.0.0/16"
    assert cluster["accessConfig"]["authenticationMode"] == "CONFIG_MAP"
    assert base64.b64decode(cluster["certificateAuthority"]["data"])
    assert client_error(aws.eks.describe_cluster, name="no-such")[0] == "ResourceNotFoundException"


@pytest.mark.patched
def test_the_control_endpoint_changes_the_cluster_version(aws, simulator, control):
    """Amazon EKS API Reference, DescribeCluster: version and accessConfig change with the cluster."""
    control.post("cluster", version="1.33", authentication_mode="API")
    cluster = aws.eks.describe_cluster(name=simulator.cluster_name)["cluster"]
    assert (cluster["version"], cluster["accessConfig"]["authenticationMode"]) == ("1.33", "API")
    control.post("cluster", version=simulator.cluster_version, authentication_mode="CONFIG_MAP")
