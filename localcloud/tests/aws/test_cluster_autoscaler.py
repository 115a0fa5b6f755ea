"""The simulated Cluster Autoscaler does what kubernetes/autoscaler does, in the files that the tests name."""

import dataclasses
import time

import boto3
import pytest
from localcloud.cluster_autoscaler import DISABLED, TAINT, ClusterAutoscaler, Options
from localcloud.tests.aws.nodes.site import LABELS
from localcloud.tests.aws.support import events, wait_until

KEY = "cluster-autoscaler"
NEVER = 600
FAST = Options(interval=0.2, cache_age=0.2, provision_time=NEVER, unneeded_time=NEVER, unready_time=NEVER, drain_time=NEVER)


@pytest.fixture
def autoscale(site):
    """Starts it for one scaling group: `autoscale(name, unneeded_time=1)`; it ends with the test."""
    started = []
    place = {"endpoint_url": site.cloud["aws_endpoint"], "region_name": site.cloud["region"]}
    client = boto3.client("autoscaling", **place, aws_access_key_id=KEY, aws_secret_access_key="local")

    def start(name, **options):
        chosen = Options(**{**vars(FAST), **options})
        started.append(ClusterAutoscaler(client, site.cloud, chosen, lambda group: group["AutoScalingGroupName"] == name).start())
        return started[-1]

    yield start
    for each in started:
        each.stop()


def show(site, name):
    """A scaling group as AWS describes it."""
    return site.asg.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]


def instances(site, name):
    """Ids of the instances of a scaling group that do not terminate."""
    return [i["InstanceId"] for i in show(site, name)["Instances"] if not i["LifecycleState"].startswith("Terminat")]


def wait_size(site, name, size):
    """Waits until a group has that desired capacity and no more instances."""
    wait_until(lambda: show(site, name)["DesiredCapacity"] == size >= len(instances(site, name)), f"{size} as the size of {name}")


def failures(site, name):
    """The activities of a scaling group that failed."""
    activities = site.asg.describe_scaling_activities(AutoScalingGroupName=name)["Activities"]
    return [activity for activity in activities if activity["StatusCode"] == "Failed"]


def calls(site, name, operation="TerminateInstanceInAutoScalingGroup"):
    """Its calls of one operation for a group."""
    members = {line["id"] for line in events(site.cloud["aws_log"], kind="state", object="instance", group=name)}
    made = events(site.cloud["aws_log"], kind="call", operation=operation, status=200)
    return [e["params"] for e in made if e["caller"]["key"] == KEY and (members | {name}) & set(e["params"].values())]


def launch(site, profile, size, low=0, image=None, labels=LABELS, **more):
    """A group of that many instances, which may become smaller."""
    image = image or site.cloud["amis"]["amazonlinux2"][0]
    return site.launch(site.user_data("amazonlinux2", labels=labels), profile, image, low, DesiredCapacity=size, **more)


