"""Warm pools: instances that wait beside the group, are no nodes, and never run what is outdated for long."""

import base64

from e2e.harness import PREFIX
from e2e.rotation import ROTATION, images, wait_rotated


def pool(group):
    """The instances of its warm pool that are there for good."""
    found = group.cloud.boto("autoscaling").describe_warm_pool(AutoScalingGroupName=group.scaling_group)
    return [i for i in found["Instances"] if not i["LifecycleState"].startswith("Warmed:Terminat")]


def at_rest(group):
    """The ids of those that wait, when all do."""
    return [i["InstanceId"] for i in pool(group)] if all(i["LifecycleState"] == "Warmed:Stopped" for i in pool(group)) else []


def filled(group, size):
    """Waits until the pool has that many instances at rest; their ids."""
    return group.wait(lambda g: len(at_rest(g)) == size and at_rest(g), ROTATION, f"{size} instances in the warm pool")


def start(tenant, nodes, family="amazonlinux2023", **sizes):
    """A group with a warm pool and that many Ready nodes, which run the oldest image; nothing is taken to balance zones."""
    annotations = {PREFIX + "os-family": family}
    tenant.set_defaults(annotations=annotations, image=images(tenant.cloud, family)[0])
    eks = {"minSize": nodes, "maxSize": nodes + 3, "warmPool": sizes}
    return tenant.apply(tenant.manifest("web", annotations=annotations, eks=eks, suspendProcesses=["AZRebalance"])).wait_ready(nodes=nodes)


def test_a_warm_pool_is_filled_restored_and_exchanged_for_spot(tenant):
    """A pool that is not what the spec says costs money, or is missing at the very moment that it is kept for."""
    group = start(tenant, 1, minSize=1, maxSize=3)
    waiting = filled(group, 2)
    assert len(group.nodes()) == 1 and not set(waiting) & set(group.instances(None))
    group.wait(lambda g: g.status()["template"].get("warmPool") == g.pinned(), what="the pool's version in the status")
    mark = tenant.cloud.log_position()
    asg, name = tenant.cloud.boto("autoscaling"), {"AutoScalingGroupName": group.scaling_group}
    asg.put_warm_pool(**name, MinSize=0, MaxGroupPreparedCapacity=-1, InstanceReusePolicy={"ReuseOnScaleIn": True})
    group.wait(lambda g: g.asg()["WarmPoolConfiguration"].get("MaxGroupPreparedCapacity") == 3, what="the pool's size")
    group.wait_ready(nodes=1)
    assert group.wait_event("ScalingGroupUpdated", "warmPool.maxSize: -1 -> 3")
    assert group.asg()["WarmPoolConfiguration"]["InstanceReusePolicy"] == {"ReuseOnScaleIn": True}, "the spec has no field for it"
    group.patch({"spec": {"eks": {"warmPool": {"minSize": 0, "maxSize": -1}}}})
    filled(group, 3)
    # AWS refuses Spot while the pool exists, so the order decides.
    group.patch_spec(eks={"warmPool": None}, spotPrice="0.1")
    group.wait(lambda g: "WarmPoolConfiguration" not in g.asg(), ROTATION, "the end of the pool")
    group.wait(lambda g: g.pinned() == "2", what="the version that asks for Spot")
    group.wait_ready(nodes=1, timeout=ROTATION)
    to_spot = ["DeleteWarmPool", "CreateLaunchTemplateVersion", "UpdateAutoScalingGroup", "TerminateInstanceInAutoScalingGroup"]
    assert [w["operation"] for w in group.writes(after=mark)] == ["PutWarmPool", "PutWarmPool", *to_spot]


def test_a_scale_out_uses_a_warm_instance(tenant):
    """What the pool is for: a node that was prepared joins with the right labels and is not rotated."""
    group = start(tenant, 1, maxSize=3)
    waiting = filled(group, 2)
    group.patch_spec(eks={"minSize": 2})
    group.wait_ready(nodes=2)
    assert len(set(group.instances()) & set(waiting)) == 1
    assert not [w for w in group.writes() if w["operation"] in ("TerminateInstanceInAutoScalingGroup", "SetInstanceHealth")]


