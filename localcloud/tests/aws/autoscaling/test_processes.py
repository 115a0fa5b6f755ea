"""Scaling groups: processes, lifecycle hooks, health, activities, instance refreshes, tags and metrics."""

import pytest

from localcloud.tests.aws.support import client_error, wait_until

pytestmark = pytest.mark.patched
TEMPLATE_PREFIX = "autoscaling:EC2_INSTANCE_"


def hook(transition, result="CONTINUE", heartbeat=30):
    """A lifecycle hook. With short delays, the simulator divides its heartbeat timeout by 100."""
    return {
        "LifecycleHookName": "wait",
        "LifecycleTransition": TEMPLATE_PREFIX + transition,
        "DefaultResult": result,
        "HeartbeatTimeout": heartbeat,
    }


def test_suspended_launch_prevents_replacement(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Suspend and resume processes", Launch."""
    name = groups.make(1)
    (old,) = groups.settle(name, 1)
    aws.autoscaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
    aws.autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=old, ShouldDecrementDesiredCapacity=False)
    wait_until(lambda: groups.states(name) == [], "the group to be empty")
    assert groups.show(name)["DesiredCapacity"] == 1
    aws.autoscaling.resume_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
    groups.settle(name, 1)


def test_suspended_terminate_prevents_scale_in(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Suspend and resume processes", Terminate."""
    name = groups.make(2, MinSize=0, DesiredCapacity=2, MaxSize=2)
    aws.autoscaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["Terminate"])
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=0)
    assert groups.states(name) == ["InService"] * 2
    aws.autoscaling.resume_processes(AutoScalingGroupName=name)
    wait_until(lambda: groups.states(name) == [], "the group to be empty")


def test_only_known_processes_can_be_suspended(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, SuspendProcesses, ScalingProcesses."""
    name = groups.make()
    assert client_error(aws.autoscaling.suspend_processes, AutoScalingGroupName=name, ScalingProcesses=["Everything"])[0] == "ValidationError"
    aws.autoscaling.suspend_processes(AutoScalingGroupName=name)
    suspended = groups.show(name)["SuspendedProcesses"]
    assert len(suspended) == 9
    assert all(process["SuspensionReason"].startswith("User suspended at") for process in suspended)


def test_a_process_can_be_suspended_as_aws_does_after_a_day_of_failed_launches(aws, groups, control):
    """Amazon EC2 Auto Scaling User Guide, "Suspend and resume processes": administrative suspension; data type SuspendedProcess."""
    name = groups.make()
    control.post("suspend", group=name, processes=["Launch"], reason="Administratively suspended")
    assert groups.show(name)["SuspendedProcesses"] == [{"ProcessName": "Launch", "SuspensionReason": "Administratively suspended"}]
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=2, DesiredCapacity=1)
    assert groups.states(name) == []
    aws.autoscaling.resume_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
    groups.settle(name, 1)


def test_an_unhealthy_instance_is_replaced_unless_the_process_is_suspended(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, SetInstanceHealth; User Guide, "Suspend and resume processes", ReplaceUnhealthy."""
    name = groups.make(1)
    (old,) = groups.settle(name, 1)
    aws.autoscaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["ReplaceUnhealthy"])
    aws.autoscaling.set_instance_health(InstanceId=old, HealthStatus="Unhealthy")
    assert groups.show(name)["Instances"][0]["HealthStatus"] == "Unhealthy"
    assert groups.settle(name, 1) == [old]
    aws.autoscaling.resume_processes(AutoScalingGroupName=name, ScalingProcesses=["ReplaceUnhealthy"])
    wait_until(lambda: old not in [i["InstanceId"] for i in groups.show(name)["Instances"]], "the unhealthy one to be gone")
    groups.settle(name, 1)