def workload(site, namespace, **budget):
    """A pod that a ReplicaSet keeps on nodes with the label `pool`; it takes its time to stop."""
    cloud = site.cloud
    cloud.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    labels = {"app": namespace}
    tolerations = [{"key": "team", "operator": "Exists"}]
    spec = {"containers": [{"name": "main", "image": "example.com/app"}], "tolerations": tolerations, "nodeSelector": {"pool": namespace}}
    template = {"metadata": {"labels": labels, "annotations": {"local.instance-manager/stop-after": "2000ms"}}, "spec": spec}
    body = {"metadata": {"name": "app"}, "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}}
    cloud.create(f"/apis/apps/v1/namespaces/{namespace}/replicasets", body)
    if budget:
        body = {"metadata": {"name": "app"}, "spec": {"selector": {"matchLabels": labels}, **budget}}
        cloud.create(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", body)
    wait_until(lambda: any(home(pod) and pod["status"].get("phase") == "Running" for pod in pods(site, namespace)), "a running pod")
    return pods(site, namespace)[0]


def pods(site, namespace):
    """The pods of a namespace."""
    return site.get(f"/api/v1/namespaces/{namespace}/pods")["items"]


def home(pod):
    """The node of a pod."""
    return pod["spec"].get("nodeName")


def test_an_instance_that_never_becomes_a_node_is_removed_without_replacement(site, joined, autoscale):
    """core/static_autoscaler.go, removeOldUnregisteredNodes, and aws/auto_scaling_groups.go, DeleteInstances: decrement, down to MinSize."""
    name = launch(site, joined, 4, low=1, image=site.cloud["amis"]["broken_never_joins"])
    wait_until(lambda: len(instances(site, name)) == 4, "four instances")
    autoscaler = autoscale(name, provision_time=3)
    wait_size(site, name, 1)
    time.sleep(1)
    assert show(site, name)["DesiredCapacity"] == len(instances(site, name)) == 1
    assert [call["ShouldDecrementDesiredCapacity"] for call in calls(site, name)] == ["true"] * 3
    assert [why for why, _, _ in autoscaler.removed] == ["unregistered"] * 3


def test_a_scale_out_that_cannot_launch_is_reverted_at_once(site, joined, autoscale):
    """aws/auto_scaling_groups.go, isNodeGroupAvailable: an activity that failed since it set the size itself is enough."""
    name = launch(site, joined, 1)
    site.ready(name)
    site.control.post("launch-failure", group=name, code="InsufficientInstanceCapacity")
    site.asg.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=3)
    wait_until(lambda: failures(site, name), "a launch that failed")
    # A launch that fails while the autoscaler sets the size would count as one after it.
    site.asg.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
    autoscaler = autoscale(name)
    wait_size(site, name, 1)
    assert [call["DesiredCapacity"] for call in calls(site, name, "SetDesiredCapacity")] in ([1], ["1"])
    site.control.post("launch-failure", group=name, code=None)
    site.asg.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=2)
    wait_until(lambda: autoscaler._groups[name].size == 2, "its look at the missing instance")
    time.sleep(1)
    assert show(site, name)["DesiredCapacity"] == 2, "that failure was before"
    site.asg.resume_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
    site.ready(name, 2)


def test_what_is_not_launched_without_a_failure_is_waited_for(site, joined, autoscale):
    """clusterstate/clusterstate.go, expectedToRegister: a placeholder without an error counts like an instance that has not joined."""
    name = launch(site, joined, 1)
    site.ready(name)
    site.asg.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
    site.asg.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=2)
    began = time.monotonic()
    autoscale(name, provision_time=3)
    wait_size(site, name, 1)
    assert time.monotonic() - began > 3


def members(nodes):
    """The instance of each node, by the node's name."""
    return {node["metadata"]["name"]: node["spec"]["providerID"].rpartition("/")[2] for node in nodes}


def keep(site, node):
    """Sets the annotation that forbids to scale a node down."""
    site.cloud.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {DISABLED: "true"}}})


def test_empty_nodes_are_removed_unless_their_annotation_forbids_it(site, joined, autoscale):
    """core/scaledown/eligibility: the annotation counts, a cordon does not."""
    name = launch(site, joined, 3)
    nodes = members(site.ready(name, 3))
    kept, cordoned, _ = nodes
    keep(site, kept)
    site.cloud.patch(f"/api/v1/nodes/{cordoned}", {"spec": {"unschedulable": True}})
    autoscale(name, unneeded_time=1)
    wait_size(site, name, 1)
    time.sleep(1)
    assert instances(site, name) == [nodes[kept]]


def test_removal_of_a_standby_node_makes_aws_terminate_another_one(site, joined, autoscale):
    """aws/auto_scaling_groups.go: instances in Standby are instances of the group, and the desired capacity does not count them."""
    name = launch(site, joined, 2)
    nodes = members(site.ready(name, 2))
    aside = next(iter(nodes.values()))
    site.asg.enter_standby(AutoScalingGroupName=name, InstanceIds=[aside], ShouldDecrementDesiredCapacity=False)
    for node, instance in members(site.ready(name, 3)).items():
        if instance != aside:
            keep(site, node)
    autoscale(name, unneeded_time=1)
    wait_size(site, name, 1)
    assert [call["InstanceId"] for call in calls(site, name)] == [aside]


