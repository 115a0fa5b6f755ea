"""Registration of nodes, with a real control plane."""

import gzip
import re
import threading
import time
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import yaml

from localcloud.aws.nodes import authenticator
from localcloud.aws.nodes.kubelets import Kubelet, Kubelets
from localcloud.tests.aws.nodes.site import NODE_GROUPS, POLICY, WINDOWS_GROUP, USER_DATA
from localcloud.tests.aws.support import wait_until


@pytest.mark.parametrize("family", USER_DATA)
def test_valid_user_data_results_in_a_matching_node(site, joined, family):
    """Amazon EKS User Guide, "Customize managed nodes with launch templates"; Kubernetes, "Well-Known Labels"."""
    group = site.launch(site.user_data(family), joined, site.cloud["amis"][family][0])
    (node,) = site.ready(group)
    instance = site.asg.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"][0]["Instances"][0]
    labels = node["metadata"]["labels"]
    assert re.fullmatch(r"ip-10-0-\d+-\d+\.us-west-2\.compute\.internal", node["metadata"]["name"])
    assert node["spec"]["providerID"] == f"aws:///{instance['AvailabilityZone']}/{instance['InstanceId']}"
    assert (labels["team"], labels["node.kubernetes.io/role"]) == ("a", "web")
    assert labels["topology.kubernetes.io/zone"] == labels["failure-domain.beta.kubernetes.io/zone"] == instance["AvailabilityZone"]
    assert labels["node.kubernetes.io/instance-type"] == labels["beta.kubernetes.io/instance-type"] == "m5.large"
    assert labels["kubernetes.io/hostname"] == node["metadata"]["name"]
    assert {"key": "team", "value": "a", "effect": "NoSchedule"} in node["spec"]["taints"]
    assert node["status"]["capacity"]["pods"] == "42"
    assert site.condition(node["metadata"]["name"]) == "True"
    system = "windows" if family == "windows" else "linux"
    assert (labels["kubernetes.io/os"], labels["kubernetes.io/arch"]) == (system, "amd64")
    assert ("node.kubernetes.io/windows-build" in labels) == (family == "windows")
    assert ("Windows" in node["status"]["nodeInfo"]["osImage"]) == (family == "windows")


@pytest.mark.parametrize("when", ["before it stops", "while it stops"])
def test_a_kubelet_continues_when_it_is_authorized_again_at_once(when):
    """Amazon EKS User Guide, "Grant IAM users access to Kubernetes with a ConfigMap": each request is authenticated
    again."""
    jobs, role = [], SimpleNamespace(arn="arn:aws:iam::123456789012:role/nodes")
    good = yaml.safe_dump([authenticator.aws_auth_entry(role.arn, "EC2_LINUX")])
    simulator = MagicMock(lock=threading.RLock(), access_of=lambda _: ("CONFIG_MAP", None))
    simulator.kubelets = kubelets = Kubelets(simulator, MagicMock())
    kubelets.worker, kubelets.role_of = SimpleNamespace(after=lambda _, job: jobs.append(job)), lambda _: role
    kubelet = kubelets.all["i-1"] = Kubelet(MagicMock(), "web", {}, node="ip-10-0-0-4", state="ready", role=role)
    kubelets.on_aws_auth_change("- rolearn: {")
    if when == "before it stops":
        kubelets.on_aws_auth_change(good)
    else:
        kubelets.mark_dead = lambda *given: (kubelets.on_aws_auth_change(good), Kubelets.mark_dead(kubelets, *given))
    while jobs:
        jobs.pop(0)()
    assert kubelet.state == "ready"


@pytest.mark.parametrize("family", USER_DATA)
def test_gzip_user_data_is_decompressed_except_on_windows(site, joined, family):
    """cloud-init, "Gzip compressed content"; amazon-eks-ami, nodeadm; Bottlerocket, "User data"; EC2Launch knows no gzip."""
    group = site.launch(gzip.compress(site.user_data(family).encode()), joined, site.cloud["amis"][family][0])
    if family == "windows":
        assert "is not text" in site.reason(group)
    else:
        assert len(site.ready(group)) == 1


@pytest.mark.parametrize(
    ("family", "changes", "reason"),
    [
        ("amazonlinux2", {"cluster": "other"}, "names cluster 'other'"),
        ("amazonlinux2", {"endpoint": "https://127.0.0.1:1"}, "cannot be reached"),
        ("amazonlinux2023", {"ca": "b3RoZXI="}, "unknown authority"),
        ("bottlerocket", {"cluster": ""}, "cluster-name is missing"),
        ("amazonlinux2", {"labels": "kubernetes.io/role=web"}, "unknown 'kubernetes.io'"),
        ("amazonlinux2023", {"labels": "a=b --no-such-flag=1"}, "unknown flag: --no-such-flag"),
        ("windows", {"cluster": "other"}, "names cluster 'other'"),
        ("windows", {"labels": "a=b' -Verbose '"}, "matches parameter name 'Verbose'"),
    ],
)
def test_an_instance_with_invalid_user_data_does_not_join(site, joined, family, changes, reason):
    """Kubernetes, "kubelet" (--node-labels); amazon-eks-ami, nodeadm and bootstrap.sh; Bottlerocket, "kubernetes settings"."""
    group = site.launch(site.user_data(family, **changes), joined, site.cloud["amis"][family][0])
    assert reason in site.reason(group)


def test_an_instance_with_user_data_of_another_family_does_not_join(site, joined):
    """Bottlerocket reads TOML only; see "Using user data" in its documents."""
    group = site.launch(site.user_data("amazonlinux2"), joined, site.cloud["amis"]["bottlerocket"][0])
    assert "not TOML" in site.reason(group)


