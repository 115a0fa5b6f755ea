"""A permission that the controller's role lacks, with many groups that need it."""

import re
import time

import pytest

from e2e import harness, logs, rotation

GROUPS = 20
PERIOD = 10
"""The controller tries a denied call again after its resync period, if that is shorter than 50 seconds."""
TRIES = 5
"""How often a group tries at growing intervals before it waits for its turn."""
OPERATION = "UpdateAutoScalingGroup"
TERMINATE = "TerminateInstanceInAutoScalingGroup"


def made(cloud, after, accepted):
    """The groups of the controller's calls of the operation, in order."""
    calls = [e for e in cloud.aws_events(after) if e["kind"] == "call" and e["operation"] == OPERATION and e["caller"]["key"] == "controller"]
    return [call["params"]["AutoScalingGroupName"] for call in calls if (call["status"] < 300) == accepted]


@pytest.mark.long
@pytest.mark.private
def test_groups_that_lack_a_permission_retry_once_a_period_and_recover_together(own_cloud, start_controller, make_tenant):
    """A group that retries without a pause would use up the AWS rate limit for all groups. A group that waits long misses the restored permission."""
    cloud = own_cloud()
    controller = start_controller(cloud, *harness.SHARED_FLAGS)
    tenant = make_tenant(cloud=cloud, controller=controller)
    groups = [tenant.group(f"g{number:02}", size=(0, 1)) for number in range(GROUPS)]
    for group in groups:
        group.wait_ready()
    with cloud.fault(action="deny", service="autoscaling", operation=OPERATION, count=-1):
        begin = cloud.log_position()
        for group in groups:
            group.patch_spec(eks={"maxSize": 2})
        for group in groups:
            group.wait_condition("Stalled", reason="MissingPermission", text=f"autoscaling:{OPERATION}")
        # The first group tries five times, at growing intervals, before it waits for its turn.
        groups[0].wait(lambda _: len(made(cloud, begin, False)) >= GROUPS + TRIES, what="the first tries")
        time.sleep(2 * PERIOD)
        before, position = time.monotonic(), cloud.log_position()
        time.sleep(3 * PERIOD)
        refused, periods = len(made(cloud, position, False)), (time.monotonic() - before) / PERIOD
        assert 1 <= refused <= GROUPS * (periods + 1), f"{refused} refused calls in {periods:.1f} periods"
    for group in groups:
        group.wait(lambda g: g.asg()["MaxSize"] == 2, what="the restored permission")
        group.wait_ready()
    assert sorted(made(cloud, position, True)) == sorted(group.scaling_group for group in groups)


@pytest.mark.private
def test_a_missing_permission_for_tags_does_not_stop_a_rotation(own_cloud, start_controller, make_tenant):
    """A fleet would keep a vulnerable image because the controller may not remove a tag."""
    cloud = own_cloud()
    tenant = make_tenant(cloud=cloud, controller=start_controller(cloud, *harness.SHARED_FLAGS))
    tenant.set_defaults(image=rotation.images(cloud)[0])
    group = tenant.group("web", size=(2, 2), tags=[{"key": "previous", "value": "web"}])
    group.wait_ready(nodes=2)
    old, new = group.instances(), rotation.images(cloud)[1]
    with cloud.fault(action="deny", service="autoscaling", operation="DeleteTags", count=-1):
        group.patch_spec(eks={"configuration": {"tags": [{"key": "tier", "value": "gold"}]}})
        group.wait_condition("Stalled", reason="MissingPermission", text="autoscaling:DeleteTags")
        group.wait(lambda g: harness.tags_of(g.asg()).get("tier") == "gold", what="the tag that may be set")
        tenant.set_defaults(image=new)
        group.wait(lambda g: "the rotation continues" in g.condition("Stalled")["message"], what="the rotation in the message")
        group.wait(lambda g: not set(g.instances(None)) & set(old), rotation.ROTATION, "the end of every old node")
        assert group.condition("Stalled")["status"] == "True" and harness.tags_of(group.asg())["previous"] == "web"
    group.wait_ready(nodes=2)
    assert "previous" not in harness.tags_of(group.asg())


def calls(cloud, operation, after):
    """The controller's calls of one operation since a line of the log, in order."""
    return [e for e in cloud.aws_events(after) if logs.is_controller_call(e) and e["operation"] == operation]


@pytest.mark.long
@pytest.mark.private
def test_a_rotation_continues_when_its_permission_is_restored(own_cloud, start_controller, make_tenant):
    """Each attempt of a denied termination evicts pods. Without a probe, the controller would wait five minutes to an hour instead."""
    cloud = own_cloud()
    # STS names the session of a role without the role's path, and IAM knows the role only with it.
    role = cloud.make_controller_role(path="/team/")
    # The waits of a real cluster: the next try is five minutes away, and the controller asks every ten seconds.
    controller = start_controller(cloud, *harness.SHARED_FLAGS, "--time-scale", "1")
    tenant = make_tenant(cloud=cloud, controller=controller)
    group = rotation.start_group(tenant, 2)
    tenant.deployment("app", 2, rotation.pool(tenant), {"maxUnavailable": 1}, affinity=rotation.spread("app"))
    tenant.wait_pods_running(2)
    old, new = group.instances(), rotation.images(cloud)[1]
    tenant.set_defaults(image=new)
    group.wait(rotation.terminated, what="the first terminated node")
    denied = cloud.log_position()
    with cloud.fault(action="deny", service="autoscaling", operation=TERMINATE, count=-1):
        group.wait_condition("Stalled", reason="MissingPermission", timeout=2 * harness.WAIT)
        # After five refused tries, the nodes in progress are uncordoned.
        group.wait(lambda g: "tried again at" in g.condition("Stalled")["message"], what="the time of the next try")
        message = group.condition("Stalled")["message"]
        assert f"lacks autoscaling:{TERMINATE}" in message and "continues within a minute after the permission is restored" in message
        next_try = re.search(r"is tried again at (\S+)", message)[1]
        group.wait(lambda g: len(g.ready_nodes()) == 2 and not rotation.draining_nodes(g), what="the node that is uncordoned")
        refused = len(calls(cloud, TERMINATE, denied))
        group.wait(lambda _: len(calls(cloud, "SimulatePrincipalPolicy", denied)) >= 2, what="a question after the first one")
        assert len(calls(cloud, TERMINATE, denied)) == refused, "it asks instead of trying"
        restored = cloud.log_position()
    (last,) = set(old) - set(rotation.terminated(group))
    group.wait(lambda g: last in rotation.terminated(g, restored), what="the next terminated node")
    asked = calls(cloud, "SimulatePrincipalPolicy", denied)
    assert {call["params"]["PolicySourceArn"] for call in asked} == {role} and {call["status"] for call in asked} == {200}
    ended = calls(cloud, TERMINATE, restored)[0]
    assert any(restored < call["seq"] < ended["seq"] for call in asked), "only an answer of IAM ends the wait"
    assert ended["time"] < next_try, "before the next try"
    assert "autoscaling:" + TERMINATE in controller.tail("permission restored")
    rotation.wait_rotated(group, old, 2, new)
    assert group.undrained() == {}