@pytest.mark.same_in_moto
def test_an_instance_terminated_through_ec2_is_replaced(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Health checks for instances in an Auto Scaling group"."""
    name = groups.make(1)
    (old,) = groups.settle(name, 1)
    aws.ec2.terminate_instances(InstanceIds=[old])
    wait_until(lambda: [i["InstanceId"] for i in groups.show(name)["Instances"]] not in ([old], []), "a replacement")
    groups.settle(name, 1)


def test_a_launch_hook_given_at_creation_delays_the_first_instance(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, CreateAutoScalingGroup, LifecycleHookSpecificationList; CompleteLifecycleAction."""
    name = groups.make(1, wait=False, LifecycleHookSpecificationList=[hook("LAUNCHING", heartbeat=7200)])
    wait_until(lambda: groups.states(name) == ["Pending:Wait"], "the instance to wait")
    instance = groups.show(name)["Instances"][0]["InstanceId"]
    aws.autoscaling.complete_lifecycle_action(
        AutoScalingGroupName=name, LifecycleHookName="wait", InstanceId=instance, LifecycleActionResult="CONTINUE"
    )
    assert groups.settle(name, 1) == [instance]


def test_an_instance_is_not_terminated_while_it_is_launched(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, TerminateInstanceInAutoScalingGroup, Errors: ScalingActivityInProgress."""
    held = [hook("LAUNCHING", heartbeat=7200)]
    name = groups.make(1, wait=False, MinSize=0, DesiredCapacity=1, LifecycleHookSpecificationList=held)
    wait_until(lambda: groups.states(name) == ["Pending:Wait"], "the instance to wait")
    instance = groups.show(name)["Instances"][0]["InstanceId"]
    terminate = aws.autoscaling.terminate_instance_in_auto_scaling_group
    (launch,) = groups.activities(name)
    for decrement in (True, False):
        code, message = client_error(terminate, InstanceId=instance, ShouldDecrementDesiredCapacity=decrement)
        assert (code, message) == ("ScalingActivityInProgress", f"Activity {launch['ActivityId']} is in progress.")
    assert (groups.states(name), groups.show(name)["DesiredCapacity"]) == (["Pending:Wait"], 1)
    aws.autoscaling.complete_lifecycle_action(
        AutoScalingGroupName=name, LifecycleHookName="wait", InstanceId=instance, LifecycleActionResult="CONTINUE"
    )
    groups.settle(name, 1)
    terminate(InstanceId=instance, ShouldDecrementDesiredCapacity=True)
    groups.settle(name, 0)


def test_a_hook_times_out_with_its_default_result(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "How lifecycle hooks work": ABANDON terminates and replaces, CONTINUE proceeds."""
    name = groups.make(1, wait=False, LifecycleHookSpecificationList=[hook("LAUNCHING", "ABANDON")])
    first = wait_until(lambda: groups.show(name)["Instances"], "an instance")[0]["InstanceId"]
    wait_until(lambda: first not in [i["InstanceId"] for i in groups.show(name)["Instances"]], "the abandoned instance to be gone")
    aws.autoscaling.put_lifecycle_hook(AutoScalingGroupName=name, **hook("LAUNCHING", "CONTINUE"))
    groups.settle(name, 1)


def test_a_terminate_hook_delays_the_termination_of_an_instance(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Amazon EC2 Auto Scaling instance lifecycle": Terminating:Wait."""
    name = groups.make(1, MinSize=0, DesiredCapacity=1, LifecycleHookSpecificationList=[hook("TERMINATING", heartbeat=7200)])
    (instance,) = groups.settle(name, 1)
    aws.autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=True)
    wait_until(lambda: groups.states(name) == ["Terminating:Wait"], "the instance to wait")
    assert aws.ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]["State"]["Name"] == "running"
    aws.autoscaling.complete_lifecycle_action(
        AutoScalingGroupName=name, LifecycleHookName="wait", InstanceId=instance, LifecycleActionResult="CONTINUE"
    )
    wait_until(lambda: groups.states(name) == [], "the instance to be gone")


@pytest.mark.parametrize(("transition", "given"), [("LAUNCHING", "CONTINUE"), ("TERMINATING", "ABANDON")])
def test_deleting_a_hook_completes_what_waits_in_it(aws, groups, transition, given):
    """Amazon EC2 Auto Scaling API Reference, DeleteLifecycleHook: "ABANDON for launching instances, CONTINUE for terminating"."""
    launching = transition == "LAUNCHING"
    held = [hook(transition, given, heartbeat=7200)]
    name = groups.make(1, wait=not launching, MinSize=0, DesiredCapacity=1, LifecycleHookSpecificationList=held)
    first = wait_until(lambda: groups.show(name)["Instances"], "an instance")[0]["InstanceId"]
    if not launching:
        aws.autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=True)
    wait_until(lambda: groups.states(name)[0].endswith(":Wait"), "the instance to wait")
    aws.autoscaling.delete_lifecycle_hook(AutoScalingGroupName=name, LifecycleHookName="wait")
    wait_until(lambda: first not in [i["InstanceId"] for i in groups.show(name)["Instances"]], "the instance to be gone")
    (ended,) = [a for a in groups.activities(name) if first in a["Description"] and a["Description"].startswith("Launch")]
    assert ended["StatusCode"] == ("Cancelled" if launching else "Successful")
    if launching:
        groups.settle(name, 1)


