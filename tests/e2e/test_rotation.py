"""One line in the ConfigMap replaces every node, and never more at once than may be unavailable."""

import datetime

import pytest

from e2e import rotation


@pytest.mark.parametrize(("max_unavailable", "allowed"), [(1, 1), (2, 2), ("40%", 2)])
def test_a_new_image_in_the_config_map_replaces_every_node(tenant, max_unavailable, allowed):
    """Without this, an image would reach nodes only by hand, or all at once."""
    old_image, new_image, *_ = rotation.images(tenant.cloud)
    group = rotation.start_group(tenant, 4, maxUnavailable=max_unavailable)
    tenant.deployment("app", 4, rotation.pool(tenant), {"maxUnavailable": 1})
    tenant.wait_pods_running(4)
    old, old_pods = group.instances(), {p["metadata"]["uid"] for p in tenant.pods()}
    tenant.set_defaults(image=new_image)
    rotation.wait_rotated(group, old, 4, new_image)
    assert 1 <= group.max_unavailable_seen() <= allowed
    assert group.undrained() == {}
    assert sorted(rotation.terminated(group)) == sorted(old), "each old node is terminated once, and no other"
    tenant.wait_pods_running(4)
    assert not old_pods & {p["metadata"]["uid"] for p in tenant.pods()}
    assert rotation.evictions(tenant) and rotation.deleted_pods(tenant) == [], "a budget is only held when pods are evicted"
    progress = rotation.progress(group)
    assert 1 <= max(n.get("draining", 0) for n in progress) <= allowed
    assert {n["outdated"] for n in progress if "outdated" in n} >= {4, 2, 0}
    assert group.wait_event("RotationCompleted")
    reasons = [e["reason"] for e in group.events()]
    assert reasons.count("NodeDraining") == reasons.count("InstanceTerminated") == 4
    assert group.wait_event("NodeDraining", f"image: {old_image} -> {new_image}")
    status = group.status()
    assert status["template"]["lastReadyVersion"] == group.pinned() == status["latestTemplateVersion"]
    assert status["nodes"] == {"desired": 4, "ready": 4, "updated": 4, "outdated": 0, "draining": 0}


def test_an_autoscaler_may_change_desired_capacity_during_a_rotation(tenant):
    """Without this, the controller and the autoscaler would fight, or take more nodes than may be unavailable."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 3)
    old, scaling = group.instances(), tenant.cloud.boto("autoscaling")

    def desire(size):
        # While a replacement is on its way no node can be taken, so that the logs and the controller show one size.
        done = len(rotation.terminated(group))
        group.wait(lambda g: len(rotation.terminated(g)) > done, what="the next terminated node")
        scaling.set_desired_capacity(AutoScalingGroupName=group.scaling_group, DesiredCapacity=size)

    tenant.set_defaults(image=new_image)
    desire(5)
    desire(4)
    rotation.wait_rotated(group, old, 4, new_image)
    assert group.max_unavailable_seen() == 1 and group.undrained() == {}
    assert rotation.calls(group, "SetDesiredCapacity") == []
    assert all("DesiredCapacity" not in call["params"] for call in rotation.calls(group, "UpdateAutoScalingGroup"))
    assert all(call["params"]["ShouldDecrementDesiredCapacity"] in (False, "false") for call in rotation.calls(group, "TerminateInstanceInAutoScalingGroup"))


def test_a_revert_during_a_rotation_keeps_the_old_nodes(tenant):
    """Without this, taking a change back would replace nodes that never had it."""
    old_image, new_image, *_ = rotation.images(tenant.cloud)
    group = rotation.start_group(tenant, 4)
    tenant.set_defaults(image=new_image)
    group.wait(lambda g: g.status().get("nodes", {}).get("updated") == 1, what="the first replacement")
    tenant.set_defaults(image=old_image)
    group.wait(lambda g: g.pinned() == "1", what="the old version's pin")
    repinned = rotation.calls(group, "UpdateAutoScalingGroup")[-1]["seq"]
    group.wait(lambda g: {i["LaunchTemplate"]["Version"] for i in g.asg()["Instances"]} == {"1"}, what="the end of the new version")
    group.wait_ready(nodes=4)
    version = {e["id"]: e["version"] for e in group.events_in_aws() if e["kind"] == "state" and e["object"] == "instance"}
    assert {version[i] for i in rotation.terminated(group, repinned)} == {"2"}
    assert len(rotation.calls(group, "CreateLaunchTemplateVersion")) == 1, "the version is known and used again"
    assert group.max_unavailable_seen() == 1 and rotation.draining_nodes(group) == []


def test_a_revert_uncordons_the_draining_node(tenant):
    """Without this, a node would stay cordoned, or be replaced, for a change that was reverted."""
    old_image, new_image, *_ = rotation.images(tenant.cloud)
    group = rotation.start_group(tenant, 2)
    rotation.block_drains(tenant, 2)
    tenant.set_defaults(image=new_image)
    (node,) = rotation.wait_draining(group)
    tenant.set_defaults(image=old_image)
    group.wait_ready(nodes=2)
    assert rotation.draining_nodes(group) == [] and rotation.terminated(group) == []
    assert group.wait_event("NodeUncordoned", node["metadata"]["name"])


def test_rotate_at_replaces_every_node_without_any_other_change(tenant):
    """Without this, nodes could not be renewed unless something about them is changed."""
    group = rotation.start_group(tenant, 2, maxUnavailable=2)
    old = group.instances()
    group.annotate(rotate_at=datetime.datetime.now(datetime.UTC).isoformat())
    rotation.wait_rotated(group, old, 2, rotation.images(tenant.cloud)[0])
    assert group.pinned() == "1" and rotation.calls(group, "CreateLaunchTemplateVersion") == []
    assert sorted(rotation.terminated(group)) == sorted(old) and group.undrained() == {}
    assert group.wait_event("NodeDraining", "rotate-at")


@pytest.mark.long
@pytest.mark.parametrize("obstacle", ["Launch", "Terminate", "refresh"])
def test_nothing_is_cordoned_while_scaling_processes_are_suspended(tenant, obstacle):
    """Without this, a terminated node would never come back, or two parties would replace nodes at once."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 2)
    old, scaling, name = group.instances(), tenant.cloud.boto("autoscaling"), group.scaling_group
    if obstacle == "refresh":
        scaling.start_instance_refresh(AutoScalingGroupName=name)
    else:
        scaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=[obstacle])
    tenant.set_defaults(image=new_image)
    found = group.wait(lambda g: g.has_condition("Stalled", reason="ProcessSuspended"), what="the reason")
    assert obstacle in found["message"]
    assert rotation.cordons(group) == [] and rotation.terminated(group) == []
    if obstacle == "refresh":
        scaling.cancel_instance_refresh(AutoScalingGroupName=name)
    else:
        assert [p["ProcessName"] for p in group.asg()["SuspendedProcesses"]] == [obstacle]
        scaling.resume_processes(AutoScalingGroupName=name, ScalingProcesses=[obstacle])
    rotation.wait_rotated(group, old, 2, new_image)
    assert rotation.calls(group, "ResumeProcesses") == [], "only the user may resume what a user suspended"


