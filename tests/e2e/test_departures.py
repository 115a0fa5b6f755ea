"""Instances that leave a scaling group without the controller: who looks for them finds out why."""

import pytest

from e2e import rotation


def lost(group):
    """The messages of its events about instances that left without the controller."""
    return [e.get("note") for e in group.events() if e["reason"] == "InstanceLost"]


@pytest.mark.long
def test_each_instance_terminated_by_another_client_is_reported_once_with_its_cause(tenant, controller):
    """A user would not know who terminated an instance once its replacement has joined."""
    old, new = rotation.images(tenant.cloud)[:2]
    tenant.set_defaults(image=old)
    group = tenant.group("web", size=(1, 3)).wait_ready(nodes=1)
    autoscaling = group.cloud.boto("autoscaling")
    autoscaling.set_desired_capacity(AutoScalingGroupName=group.scaling_group, DesiredCapacity=2)
    group.wait_ready(nodes=2)

    # Nothing is missing afterwards: the user asked for less capacity.
    first, second = group.instances()
    autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=True)
    assert "user request" in (group.wait_event("InstanceLost", first).get("note") or "")
    group.cloud.control("POST", "instance", id=second, action="terminate")
    assert "health check" in (group.wait_event("InstanceLost", second).get("note") or "")
    group.wait(lambda g: second not in g.instances(None), what="the end of the instance")
    group.wait_ready(nodes=1)
    (third,) = group.instances()
    group.cloud.control("POST", "instance", id=third, action="reclaim")
    reclaimed = group.wait_event("InstanceLost", third)
    assert (reclaimed["type"], "reclaimed the Spot Instance" in (reclaimed.get("note") or "")) == ("Warning", True)
    group.wait_ready(nodes=1)
    assert len(lost(group)) == 3
    assert second in controller.tail("InstanceLost"), "hours later, only the log knows"

    # What the controller terminates has its own event.
    tenant.set_defaults(image=new)
    group.wait_event("RotationCompleted")
    group.wait_ready(nodes=1)
    assert len(lost(group)) == 3
