"""A permission that the controller's role lacks, with many groups that need it."""

import time

import pytest

from e2e import harness

GROUPS = 20
PERIOD = 10
"""The controller tries a denied call again after its resync period, if that is shorter than 50 seconds."""
TRIES = 5
"""How often a group tries at growing intervals before it waits for its turn."""
OPERATION = "UpdateAutoScalingGroup"


def made(cloud, after, accepted):
    """The groups of the controller's calls of the operation, in order."""
    calls = [e for e in cloud.aws_events(after) if e["kind"] == "call" and e["operation"] == OPERATION and e["caller"]["key"] == "controller"]
    return [call["params"]["AutoScalingGroupName"] for call in calls if (call["status"] < 300) == accepted]


@pytest.mark.private
def test_groups_that_lack_a_permission_try_once_a_period_and_go_on_together(own_cloud, start_controller, make_tenant):
    """A group that tried without a pause would use up AWS's rate for all; one that waits for long misses the restored right."""
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
            assert f"autoscaling:{OPERATION}" in group.wait_condition("Stalled", reason="MissingPermission")["message"]
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