def test_daemon_and_mirror_pods_stay_and_an_unmanaged_pod_is_reported(tenant):
    """Without this, a drain would wait endlessly for pods that come back, or lose one silently."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 1)
    pods, (node,) = rotation.pool(tenant), group.nodes()
    container = {"containers": [{"name": "main", "image": "example.com/app"}], "terminationGracePeriodSeconds": 1}
    template = {"metadata": {"labels": {"app": "daemon"}}, "spec": {**container, "nodeSelector": pods}}
    tenant.apply({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "daemon"},
                  "spec": {"selector": {"matchLabels": {"app": "daemon"}}, "template": template}})
    bare = {"apiVersion": "v1", "kind": "Pod", "spec": {**container, "nodeName": node["metadata"]["name"]}}
    mirror = {"annotations": {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}}
    tenant.apply({**bare, "metadata": {"name": "mirror", **mirror}})
    tenant.apply({**bare, "metadata": {"name": "alone"}})
    tenant.deployment("app", 1, pods, volumes=[{"name": "scratch", "emptyDir": {}}])
    tenant.wait_pods_running(4)
    old = group.instances()
    tenant.set_defaults(image=new_image)
    rotation.wait_rotated(group, old, 1, new_image)
    gone = {pod for _, pod in rotation.evictions(tenant)}
    assert "alone" in gone and not [p for p in gone if p.startswith(("daemon", "mirror"))]
    assert [p for p in gone if p.startswith("app-")] and rotation.deleted_pods(tenant) == []
    assert group.undrained(stays=("daemon", "mirror")) == {}
    assert rotation.event_message(group.wait_event("UnmanagedPodEvicted")).startswith(f"evicted {tenant.namespace}/alone")
    assert group.has_no_event("UnmanagedPodEvicted", "app-")


def test_a_foreign_cordon_is_never_changed(tenant):
    """Without this, a node that a user cordoned would take pods again."""
    old_image, new_image, *_ = rotation.images(tenant.cloud)
    group = rotation.start_group(tenant, 3)
    rotation.block_drains(tenant, 3)
    before, during, _ = sorted(n["metadata"]["name"] for n in group.nodes())
    tenant.cloud.kubectl("cordon", before)
    tenant.set_defaults(image=new_image)
    (node,) = rotation.wait_draining(group)
    assert node["metadata"]["name"] == before, "who is unavailable already costs nothing more"
    tenant.cloud.kubectl("cordon", during)
    group.annotate(lock_upgrades="true")
    group.wait(lambda g: g.state() == "Locked" and not rotation.draining_nodes(g), what="the lock")
    cordoned = {n["metadata"]["name"] for n in group.nodes() if n["spec"].get("unschedulable")}
    assert cordoned == {before, during}
    tenant.set_defaults(image=old_image)
    group.annotate(lock_upgrades=None)
    group.wait_ready(nodes=1)
    assert {n["metadata"]["name"] for n in group.nodes() if n["spec"].get("unschedulable")} == {before, during}
    assert [n for _, n in rotation.cordons(group, on=False)] == []
