"""maxSurge: the replacement serves before a healthy node goes."""

import time

import pytest

from e2e import harness, rotation

TWO_POLLS = 7


def assert_surged(group, old, size):
    """Asserts what holds for every undisturbed surge."""
    assert group.min_serving_nodes(size) == size and group.undrained() == {}
    assert sorted(rotation.terminated(group)) == sorted(old), "each old node is terminated once, and no other"
    stood = rotation.calls(group, "EnterStandby")
    assert len(stood) == len(old) and all(c["params"]["ShouldDecrementDesiredCapacity"] in (False, "false") for c in stood)
    assert rotation.calls(group, "SetDesiredCapacity") == [] and rotation.in_standby(group) == []
    assert group.asg()["DesiredCapacity"] == size


def test_a_group_of_one_node_rotates_without_a_gap(tenant):
    """Without this, the only node would go before another can take its pods, whatever their budget says."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 1, maxSurge=1)
    tenant.deployment("app", 2, rotation.pool(tenant), {"minAvailable": 1})
    tenant.wait_pods_running(2)
    old = group.instances()
    tenant.set_defaults(image=new_image)
    rotation.wait_rotated(group, old, 1, new_image)
    assert_surged(group, old, 1)
    tenant.wait_pods_running(2)
    assert group.wait_event("InstanceEnteredStandby") and rotation.deleted_pods(tenant) == []


def test_a_weighted_group_surges_by_whole_nodes(tenant):
    """Standing by and replacing are counted in units of capacity there: a miscount costs a node, or never ends."""
    new_image = rotation.images(tenant.cloud)[1]
    tenant.set_defaults(image=rotation.images(tenant.cloud)[0])
    policy = {"spotRatio": 0, "instanceTypes": [{"type": "m5.large", "weight": 2}, {"type": "m5.xlarge", "weight": 4}]}
    strategy = {"type": "rollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": "25%"}}
    group = tenant.group(size=(6, 12), spec={"strategy": strategy}, mixedInstancesPolicy=policy).wait_ready(nodes=3)
    old = group.instances()
    tenant.set_defaults(image=new_image)
    rotation.wait_rotated(group, old, 3, new_image)
    assert group.min_serving_nodes(3) == 3 and group.undrained() == {}
    assert sorted(rotation.terminated(group)) == sorted(old) and len(rotation.calls(group, "EnterStandby")) == 3
    assert rotation.in_standby(group) == [] and group.asg()["DesiredCapacity"] == 6


@pytest.mark.parametrize(("surge", "at_once"), [(2, 2), ("25%", 1)])
def test_no_more_instances_are_in_standby_than_max_surge(tenant, surge, at_once):
    """Without this, a rotation would cost more instances than the tenant has allowed for."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 4, maxSurge=surge)
    old = group.instances()
    tenant.set_defaults(image=new_image)
    rotation.wait_rotated(group, old, 4, new_image)
    assert_surged(group, old, 4)
    up, most = set(), 0
    for event in group.events_in_aws():
        if event["kind"] == "state" and event["object"] == "instance":
            up = up | {event["id"]} if "Standby" in event["state"] else up - {event["id"]}
            most = max(most, len(up))
    assert most == at_once


@pytest.mark.private
def test_a_node_whose_move_to_standby_takes_long_holds_back_no_other(own_cloud, start_controller, make_tenant):
    """Behind a load balancer it lasts until the node is deregistered, and AWS refuses to terminate it before: minutes for each node."""
    cloud = own_cloud()
    tenant = make_tenant(cloud=cloud, controller=start_controller(cloud))
    new_image = rotation.images(cloud)[1]
    group = rotation.start_group(tenant, 2, maxSurge=2)
    tenant.deployment("app", 2, rotation.pool(tenant), {"maxUnavailable": 1}, affinity=rotation.spread("app"))
    tenant.wait_pods_running(2)
    old = group.instances()
    cloud.control("POST", "delays", move=40)
    tenant.set_defaults(image=new_image)
    group.wait(lambda g: len(g.instances("EnteringStandby")) == len(rotation.draining_nodes(g)) == 2, what="both drains before the nodes are in standby")
    rotation.wait_rotated(group, old, 2, new_image)
    calls = rotation.calls(group, "TerminateInstanceInAutoScalingGroup")
    assert [c["status"] for c in calls] == [200, 200] and group.undrained() == {}
    assert group.min_serving_nodes(2) == 2


def test_a_replacement_that_never_joins_halts_the_surge_and_keeps_the_old_node(tenant):
    """Without this, a broken image would cost a node although the group surges."""
    new_image = rotation.images(tenant.cloud)[1]
    broken = tenant.cloud["amis"]["broken_never_joins"]
    group = rotation.start_group(tenant, 1, maxSurge=1, joinTimeout="20s")
    tenant.deployment("app", 1, rotation.pool(tenant), {"maxUnavailable": 1})
    tenant.wait_pods_running(1)
    (old,) = group.instances()
    pods = {p["metadata"]["uid"] for p in tenant.pods()}
    tenant.set_defaults(image=broken)
    group.wait_condition("RotationHalted", reason="ReplacementsNotReady")
    assert rotation.in_standby(group) == [old] and rotation.evictions(tenant) == []
    assert {p["metadata"]["uid"] for p in tenant.pods()} == pods
    tenant.set_defaults(image=new_image)
    rotation.wait_rotated(group, [old], 1, new_image)
    assert group.min_serving_nodes(1) == 1 and rotation.in_standby(group) == []


def test_a_node_that_is_silent_for_a_moment_in_standby_keeps_its_pods(tenant):
    """Without this, a short fault of the network would evict pods from every node that waits for its replacement."""
    group = rotation.start_group(tenant, 1, maxSurge=1, joinTimeout="10m")
    tenant.deployment("app", 1, rotation.pool(tenant))
    tenant.wait_pods_running(1)
    (old,) = group.instances()
    tenant.set_defaults(image=tenant.cloud["amis"]["broken_never_joins"])
    group.wait(lambda g: rotation.in_standby(g) == [old], what="the node in standby")
    tenant.cloud.control("POST", "instance", id=old, action="kubelet-dies")
    group.wait(lambda g: not any(map(harness.node_ready, g.nodes())), what="the silence")
    time.sleep(TWO_POLLS)
    tenant.cloud.control("POST", "instance", id=old, action="kubelet-recovers")
    group.wait(lambda g: any(map(harness.node_ready, g.nodes())), what="the node to be Ready again")
    time.sleep(TWO_POLLS)
    assert rotation.cordons(group) == [] and rotation.evictions(tenant) == []
    assert rotation.in_standby(group) == [old]


def test_a_foreign_standby_is_not_changed(tenant):
    """Without this, an instance that a user set aside would be drained and terminated."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 2, maxSurge=1)
    group.patch_spec(eks={"minSize": 1})
    group.wait(lambda g: g.asg()["MinSize"] == 1, what="room for one less")
    aside, other = group.instances()
    tenant.cloud.boto("autoscaling").enter_standby(AutoScalingGroupName=group.scaling_group, InstanceIds=[aside], ShouldDecrementDesiredCapacity=True)
    group.wait(lambda g: rotation.in_standby(g) == [aside], what="the user's standby")
    tenant.set_defaults(image=new_image)
    group.wait(lambda g: other not in g.instances(None), rotation.ROTATION, "the end of the other node")
    group.wait_ready()
    assert rotation.in_standby(group) == [aside] and aside not in rotation.terminated(group)
