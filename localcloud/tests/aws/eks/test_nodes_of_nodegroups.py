"""The nodes of managed node groups, with a real control plane: registration, changes, replacement and deletion."""

from types import SimpleNamespace

import boto3
import pytest
import yaml

from localcloud.tests.aws.eks.nodegroups import POLICIES, RELEASES, NodeGroups
from localcloud.tests.aws.support import Control, wait_until

AUTH = "/api/v1/namespaces/kube-system/configmaps/aws-auth"


@pytest.fixture(scope="module")
def managed(cloud):
    """Creates node groups in the shared cloud, and deletes them after the module."""
    place = {"endpoint_url": cloud["aws_endpoint"], "region_name": cloud["region"]}
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    aws = SimpleNamespace(**{name: boto3.client(name, **place, **keys) for name in ("eks", "iam", "autoscaling", "ec2")})
    facts = {name: cloud[name] for name in ("cluster_name", "subnets", "aws_log")}
    made = NodeGroups(aws, facts)
    yield made
    made.clear()


@pytest.fixture
def control(cloud):
    """The control endpoint."""
    return Control(cloud["control"])


def nodes(cloud, name):
    """The Nodes of a managed group."""
    return cloud.get(f"/api/v1/nodes?labelSelector=eks.amazonaws.com/nodegroup={name}")["items"]


