"""The Cluster Autoscaler beside the controller: it makes groups smaller, most of all when replacements fail."""

import time

import pytest

from e2e import harness, logs, managed, rotation
from localcloud.cluster_autoscaler import DISABLED, TAINT, ClusterAutoscaler, Options

pytestmark = [pytest.mark.private, pytest.mark.long]
NEVER = 10_000
ANNOTATION = {"instancemgr.keikoproj.io/cluster-autoscaler-enabled": "true"}
TIMES = {"interval": 0.5, "cache_age": 3, "provision_time": NEVER, "unneeded_time": NEVER, "unready_time": NEVER, "drain_time": 60}
"""The real interval and cache times a twentieth. What a test is not about never comes."""


@pytest.fixture
def place(own_cloud, start_controller, make_tenant):
    """A tenant in a cloud of the test's own."""
    cloud = own_cloud()
    return make_tenant(cloud=cloud, controller=start_controller(cloud, *harness.SHARED_FLAGS))


def autoscaler(cloud, **options):
    """One for every scaling group of the cloud, all of which are the controller's."""
    return ClusterAutoscaler(cloud.boto("autoscaling", key="cluster-autoscaler"), cloud, Options(**{**TIMES, **options}), lambda group: True)


def shrinkable(tenant, nodes, low=1, **rolling):
    """A group of that many nodes, whose minimum is lower."""
    group = rotation.start_group(tenant, nodes, annotations=ANNOTATION, **rolling)
    group.patch_spec(eks={"minSize": low})
    group.wait(lambda g: g.asg()["MinSize"] == low, what="the lower minimum")
    return group


def keep(cloud, node, value="true"):
    """Forbids the autoscaler to remove a node, or allows it again."""
    cloud.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {DISABLED: value}}})


def running(group, old):
    """Those of the instances `old` that are in service with a Ready node that takes pods."""
    ready = {n["spec"]["providerID"].rpartition("/")[2] for n in group.ready_nodes()}
    return set(old) & set(group.instances()) & ready


def taken_by_aws(group):
    """Instances that AWS chose and terminated because the group had become smaller than it was; no client has drained them."""
    states = [e for e in group.events_in_aws() if e["kind"] == "state" and e["object"] == "instance" and e["state"] == "Terminating"]
    return [e["id"] for e in states if e.get("why", "").startswith("shrinking the capacity")]


def story(group, autoscaler):
    """What explains a failure: every call that changed how many instances there are, and what became of each."""
    named = ("TerminateInstanceInAutoScalingGroup", "SetDesiredCapacity", "EnterStandby")
    events = [e for e in group.cloud.aws_events() if e.get("operation") in named or e.get("object") == "instance"]
    calls = [f"{e['time'][11:23]} {e['caller']['key']} {e['operation']} {e['params']} {e['status']}" if e["kind"] == "call" else
             f"{e['time'][11:23]} {e['group'][:40]} {e['id']} {e['state']} {e.get('why', '')}" for e in events]  # fmt: skip
    return "\n".join([f"removed: {autoscaler.removed}", *calls, group.diagnostics()])


def test_nodes_that_never_join_do_not_cost_the_group_its_nodes(place):
    """A user with a broken image would lose the group: the autoscaler removes each replacement, and each removal looks like
    success to a controller that trusts the desired capacity.
    """
    group = shrinkable(place, 6, joinTimeout="2m")
    old = group.instances()
    with autoscaler(place.cloud, provision_time=45) as removing:
        place.set_defaults(image=place.cloud["amis"]["broken_never_joins"])
        halted = group.wait(lambda g: g.has_condition("RotationHalted") or len(running(g, old)) < 4, rotation.ROTATION, "the halt, or its lack")
        time.sleep(20)
    left = running(group, old)
    assert len(left) >= 4 and halted is not True and group.has_condition("RotationHalted"), f"{len(left)} of 6 old nodes run\n{story(group, removing)}"
    assert group.undrained() == {} and taken_by_aws(group) == []


def test_no_node_is_drained_while_launches_fail(place):
    """A user whose type has no capacity would lose the group: the autoscaler takes back what was not launched within seconds."""
    group = shrinkable(place, 5, joinTimeout="2m")
    old, mark = group.instances(), place.cloud.log_position()
    with autoscaler(place.cloud) as removing:
        place.set_defaults(image=rotation.images(place.cloud)[1])
        group.wait(lambda g: set(g.instances()) - set(old), what="the first replacement")
        place.cloud.control("POST", "launch-failure", group=group.scaling_group, code="InsufficientInstanceCapacity")
        failed = group.wait(lambda g: [e for e in g.events_in_aws(mark) if e.get("state") == "launch-failed"], what="a launch that fails")
        # No launch is asked for any more when the autoscaler has taken it back, so the last one stays the failed one.
        time.sleep(45)
    drained = rotation.cordons(group, after=logs.timestamp(failed[0]))
    assert drained == [], f"{len(drained)} nodes were drained after the launch failed, {len(running(group, old))} old ones run\n{story(group, removing)}"
    assert group.undrained() == {} and taken_by_aws(group) == []


