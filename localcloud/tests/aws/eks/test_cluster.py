"""The EKS cluster."""

import base64
import time

import pytest

from localcloud.tests.aws.support import TRUST, client_error


@pytest.mark.patched
def test_describe_cluster_returns_vpc_endpoint_and_authentication_mode(aws, simulator):
    """Amazon EKS API Reference, Cluster: endpoint, certificateAuthority, resourcesVpcConfig, kubernetesNetworkConfig, accessConfig."""
    cluster = aws.eks.describe_cluster(name=simulator.cluster_name)["cluster"]
    assert (cluster["status"], cluster["version"]) == ("ACTIVE", simulator.cluster_version)
    assert cluster["resourcesVpcConfig"]["vpcId"] == simulator.vpc
    assert cluster["resourcesVpcConfig"]["subnetIds"] == simulator.subnets
    assert cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "172.20.0.0/16"
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


@pytest.mark.patched
def test_describe_cluster_returns_the_service_range_of_the_ip_family(aws, simulator):
    """Amazon EKS API Reference, KubernetesNetworkConfigResponse: ipFamily, serviceIpv4Cidr, serviceIpv6Cidr ("you can't specify a custom IPv6 CIDR block")."""
    ranges = {}
    for name, requested in (("four", {}), ("six", {"ipFamily": "ipv6"}), ("custom", {"serviceIpv4Cidr": "192.168.0.0/16"})):
        aws.eks.create_cluster(
            name=name, roleArn="arn:aws:iam::123456789012:role/eks", resourcesVpcConfig={"subnetIds": simulator.subnets}, kubernetesNetworkConfig=requested
        )
        ranges[name] = aws.eks.describe_cluster(name=name)["cluster"]["kubernetesNetworkConfig"]
        aws.eks.delete_cluster(name=name)
    assert (ranges["four"]["ipFamily"], ranges["four"]["serviceIpv4Cidr"] in ("10.100.0.0/16", "172.20.0.0/16")) == ("ipv4", True)
    assert ranges["custom"] == {"ipFamily": "ipv4", "serviceIpv4Cidr": "192.168.0.0/16"}
    assert set(ranges["six"]) == {"ipFamily", "serviceIpv6Cidr"}
    assert ranges["six"]["serviceIpv6Cidr"].startswith("fd")


@pytest.mark.patched
def test_each_cluster_has_its_own_mode_and_access_entries(aws, simulator, name):
    """Amazon EKS API Reference, CreateAccessConfigRequest, authenticationMode, and CreateAccessEntry, clusterName."""
    network = {"subnetIds": simulator.subnets}
    for mode in ("API", "CONFIG_MAP"):
        created = {"name": f"{name}-{mode}", "roleArn": "arn:aws:iam::123456789012:role/eks", "version": "1.30"}
        aws.eks.create_cluster(**created, resourcesVpcConfig=network, accessConfig={"authenticationMode": mode})
        found = aws.eks.describe_cluster(name=created["name"])["cluster"]
        assert (found["accessConfig"]["authenticationMode"], found["version"]) == (mode, "1.30")
    role = aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    time.sleep(0.4)
    api, config_map = {"clusterName": f"{name}-API"}, {"clusterName": f"{name}-CONFIG_MAP"}
    entry = aws.eks.create_access_entry(**api, principalArn=role, type="EC2_LINUX")["accessEntry"]
    assert f"access-entry/{name}-API/" in entry["accessEntryArn"]
    assert aws.eks.list_access_entries(**api)["accessEntries"] == [role]
    assert client_error(aws.eks.list_access_entries, **config_map)[0] == "InvalidRequestException"
    assert client_error(aws.eks.list_access_entries, clusterName=simulator.cluster_name)[0] == "InvalidRequestException"
    aws.eks.delete_access_entry(**api, principalArn=role)
    for mode in ("API", "CONFIG_MAP"):
        aws.eks.delete_cluster(name=f"{name}-{mode}")
