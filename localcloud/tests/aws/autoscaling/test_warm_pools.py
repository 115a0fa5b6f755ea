"""Warm pools."""

import pytest

from localcloud.tests.aws.support import client_error, events, wait_until

pytestmark = pytest.mark.patched


def pool(aws, group, **more):
    """The warm pool's configuration and instances."""
    answer = aws.autoscaling.describe_warm_pool(AutoScalingGroupName=group, **more)
    return answer.get("WarmPoolConfiguration"), answer["Instances"]


def wait_for_pool(aws, group, count, state="Warmed:Stopped"):
    """Wait until the pool has exactly this number of initialized instances. Returns their ids."""
    wait_until(lambda: [i["LifecycleState"] for i in pool(aws, group)[1]] == [state] * count, f"{count} warmed instances of {group}")
    return [i["InstanceId"] for i in pool(aws, group)[1]]


def ec2_state(aws, instance):
    """The state of an instance in EC2."""
    return aws.ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]["State"]["Name"]


def make_with_pool(aws, groups, size=1, most=3, **settings):
    """Create a group with a warm pool."""
    group = groups.make(size, MaxSize=most)
    aws.autoscaling.put_warm_pool(AutoScalingGroupName=group, **settings)
    return group


def test_pool_size_follows_the_prepared_capacity(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, PutWarmPool, MaxGroupPreparedCapacity and MinSize."""
    group = make_with_pool(aws, groups)
    wait_for_pool(aws, group, 2)
    put = aws.autoscaling.put_warm_pool
    put(AutoScalingGroupName=group, MaxGroupPreparedCapacity=2)
    wait_for_pool(aws, group, 1)
    put(AutoScalingGroupName=group, MaxGroupPreparedCapacity=0, MinSize=3)
    wait_for_pool(aws, group, 3)
    assert pool(aws, group)[0] == {"MaxGroupPreparedCapacity": 0, "MinSize": 3, "PoolState": "Stopped"}
    put(AutoScalingGroupName=group, MaxGroupPreparedCapacity=-1, MinSize=0)
    wait_for_pool(aws, group, 2)
    assert pool(aws, group)[0] == {"MinSize": 0, "PoolState": "Stopped"}


def test_warm_instances_are_not_group_members(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, DescribeAutoScalingGroups: "you must call the DescribeWarmPool API"."""
    group = make_with_pool(aws, groups, MinSize=1, MaxGroupPreparedCapacity=2)
    (warmed,) = wait_for_pool(aws, group, 1)
    shown = groups.show(group)
    assert warmed not in [i["InstanceId"] for i in shown["Instances"]]
    assert (shown["DesiredCapacity"], shown["WarmPoolSize"]) == (1, 1)
    assert shown["WarmPoolConfiguration"] == {"MaxGroupPreparedCapacity": 2, "MinSize": 1, "PoolState": "Stopped"}
    (instance,) = aws.autoscaling.describe_auto_scaling_instances(InstanceIds=[warmed])["AutoScalingInstances"]
    assert (instance["LifecycleState"], instance["AutoScalingGroupName"]) == ("Warmed:Stopped", group)
    tags = aws.ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [warmed]}])["Tags"]
    assert {"aws:autoscaling:groupName": group}.items() <= {tag["Key"]: tag["Value"] for tag in tags}.items()
    activity = next(a for a in groups.activities(group) if warmed in a["Description"])
    assert activity["Description"] == f"Launching a new EC2 instance into warm pool: {warmed}"


def test_a_warm_instance_is_stopped_and_boots_when_it_enters_service(aws, groups, simulator):
    """Amazon EC2 Auto Scaling User Guide, "Use lifecycle hooks with a warm pool", Lifecycle states."""
    group = make_with_pool(aws, groups, MaxGroupPreparedCapacity=2)
    (warmed,) = wait_for_pool(aws, group, 1)
    assert ec2_state(aws, warmed) == "stopped"
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    assert warmed in groups.settle(group, 2)
    assert ec2_state(aws, warmed) == "running"
    states = [line["state"] for line in events(simulator.aws_log, object="instance", id=warmed)]
    assert states == ["Warmed:Pending", "Warmed:Stopped", "Pending", "InService"]
    assert pool(aws, group)[1] == []
    activity = next(a for a in groups.activities(group) if warmed in a["Description"])
    assert activity["Description"] == f"Launching a new EC2 instance from warm pool: {warmed}"


def test_a_replacement_comes_from_the_pool_which_is_refilled(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Decrease latency ... using warm pools", Core concepts: warm start, minimum size."""
    group = make_with_pool(aws, groups, MinSize=1, MaxGroupPreparedCapacity=0)
    (warmed,), (old,) = wait_for_pool(aws, group, 1), groups.settle(group, 1)
    aws.autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=old, ShouldDecrementDesiredCapacity=False)
    wait_until(lambda: [i["InstanceId"] for i in groups.show(group)["Instances"]] == [warmed], "the warmed one to take the place")
    groups.settle(group, 1)
    (next_one,) = wait_for_pool(aws, group, 1)
    assert next_one not in (warmed, old)


