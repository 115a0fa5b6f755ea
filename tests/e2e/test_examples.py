"""Every example becomes Ready nodes that carry what it asks for."""

import pathlib

import pytest
import yaml

from localcloud.tests import support
from e2e.harness import OWNERSHIP, PREFIX, tags_of

EXAMPLES = support.REPOSITORY / "examples"
EXCLUDED = {PREFIX + "config-excluded": "true"}


def labels_of(group):
    """The labels of its only node."""
    (node,) = group.nodes()
    return node["metadata"]["labels"]


def relabeled(group):
    """Waits until the node's legacy role label is there."""
    group.wait(lambda g: labels_of(g).get("kubernetes.io/role") == g.name, what="the label kubernetes.io/role")


def test_the_full_example_is_applied_completely(make_tenant):
    """Amazon Linux 2 with everything set: a user would miss labels, taints, disks, hooks or autoscaler tags."""
    tenant = make_tenant(annotations=EXCLUDED)
    group = tenant.apply((EXAMPLES / "full.yaml").read_text()).wait_ready(nodes=1)
    (node,) = group.nodes()
    labels = node["metadata"]["labels"]
    assert labels["team"] == "search" and labels["tier"] == "gold"
    assert labels["node.kubernetes.io/role"] == "full"
    assert labels[PREFIX + "lifecycle"] == "normal" and labels[PREFIX + "image"] == "ami-01100000000000001"
    assert {"key": "dedicated", "value": "search", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["status"]["capacity"]["pods"] == "58"
    relabeled(group)
    asg = group.asg()
    tags = tags_of(asg)
    assert tags[OWNERSHIP + "ClusterName"] == "demo" and tags[OWNERSHIP + "InstanceGroup"] == "full"
    assert tags[OWNERSHIP + "Namespace"] == tenant.namespace and tags["KubernetesCluster"] == "demo"
    assert tags["owner"] == "search" and tags["cost-center"] == "1234"
    assert tags["k8s.io/cluster-autoscaler/demo"] == "owned" and tags["k8s.io/cluster-autoscaler/node-template/label/team"] == "search"
    assert tags["k8s.io/cluster-autoscaler/node-template/taint/dedicated"] == "search:NoSchedule"
    assert all(tag["PropagateAtLaunch"] for tag in asg["Tags"])
    assert [p["ProcessName"] for p in asg["SuspendedProcesses"]] == ["AZRebalance"]
    assert {m["Metric"] for m in asg["EnabledMetrics"]} == {"GroupInServiceInstances", "GroupDesiredCapacity"}
    assert (asg["MinSize"], asg["MaxSize"]) == (1, 4)
    data = group.template_versions()[-1]["LaunchTemplateData"]
    assert {d["DeviceName"]: d["Ebs"]["VolumeSize"] for d in data["BlockDeviceMappings"]} == {"/dev/xvda": 40, "/dev/xvdb": 100}
    assert data["MetadataOptions"]["HttpTokens"] == "required"


def test_amazon_linux_2023_joins_by_its_node_config(make_tenant):
    """The family that new clusters use."""
    group = make_tenant(annotations=EXCLUDED).apply((EXAMPLES / "amazonlinux2023.yaml").read_text()).wait_ready(nodes=1)
    labels = labels_of(group)
    assert labels["team"] == "web" and labels[PREFIX + "image"] == "ami-02100000000000001"
    relabeled(group)


def test_bottlerocket_joins_by_its_settings(make_tenant):
    """The family whose user data is not a script."""
    group = make_tenant(annotations=EXCLUDED).apply((EXAMPLES / "bottlerocket.yaml").read_text()).wait_ready(nodes=1)
    (node,) = group.nodes()
    assert labels_of(group)["team"] == "edge" and labels_of(group)[PREFIX + "image"] == "ami-03100000000000001"
    assert {"key": "edge", "value": "true", "effect": "NoExecute"} in node["spec"]["taints"]
    assert node["status"]["capacity"]["pods"] == "30"


def test_windows_joins_by_its_powershell(make_tenant, shared):
    """The family that differs in everything: script, image, right to join, and and the tags for the autoscaler."""
    group = make_tenant(annotations=EXCLUDED).apply((EXAMPLES / "windows.yaml").read_text()).wait_ready(nodes=1)
    (node,) = group.nodes()
    labels = node["metadata"]["labels"]
    assert labels["team"] == "desktop" and labels["kubernetes.io/os"] == "windows"
    assert labels[PREFIX + "image"] == shared["amis"]["windows"][0]
    assert {"key": "os", "value": "windows", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["status"]["capacity"]["pods"] == "20"
    arn = group.status()["nodesInstanceRoleArn"]
    (entry,) = (e for e in yaml.safe_load(shared.map_roles()) if e["rolearn"] == arn)
    assert "eks:kube-proxy-windows" in entry["groups"]
    template = "k8s.io/cluster-autoscaler/node-template/"
    tags = tags_of(group.asg())
    assert (tags[template + "label/kubernetes.io/os"], tags[template + "label/kubernetes.io/arch"]) == ("windows", "amd64")
    assert tags[template + "resources/vpc.amazonaws.com/PrivateIPv4Address"] == "9"
    group.delete()
    group.wait_gone()
    assert arn not in shared.map_roles()


def test_a_warm_pool_waits_beside_its_group(make_tenant, shared):
    """Two instances wait, stopped, and are no nodes."""
    group = make_tenant(annotations=EXCLUDED).apply((EXAMPLES / "warm-pool.yaml").read_text()).wait_ready(nodes=1)

    def waiting(g):
        found = shared.boto("autoscaling").describe_warm_pool(AutoScalingGroupName=g.scaling_group)["Instances"]
        return sorted(i["LifecycleState"] for i in found)

    group.wait(lambda g: waiting(g) == ["Warmed:Stopped"] * 2, what="two instances in the warm pool")
    assert len(group.nodes()) == 1


def test_network_and_image_are_found_by_name(make_tenant, shared):
    """A tenant who names subnets by their tag and uses `latest` needs no id."""
    group = make_tenant(annotations=EXCLUDED).apply((EXAMPLES / "by-name.yaml").read_text()).wait_ready(nodes=1)
    assert set(group.asg()["VPCZoneIdentifier"].split(",")) == set(shared["subnets"][:2])
    data = group.template_versions()[-1]["LaunchTemplateData"]
    assert data["ImageId"] == shared["amis"]["amazonlinux2023"][0]
    assert data["SecurityGroupIds"] == [shared["security_group"]]


def test_an_existing_role_is_used_and_never_changed(make_tenant, shared, unique):
    """A team whose roles are made elsewhere must find them as they were, also after the group has gone."""
    name = f"tenant-nodes-{unique}"
    arn = shared.make_role(name)
    before = {kind: shared.snapshot()[kind][name] for kind in ("roles", "profiles")}
    manifest = yaml.safe_load((EXAMPLES / "own-role.yaml").read_text())
    manifest["spec"]["eks"]["configuration"].update(roleName=name, instanceProfileName=name)
    group = make_tenant(annotations=EXCLUDED).apply(manifest).wait_ready(nodes=1)
    assert arn in shared.map_roles()
    assert group.status()["nodesInstanceRoleArn"] == arn
    assert group.template_versions()[-1]["LaunchTemplateData"]["IamInstanceProfile"]["Arn"].endswith(f"/{name}")
    group.delete()
    group.wait_gone()
    snapshot = shared.snapshot()
    assert {kind: snapshot[kind][name] for kind in before} == before
    assert arn not in shared.map_roles()


def test_the_short_example_is_completed_by_the_admins_config_map(make_tenant):
    """The way that tenants are meant to write: six lines, and the rest is the platform's."""
    group = make_tenant().apply((EXAMPLES / "short.yaml").read_text()).wait_ready(nodes=1)
    labels = labels_of(group)
    assert labels["team"] == "search" and labels["example.com/pool"] == "shared" and labels[PREFIX + "image"] == "ami-02100000000000001"
    tags = tags_of(group.asg())
    assert tags["team"] == "search" and tags["owner"] == "platform" and group.asg()["MaxSize"] == 4
    assert group.has_condition("BoundariesApplied") and group.status()["configMD5"]
    relabeled(group)


@pytest.mark.private
def test_conditionals_choose_image_and_type_by_annotation(own_cloud, start_controller, make_tenant):
    """One ConfigMap for two architectures and three families: the wrong image would never boot."""
    cloud = own_cloud(config=support.REPOSITORY / "boundaries" / "architectures.yaml")
    controller = start_controller(cloud)
    tenant = make_tenant(cloud=cloud, controller=controller)
    groups = tenant.apply((EXAMPLES / "conditionals.yaml").read_text())
    seen = {}
    for group in groups:
        labels = labels_of(group.wait_ready(nodes=1))
        seen[group.name] = (labels[PREFIX + "image"], labels["node.kubernetes.io/instance-type"], labels["kubernetes.io/arch"])
    assert seen == {
        "intel": ("ami-02100000000000001", "m5.large", "amd64"),
        "arm": ("ami-02200000000000001", "m6g.large", "arm64"),
        "arm-bottlerocket": ("ami-03200000000000001", "m6g.large", "arm64"),
    }


COMPLETE = {"pool": 1, "in-place": 1, "spot": 1, "mixed": 4, "crd-rolling-upgrade": 1, "crd-workflow": 1, "fargate": None, "managed": None}
"""Further files, each with the number of nodes that it begins with; None if the controller makes no nodes for it."""


@pytest.mark.parametrize("name", COMPLETE)
def test_every_other_example_becomes_ready(make_tenant, shared, name):
    """Who copies a file of examples/ must get what its first line says, without an edit but of its placeholders."""
    tenant = make_tenant(annotations=EXCLUDED)
    manifest = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    if name == "managed":
        manifest["spec"]["eks-managed"]["configuration"]["nodeRole"] = shared.make_role(f"{tenant.unique}-nodes")
    if name == "fargate":
        manifest["spec"]["eks-fargate"]["selectors"] = [{"namespace": tenant.namespace, "labels": {"compute": "fargate"}}]
    tenant.apply(manifest).wait_ready(nodes=COMPLETE[name])


def test_every_file_of_examples_is_tried_here():
    """A new example that no test applies may be wrong for months."""
    here = pathlib.Path(__file__).read_text()
    missing = [file.name for file in EXAMPLES.glob("*.yaml") if file.stem not in COMPLETE and f'"{file.name}"' not in here]
    assert missing == []


def test_a_key_pair_reaches_the_instances(make_tenant, shared, unique):
    """Users log in with the key pair."""
    shared.boto("ec2").create_key_pair(KeyName=unique)
    tenant = make_tenant()
    tenant.set_defaults(keyPairName=unique)
    group = tenant.group().wait_ready(nodes=1)
    (identifier,) = group.instances()
    found = shared.boto("ec2").describe_instances(InstanceIds=[identifier])["Reservations"][0]["Instances"][0]
    assert found["KeyName"] == unique
