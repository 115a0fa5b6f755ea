"""Sizes: changed in place, and a smaller group loses only nodes that were drained."""

import pytest

from e2e import rotation
from e2e.harness import PREFIX


def size_of(group):
    """(min, max, desired) of its scaling group."""
    asg = group.asg()
    return asg["MinSize"], asg["MaxSize"], asg["DesiredCapacity"]


def sent_desired(group):
    """The calls other than the creation by which the controller set a desired capacity."""
    return [w for w in group.writes() if "DesiredCapacity" in w.get("params", {}) and w["operation"] != "CreateAutoScalingGroup"]


def test_sizes_change_in_place(tenant):
    """Raising the sizes must give nodes without replacing any, and without a new template version."""
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    first, mark = group.instances(), tenant.cloud.log_position()
    group.patch_spec(eks={"minSize": 2, "maxSize": 5})
    group.wait_ready(nodes=2)
    assert size_of(group) == (2, 5, 2) and set(first) < set(group.instances())
    assert [w["operation"] for w in group.writes(after=mark)] == ["UpdateAutoScalingGroup"]
    assert group.status()["currentMin"] == 2 and group.status()["currentMax"] == 5


def test_the_desired_capacity_of_the_autoscaler_is_kept(tenant):
    """The autoscaler owns the desired capacity: a change of sizes must not send it back."""
    group = tenant.group(size=(1, 5)).wait_ready(nodes=1)
    tenant.cloud.boto("autoscaling").set_desired_capacity(AutoScalingGroupName=group.scaling_group, DesiredCapacity=3)
    group.wait_ready(nodes=3)
    group.patch_spec(eks={"minSize": 2, "maxSize": 4})
    group.wait(lambda g: size_of(g) == (2, 4, 3), what="the new sizes")
    group.wait_ready(nodes=3)
    assert sent_desired(group) == []


def test_a_smaller_maximum_drains_the_removed_nodes(tenant):
    """Sent at once, AWS would kill nodes with their pods on: they are drained first, and the maximum follows."""
    tenant.set_defaults(spec={"strategy": {"rollingUpdate": {"maxUnavailable": 1}}})
    group = tenant.group(size=(4, 5)).wait_ready(nodes=4)
    selector = {"node.kubernetes.io/role": "web", PREFIX + "image": "ami-02100000000000001"}
    tenant.deployment("app", 6, selector, budget={"maxUnavailable": 2})
    tenant.wait_pods_running(6)
    mark = tenant.cloud.log_position()
    group.patch_spec(eks={"minSize": 1, "maxSize": 2})
    group.wait_ready(nodes=2)
    assert size_of(group) == (1, 2, 2)
    tenant.wait_pods_running(6)
    assert group.undrained() == {}
    assert sent_desired(group) == []
    ended = [e for e in group.events_in_aws(mark) if e["kind"] == "state" and e["object"] == "instance" and e["state"] == "Terminating"]
    terminated = [w for w in group.writes(mark) if w["operation"] == "TerminateInstanceInAutoScalingGroup"]
    assert len(ended) == 2 and {w["params"]["InstanceId"] for w in terminated} == {e["id"] for e in ended}
    assert all(w["params"]["ShouldDecrementDesiredCapacity"] == "true" for w in terminated)
    lowered = [w["params"] for w in group.writes(mark) if w["operation"] == "UpdateAutoScalingGroup"]
    assert [int(p["MaxSize"]) for p in lowered if "MaxSize" in p][-1] == 2
    running = 4
    for event in group.events_in_aws(mark):
        if event["kind"] == "call" and "MaxSize" in event["params"]:
            assert int(event["params"]["MaxSize"]) >= running, "the maximum went below what was running"
        running -= event in ended
    assert group.has_no_event("RotationCompleted"), "no node was replaced"