def test_a_node_requires_an_aws_auth_entry_to_join_and_to_stay_ready(site):
    """Amazon EKS User Guide, "Grant IAM users access to Kubernetes with a ConfigMap"."""
    role, profile = site.role()
    group = site.launch(site.user_data("amazonlinux2"), profile, site.cloud["amis"]["amazonlinux2"][0])
    assert role in site.reason(group) or "does not exist" in site.reason(group)
    site.add_aws_auth_entry(role, username="wrong")
    wait_until(lambda: "username" in site.reason(group), "the reason to change")
    site.add_aws_auth_entry(role)
    (node,) = site.ready(group)
    site.remove_aws_auth_entry(role)
    wait_until(lambda: site.condition(node["metadata"]["name"]) == "Unknown", "the node to be Unknown")
    site.add_aws_auth_entry(role)
    wait_until(lambda: site.condition(node["metadata"]["name"]) == "True", "the node to be Ready again")


def test_an_instance_joins_once_its_role_has_the_worker_policy(site):
    """Amazon EKS User Guide, "Amazon EKS node IAM role"."""
    role, profile = site.role()
    name = role.rsplit("/", 1)[1]
    site.add_aws_auth_entry(role)
    site.iam.detach_role_policy(RoleName=name, PolicyArn=POLICY)
    group = site.launch(site.user_data("amazonlinux2"), profile, site.cloud["amis"]["amazonlinux2"][0])
    assert "lacks AmazonEKSWorkerNodePolicy" in site.reason(group)
    site.iam.attach_role_policy(RoleName=name, PolicyArn=POLICY)
    site.ready(group)


def test_a_windows_instance_requires_the_kube_proxy_group(site):
    """Amazon EKS User Guide, "Deploy Windows nodes on EKS clusters": eks:kube-proxy-windows in the role's entry; pods run there."""
    role, profile = site.role()
    site.add_aws_auth_entry(role, groups=NODE_GROUPS)
    group = site.launch(site.user_data("windows"), profile, site.cloud["amis"]["windows"][0])
    assert WINDOWS_GROUP in site.reason(group)
    site.add_aws_auth_entry(role)
    (node,) = site.ready(group)
    pod = {"metadata": {"name": group}, "spec": {"nodeName": node["metadata"]["name"], "containers": [{"name": "c", "image": "i"}]}}
    pods = "/api/v1/namespaces/default/pods"
    site.cloud.create(pods, pod)
    wait_until(lambda: site.get(f"{pods}/{group}")["status"].get("phase") == "Running", "the pod to run")
    site.cloud.api("DELETE", f"{pods}/{group}", {"gracePeriodSeconds": 0})


def test_broken_amis_never_join_stay_not_ready_or_fail_later(site, joined):
    """The three kinds of broken AMIs that the controller must handle."""
    amis = site.cloud["amis"]
    never, unready, dies = (
        site.launch(site.user_data("amazonlinux2"), joined, amis[key]) for key in ("broken_never_joins", "broken_not_ready", "broken_dies")
    )
    assert "starts no kubelet" in site.reason(never)
    node = wait_until(lambda: site.log(unready, "not-ready"), "the node that is never ready")[0]["id"]
    (dead,) = site.ready(dies)
    wait_until(lambda: site.condition(dead["metadata"]["name"]) == "Unknown", "the node to die")
    assert site.condition(node) == "False"


def test_pods_of_a_dead_kubelet_stay_terminating_until_the_node_is_deleted(site, joined):
    """Kubernetes, "Nodes" and "Pod garbage collection": pods of a deleted node are removed."""
    group = site.launch(site.user_data("amazonlinux2"), joined, site.cloud["amis"]["amazonlinux2"][0])
    (node,) = site.ready(group)
    name, instance = node["metadata"]["name"], node["spec"]["providerID"].rsplit("/", 1)[1]
    pod = {"metadata": {"name": group}, "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i"}]}}
    pods = "/api/v1/namespaces/default/pods"
    site.cloud.create(pods, pod)
    wait_until(lambda: site.get(f"{pods}/{group}")["status"].get("phase") == "Running", "the pod to run")
    site.control.post("instance", id=instance, action="kubelet-dies")
    wait_until(lambda: site.condition(name) == "Unknown", "the node to be Unknown")
    site.cloud.api("DELETE", f"{pods}/{group}", {"gracePeriodSeconds": 1})
    time.sleep(3)
    assert site.get(f"{pods}/{group}")["metadata"]["deletionTimestamp"]
    site.asg.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=False)
    wait_until(lambda: site.get(f"/api/v1/nodes/{name}") is None, "the node to be gone")
    wait_until(lambda: site.get(f"{pods}/{group}") is None, "the pod to be gone")


def test_a_recovered_kubelet_is_ready_again(site, joined):
    """Kubernetes, "Node status": Ready is Unknown while the kubelet is silent."""
    group = site.launch(site.user_data("amazonlinux2023"), joined, site.cloud["amis"]["amazonlinux2023"][0])
    (node,) = site.ready(group)
    name, instance = node["metadata"]["name"], node["spec"]["providerID"].rsplit("/", 1)[1]
    for action, status in (("kubelet-dies", "Unknown"), ("kubelet-recovers", "True")):
        site.control.post("instance", id=instance, action=action)
        wait_until(lambda s=status: site.condition(name) == s, f"the node to be {status}")


def test_console_output_has_the_reason_why_an_instance_did_not_join(site, joined):
    """Amazon EC2 API Reference, GetConsoleOutput."""
    group = site.launch("not a script", joined, site.cloud["amis"]["amazonlinux2"][0])
    reason = site.reason(group)
    instance = site.log(group, "not-joined")[0]["instance"]
    assert reason in site.ec2.get_console_output(InstanceId=instance)["Output"]
