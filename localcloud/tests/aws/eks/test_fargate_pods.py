"""Pods on Fargate, with a real control plane."""

import json
import time

import pytest

from localcloud.tests.aws.eks.fargate import FARGATE, Profiles
from localcloud.tests.aws.nodes.site import Site
from localcloud.tests.aws.support import NUMBERS, events, wait_until

LABEL = "eks.amazonaws.com/fargate-profile"
PAUSE = {"name": "c", "image": "i"}


@pytest.fixture(scope="module")
def site(start_cloud):
    """A cloud for this module."""
    return Site(start_cloud())


@pytest.fixture(scope="module")
def role(site):
    """A pod execution role."""
    arn = site.iam.create_role(RoleName="fargate-pods", Path="/team/", AssumeRolePolicyDocument=FARGATE)["Role"]["Arn"]
    time.sleep(site.cloud["delays"]["propagation"] + 0.1)
    return arn


@pytest.fixture
def namespace(site):
    """A new namespace."""
    name = f"fargate-{next(NUMBERS)}"
    site.cloud.kubectl("create", "namespace", name)
    site.cloud.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=60s")
    return name


@pytest.fixture
def profiles(site, role):
    """Creates profiles, and deletes them after the test."""
    made = Profiles(site.eks, site.cloud["cluster_name"])
    call = {"clusterName": made.cluster, "podExecutionRoleArn": role, "subnets": site.cloud["subnets"]}
    made.add = lambda name, *selectors: made.make(call, fargateProfileName=name, selectors=list(selectors))
    made.drop = lambda name: made.delete(name) and wait_until(lambda: made.status(name) is None, f"{name} to be gone")
    yield made
    for name in made.names():
        made.settle(name)
        made.drop(name)


@pytest.fixture
def pod(site, namespace):
    """Creates a pod. Returns a function that reads it."""

    def make(name, **labels):
        site.cloud.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [PAUSE]}})
        return lambda: site.get(f"/api/v1/namespaces/{namespace}/pods/{name}")

    return make


def running(show):
    """Wait until a pod runs. Returns the pod."""
    wait_until(lambda: show()["status"].get("phase") == "Running", "the pod to run")
    return show()


def test_a_selected_pod_runs_on_its_own_fargate_node(site, profiles, namespace, pod):
    """EKS User Guide, "Simplify compute management with AWS Fargate" and "Define which Pods use AWS Fargate when launched"."""
    profiles.add("mine", {"namespace": namespace, "labels": {"run": "fargate"}})
    one, other, unselected = pod("one", run="fargate"), pod("other", run="fargate"), pod("stranger", run="ec2")
    nodes = [running(show)["spec"]["nodeName"] for show in (one, other)]
    assert nodes[0] != nodes[1]
    found = one()
    assert (found["spec"]["schedulerName"], found["metadata"]["labels"][LABEL]) == ("fargate-scheduler", "mine")
    node = site.get(f"/api/v1/nodes/{nodes[0]}")
    assert nodes[0].startswith("fargate-ip-10-0-") and nodes[0].endswith(".us-west-2.compute.internal")
    assert node["metadata"]["labels"]["eks.amazonaws.com/compute-type"] == "fargate"
    assert node["spec"]["taints"][0] == {"key": "eks.amazonaws.com/compute-type", "value": "fargate", "effect": "NoSchedule"}
    assert (unselected()["spec"]["schedulerName"], unselected()["spec"].get("nodeName")) == ("default-scheduler", None)
    site.cloud.kubectl("delete", "pod", "one", "-n", namespace, "--grace-period=0", "--force")
    wait_until(lambda: site.get(f"/api/v1/nodes/{nodes[0]}") is None, "the node to go with its pod")
    assert site.get(f"/api/v1/nodes/{nodes[1]}")


def test_profile_selection_by_wildcards_name_order_and_label(profiles, namespace, pod):
    """EKS User Guide, "Fargate profile wildcards": `*` and `?`; alphanumeric sorting; the label names a profile that matches."""
    profiles.add("beta", {"namespace": f"{namespace[:4]}*", "labels": {"k?y": "v*"}})
    profiles.add("alpha", {"namespace": f"{namespace[:-1]}?", "labels": {"key": "v?"}})
    shown = {
        "alpha": pod("both", key="v1")(),
        "beta": pod("asked", key="v1", **{LABEL: "beta"})(),
        None: pod("none", other="v1")(),
    }
    assert {name: found["metadata"]["labels"].get(LABEL) for name, found in shown.items()} == {"alpha": "alpha", "beta": "beta", None: None}
    assert pod("one", key="v12")()["metadata"]["labels"][LABEL] == "beta"
    foreign = pod("foreign", other="v1", **{LABEL: "alpha"})()
    assert foreign["spec"]["schedulerName"] == "default-scheduler"


def test_pods_of_a_deleted_profile_are_recreated_on_another(site, profiles, namespace):
    """EKS User Guide, "Delete a Fargate profile": "If those Pods match another Fargate profile, then they're scheduled ... with that"."""
    profiles.add("first", {"namespace": namespace})
    site.cloud.kubectl("create", "deployment", "web", "--image=i", "--replicas=2", "-n", namespace)
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def by():
        items = [p for p in site.get(pods)["items"] if "deletionTimestamp" not in p["metadata"]]
        return sorted((p["metadata"]["labels"].get(LABEL), p["status"].get("phase")) for p in items)

    wait_until(lambda: by() == [("first", "Running")] * 2, "the pods on the first profile")
    profiles.add("second", {"namespace": namespace})
    assert by() == [("first", "Running")] * 2
    profiles.drop("first")
    wait_until(lambda: by() == [("second", "Running")] * 2, "the pods on the second profile")
    profiles.drop("second")
    wait_until(lambda: by() == [(None, "Pending")] * 2, "the pods to wait for a node of another kind")
    wait_until(lambda: not [n for n in site.get("/api/v1/nodes")["items"] if n["metadata"]["name"].startswith("fargate-")], "the nodes to go")


def test_an_unauthorized_pod_execution_role_blocks_its_profile(site, profiles, role, namespace, pod):
    """EKS User Guide, "Define which Pods use AWS Fargate when launched": the role is added to the cluster's RBAC, by EKS itself."""
    arn = role.replace("team/", "")
    profiles.add("mine", {"namespace": namespace})
    wait_until(lambda: arn in site.get("/api/v1/namespaces/kube-system/configmaps/aws-auth")["data"]["mapRoles"], "the entry of EKS")
    site.remove_aws_auth_entry(arn)
    show = pod("one")
    event = wait_until(lambda: site.get(f"/api/v1/namespaces/{namespace}/events")["items"], "an event")[0]
    assert (event["reason"], "Pod execution role is not found in auth config" in event["message"]) == ("FailedScheduling", True)
    assert not show()["spec"].get("nodeName")
    site.add_aws_auth_entry(arn, username="system:node:{{SessionName}}", groups=("system:bootstrappers", "system:nodes", "system:node-proxier"))
    running(show)
    states = [line["state"] for line in events(site.cloud["aws_log"], kind="state", object="fargate-pod", profile="mine") if namespace in line["id"]]
    assert states == ["blocked", "running"]
    assert json.loads(site.cloud.kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"][0]["status"]["phase"] == "Running"