def test_hooks_are_returned_with_their_parameters(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, LifecycleHook."""
    name = groups.make()
    given = hook("TERMINATING") | {"NotificationMetadata": "note"}
    aws.autoscaling.put_lifecycle_hook(AutoScalingGroupName=name, **given)
    (shown,) = aws.autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=name)["LifecycleHooks"]
    assert {key: shown.get(key) for key in given} == given
    assert "RoleARN" not in shown
    bad = given | {"HeartbeatTimeout": 29}
    assert client_error(aws.autoscaling.put_lifecycle_hook, AutoScalingGroupName=name, **bad)[0] == "ValidationError"
    assert client_error(aws.autoscaling.delete_lifecycle_hook, AutoScalingGroupName=name, LifecycleHookName="other")[0] == "ValidationError"


def test_hook_targets_require_a_role_except_for_functions(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Prepare to add a lifecycle hook to your Auto Scaling group"; API Reference, PutLifecycleHook: RoleARN."""
    name = groups.make()
    role = {"RoleARN": "arn:aws:iam::123456789012:role/tell"}

    def put(**more):
        return aws.autoscaling.put_lifecycle_hook(AutoScalingGroupName=name, **hook("TERMINATING"), **more)

    for service in ("sns", "sqs"):
        target = {"NotificationTargetARN": f"arn:aws:{service}:us-west-2:123456789012:nodes"}
        assert client_error(put, **target)[0] == "ValidationError"
        put(**target, **role)
    put(NotificationTargetARN="arn:aws:lambda:us-west-2:123456789012:function:nodes")
    assert client_error(put, **role)[0] == "ValidationError"


def test_activities_describe_launches_and_failures(aws, groups, control):
    """Amazon EC2 Auto Scaling API Reference, Activity; User Guide, "Troubleshoot: EC2 instance launch failures"."""
    name = groups.make(1, MaxSize=2)
    assert groups.activities(name)[0]["StatusCode"] == "Successful"
    control.post("launch-failure", group=name, code="InsufficientInstanceCapacity")
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=2)
    failed = wait_until(lambda: (top := groups.activities(name)[0])["StatusCode"] == "Failed" and top, "a failed activity")
    assert failed["StatusMessage"].startswith("We currently do not have sufficient")
    assert failed["Description"].startswith("Launching a new EC2 instance")
    control.post("launch-failure", group=name, code=None)
    groups.settle(name, 2)
    assert client_error(aws.autoscaling.describe_scaling_activities, MaxRecords=101)[0] == "ValidationError"


