"""Nodes that die, blink, never join or join late, and AWS without capacity."""

import dataclasses

from campaign import state
from campaign.perturbations import perturbation
from campaign.scenario import is_wide
from campaign.spec_generator import IMAGES
from campaign.user import User
from localcloud.cluster_autoscaler import ClusterAutoscaler, Options

NODES = ("eks", "eks-managed")
INDEX = [0, 1, 2]
ZONES = ["us-west-2a", "us-west-2b", "us-west-2c"]
TYPES = ["m5.large", "m5a.large", "m5.xlarge", "c5.large"]
AUTOSCALER_TAINT = "ToBeDeletedByClusterAutoscaler"
BROKEN = ("refused", "never-ready", "dead")
"""States of kubelets that do not get better by themselves."""


@perturbation("kubelets die", needs=NODES, count=[1, 2, 9], seconds=[1, 4, 12])
def kubelets_die(runner, group, count, seconds):
    """They stop reporting, and come back: a blink, or longer."""
    dying = [n["metadata"]["name"] for n in User(runner, group).nodes()][:count]
    for name in dying:
        change(runner, name, "kubelet-dies")
    runner.undo(lambda: [change(runner, name, "kubelet-recovers") for name in dying], after=seconds)


@perturbation("a kubelet dies for good", needs="eks", index=INDEX, seconds=[2, 8, None])
def a_kubelet_dies_for_good(runner, group, index, seconds):
    """A user terminates its instance some time later."""
    kill_kubelet(runner, group, index, seconds)


def kill_kubelet(runner, group, index, seconds):
    """The kubelet of a node dies, and a user terminates its instance after that time."""
    user = User(runner, group)
    if path := user.node(index):
        name = path.rpartition("/")[2]
        instance = runner.cloud.get(path)["spec"]["providerID"].rpartition("/")[2]
        change(runner, name, "kubelet-dies")
        user.undo("ec2", "terminate_instances", after=seconds, InstanceIds=[instance])


@perturbation("a third of all nodes silent", seconds=[3, 10])
def a_third_of_all_nodes_silent(runner, seconds):
    """Rarely the nodes' own fault: nothing is terminated for it."""
    names = sorted(n["metadata"]["name"] for n in runner.cloud.get("/api/v1/nodes")["items"] if n["spec"].get("providerID", "").startswith("aws:"))[::2]
    for name in names:
        change(runner, name, "kubelet-dies")
    runner.undo(lambda: [change(runner, name, "kubelet-recovers") for name in names], after=seconds)


@perturbation("new nodes broken", needs="eks", behavior=["never-joins", "not-ready", "dies"], seconds=[4, 12])
def new_nodes_broken(runner, group, behavior, seconds):
    """What is launched in this time does not become a node, or not for long; a user terminates what is left of it."""
    images = {version["data"].get("ImageId") for _, template in User(runner, group).each("templates") for version in template["versions"].values()}
    for image in images - {None}:
        runner.cloud.control("POST", "ami", id=image, behavior=behavior)
        runner.undo(lambda image=image: (runner.cloud.control("POST", "ami", id=image, behavior="ok"), terminate_broken(runner)), after=seconds)
    # What was launched last joins, and dies, after that.
    runner.undo(lambda: terminate_broken(runner), after=seconds + 10)


@perturbation("new nodes of a node group broken", needs="eks-managed", when=is_wide, behavior=["never-joins", "not-ready", "dies"], seconds=[12, 50])
def new_nodes_of_a_node_group_broken(runner, group, behavior, seconds):
    """EKS gives up on a creation or an update; in the end a user has it tried again."""
    for image in IMAGES["amazonlinux2023"]:
        runner.cloud.control("POST", "ami", id=image, behavior=behavior)
        runner.undo(lambda image=image: (runner.cloud.control("POST", "ami", id=image, behavior="ok"), terminate_broken(runner)), after=seconds)
    runner.undo(lambda: terminate_broken(runner), after=seconds + 10)
    runner.helped.setdefault(group, 0)


@perturbation("a kubelet of a node group dies for good", needs="eks-managed", when=is_wide, index=INDEX, seconds=[2, 8, None])
def a_kubelet_of_a_node_group_dies_for_good(runner, group, index, seconds):
    """A user terminates its instance some time later."""
    kill_kubelet(runner, group, index, seconds)


@perturbation("nodes join late", seconds=[4, 12])
def nodes_join_late(runner, seconds):
    """Instances boot slowly for a while."""
    runner.cloud.control("POST", "delays", join=seconds)
    runner.undo(lambda: runner.cloud.control("POST", "delays", join=1.0), after=seconds)


@perturbation("a zone without capacity", zone=ZONES, seconds=[4, 12])
def a_zone_without_capacity(runner, zone, seconds):
    """Of any type, for any group."""
    without_capacity(runner, "InsufficientInstanceCapacity", seconds, zone=zone)


@perturbation("a type without capacity", kind=TYPES, seconds=[4, 12])
def a_type_without_capacity(runner, kind, seconds):
    """In all zones."""
    without_capacity(runner, "InsufficientInstanceCapacity", seconds, instance_type=kind)