def test_a_node_is_drained_before_it_is_removed(site, joined, autoscale, unique):
    """core/scaledown/actuation: the taint and the cordon first, then evictions, and the instance when the pods are gone."""
    name = launch(site, joined, 2, labels=f"pool={unique}")
    first, second = site.ready(name, 2)
    pod = workload(site, unique)
    other = next(n for n in (first, second) if n["metadata"]["name"] != home(pod))
    keep(site, other["metadata"]["name"])
    autoscale(name, unneeded_time=1, most_pods=1)
    path = f"/api/v1/nodes/{home(pod)}"
    wait_until(lambda: any(taint["key"] == TAINT for taint in site.get(path)["spec"].get("taints", [])), "the taint")
    assert site.get(path)["spec"]["unschedulable"]
    is_there = True
    while is_there:
        made = calls(site, name)
        is_there = pod["metadata"]["name"] in {found["metadata"]["name"] for found in pods(site, unique)}
        assert made == [] or not is_there, "the instance went with the pod on it"
    wait_size(site, name, 1)
    assert instances(site, name) == [other["spec"]["providerID"].rpartition("/")[2]]
    wait_until(lambda: [home(found) for found in pods(site, unique)] == [other["metadata"]["name"]], "the pod on the other node")


def test_a_node_that_cannot_be_drained_is_uncordoned(site, joined, autoscale, unique):
    """utils/taints, CleanToBeDeleted: the taint goes, and the cordon with it."""
    name = launch(site, joined, 2, labels=f"pool={unique}")
    nodes = site.ready(name, 2)
    pod = workload(site, unique, maxUnavailable=0)
    # While another node can take the pod, its node is tainted again and again.
    keep(site, next(n["metadata"]["name"] for n in nodes if n["metadata"]["name"] != home(pod)))
    autoscaler = autoscale(name, unneeded_time=1, most_pods=1, drain_time=2)
    path = f"/api/v1/nodes/{home(pod)}"
    wait_until(lambda: any(taint["key"] == TAINT for taint in site.get(path)["spec"].get("taints", [])), "the taint")
    autoscaler.stop()
    spec = site.get(path)["spec"]
    assert TAINT not in str(spec.get("taints")) and not spec.get("unschedulable")
    assert [home(found) for found in pods(site, unique)] == [home(pod)]


def test_it_may_terminate_an_instance_that_another_client_has_terminated(site, joined, autoscale):
    """aws/aws_manager.go, refreshInterval: it knows lifecycle states that are a minute old, and decrements by them."""
    name = launch(site, joined, 2, image=site.cloud["amis"]["broken_never_joins"])
    hook = {"LifecycleHookName": "slow", "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING", "HeartbeatTimeout": 3600}
    site.asg.put_lifecycle_hook(AutoScalingGroupName=name, **hook)
    # While one is being launched, AWS terminates none.
    wait_until(lambda: [i["LifecycleState"] for i in show(site, name)["Instances"]] == ["InService"] * 2, "two instances")
    autoscaler = autoscale(name, cache_age=NEVER)
    (victim, other) = instances(site, name)
    wait_until(lambda: {victim, other} <= set(autoscaler._unregistered), "its look at both")
    site.asg.terminate_instance_in_auto_scaling_group(InstanceId=victim, ShouldDecrementDesiredCapacity=False)
    autoscaler.options = dataclasses.replace(autoscaler.options, provision_time=0)
    wait_until(lambda: len(calls(site, name)) == 2, "its two calls")
    assert {call["InstanceId"] for call in calls(site, name)} == {victim, other}
    assert show(site, name)["DesiredCapacity"] == 0, "one more than went"