def test_another_zone_is_used_while_one_has_no_capacity(aws, groups, control):
    """Amazon EC2 Auto Scaling User Guide, "Auto Scaling group Availability Zone distribution": balanced best effort."""
    zone = "us-west-2a"
    control.post("launch-failure", group="*", zone=zone, code="InsufficientInstanceCapacity")
    name = groups.make(2, MaxSize=3, VPCZoneIdentifier=",".join(groups.simulator.subnets[:2]))
    shown = groups.settle(name, 2)
    assert {i["AvailabilityZone"] for i in groups.show(name)["Instances"]} == {"us-west-2b"}, shown
    assert "Failed" in {activity["StatusCode"] for activity in groups.activities(name)}
    control.post("launch-failure", group="*", zone=zone, code=None)
    wait_until(lambda: len({i["AvailabilityZone"] for i in groups.show(name)["Instances"]}) == 2, "balanced zones")


def test_an_invalid_new_template_version_fails_activities(aws, groups, data, simulator):
    """Amazon EC2 Auto Scaling User Guide, "Troubleshoot: AMI issues"."""
    name = groups.make(0, LaunchTemplate={"LaunchTemplateName": groups.template, "Version": "$Latest"})
    aws.ec2.create_launch_template_version(
        LaunchTemplateName=groups.template, LaunchTemplateData=data | {"ImageId": "ami-00000000000000bad"}
    )
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=1)
    failed = wait_until(lambda: groups.activities(name), "an activity")[0]
    assert "ami-00000000000000bad" in failed["StatusMessage"]


def test_one_instance_refresh_runs_at_a_time_and_can_be_canceled(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, StartInstanceRefresh, CancelInstanceRefresh and DescribeInstanceRefreshes."""
    name = groups.make()
    started = aws.autoscaling.start_instance_refresh(AutoScalingGroupName=name)["InstanceRefreshId"]
    assert client_error(aws.autoscaling.start_instance_refresh, AutoScalingGroupName=name)[0] == "InstanceRefreshInProgress"
    shown = aws.autoscaling.describe_instance_refreshes(AutoScalingGroupName=name)["InstanceRefreshes"]
    assert [(r["InstanceRefreshId"], r["Status"]) for r in shown] == [(started, "InProgress")]
    aws.autoscaling.cancel_instance_refresh(AutoScalingGroupName=name)
    assert client_error(aws.autoscaling.cancel_instance_refresh, AutoScalingGroupName=name)[0] == "ActiveInstanceRefreshNotFound"


def test_metrics_have_known_names_and_one_granularity(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, EnableMetricsCollection and DisableMetricsCollection."""
    name = groups.make()
    enable = aws.autoscaling.enable_metrics_collection
    assert client_error(enable, AutoScalingGroupName=name, Granularity="5Minute")[0] == "ValidationError"
    assert client_error(enable, AutoScalingGroupName=name, Granularity="1Minute", Metrics=["GroupColour"])[0] == "ValidationError"
    enable(AutoScalingGroupName=name, Granularity="1Minute", Metrics=["GroupMinSize"])
    enable(AutoScalingGroupName=name, Granularity="1Minute", Metrics=["GroupMaxSize"])
    assert [m["Metric"] for m in groups.show(name)["EnabledMetrics"]] == ["GroupMaxSize", "GroupMinSize"]
    aws.autoscaling.disable_metrics_collection(AutoScalingGroupName=name, Metrics=["GroupMinSize"])
    assert [m["Metric"] for m in groups.show(name)["EnabledMetrics"]] == ["GroupMaxSize"]


def test_tags_are_created_overwritten_deleted_and_listed_in_pages(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, CreateOrUpdateTags, DeleteTags and DescribeTags."""
    name = groups.make()
    mine = [
        {"ResourceId": name, "ResourceType": "auto-scaling-group", "Key": f"k{i}", "Value": "v", "PropagateAtLaunch": True}
        for i in range(3)
    ]
    aws.autoscaling.create_or_update_tags(Tags=mine)
    aws.autoscaling.create_or_update_tags(Tags=[mine[0] | {"Value": "new", "PropagateAtLaunch": False}])
    aws.autoscaling.delete_tags(Tags=[mine[1]])
    assert [(t["Key"], t["Value"], t["PropagateAtLaunch"]) for t in groups.show(name)["Tags"]] == [("k0", "new", False), ("k2", "v", True)]
    condition = [{"Name": "auto-scaling-group", "Values": [name]}]
    page = aws.autoscaling.describe_tags(Filters=condition, MaxRecords=1)
    rest = aws.autoscaling.describe_tags(Filters=condition, MaxRecords=1, NextToken=page["NextToken"])
    assert [t["Key"] for t in page["Tags"] + rest["Tags"]] == ["k0", "k2"]
    assert client_error(aws.autoscaling.create_or_update_tags, Tags=[mine[0] | {"Key": "aws:x"}])[0] == "ValidationError"


def test_zones_are_rebalanced_unless_the_process_is_suspended(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Availability Zone distribution": rebalancing launches before it terminates."""
    name = groups.make(3, MaxSize=9)
    aws.autoscaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["AZRebalance", "Launch"])
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, MinSize=0)
    group = groups.show(name)
    crowded = group["Instances"][0]["AvailabilityZone"]
    subnet = groups.simulator.subnets[["us-west-2a", "us-west-2b", "us-west-2c"].index(crowded)]
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, VPCZoneIdentifier=subnet)
    aws.autoscaling.resume_processes(AutoScalingGroupName=name, ScalingProcesses=["Launch"])
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=5)
    groups.settle(name, 5)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, VPCZoneIdentifier=",".join(groups.simulator.subnets))
    zones = [i["AvailabilityZone"] for i in groups.show(name)["Instances"]]
    assert zones.count(crowded) == 3
    aws.autoscaling.resume_processes(AutoScalingGroupName=name)
    wait_until(lambda: [i["AvailabilityZone"] for i in groups.show(name)["Instances"]].count(crowded) == 2, "the zones to be balanced")
    groups.settle(name, 5)


