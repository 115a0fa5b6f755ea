"""What stops a rotation: failing replacements, a lock, dead kubelets, an unhealthy cluster."""

import datetime
import time

import pytest

from e2e import harness, logs, rotation

TWO_POLLS = 7
"""Seconds in which the controller looks at a group at least twice: enough for it to do what it must not."""


@pytest.mark.long
@pytest.mark.parametrize("way", ["never_joins", "not_ready", "dies"])
def test_a_broken_image_halts_the_rotation_and_a_fixed_one_resumes_it(tenant, way):
    """Without this, a broken image would take down the whole group."""
    broken, fixed = tenant.cloud["amis"][f"broken_{way}"], rotation.images(tenant.cloud)[1]
    # A node that dies counts only if it dies within joinTimeout, however slow the machine is.
    group = rotation.start_group(tenant, 4, joinTimeout="5m" if way == "dies" else "10s")
    old = group.instances()
    tenant.set_defaults(image=broken)
    found = group.wait(lambda g: g.has_condition("RotationHalted"), what="the halt")
    new = [i["InstanceId"] for i in group.asg()["Instances"] if i["LaunchTemplate"]["Version"] == "2"]
    assert found["reason"] == "ReplacementsNotReady" and "version 2" in found["message"]
    assert any(i in found["message"] for i in new)
    assert group.has_condition("Stalled", reason="ReplacementsNotReady") and group.wait_event("InstanceGroupUpgradeFailed", "version 2")
    before, gone = set(group.instances(None)), rotation.terminated(group)
    time.sleep(TWO_POLLS)
    assert set(group.instances(None)) >= before and rotation.terminated(group) == gone, "nothing is churned"
    assert len(gone) <= 1 and set(gone) <= set(old)
    assert rotation.draining_nodes(group) == []
    tenant.set_defaults(image=fixed)
    rotation.wait_rotated(group, [*old, *new], 4, fixed)
    assert group.has_condition("RotationHalted", "False") and group.undrained() == {}
    assert group.max_unavailable_seen() == 1
    assert group.status()["template"]["lastReadyVersion"] == "3"


def set_lock(tenant, group, where, value):
    """Sets or removes the lock."""
    paths = {"group": group.path, "namespace": f"/api/v1/namespaces/{tenant.namespace}", "ConfigMap": harness.CONFIG}
    tenant.cloud.patch(paths[where], {"metadata": {"annotations": {"instancemgr.keikoproj.io/lock-upgrades": value}}})


def check_lock(tenant, where):
    """Sets the lock during a rotation, and removes it."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 3, maxUnavailable=2)
    rotation.block_drains(tenant, 3)
    old = group.instances()
    tenant.set_defaults(image=new_image)
    rotation.wait_draining(group, 2)
    group.wait(lambda g: g.has_condition("DrainBlocked"), what="the blocked drain")
    set_lock(tenant, group, where, "true")
    group.wait(lambda g: g.state() == "Locked" and not rotation.draining_nodes(g), what="the lock")
    assert not [n for n in group.nodes() if n["spec"].get("unschedulable")]
    assert where.lower() in group.has_condition("Locked")["message"].lower() and not group.has_condition("Stalled")
    held = rotation.now_utc()
    rotation.allow_disruptions(tenant)
    time.sleep(TWO_POLLS)
    assert rotation.cordons(group, held) == [] and rotation.evictions(tenant) == [] and rotation.terminated(group) == []
    set_lock(tenant, group, where, None)
    rotation.wait_rotated(group, old, 3, new_image)
    assert group.max_unavailable_seen() <= 2 and group.undrained() == {}


@pytest.mark.parametrize("where", ["group", "namespace"])
def test_a_lock_during_a_rotation_stops_it_and_reverts_drains(tenant, where):
    """Without this, a user who sees a problem could not stop it."""
    check_lock(tenant, where)


@pytest.mark.private
def test_a_lock_on_the_config_map_stops_every_rotation(own_cloud, start_controller, make_tenant):
    """Without this, the admin could not stop what the admin's own change has begun."""
    cloud = own_cloud()
    controller = start_controller(cloud)
    other = make_tenant(cloud=cloud, controller=controller)
    rotation.start_group(other, 1)
    check_lock(make_tenant(cloud=cloud, controller=controller), "ConfigMap")