def test_new_nodes_of_a_node_group_are_there_when_the_old_ones_are_drained(place):
    """A user who changes the type would have too few nodes: the autoscaler removes empty ones before the pods come."""
    label, cloud = {"pool": place.unique}, place.cloud
    group = managed.apply(place, size=(1, 6), nodeLabels=label).wait_ready(nodes=1)
    cloud.boto("autoscaling").set_desired_capacity(AutoScalingGroupName=group.scaling_group, DesiredCapacity=4)
    group.wait_ready(nodes=4)
    place.deployment("app", 4, label, affinity=rotation.spread("app"))
    place.wait_pods_running(4)
    (old,) = group.names
    before = {n["metadata"]["name"] for n in group.managed_nodes()}
    with autoscaler(cloud, unneeded_time=2) as removing:
        group.change(instanceType="c5.large")
        group.wait(lambda g: len(g.names) == 2, what="the new node group")
        group.annotate(lock_upgrades="true")
        group.wait(lambda g: g.managed_nodes(), what="new nodes")
        time.sleep(15)
        new_names = group.names
        group.annotate(lock_upgrades=None)
        fewest = watch_drain(group, old, before)
    assert fewest is None or fewest >= 4, f"every old node was drained when {fewest} new ones were Ready ({new_names})\n{story(group, removing)}"


def watch_drain(group, old, before, seconds=90):
    """How many new nodes were Ready when none of the nodes `before` took pods any more; None if that did not come."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        there = group.managed_nodes(old)
        if not [n for n in there if n["metadata"]["name"] in before and not n["spec"].get("unschedulable")]:
            return len(group.ready_nodes()) if group.names[-1] != old else 0
        time.sleep(0.3)
    return None


def test_a_node_that_two_controllers_drain_is_terminated_once(place):
    """A user would lose another node with its pods: for two terminations of one instance, AWS terminates a second one."""
    group = shrinkable(place, 3, low=2, joinTimeout="2m")
    place.deployment("app", 3, rotation.pool(place), annotations={"local.instance-manager/stop-after": "40000ms"}, terminationGracePeriodSeconds=60)
    place.wait_pods_running(3)
    old = group.instances()
    for node in group.nodes():
        keep(place.cloud, node["metadata"]["name"])
    with autoscaler(place.cloud, interval=0.2, cache_age=NEVER, unneeded_time=0, most_pods=3) as removing:
        place.set_defaults(image=rotation.images(place.cloud)[1])
        (node,) = rotation.wait_draining(group)
        name = node["metadata"]["name"]
        keep(place.cloud, name, None)
        group.wait(lambda g: any(t["key"] == TAINT for t in (place.cloud.get(f"/api/v1/nodes/{name}") or node)["spec"].get("taints", [])), what="the taint")
        group.wait(lambda g: place.cloud.get(f"/api/v1/nodes/{name}") is None, what="the end of the node")
        group.wait(lambda g: not set(g.instances(None)) & set(old), rotation.ROTATION, "the end of every old node")
    assert group.undrained() == {} and taken_by_aws(group) == [], story(group, removing)
    assert group.asg()["DesiredCapacity"] == 2


def test_an_instance_in_standby_is_not_removed(place):
    """A user would lose a serving node: an instance in Standby is not part of the desired capacity that its removal lowers."""
    group = shrinkable(place, 3, maxSurge=1, joinTimeout="2m")
    place.deployment("app", 3, rotation.pool(place), affinity=rotation.spread("app"))
    place.wait_pods_running(3)
    # The replacement joins when the autoscaler has had the time to remove the empty node.
    place.cloud.control("POST", "delays", join=60)
    place.set_defaults(image=rotation.images(place.cloud)[1])
    (aside,) = group.wait(rotation.in_standby, what="an instance in Standby")
    name = next(n["metadata"]["name"] for n in group.nodes() if n["spec"]["providerID"].endswith(aside))
    (pod,) = [p["metadata"]["name"] for p in place.pods() if p["spec"].get("nodeName") == name]
    # The tenant needs one pod less: the node in Standby is empty while its replacement joins.
    place.cloud.patch(f"/api/v1/namespaces/{place.namespace}/pods/{pod}", {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-1"}}})
    place.cloud.patch(f"/apis/apps/v1/namespaces/{place.namespace}/deployments/app", {"spec": {"replicas": 2}})
    group.wait(lambda g: name not in {p["spec"].get("nodeName") for p in place.pods()}, what="an empty node in Standby")
    with autoscaler(place.cloud, unneeded_time=3) as removing:
        group.wait(lambda g: aside not in g.instances(None), rotation.ROTATION, "the end of the instance in Standby")
        time.sleep(5)
    assert ("unneeded", group.scaling_group, aside) not in removing.removed and taken_by_aws(group) == [], story(group, removing)
    assert group.undrained() == {}