def ready(cloud, name, count, **labels):
    """Wait for exactly this number of Ready nodes of a group, with these labels."""

    def find_ready():
        found = [node for node in nodes(cloud, name) if labels.items() <= node["metadata"]["labels"].items()]
        ready_nodes = [n for n in found if any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"]["conditions"])]
        return len(found) == len(ready_nodes) == count and ready_nodes

    return wait_until(find_ready, f"{count} nodes of {name}")


def aws_auth_arns(cloud):
    """The role ARNs in aws-auth."""
    config = cloud.get(AUTH)
    return [entry["rolearn"] for entry in yaml.safe_load((config or {}).get("data", {}).get("mapRoles") or "[]") or []]


def run_pods(cloud, unique, node, budget=None, replicas=1):
    """Create a Deployment in a node group. Returns the nodes of its pods, once all are ready."""
    labels = {"app": unique}
    group = node["metadata"]["labels"]["eks.amazonaws.com/nodegroup"]
    spec = {
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"eks.amazonaws.com/nodegroup": group},
        "tolerations": [{"operator": "Exists", "key": "team"}],
        "containers": [{"name": "c", "image": "c"}],
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    deployment = {"metadata": {"name": unique}, "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}}
    cloud.create("/apis/apps/v1/namespaces/default/deployments", deployment)
    if budget is not None:
        body = {"metadata": {"name": unique}, "spec": {"minAvailable": budget, "selector": {"matchLabels": labels}}}
        cloud.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", body)
    return wait_until(lambda: len(found := pod_nodes(cloud, unique)) == replicas and found, f"the pods of {unique}")


def pod_nodes(cloud, unique):
    """The nodes of the ready pods of a Deployment."""
    pods = cloud.get(f"/api/v1/namespaces/default/pods?labelSelector=app={unique}")["items"]
    ready_pods = [p for p in pods if any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions") or [])]
    return sorted(pod["spec"]["nodeName"] for pod in ready_pods if not pod["metadata"].get("deletionTimestamp"))


def evictions(cloud, unique):
    """The status codes of the evictions of a Deployment's pods."""
    lines = [line for line in cloud.audit() if line["objectRef"].get("subresource") == "eviction"]
    return [line["responseStatus"]["code"] for line in lines if line["objectRef"]["name"].startswith(unique)]


@pytest.mark.parametrize("ami_type", ["AL2_x86_64", "AL2023_x86_64_STANDARD", "BOTTLEROCKET_x86_64", "WINDOWS_CORE_2019_x86_64"])
def test_nodes_of_each_ami_type_join_with_labels_and_taints(cloud, managed, ami_type):
    """Amazon EKS User Guide, "Managed node groups concepts", "Understand each phase of node updates" (labels) and "Node taints"."""
    taint = {"key": "team", "value": "a", "effect": "NO_SCHEDULE"}
    name = managed.make(1, amiType=ami_type, labels={"role": "web"}, taints=[taint])
    (node,) = ready(cloud, name, 1)
    labels = node["metadata"]["labels"]
    instance = managed.scaling_group(name)["Instances"][0]["InstanceId"]
    (reservation,) = managed.aws.ec2.describe_instances(InstanceIds=[instance])["Reservations"]
    assert node["spec"]["providerID"].endswith(instance)
    assert labels["eks.amazonaws.com/nodegroup-image"] == reservation["Instances"][0]["ImageId"]
    assert (labels["eks.amazonaws.com/capacityType"], labels["role"]) == ("ON_DEMAND", "web")
    assert {"key": "team", "value": "a", "effect": "NoSchedule"} in node["spec"]["taints"]


def test_eks_adds_the_role_to_aws_auth_and_removes_it_with_its_last_group(cloud, managed):
    """Amazon EKS User Guide, "Troubleshoot problems with clusters and nodes" (EKS adds the entry) and "Delete a managed node group"."""
    role = managed.role(path="/team/")
    arn = role.replace("role/team/", "role/")
    first, second = (managed.make(size, nodeRole=role) for size in (1, 0))
    assert aws_auth_arns(cloud).count(arn) == 1
    managed.delete(first)
    managed.settle(first, None)
    assert arn in aws_auth_arns(cloud)
    wait_until(lambda: nodes(cloud, first) == [], "the node to be gone")
    managed.delete(second)
    managed.settle(second, None)
    wait_until(lambda: arn not in aws_auth_arns(cloud), "the entry to be gone")


def test_a_group_is_degraded_while_its_role_has_no_entry(cloud, managed, site):
    """Amazon EKS API Reference, data type Issue: AccessDenied; its nodes can't authenticate with the API server."""
    role = managed.role()
    name = managed.make(1, nodeRole=role)
    site.remove_aws_auth_entry(role)
    (issue,) = managed.settle(name, "DEGRADED")["health"]["issues"]
    assert (issue["code"], len(issue["resourceIds"])) == ("AccessDenied", 1)
    site.add_aws_auth_entry(role)
    managed.settle(name)


def test_creation_fails_if_the_role_lacks_node_policies(managed, control):
    """Amazon EKS API Reference, data type Issue: NodeCreationFailure; Amazon EKS User Guide, "Amazon EKS node IAM role"."""
    with control.paused():
        name, other = (managed.make(1, None, nodeRole=managed.role(policies)) for policies in ([], POLICIES[:1]))
        for group in (name, other):
            control.post("nodegroup", name=group, delays={"node_join_timeout": 8})
    (issue,) = managed.settle(name, "CREATE_FAILED")["health"]["issues"]
    assert (issue["code"], issue["message"]) == ("NodeCreationFailure", "Instances failed to join the kubernetes cluster")
    assert issue["resourceIds"] == [instance["InstanceId"] for instance in managed.scaling_group(name)["Instances"]]
    (issue,) = managed.settle(other, "CREATE_FAILED")["health"]["issues"]
    assert (issue["code"], issue["message"]) == ("NodeCreationFailure", "Unhealthy nodes in the kubernetes cluster")


def test_labels_and_taints_change_on_existing_and_new_nodes(cloud, managed):
    """Amazon EKS API Reference, UpdateNodegroupConfig: labels and taints apply to the nodes in the node group after the update."""
    taints = [{"key": "team", "value": "a", "effect": "NO_SCHEDULE"}, {"key": "old", "effect": "NO_EXECUTE"}]
    name = managed.make(1, labels={"role": "web", "tier": "1"}, taints=taints)
    (node,) = ready(cloud, name, 1)
    cloud.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"metadata": {"labels": {"mine": "stays"}}})
    update = managed.configure(
        name,
        scalingConfig={"desiredSize": 2},
        labels={"addOrUpdateLabels": {"tier": "2"}, "removeLabels": ["role"]},
        taints={"addOrUpdateTaints": [{"key": "team", "value": "b", "effect": "NO_SCHEDULE"}], "removeTaints": taints[1:]},
    )
    assert managed.wait_for_update(name, update)["status"] == "Successful"
    found = ready(cloud, name, 2, tier="2")
    assert all("role" not in node["metadata"]["labels"] for node in found)
    assert [[(t["key"], t["value"]) for t in n["spec"]["taints"] if t["key"] in ("team", "old")] for n in found] == [[("team", "b")]] * 2
    assert cloud.get(f"/api/v1/nodes/{node['metadata']['name']}")["metadata"]["labels"]["mine"] == "stays"


def test_a_version_update_replaces_every_node_and_respects_budgets(cloud, managed, unique):
    """Amazon EKS User Guide, "Understand each phase of node updates": new nodes first, then old ones are drained and terminated."""
    name = managed.make(2)
    old = {node["metadata"]["name"] for node in ready(cloud, name, 2)}
    nodes_before = run_pods(cloud, unique, nodes(cloud, name)[0], budget=1, replicas=2)
    assert set(nodes_before) <= old
    update = managed.upgrade(name, releaseVersion=RELEASES[1])
    assert managed.show(name)["status"] == "UPDATING"
    assert managed.show(name)["releaseVersion"] == RELEASES[0]
    fewest = []

    def ended():
        fewest.append(len(pod_nodes(cloud, unique)))
        shown = managed.update(name, update["id"])
        return shown["status"] != "InProgress" and shown

    assert wait_until(ended, "the end of the update", 60)["status"] == "Successful"
    assert min(fewest) >= 1
    image = cloud["amis"]["amazonlinux2023"][1]
    new = {node["metadata"]["name"] for node in ready(cloud, name, 2, **{"eks.amazonaws.com/nodegroup-image": image})}
    assert not new & old
    shown = managed.settle(name)
    assert (shown["releaseVersion"], shown["scalingConfig"]["desiredSize"]) == (RELEASES[1], 2)
    assert managed.scaling_group(name)["MaxSize"] == 9
    wait_until(lambda: set(pod_nodes(cloud, unique)) <= new, "the pods on new nodes")


def test_a_blocked_eviction_fails_the_update_unless_it_is_forced(cloud, managed, control, unique):
    """Amazon EKS User Guide, "Understand each phase of node updates": PodEvictionFailure after 15 minutes without the force flag."""
    name = managed.make(1)
    (node,) = ready(cloud, name, 1)
    run_pods(cloud, unique, node, budget=1)
    control.post("nodegroup", name=name, delays={"drain": 3})
    failed = managed.wait_for_update(name, managed.upgrade(name, releaseVersion=RELEASES[1]))
    assert failed["status"] == "Failed"
    (error,) = failed["errors"]
    assert (error["errorCode"], error["resourceIds"]) == ("PodEvictionFailure", [node["metadata"]["name"]])
    assert error["errorMessage"] == f"Reached max retries while trying to evict pods from nodes in node group {name}"
    shown = managed.settle(name)
    assert (shown["releaseVersion"], shown["scalingConfig"]["desiredSize"]) == (RELEASES[0], 1)
    assert pod_nodes(cloud, unique) == [node["metadata"]["name"]]
    forced = managed.wait_for_update(name, managed.upgrade(name, releaseVersion=RELEASES[1], force=True))
    assert forced["status"] == "Successful"
    wait_until(lambda: cloud.get(f"/api/v1/nodes/{node['metadata']['name']}") is None, "the node to be gone")


def test_an_update_to_a_broken_release_fails_and_keeps_the_old_nodes(cloud, managed, control):
    """Amazon EKS User Guide, "Understand each phase of node updates", scale up phase: reasons for NodeCreationFailure."""
    name = managed.make(1, amiType="BOTTLEROCKET_x86_64")
    (node,) = ready(cloud, name, 1)
    image, release = cloud["amis"]["bottlerocket"][2], managed.show(name)["releaseVersion"]
    control.post("nodegroup", name=name, delays={"node_join_timeout": 5})
    control.post("ami", id=image, behavior="never-joins")
    try:
        failed = managed.wait_for_update(name, managed.upgrade(name, releaseVersion="1.42.0-a8c4a0c3"))
    finally:
        control.post("ami", id=image, behavior="ok")
    assert (failed["status"], failed["errors"][0]["errorCode"]) == ("Failed", "NodeCreationFailure")
    assert failed["errors"][0]["resourceIds"][0].startswith("i-")
    (kept,) = ready(cloud, name, 1)
    assert kept["metadata"]["name"] == node["metadata"]["name"]
    wait_until(lambda: len(managed.scaling_group(name)["Instances"]) == 1, "the failed instance to be gone")
    assert managed.show(name)["releaseVersion"] == release


def test_scale_in_drains_the_node_but_ignores_budgets_after_the_timeout(cloud, managed, control, unique):
    """Amazon EKS User Guide, "Managed node groups concepts": it tries to evict; then the node is terminated regardless."""
    name = managed.make(1)
    (node,) = ready(cloud, name, 1)
    run_pods(cloud, unique, node, budget=1)
    control.post("nodegroup", name=name, delays={"drain": 30})
    group = managed.scaling_group(name)["AutoScalingGroupName"]
    managed.aws.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    wait_until(lambda: cloud.get(f"/api/v1/nodes/{node['metadata']['name']}")["spec"].get("unschedulable"), "the node to be cordoned")
    wait_until(lambda: nodes(cloud, name) == [], "the node to be gone")
    assert set(evictions(cloud, unique)) == {429}


def test_deleting_a_group_drains_its_nodes(cloud, managed, unique):
    """Amazon EKS User Guide, "Delete a managed node group": before each instance is terminated, its Pods are drained."""
    name = managed.make(1)
    (node,) = ready(cloud, name, 1)
    run_pods(cloud, unique, node)
    managed.delete(name)
    managed.settle(name, None)
    wait_until(lambda: nodes(cloud, name) == [], "the node to be gone")
    assert evictions(cloud, unique) == [201]
