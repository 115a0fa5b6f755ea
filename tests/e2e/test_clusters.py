"""Groups in clusters of all kinds: service range, IP family, authentication mode, Kubernetes version, processor, accelerator.

All groups are created at once, each in a cluster that has the local API server. Their nodes join only if the node's
software takes the user data, and if it fits the cluster (localcloud/aws/nodes).
"""

import dataclasses
import ipaddress
import json
import uuid

import pytest
import yaml

from e2e import harness
from e2e.harness import PREFIX

CUSTOM_RANGE = "192.168.0.0/16"
CLUSTERS = {
    "range": {"version": "1.32", "kubernetesNetworkConfig": {"serviceIpv4Cidr": CUSTOM_RANGE}},
    # Of the two ranges that EKS assigns, a Windows node in a VPC of 10.0.0.0/16 assumes the second one, which the local
    # cloud's own cluster has.
    "first": {"version": "1.32", "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16"}},
    "second": {"version": "1.32", "kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16"}},
    "six": {"version": "1.32", "kubernetesNetworkConfig": {"ipFamily": "ipv6"}, "accessConfig": {"authenticationMode": "API"}},
    "oldest": {"version": "1.30", "accessConfig": {"authenticationMode": "API"}},
    "newest": {"version": "1.36", "accessConfig": {"authenticationMode": "API_AND_CONFIG_MAP"}},
}
AMAZON_LINUX_2, AMAZON_LINUX, BOTTLEROCKET, WINDOWS = "amazonlinux2", "amazonlinux2023", "bottlerocket", "windows"


@dataclasses.dataclass
class Case:
    """One group. Without a cluster, it is in the local cloud's own one. `image` is the kind of image that `latest` selects."""

    family: str
    cluster: str = ""
    type: str = "m5.large"
    image: str = ""
    capacity: dict = dataclasses.field(default_factory=dict)


CASES = {
    "range-al2": Case(AMAZON_LINUX_2, "range"),
    "range-al2023": Case(AMAZON_LINUX, "range"),
    "range-windows": Case(WINDOWS, "range"),
    "first-windows": Case(WINDOWS, "first"),
    "second-windows": Case(WINDOWS, "second"),
    "six-al2": Case(AMAZON_LINUX_2, "six"),
    "six-al2023": Case(AMAZON_LINUX, "six"),
    "six-bottlerocket": Case(BOTTLEROCKET, "six"),
    "oldest": Case(AMAZON_LINUX, "oldest"),
    "newest": Case(BOTTLEROCKET, "newest"),
    "arm": Case(AMAZON_LINUX, type="m6g.large", image="amazonlinux2023-arm64"),
    "gpu": Case(AMAZON_LINUX, type="g4dn.xlarge", image="amazonlinux2023-nvidia", capacity={"nvidia.com/gpu": "1"}),
    "arm-gpu": Case(BOTTLEROCKET, type="g5g.xlarge", image="bottlerocket-nvidia-arm64", capacity={"nvidia.com/gpu": "1"}),
    "neuron": Case(AMAZON_LINUX, type="inf2.xlarge", image="amazonlinux2023-neuron", capacity={"aws.amazon.com/neuron": "1"}),
}


@pytest.fixture(scope="module")
def groups(shared, controller):
    """The groups of all cases by name."""
    unique = f"c{uuid.uuid4().hex[:6]}"
    network = {"subnetIds": shared["subnets"], "securityGroupIds": [shared["security_group"]]}
    for name, settings in CLUSTERS.items():
        shared.boto("eks").create_cluster(name=f"{unique}-{name}", roleArn="arn:aws:iam::123456789012:role/eks", resourcesVpcConfig=network, **settings)
    subnet = harness.ipv6_subnet(shared)
    statement = {"Effect": "Allow", "Action": ["ec2:AssignIpv6Addresses", "ec2:DescribeInstances"], "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    policy = shared.boto("iam").create_policy(PolicyName=f"{unique}-cni", PolicyDocument=document)["Policy"]["Arn"]

    def defaults(case):
        configuration = {"image": "latest", **({"clusterName": f"{unique}-{case.cluster}"} if case.cluster else {})}
        if case.cluster == "six":
            configuration |= {"subnets": [subnet], "managedPolicies": [policy]}
        return {"metadata": {"annotations": {PREFIX + "os-family": case.family}}, "spec": {"eks": {"configuration": configuration}}}

    def change(data):
        conditionals = yaml.load(data.get("conditionals") or "[]", yaml.CSafeLoader) or []
        conditionals = [each for each in conditionals if unique not in each["annotationSelector"]]
        if not ended:
            conditionals += [{"annotationSelector": f"e2e = {unique}-{name}", "defaults": defaults(case)} for name, case in CASES.items()]
        data["conditionals"] = yaml.dump(conditionals, Dumper=yaml.CSafeDumper, sort_keys=False)

    ended = False
    tenant = harness.Tenant(shared, controller, unique)
    shared.edit_config_map(change)
    controller.wait_config_loaded()
    made = {}
    for name, case in CASES.items():
        made[name] = tenant.group(name, annotations={"e2e": f"{unique}-{name}"}, size=(1, 1), instanceType=case.type)
        made[name].scaling_group = f"{unique}-{case.cluster}-{unique}-{name}" if case.cluster else made[name].scaling_group
    yield made
    # Without the conditionals, the groups would name another cluster than that of their resources, and stay.
    for group in made.values():
        group.delete()
    for group in made.values():
        group.wait_gone()
    tenant.end()
    ended = True
    shared.edit_config_map(change)


@pytest.mark.parametrize("name", CASES)
def test_nodes_join_clusters_of_all_kinds(groups, shared, name):
    """Amazon EKS User Guide, the pages that the simulator's tests of each behavior name."""
    case, group = CASES[name], groups[name].wait_ready(nodes=1)
    (node,) = group.nodes()
    address = next(each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP")
    assert ipaddress.ip_address(address) in ipaddress.ip_network(harness.IPV6_BLOCK if case.cluster == "six" else "10.0.0.0/16")
    (image,) = shared.boto("ec2").describe_images(ImageIds=[group.template_versions()[-1]["LaunchTemplateData"]["ImageId"]])["Images"]
    if case.image:
        assert image["ImageId"] == shared["amis"][case.image][0]
    if case.cluster in ("oldest", "newest"):
        version = CLUSTERS[case.cluster]["version"]
        assert node["status"]["nodeInfo"]["kubeletVersion"].startswith(f"v{version}.")
    assert node["status"]["nodeInfo"]["architecture"] == {"arm64": "arm64", "x86_64": "amd64"}[image["Architecture"]]
    assert {key: node["status"]["capacity"].get(key) for key in case.capacity} == case.capacity
    role = group.status()["nodesInstanceRoleArn"]
    mode = CLUSTERS.get(case.cluster, {}).get("accessConfig", {}).get("authenticationMode", "CONFIG_MAP")
    assert (role in shared.map_roles()) == (mode == "CONFIG_MAP")
    if mode != "CONFIG_MAP":
        cluster = group.scaling_group.removesuffix(f"-{group.tenant.namespace}-{name}")
        assert role in shared.boto("eks").list_access_entries(clusterName=cluster)["accessEntries"]