@perturbation("no launches", code=["InsufficientInstanceCapacity", "VcpuLimitExceeded", "InvalidIamInstanceProfile"], seconds=[4, 12])
def no_launches(runner, code, seconds):
    """No capacity at all, a quota, or something that AWS does not accept."""
    without_capacity(runner, code, seconds)


@perturbation("nodes scaled in by the Cluster Autoscaler", needs="eks", when=is_wide, index=INDEX, seconds=[1, 4])
def nodes_scaled_in_by_the_cluster_autoscaler(runner, group, index, seconds):
    """It taints a node, evicts the pods, and terminates the instance with a smaller desired capacity. It does not cordon."""
    user = User(runner, group)
    path = user.node(index)
    node = runner.cloud.get(path) if path else None
    if node is None or is_tainted(node):
        return
    instance = node["spec"]["providerID"].rpartition("/")[2]
    taint = {"key": AUTOSCALER_TAINT, "value": "1", "effect": "NoSchedule"}
    if not user.patch(path, {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": [*node["spec"].get("taints", []), taint]}}):
        return
    for pod in runner.cloud.get(f"/api/v1/pods?fieldSelector=spec.nodeName={node['metadata']['name']}")["items"]:
        name = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": name}
        runner.cloud.api("POST", f"/api/v1/namespaces/{name['namespace']}/pods/{name['name']}/eviction", body)
    runner.wait(seconds)
    if user.do("autoscaling", "terminate_instance_in_auto_scaling_group", InstanceId=instance, ShouldDecrementDesiredCapacity=True) is None:
        untaint(runner, path)


AUTOSCALER = dataclasses.replace(Options().scaled(0.01), interval=0.3, cache_age=2)
"""Faster than the real one, but no launch of this cloud is slow enough to be given up when nothing is wrong."""


@perturbation("nodes under a running Cluster Autoscaler", needs=NODES, when=is_wide, removes_unneeded=[False, True], most_pods=[0, 2], seconds=[15, 40])
def nodes_under_a_running_cluster_autoscaler(runner, group, removes_unneeded, most_pods, seconds):
    """It makes a group smaller while the group changes: it removes instances that do not join, capacity that cannot be
    launched, and Nodes that no pod needs.

    EKS may give up an update whose new nodes go; in the end a user has it tried again.
    """
    if group in runner.autoscaled:
        return
    runner.autoscaled.add(group)
    options = dataclasses.replace(AUTOSCALER, removes_unneeded=removes_unneeded, most_pods=most_pods)
    scaling = runner.cloud.boto("autoscaling", key="cluster-autoscaler")
    running = ClusterAutoscaler(scaling, runner.cloud, options, lambda found: state.owns(group, found["AutoScalingGroupName"], found)).start()

    def stop():
        running.stop()
        runner.autoscaled.discard(group)
        runner.note("removed by the Cluster Autoscaler", group=group, removed=running.removed)

    runner.undo(stop, after=seconds)
    if runner.scenario["groups"].get(group, {}).get("spec", {}).get("provisioner") == "eks-managed":
        runner.helped.setdefault(group, 0)


def untaint(runner, path):
    """Takes the taint off, as the Cluster Autoscaler does when AWS refuses."""

    def is_off():
        node = runner.cloud.get(path)
        if node is None or not is_tainted(node):
            return True
        taints = [taint for taint in node["spec"]["taints"] if taint["key"] != AUTOSCALER_TAINT]
        return User(runner, None).patch(path, {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": taints}})

    runner.wait_until(is_off, 10)


def is_tainted(node):
    """Whether the Cluster Autoscaler has tainted a node."""
    return any(taint["key"] == AUTOSCALER_TAINT for taint in node["spec"].get("taints", []))


@perturbation("Spot interruption", needs="eks", when=lambda scenario: "spot" in str(scenario).lower())
def spot_interruption(runner, group):
    """EC2 takes the Spot Instances of a group back."""
    ec2, user = runner.cloud.boto("ec2"), User(runner, group)
    members = user.members()
    found = ec2.describe_instances(InstanceIds=members)["Reservations"] if members else []
    for instance in [i for r in found for i in r["Instances"] if i.get("InstanceLifecycle") == "spot"]:
        user.do("ec2", "terminate_instances", InstanceIds=[instance["InstanceId"]])


def change(runner, name, action):
    """Does something to the instance of a node, if it is still there."""

    def is_there():
        return name in {found["node"] for found in runner.cloud.control("GET", "instances").values()}

    if is_there():
        try:
            runner.cloud.control("POST", "instance", id=name, action=action)
        except AssertionError:
            # It may have gone in this moment.
            if is_there():
                raise


def terminate_broken(runner):
    """Terminates the instances whose kubelets do not get better, or will not: their image was broken when they were launched."""
    found = runner.cloud.control("GET", "instances").items()
    broken = [identifier for identifier, each in found if each["state"] in BROKEN or each["behavior"] != "ok"]
    if broken:
        User(runner, None).do("ec2", "terminate_instances", InstanceIds=broken)


def without_capacity(runner, code, seconds, **where):
    """Lets launches fail for a while."""
    runner.cloud.control("POST", "launch-failure", group="*", code=code, **where)
    runner.undo(lambda: runner.cloud.control("POST", "launch-failure", group="*", code=None, **where), after=seconds)