def test_bottlerocket_instances_rotate_through_the_warm_pool(tenant):
    """It has no script that could look where it is: without its own setting it would join, and be terminated as a stray node."""
    group = start(tenant, 1, family="bottlerocket", maxSize=3)
    waiting, (old,) = filled(group, 2), group.instances()
    settings = group.template_versions()[-1]["LaunchTemplateData"]["UserData"]
    assert b"should-wait = true" in base64.b64decode(settings)
    assert len(group.nodes()) == 1, "an instance that waits is not a node"
    group.patch_spec(eks={"minSize": 2})
    group.wait_ready(nodes=2)
    assert len(set(group.instances()) & set(waiting)) == 1
    nodes, new_image = group.instances(), images(tenant.cloud, "bottlerocket")[1]
    tenant.set_defaults(annotations={PREFIX + "os-family": "bottlerocket"}, image=new_image)
    wait_rotated(group, nodes, 2, new_image)
    assert old not in group.instances() and not group.undrained() and group.max_unavailable_seen() <= 1


def test_the_warm_pool_is_replaced_before_the_nodes(tenant):
    """Else replacements come out of the pool with the old image, and every node is replaced twice."""
    group = start(tenant, 2, maxSize=4)
    waiting, old, mark = filled(group, 2), group.instances(), tenant.cloud.log_position()
    tenant.set_defaults(image=images(tenant.cloud)[1])
    wait_rotated(group, old, 2, images(tenant.cloud)[1])
    fresh = filled(group, 2)
    assert not set(fresh) & set(waiting)
    assert {i["LaunchTemplate"]["Version"] for i in pool(group)} == {group.pinned()}
    done = [w["operation"] for w in group.writes(after=mark) if w["operation"] in ("SetInstanceHealth", "TerminateInstanceInAutoScalingGroup")]
    assert done == ["SetInstanceHealth"] * 2 + ["TerminateInstanceInAutoScalingGroup"] * 2
    assert not group.undrained() and group.max_unavailable_seen() <= 1


def test_an_incomplete_warm_pool_halts_the_rotation(tenant):
    """Nothing else would say why no node is replaced."""
    group = start(tenant, 1, maxSize=3)
    group.patch({"spec": {"strategy": {"type": "rollingUpdate", "rollingUpdate": {"joinTimeout": "10s"}}}})
    waiting, old = filled(group, 2), group.instances()
    # The controller has to see the pool at rest: instances that are being prepared are all replaced at once.
    group.annotate(reconcile_now="filled")
    group.wait(lambda g: g.status().get("lastReconcileNow") == "filled", what="a look at the pool")
    asg = tenant.cloud.boto("autoscaling")
    hook = {"AutoScalingGroupName": group.scaling_group, "LifecycleHookName": "theirs"}
    asg.put_lifecycle_hook(**hook, LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING", HeartbeatTimeout=7200)
    tenant.set_defaults(image=images(tenant.cloud)[1])
    found = group.wait(lambda g: g.has_condition("RotationHalted"), ROTATION, "the halt")
    assert found["reason"] == "ReplacementsNotReady" and "lifecycle hook" in found["message"]
    assert group.instances() == old and group.has_condition("Stalled", reason="ReplacementsNotReady")
    held = {i["InstanceId"] for i in pool(group) if i["LifecycleState"] == "Warmed:Pending:Wait"}
    assert held and all(i in found["message"] for i in held) and not held & set(waiting)
    for instance in held:
        asg.complete_lifecycle_action(**hook, InstanceId=instance, LifecycleActionResult="CONTINUE")
    asg.delete_lifecycle_hook(**hook)
    wait_rotated(group, old, 1, images(tenant.cloud)[1])
    assert group.has_condition("RotationHalted", "False")


def test_a_group_is_deleted_with_its_warm_pool(tenant):
    """AWS keeps a group whose pool has instances: its deletion would never end."""
    group = start(tenant, 1, minSize=1)
    filled(group, 1)
    group.delete()
    group.wait_gone()
    assert group.asg() is None


def test_a_foreign_warm_pool_is_kept(tenant):
    """The controller takes away what it made, and nothing else."""
    group = tenant.group(size=(1, 3)).wait_ready(nodes=1)
    tenant.cloud.boto("autoscaling").put_warm_pool(AutoScalingGroupName=group.scaling_group, MinSize=1, MaxGroupPreparedCapacity=1)
    theirs, mark = filled(group, 1), tenant.cloud.log_position()
    group.patch_spec(eks={"maxSize": 4})
    group.wait(lambda g: g.asg()["MaxSize"] == 4, what="the larger size")
    group.wait_ready(nodes=1)
    assert at_rest(group) == theirs and [w["operation"] for w in group.writes(after=mark)] == ["UpdateAutoScalingGroup"]