def test_a_removed_zone_is_emptied_unless_the_process_is_suspended(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Auto Scaling benefits" (Rebalancing activities) and "Suspend and resume processes".

    A change of the group's zones leads to rebalancing. While AZRebalance is suspended, the instances of a removed zone
    stay. New instances launch only in the group's zones.
    """
    name = groups.make(3, MaxSize=9)
    aws.autoscaling.suspend_processes(AutoScalingGroupName=name, ScalingProcesses=["AZRebalance"])
    before = {i["InstanceId"]: i["AvailabilityZone"] for i in groups.show(name)["Instances"]}
    assert len(set(before.values())) == 3
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, VPCZoneIdentifier=groups.simulator.subnets[0])
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=4)
    groups.settle(name, 4)
    assert set(before) < {i["InstanceId"] for i in groups.show(name)["Instances"]}
    aws.autoscaling.resume_processes(AutoScalingGroupName=name, ScalingProcesses=["AZRebalance"])
    zone = groups.show(name)["AvailabilityZones"]
    wait_until(lambda: {i["AvailabilityZone"] for i in groups.show(name)["Instances"]} == set(zone), "the removed zones to be empty")
    stays = groups.settle(name, 4)
    assert [i for i in before if i in stays] == [i for i in before if before[i] in zone]


def test_a_deleted_template_fails_launches_until_it_is_replaced(aws, groups, data, name):
    """Amazon EC2 Auto Scaling User Guide, "Troubleshoot Amazon EC2 Auto Scaling: Launch templates"."""
    group = groups.make()
    aws.ec2.delete_launch_template(LaunchTemplateName=groups.template)
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    failed = wait_until(lambda: groups.activities(group), "an activity")[0]
    assert (failed["StatusCode"], "does not exist" in failed["StatusMessage"]) == ("Failed", True)
    aws.ec2.create_launch_template(LaunchTemplateName=groups.template, LaunchTemplateData=data)
    pin = {"LaunchTemplateName": groups.template, "Version": "1"}
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, LaunchTemplate=pin)
    groups.settle(group, 1)
