"""Instances in Standby."""

import pytest

from localcloud.tests.aws.support import client_error, events, wait_until

pytestmark = pytest.mark.patched


def enter(aws, group, *instances, decrement=False):
    """Move instances to Standby. Returns the activities."""
    call = aws.autoscaling.enter_standby
    return call(AutoScalingGroupName=group, InstanceIds=list(instances), ShouldDecrementDesiredCapacity=decrement)["Activities"]


def state_of(groups, group, instance):
    """The lifecycle state of one instance. None if it is terminated."""
    return {i["InstanceId"]: i["LifecycleState"] for i in groups.show(group)["Instances"]}.get(instance)


def test_an_instance_passes_through_entering_standby_and_pending_and_keeps_running(aws, groups, simulator, control):
    """Amazon EC2 Auto Scaling User Guide, "Temporarily remove instances from your Auto Scaling group", How the standby state works."""
    group = groups.make(1, MinSize=0, DesiredCapacity=1)
    (instance,) = groups.settle(group, 1)
    with control.paused():
        (activity,) = enter(aws, group, instance, decrement=True)
        assert activity["Description"] == f"Moving EC2 instance to Standby: {instance}"
        assert "shrinking the capacity from 1 to 0" in activity["Cause"]
        assert (activity["StatusCode"], groups.states(group)) == ("InProgress", ["EnteringStandby"])
    wait_until(lambda: groups.states(group) == ["Standby"], "the instance to reach Standby")
    assert groups.show(group)["DesiredCapacity"] == 0
    assert aws.ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]["State"]["Name"] == "running"
    with control.paused():
        (activity,) = aws.autoscaling.exit_standby(AutoScalingGroupName=group, InstanceIds=[instance])["Activities"]
        assert (activity["StatusCode"], groups.states(group)) == ("PreInService", ["Pending"])
    assert groups.settle(group, 1) == [instance]
    assert [line["state"] for line in events(simulator.aws_log, object="instance", id=instance)] == [
        "Pending",
        "InService",
        "EnteringStandby",
        "Standby",
        "Pending",
        "InService",
    ]