def test_a_lost_response_decrements_once(tenant):
    """AWS may decrement with each call: repeated blindly, one lost response costs a second node, undrained."""
    group = tenant.group(size=(3, 4)).wait_ready(nodes=3)
    lost = {"action": "lose", "operation": "TerminateInstanceInAutoScalingGroup", "caller": "controller"}
    for identifier in group.instances():
        tenant.cloud.control("POST", "faults", **lost, match=identifier)
    group.patch_spec(eks={"minSize": 1, "maxSize": 2})
    group.wait(lambda g: size_of(g) == (1, 2, 2), what="the new sizes")
    group.wait_ready(nodes=2)
    assert group.undrained() == {}
    assert len(rotation.terminated(group)) == 1


@pytest.mark.parametrize("by", ["one", "weight"])
def test_a_smaller_maximum_drains_heavy_nodes_too(tenant, by):
    """Three nodes of four units are twelve, whatever desired says: lowered with the maximum at once, it costs a node undrained.

    AWS does not document by how much a termination decrements, so both must end with the same nodes.
    """
    kinds = [{"type": "m5.large", "weight": 4}, {"type": "m5.xlarge", "weight": 4}]
    policy = {"spotRatio": 0, "instanceTypes": kinds}
    labels = rotation.pool(tenant)
    group = tenant.group(size=(10, 12), labels=labels, mixedInstancesPolicy=policy).wait_ready(nodes=3)
    tenant.deployment("app", 6, labels, {"maxUnavailable": 2})
    tenant.wait_pods_running(6)
    old = set(group.instances())
    tenant.cloud.control("POST", "decrement", group=group.scaling_group, by=by)
    group.patch_spec(eks={"minSize": 8, "maxSize": 8})
    group.wait(lambda g: size_of(g) == (8, 8, 8), what="the new sizes")
    group.wait_ready(nodes=2)
    tenant.wait_pods_running(6)
    states = [e for e in group.events_in_aws() if e["kind"] == "state" and e["object"] == "instance"]
    ended = {e["id"] for e in states if e["state"] == "Terminating"}
    assert group.undrained() == {} and sent_desired(group) == []
    assert ended == set(rotation.terminated(group)), "Auto Scaling has taken none by itself"
    assert len(ended) == 1 and ended < old, "no node is made and taken again"


def test_a_removed_subnet_loses_only_drained_nodes(tenant):
    """Without its subnet, AWS would empty the zone undrained, also under a lock: its nodes are drained, and then zones are balanced again."""
    labels = rotation.pool(tenant)
    group = tenant.group(size=(3, 6), labels=labels).wait_ready(nodes=3)
    tenant.deployment("app", 3, labels, {"maxUnavailable": 1})
    tenant.wait_pods_running(3)
    old, kept = set(group.instances()), sorted(tenant.cloud["subnets"])[:2]
    group.annotate(lock_upgrades="true")
    group.wait_condition("Reconciling", status="False")
    tenant.set_defaults(subnets=kept)
    group.wait_state("Locked")
    assert set(group.instances()) == old and len(group.asg()["AvailabilityZones"]) == 3
    group.annotate(lock_upgrades=None)
    group.wait(lambda g: sorted(g.asg()["VPCZoneIdentifier"].split(",")) == kept, what="the subnets")
    group.wait(lambda g: not g.asg()["SuspendedProcesses"], what="the end of the removal")
    group.wait_ready(nodes=3)
    tenant.wait_pods_running(3)
    zones = {i["AvailabilityZone"] for i in group.asg()["Instances"] if i["LifecycleState"] == "InService"}
    assert zones == set(group.asg()["AvailabilityZones"]) and group.undrained() == {}
    states = [e for e in group.events_in_aws() if e["kind"] == "state" and e["object"] == "instance"]
    ended = {e["id"] for e in states if e["state"] == "Terminating"}
    assert ended == set(rotation.terminated(group)), "Auto Scaling has taken none by itself"
    assert len(ended) == 1 and ended < old and "leavingSubnets" not in group.status()["managed"]