def test_a_pool_can_keep_its_instances_running(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, PutWarmPool, PoolState."""
    group = make_with_pool(aws, groups, MaxGroupPreparedCapacity=2, PoolState="Running")
    (warmed,) = wait_for_pool(aws, group, 1, "Warmed:Running")
    assert ec2_state(aws, warmed) == "running"
    code, message = client_error(aws.autoscaling.put_warm_pool, AutoScalingGroupName=group, PoolState="Frozen")
    assert (code, "poolState" in message) == ("ValidationError", True)


def test_launch_hooks_apply_when_entering_and_leaving_the_pool(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Use lifecycle hooks with a warm pool": Warmed:Pending:Wait and Pending:Wait."""
    group = groups.make(0, MaxSize=1)
    hook = {"LifecycleHookName": "wait", "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING", "HeartbeatTimeout": 7200}
    aws.autoscaling.put_lifecycle_hook(AutoScalingGroupName=group, **hook)
    aws.autoscaling.put_warm_pool(AutoScalingGroupName=group)
    (warmed,) = wait_for_pool(aws, group, 1, "Warmed:Pending:Wait")
    done = {"AutoScalingGroupName": group, "LifecycleHookName": "wait", "InstanceId": warmed, "LifecycleActionResult": "CONTINUE"}
    aws.autoscaling.complete_lifecycle_action(**done)
    assert wait_for_pool(aws, group, 1) == [warmed]
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    wait_until(lambda: groups.states(group) == ["Pending:Wait"], "the instance to wait again")
    aws.autoscaling.complete_lifecycle_action(**done)
    assert groups.settle(group, 1) == [warmed]


def test_warm_instances_are_replaced_after_termination_through_ec2(aws, groups, data):
    """Amazon EC2 Auto Scaling User Guide, "Update the instances in a warm pool"; TerminateInstanceInAutoScalingGroup: not in a pool."""
    latest = {"LaunchTemplateName": groups.template, "Version": "$Latest"}
    group = groups.make(0, MaxSize=1, LaunchTemplate=latest)
    aws.autoscaling.put_warm_pool(AutoScalingGroupName=group)
    (old,) = wait_for_pool(aws, group, 1)
    aws.ec2.create_launch_template_version(LaunchTemplateName=groups.template, LaunchTemplateData=data)
    terminate = aws.autoscaling.terminate_instance_in_auto_scaling_group
    code, message = client_error(terminate, InstanceId=old, ShouldDecrementDesiredCapacity=False)
    assert (code, "cannot be called on instances in a warm pool" in message) == ("ValidationError", True)
    aws.ec2.terminate_instances(InstanceIds=[old])
    wait_until(lambda: old not in [i["InstanceId"] for i in pool(aws, group)[1]], "the old one to be gone")
    wait_for_pool(aws, group, 1)
    assert [i["LaunchTemplate"]["Version"] for i in pool(aws, group)[1]] == ["2"]


def test_an_unhealthy_instance_of_the_pool_is_replaced(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "View health check status": warm pool instances, custom health checks."""
    group = groups.make(0, MaxSize=1)
    aws.autoscaling.put_warm_pool(AutoScalingGroupName=group)
    (old,) = wait_for_pool(aws, group, 1)
    aws.autoscaling.set_instance_health(InstanceId=old, HealthStatus="Unhealthy")
    wait_until(lambda: old not in [i["InstanceId"] for i in pool(aws, group)[1]], "the unhealthy one to be gone")
    wait_for_pool(aws, group, 1)


def test_scale_in_can_return_instances_to_the_pool(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, InstanceReusePolicy, ReuseOnScaleIn."""
    group = groups.make(1, MinSize=0, DesiredCapacity=1)
    (instance,) = groups.settle(group, 1)
    aws.autoscaling.put_warm_pool(AutoScalingGroupName=group, InstanceReusePolicy={"ReuseOnScaleIn": True})
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    wait_until(lambda: groups.states(group) == [], "the group to be empty")
    assert wait_for_pool(aws, group, 1) == [instance]
    assert pool(aws, group)[0]["InstanceReusePolicy"] == {"ReuseOnScaleIn": True}


@pytest.mark.same_in_moto
def test_a_call_without_the_reuse_policy_resets_it(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, PutWarmPool, InstanceReusePolicy: the default is to terminate instances."""
    group = groups.make(0, MaxSize=1)
    aws.autoscaling.put_warm_pool(AutoScalingGroupName=group, MinSize=0, InstanceReusePolicy={"ReuseOnScaleIn": True})
    aws.autoscaling.put_warm_pool(AutoScalingGroupName=group, MinSize=1)
    assert "InstanceReusePolicy" not in pool(aws, group)[0]


def test_deleting_a_pool_with_instances_requires_force(aws, groups, control):
    """Amazon EC2 Auto Scaling API Reference, DeleteWarmPool, ForceDelete and Errors; WarmPoolConfiguration, Status."""
    delete = aws.autoscaling.delete_warm_pool
    group = groups.make(0, MaxSize=1)
    code, message = client_error(delete, AutoScalingGroupName=group)
    assert (code, message.startswith("No warm pool found")) == ("ValidationError", True)
    hook = {"AutoScalingGroupName": group, "LifecycleHookName": "wait"}
    launching = {"LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING", "HeartbeatTimeout": 7200}
    aws.autoscaling.put_lifecycle_hook(**hook, **launching)
    aws.autoscaling.put_warm_pool(AutoScalingGroupName=group)
    (instance,) = wait_for_pool(aws, group, 1, "Warmed:Pending:Wait")
    assert client_error(delete, AutoScalingGroupName=group)[0] == "ScalingActivityInProgress"
    aws.autoscaling.complete_lifecycle_action(**hook, InstanceId=instance, LifecycleActionResult="CONTINUE")
    wait_for_pool(aws, group, 1)
    assert client_error(delete, AutoScalingGroupName=group)[0] == "ResourceInUse"
    with control.paused():
        delete(AutoScalingGroupName=group, ForceDelete=True)
        configuration, instances = pool(aws, group)
        assert (configuration["Status"], [i["LifecycleState"] for i in instances]) == ("PendingDelete", ["Warmed:Terminating"])
    wait_until(lambda: pool(aws, group) == (None, []), "the pool to be gone")
    assert "WarmPoolConfiguration" not in groups.show(group)


def test_deleting_a_group_with_warm_instances_requires_force(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, DeleteAutoScalingGroup: "the force delete option also deletes the warm pool"."""
    group = groups.make(0, MaxSize=1)
    aws.autoscaling.put_warm_pool(AutoScalingGroupName=group)
    (warmed,) = wait_for_pool(aws, group, 1)
    assert client_error(aws.autoscaling.delete_auto_scaling_group, AutoScalingGroupName=group)[0] == "ResourceInUse"
    aws.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=group, ForceDelete=True)
    wait_until(lambda: groups.show(group) is None, "the group to be gone")
    assert ec2_state(aws, warmed) == "terminated"


def test_warm_pool_instances_are_paginated(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, DescribeWarmPool, MaxRecords ("The maximum value is 50") and NextToken."""
    group = groups.make(0, MaxSize=3)
    aws.autoscaling.put_warm_pool(AutoScalingGroupName=group)
    ids = wait_for_pool(aws, group, 3)
    describe = aws.autoscaling.describe_warm_pool
    first = describe(AutoScalingGroupName=group, MaxRecords=2)
    second = describe(AutoScalingGroupName=group, MaxRecords=2, NextToken=first["NextToken"])
    assert [i["InstanceId"] for i in first["Instances"] + second["Instances"]] == ids
    assert client_error(describe, AutoScalingGroupName=group, MaxRecords=51)[0] == "ValidationError"


def test_spot_groups_cannot_have_a_warm_pool(aws, groups, data):
    """Amazon EC2 Auto Scaling User Guide, "Decrease latency ... using warm pools", Limitations."""
    market = {"InstanceMarketOptions": {"MarketType": "spot"}}
    aws.ec2.create_launch_template_version(LaunchTemplateName=groups.template, LaunchTemplateData=data | market)
    spot = {"LaunchTemplateName": groups.template, "Version": "2"}
    put, update = aws.autoscaling.put_warm_pool, aws.autoscaling.update_auto_scaling_group
    code, message = client_error(put, AutoScalingGroupName=groups.make(LaunchTemplate=spot))
    assert (code, "Spot Instances" in message) == ("ValidationError", True)
    group = groups.make(0, MaxSize=1)
    put(AutoScalingGroupName=group, MaxGroupPreparedCapacity=0)
    specification = {"LaunchTemplateSpecification": {"LaunchTemplateName": groups.template, "Version": "1"}}
    mixed = {"LaunchTemplate": specification, "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 50}}
    for change in ({"LaunchTemplate": spot}, {"MixedInstancesPolicy": mixed}):
        assert client_error(update, AutoScalingGroupName=group, **change)[0] == "ValidationError"
    assert groups.show(group)["LaunchTemplate"]["Version"] == "1"


def test_groups_with_weights_cannot_have_a_warm_pool(aws, groups):
    """The error message of PutWarmPool: no warm pool for a mixed instances policy with instance weights."""
    overrides = [{"InstanceType": "m5.large", "WeightedCapacity": "1"}]
    template = {"LaunchTemplateSpecification": {"LaunchTemplateName": groups.template, "Version": "1"}, "Overrides": overrides}
    weighted = {"MixedInstancesPolicy": {"LaunchTemplate": template}}
    group = groups.make(0, MaxSize=1)
    aws.autoscaling.put_warm_pool(AutoScalingGroupName=group, MaxGroupPreparedCapacity=0)
    code, message = client_error(aws.autoscaling.update_auto_scaling_group, AutoScalingGroupName=group, **weighted)
    assert (code, "instance weights" in message) == ("ValidationError", True)
    aws.autoscaling.delete_warm_pool(AutoScalingGroupName=group, ForceDelete=True)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, **weighted)
    code, message = client_error(aws.autoscaling.put_warm_pool, AutoScalingGroupName=group)
    assert (code, "instance weights" in message) == ("ValidationError", True)