@pytest.mark.same_in_moto
def test_standby_without_decrement_launches_a_replacement(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, EnterStandby and ExitStandby: "the desired capacity is incremented"."""
    group = groups.make(1, MaxSize=2)
    aws.autoscaling.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["AZRebalance"])
    (old,) = groups.settle(group, 1)
    enter(aws, group, old)
    wait_until(lambda: groups.states(group) == ["InService", "Standby"], "a replacement for the instance in Standby")
    assert groups.show(group)["DesiredCapacity"] == 1
    aws.autoscaling.exit_standby(AutoScalingGroupName=group, InstanceIds=[old])
    assert groups.show(group)["DesiredCapacity"] == 2
    assert old in groups.settle(group, 2)


def test_standby_respects_minimum_and_maximum_size(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, EnterStandby: "equal to or greater than the minimum capacity of the group"."""
    group = groups.make(1)
    (instance,) = groups.settle(group, 1)
    given = {"AutoScalingGroupName": group, "InstanceIds": [instance]}
    code, message = client_error(aws.autoscaling.enter_standby, **given, ShouldDecrementDesiredCapacity=True)
    assert (code, "min-size=1, max-size=1, and desired-size=1. To place into standby 1 instance" in message) == ("ValidationError", True)
    assert groups.states(group) == ["InService"]
    enter(aws, group, instance)
    wait_until(lambda: groups.states(group) == ["InService", "Standby"], "a replacement for the instance in Standby")
    code, message = client_error(aws.autoscaling.exit_standby, **given)
    assert (code, "To place into service 1 instance" in message) == ("ValidationError", True)


def test_standby_requires_the_expected_lifecycle_state(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Temporarily remove instances": from `InService` into `Standby`, and back."""
    group = groups.make(1, MinSize=0, DesiredCapacity=1)
    (instance,) = groups.settle(group, 1)
    given = {"AutoScalingGroupName": group, "InstanceIds": [instance]}
    code, message = client_error(aws.autoscaling.exit_standby, **given)
    assert (code, message) == ("ValidationError", f"The instance {instance} is not in Standby.")
    enter(aws, group, instance, decrement=True)
    wait_until(lambda: groups.states(group) == ["Standby"], "the instance to reach Standby")
    code, message = client_error(aws.autoscaling.enter_standby, **given, ShouldDecrementDesiredCapacity=False)
    assert (code, message) == ("ValidationError", f"The instance {instance} is not in InService.")


def test_exit_standby_requires_the_launch_process(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Suspend and resume processes", Standby instances."""
    group = groups.make(1, MinSize=0, DesiredCapacity=1)
    (instance,) = groups.settle(group, 1)
    enter(aws, group, instance, decrement=True)
    wait_until(lambda: groups.states(group) == ["Standby"], "the instance to reach Standby")
    aws.autoscaling.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["Launch"])
    given = {"AutoScalingGroupName": group, "InstanceIds": [instance]}
    code, message = client_error(aws.autoscaling.exit_standby, **given)
    assert (code, "Launch" in message) == ("ValidationError", True)
    aws.autoscaling.resume_processes(AutoScalingGroupName=group, ScalingProcesses=["Launch"])
    aws.autoscaling.exit_standby(**given)
    groups.settle(group, 1)


def test_an_instance_terminated_in_standby_is_not_replaced_again(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, TerminateInstanceInAutoScalingGroup, ShouldDecrementDesiredCapacity."""
    group = groups.make(1, MaxSize=2)
    (old,) = groups.settle(group, 1)
    enter(aws, group, old)
    wait_until(lambda: groups.states(group) == ["InService", "Standby"], "a replacement for the instance in Standby")
    activity = aws.autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=old, ShouldDecrementDesiredCapacity=False)["Activity"]
    assert activity["Description"] == f"Terminating EC2 instance: {old}"
    wait_until(lambda: state_of(groups, group, old) is None, "the instance in Standby to be terminated")
    groups.settle(group, 1)
    assert groups.show(group)["DesiredCapacity"] == 1
    launches = [a for a in groups.activities(group) if a["Description"].startswith("Launching")]
    assert len(launches) == 2, "the first instance and its replacement only"


def test_an_instance_is_not_terminated_before_it_has_reached_standby(aws, groups, control):
    """Amazon EC2 Auto Scaling API Reference, TerminateInstanceInAutoScalingGroup, Errors: ScalingActivityInProgress.

    With a load balancer, the move lasts as long as the deregistration (keikoproj/upgrade-manager, "Terminate may fail").
    """
    group = groups.make(1, MinSize=0, DesiredCapacity=1)
    (instance,) = groups.settle(group, 1)
    terminate, given = aws.autoscaling.terminate_instance_in_auto_scaling_group, {"InstanceId": instance, "ShouldDecrementDesiredCapacity": False}
    with control.paused():
        (activity,) = enter(aws, group, instance, decrement=True)
        assert client_error(terminate, **given) == ("ScalingActivityInProgress", f"Activity {activity['ActivityId']} is in progress.")
    wait_until(lambda: groups.states(group) == ["Standby"], "the instance to reach Standby")
    terminate(**given)
    groups.settle(group, 0)


def test_health_is_checked_only_after_standby(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Temporarily remove instances", Health status of an instance in a standby state."""
    group = groups.make(1, MinSize=0, DesiredCapacity=1, MaxSize=2)
    (old,) = groups.settle(group, 1)
    enter(aws, group, old, decrement=True)
    wait_until(lambda: groups.states(group) == ["Standby"], "the instance to reach Standby")
    aws.ec2.terminate_instances(InstanceIds=[old])
    shown = aws.ec2.describe_instances(InstanceIds=[old])["Reservations"][0]["Instances"][0]["State"]["Name"]
    assert shown in ("shutting-down", "terminated")
    (instance,) = groups.show(group)["Instances"]
    assert (instance["LifecycleState"], instance["HealthStatus"]) == ("Standby", "Healthy")
    aws.autoscaling.exit_standby(AutoScalingGroupName=group, InstanceIds=[old])
    wait_until(lambda: state_of(groups, group, old) is None, "the terminated instance to be replaced")
    assert groups.settle(group, 1) != [old]


def test_a_detached_instance_runs_on_and_is_replaced(aws, groups, simulator):
    """Amazon EC2 Auto Scaling User Guide, "Detach or attach instances from your Auto Scaling group"."""
    group = groups.make(1, MaxSize=2)
    (old,) = groups.settle(group, 1)
    detach = aws.autoscaling.detach_instances
    asked = {"AutoScalingGroupName": group, "InstanceIds": [old]}
    assert client_error(detach, **asked, ShouldDecrementDesiredCapacity=True)[0] == "ValidationError", "below its minimum"
    (activity,) = detach(**asked, ShouldDecrementDesiredCapacity=False)["Activities"]
    assert activity["Description"] == f"Detaching EC2 instance: {old}"
    wait_until(lambda: groups.states(group) == ["InService"], "a replacement")
    assert state_of(groups, group, old) is None
    found = aws.ec2.describe_instances(InstanceIds=[old])["Reservations"][0]["Instances"][0]
    assert found["State"]["Name"] == "running"
    assert events(simulator.aws_log, object="instance", id=old)[-1]["state"] == "detached"
    aws.ec2.terminate_instances(InstanceIds=[old])