@pytest.mark.long
def test_evictions_on_a_dead_kubelet_are_waited_for_until_its_timeout(tenant):
    """Without this, pods that can never end would hold a dead node, or a short network problem would cost pods."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 3)
    rotation.block_drains(tenant, 3)
    rotation.allow_disruptions(tenant)
    old, dead = group.instances(), group.instances()[0]
    name = next(n["metadata"]["name"] for n in group.nodes() if n["spec"]["providerID"].endswith(dead))
    tenant.cloud.control("POST", "instance", id=dead, action="kubelet-dies")
    group.wait(lambda g: sum(map(harness.node_ready, g.nodes())) == 2, what="the silence")
    tenant.set_defaults(image=new_image)
    rotation.wait_rotated(group, old, 3, new_image)
    silent = next(e for e in group.events_in_aws() if e.get("instance") == dead and e["state"] == "dead")
    ended = next(e for e in group.writes() if e["operation"] == "TerminateInstanceInAutoScalingGroup" and e["params"]["InstanceId"] == dead)
    scaled = 5 * 60 * float(harness.TIME_SCALE)
    seconds = (at(ended) - at(silent)).total_seconds()
    assert seconds > scaled - 2, "evictions are waited for while the kubelet may come back"
    assert set(group.undrained()) <= {name} and group.max_unavailable_seen() <= 1
    assert rotation.terminated(group)[0] == dead, "the unavailable node is replaced first"


@pytest.mark.parametrize("surge", [0, 1])
def test_a_rotation_whose_replacements_ec2_ends_takes_one_node_only(tenant, surge):
    """EC2 accepts a launch whose volumes it may not encrypt, and ends the instance: every node would be exchanged for nothing."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 3, maxSurge=surge)
    old = group.instances()
    group.cloud.control("POST", "launch-end", group=group.scaling_group, code="Client.InternalError")
    tenant.set_defaults(image=new_image)
    group.wait(lambda g: "Client.InternalError: Client error on launch" in str(g.status()["conditions"]), what="the reason of EC2")
    time.sleep(TWO_POLLS)
    assert len(set(old) & set(group.instances(None))) == (3 if surge else 2) and len(rotation.in_standby(group)) == surge
    group.cloud.control("POST", "launch-end", group=group.scaling_group)
    rotation.wait_rotated(group, old, 3, new_image)


def test_a_rotation_whose_last_launch_fails_at_first_is_reported_as_completed(tenant):
    """Without this, a user who waits for the event would wait in vain once EC2 has capacity again."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 1)
    old = group.instances()
    group.cloud.control("POST", "launch-failure", group=group.scaling_group, code="InsufficientInstanceCapacity")
    tenant.set_defaults(image=new_image)
    group.wait(lambda g: g.state() == "Error" and rotation.terminated(g) == old, what="the reported failure")
    group.cloud.control("POST", "launch-failure", group=group.scaling_group)
    rotation.wait_rotated(group, old, 1, new_image)
    assert group.wait_event("RotationCompleted") and "rotationInterrupted" not in group.status()


@pytest.mark.long
@pytest.mark.private
def test_many_lost_nodes_stop_every_rotation_until_they_return(own_cloud, start_controller, make_tenant):
    """Without this, a fault of the network would be answered by terminating the nodes that it hides."""
    cloud = own_cloud()
    tenant = make_tenant(cloud=cloud, controller=start_controller(cloud))
    new_image = rotation.images(cloud)[1]
    group = rotation.start_group(tenant, 5)
    other = rotation.add_group(tenant, 5, "other")
    old, others = group.instances(), other.instances()
    lost = [*old[:2], *others[:2]]
    cloud.control("POST", "instance", ids=lost, action="kubelet-dies")
    for each in (group, other):
        each.wait(lambda g: sum(map(harness.node_ready, g.nodes())) == 3, what="the silence")
    tenant.set_defaults(image=new_image)
    for each in (group, other):
        found = each.wait(lambda g: g.has_condition("Stalled", reason="ClusterUnhealthy"), what="the guard")
        assert "4 of 10 nodes" in found["message"]
    time.sleep(TWO_POLLS)
    for each in (group, other):
        assert rotation.terminated(each) == [] and rotation.cordons(each) == []
    cloud.control("POST", "instance", ids=lost, action="kubelet-recovers")
    rotation.wait_rotated(group, old, 5, new_image)
    rotation.wait_rotated(other, others, 5, new_image)
    assert group.max_unavailable_seen() == other.max_unavailable_seen() == 1


def at(event):
    """When a line of the simulator's log was written."""
    return datetime.datetime.fromisoformat(logs.timestamp(event))
