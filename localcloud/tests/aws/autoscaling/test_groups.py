"""Scaling groups: validation, instance lifecycle, sizes and paging."""

import time

import pytest

from localcloud.tests.aws.support import client_error, wait_until

pytestmark = pytest.mark.patched


def test_an_existing_name_is_rejected(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, CreateAutoScalingGroup, Errors: AlreadyExists."""
    name = groups.make()
    code, message = client_error(aws.autoscaling.create_auto_scaling_group, **groups.parameters(name))
    assert (code, name in message) == ("AlreadyExists", True)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"LaunchTemplate": {"LaunchTemplateName": "no-such", "Version": "1"}}, "with template name no-such, does not exist"),
        ({"LaunchTemplate": {"LaunchTemplateId": "lt-0123456789abcdef0"}}, "with template ID lt-0123456789abcdef0, does not exist"),
        ({"VPCZoneIdentifier": "subnet-0123456789abcdef0"}, "The subnet ID 'subnet-0123456789abcdef0' does not exist"),
        ({"MinSize": 2, "MaxSize": 1}, "Max bound, 1, must be greater than or equal to min bound, 2"),
        ({"DesiredCapacity": 5}, "must be between the specified min size"),
        ({"HealthCheckType": "Pulse"}, "HealthCheckType"),
        ({"TerminationPolicies": ["Whatever"]}, "termination policy"),
        ({"Tags": [{"Key": "aws:mine", "Value": "x"}]}, "reserved"),
        ({"AutoScalingGroupName": "n" * 256}, "less than or equal to 255"),
        ({"LifecycleHookSpecificationList": [{"LifecycleHookName": "h", "LifecycleTransition": "autoscaling:OTHER"}]}, "must be one of"),
    ],
)
def test_invalid_group_parameters_are_rejected(aws, groups, name, changes, part):
    """Amazon EC2 Auto Scaling API Reference, CreateAutoScalingGroup, Request Parameters and Errors (ValidationError)."""
    code, message = client_error(aws.autoscaling.create_auto_scaling_group, **groups.parameters(name) | changes)
    assert code == "ValidationError"
    assert part in message


def test_a_launch_template_requires_that_the_caller_may_run_instances(aws, groups, name, control):
    """Amazon EC2 Auto Scaling User Guide, "Control Amazon EC2 launch template usage in Auto Scaling groups": ec2:RunInstances."""
    made = groups.make()
    launch = groups.parameters(name)
    control.post("faults", action="deny", service="ec2", operation="RunInstances", count=-1)
    code, message = client_error(aws.autoscaling.create_auto_scaling_group, **launch)
    assert (code, message.startswith("You are not authorized to use launch template: ")) == ("AccessDenied", True)
    change = {"AutoScalingGroupName": made, "LaunchTemplate": launch["LaunchTemplate"]}
    assert client_error(aws.autoscaling.update_auto_scaling_group, **change) == (code, message)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=made, MaxSize=5)
    control.delete("faults")
    aws.autoscaling.update_auto_scaling_group(**change)


def test_more_than_fifty_tags_are_rejected(aws, groups, name):
    """Amazon EC2 Auto Scaling User Guide, "Tag naming and usage restrictions": 50 tags per group."""
    tags = [{"Key": f"k{i}", "Value": "v"} for i in range(51)]
    assert client_error(aws.autoscaling.create_auto_scaling_group, **groups.parameters(name, Tags=tags))[0] == "LimitExceeded"


def test_a_missing_template_version_is_rejected(aws, groups, name):
    """Amazon EC2 Auto Scaling API Reference, LaunchTemplateSpecification; ValidationError when it is not there."""
    wanted = {"LaunchTemplateName": groups.template, "Version": "9"}
    code, message = client_error(aws.autoscaling.create_auto_scaling_group, **groups.parameters(name, LaunchTemplate=wanted))
    assert (code, "does not exist" in message) == ("ValidationError", True)
    made = groups.make()
    code, message = client_error(aws.autoscaling.update_auto_scaling_group, AutoScalingGroupName=made, LaunchTemplate=wanted)
    assert (code, "does not exist" in message) == ("ValidationError", True)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"ImageId": "ami-00000000000000bad"}, "The image id '[ami-00000000000000bad]' does not exist"),
        ({"KeyName": "no-such-key"}, "The key pair 'no-such-key' does not exist"),
        ({"SecurityGroupIds": ["sg-0123456789abcdef0"]}, "The security group 'sg-0123456789abcdef0' does not exist"),
        ({"InstanceType": "m6g.large"}, "does not match the architecture"),
        ({"IamInstanceProfile": {"Name": "no-such"}}, "Invalid IAM Instance Profile name"),
    ],
)
def test_a_template_that_cannot_launch_is_rejected_with_the_reason_of_ec2(aws, groups, data, name, change, part):
    """Amazon EC2 Auto Scaling User Guide, "Troubleshoot Amazon EC2 Auto Scaling: Launch templates"."""
    aws.ec2.create_launch_template(LaunchTemplateName=f"bad-{name}", LaunchTemplateData=data | change)
    wanted = {"LaunchTemplateName": f"bad-{name}", "Version": "1"}
    code, message = client_error(aws.autoscaling.create_auto_scaling_group, **groups.parameters(name, LaunchTemplate=wanted))
    assert code == "ValidationError"
    assert message.startswith("You must use a valid fully-formed launch template.")
    assert part in message


def test_a_new_instance_profile_is_rejected_until_it_has_propagated(aws, groups, data, control, name):
    """IAM User Guide, "Troubleshooting IAM: Changes that I make are not always immediately visible"."""
    aws.iam.create_role(
        RoleName=name,
        AssumeRolePolicyDocument='{"Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}',
    )
    template = {"LaunchTemplateName": f"fresh-{name}", "Version": "1"}
    with control.delayed(propagation=600):
        arn = aws.iam.create_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Arn"]
        aws.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        aws.ec2.create_launch_template(LaunchTemplateName=f"fresh-{name}", LaunchTemplateData=data | {"IamInstanceProfile": {"Arn": arn}})
        code, message = client_error(aws.autoscaling.create_auto_scaling_group, **groups.parameters(name, LaunchTemplate=template))
        assert (code, "Invalid IAM Instance Profile ARN" in message) == ("ValidationError", True)
    time.sleep(0.5)
    aws.autoscaling.create_auto_scaling_group(**groups.parameters(name, LaunchTemplate=template))


def test_instances_are_pending_first_and_balanced_over_the_zones(groups):
    """Amazon EC2 Auto Scaling User Guide, "Amazon EC2 Auto Scaling instance lifecycle" and "Availability Zone distribution"."""
    name = groups.make(6, wait=False)
    groups.settle(name, 6)
    assert [state for _, state in groups.history(name)][:6] == ["Pending"] * 6
    zones = [i["AvailabilityZone"] for i in groups.show(name)["Instances"]]
    assert sorted(zones) == sorted(["us-west-2a", "us-west-2b", "us-west-2c"] * 2)


def test_instances_report_the_version_that_they_were_launched_with(aws, groups, data):
    """Amazon EC2 Auto Scaling API Reference, Instance: LaunchTemplate; Group: LaunchTemplate."""
    latest = {"LaunchTemplateName": groups.template, "Version": "$Latest"}
    name = groups.make(1, LaunchTemplate=latest, MaxSize=2)
    aws.ec2.create_launch_template_version(LaunchTemplateName=groups.template, LaunchTemplateData=data)
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=2)
    groups.settle(name, 2)
    shown = groups.show(name)
    assert shown["LaunchTemplate"]["Version"] == "$Latest"
    assert sorted(i["LaunchTemplate"]["Version"] for i in shown["Instances"]) == ["1", "2"]
    instances = aws.ec2.describe_instances(InstanceIds=[i["InstanceId"] for i in shown["Instances"]])["Reservations"]
    versions = [t["Value"] for r in instances for i in r["Instances"] for t in i["Tags"] if t["Key"] == "aws:ec2launchtemplate:version"]
    assert sorted(versions) == ["1", "2"]


def test_new_size_limits_adjust_the_desired_capacity(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, UpdateAutoScalingGroup, MinSize and MaxSize."""
    name = groups.make(1, MaxSize=5)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, MinSize=4)
    groups.settle(name, 4)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, MinSize=1, MaxSize=2)
    assert groups.show(name)["DesiredCapacity"] == 2
    groups.settle(name, 2)
    assert [state for _, state in groups.history(name)].count("Terminating") == 2
    assert client_error(aws.autoscaling.update_auto_scaling_group, AutoScalingGroupName=name, MinSize=3)[0] == "ValidationError"


def test_desired_capacity_outside_the_limits_is_rejected(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, SetDesiredCapacity, DesiredCapacity."""
    name = groups.make()
    code, message = client_error(aws.autoscaling.set_desired_capacity, AutoScalingGroupName=name, DesiredCapacity=9)
    assert (code, "above max value 1" in message) == ("ValidationError", True)


def test_a_terminating_instance_is_replaced_immediately(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, TerminateInstanceInAutoScalingGroup."""
    name = groups.make(1)
    (old,) = groups.settle(name, 1)
    activity = aws.autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=old, ShouldDecrementDesiredCapacity=False)["Activity"]
    assert activity["StatusCode"] == "InProgress"
    (new,) = wait_until(lambda: groups.states(name) == ["InService"] and [i["InstanceId"] for i in groups.show(name)["Instances"] if i["InstanceId"] != old], "the replacement")
    history = groups.history(name)
    assert history.index((new, "Pending")) < history.index((old, "gone")), "it is launched beside the old one"
    state = aws.ec2.describe_instances(InstanceIds=[old])["Reservations"][0]["Instances"][0]["State"]["Name"]
    assert state == "terminated"


@pytest.mark.parametrize(
    ("action", "cause", "code"),
    [
        ("terminate", "indicating it has been terminated or stopped", "Client.UserInitiatedShutdown"),
        ("reclaim", "indicating it has been terminated or stopped", "Server.SpotInstanceTermination"),
        ("unhealthy", "instance status checks failure", "Client.UserInitiatedShutdown"),
        ("marked", "user health-check", "Client.UserInitiatedShutdown"),
    ],
)
def test_a_lost_instance_has_its_cause_in_the_activity_and_its_reason_in_ec2(aws, control, groups, action, cause, code):
    """AWS knowledge center, "Why did Amazon EC2 Auto Scaling terminate an instance?"; Amazon EC2 API Reference, StateReason."""
    name = groups.make(1)
    (old,) = groups.settle(name, 1)
    if action == "marked":
        aws.autoscaling.set_instance_health(InstanceId=old, HealthStatus="Unhealthy")
    else:
        control.post("instance", id=old, action=action)

    def found():
        return aws.ec2.describe_instances(InstanceIds=[old])["Reservations"][0]["Instances"][0]

    wait_until(lambda: found()["State"]["Name"] == "terminated", "its end")
    activities = aws.autoscaling.describe_scaling_activities(AutoScalingGroupName=name)["Activities"]
    (termination,) = [a for a in activities if a["Description"] == f"Terminating EC2 instance: {old}"]
    assert cause in termination["Cause"]
    assert found()["StateReason"]["Code"] == code


def test_a_launch_that_ec2_ends_is_canceled_and_tried_again(aws, control, groups):
    """Amazon EC2 Auto Scaling User Guide, "Troubleshoot: EC2 instance launch failures", Client.InternalError: Client error on launch."""
    name = groups.make(0)
    control.post("launch-end", group=name, code="Client.InternalError")
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, MinSize=1)
    ended = wait_until(lambda: [a for a in groups.activities(name) if a["StatusCode"] == "Cancelled"], "a launch that ends")
    (wanted,) = {a["StatusMessage"] for a in ended}
    assert wanted == (
        "Instance became unhealthy while waiting for instance to be in InService state. "
        "Termination Reason: Client.InternalError: Client error on launch"
    )
    identifier = ended[-1]["Description"].split(": ")[1].split(".")[0]

    def found():
        return aws.ec2.describe_instances(InstanceIds=[identifier])["Reservations"][0]["Instances"][0]

    wait_until(lambda: found()["State"]["Name"] == "terminated", "its end")
    assert found()["StateReason"] == {"Code": "Client.InternalError", "Message": "Client.InternalError: Client error on launch"}
    control.post("launch-end", group=name)
    assert groups.settle(name, 1) != [identifier]


def test_termination_with_decrement_respects_the_minimum(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, TerminateInstanceInAutoScalingGroup, ShouldDecrementDesiredCapacity."""
    name = groups.make(2, MaxSize=3)
    first, second = groups.settle(name, 2)
    terminate = aws.autoscaling.terminate_instance_in_auto_scaling_group
    code, message = client_error(terminate, InstanceId=first, ShouldDecrementDesiredCapacity=True)
    assert (code, "min size constraint" in message) == ("ValidationError", True)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, MinSize=1)
    terminate(InstanceId=first, ShouldDecrementDesiredCapacity=True)
    assert groups.settle(name, 1) == [second]
    assert groups.show(name)["DesiredCapacity"] == 1


def test_a_repeated_termination_decrements_again(aws, groups, control):
    """Amazon EC2 Auto Scaling API Reference, TerminateInstanceInAutoScalingGroup: no idempotency token, no exception for
    an instance that terminates. The pull request "Track lifecycle and skip terminating already terminating instances"
    of kubernetes/autoscaler reports the dwindling desired capacity.
    """
    name = groups.make(3, MinSize=0, MaxSize=3, DesiredCapacity=3)
    first, *_ = groups.settle(name, 3)
    with control.paused():
        for left in (2, 1):
            aws.autoscaling.terminate_instance_in_auto_scaling_group(InstanceId=first, ShouldDecrementDesiredCapacity=True)
            assert groups.show(name)["DesiredCapacity"] == left
    groups.settle(name, 1)
    again = aws.autoscaling.terminate_instance_in_auto_scaling_group
    code, message = client_error(again, InstanceId=first, ShouldDecrementDesiredCapacity=True)
    assert (code, "Instance Id not found" in message) == ("ValidationError", True)


def test_an_unknown_instance_is_a_validation_error(aws):
    """Amazon EC2 Auto Scaling API Reference, TerminateInstanceInAutoScalingGroup; Common Errors, ValidationError."""
    code, message = client_error(
        aws.autoscaling.terminate_instance_in_auto_scaling_group, InstanceId="i-0123456789abcdef0", ShouldDecrementDesiredCapacity=False
    )
    assert (code, "i-0123456789abcdef0" in message) == ("ValidationError", True)


def test_deleting_a_group_with_instances_requires_force(aws, groups, control):
    """Amazon EC2 Auto Scaling API Reference, DeleteAutoScalingGroup, ForceDelete and Errors (ResourceInUse)."""
    name = groups.make(1)
    assert client_error(aws.autoscaling.delete_auto_scaling_group, AutoScalingGroupName=name)[0] == "ResourceInUse"
    with control.paused():
        aws.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=name, ForceDelete=True)
        assert groups.show(name)["Status"] == "Delete in progress"
        assert client_error(aws.autoscaling.create_auto_scaling_group, **groups.parameters(name))[0] == "AlreadyExists"
    wait_until(lambda: groups.show(name) is None, "the group to be gone")


def test_page_size_and_name_count_are_limited(aws, groups):
    """Amazon EC2 Auto Scaling API Reference, DescribeAutoScalingGroups, MaxRecords and AutoScalingGroupNames."""
    describe = aws.autoscaling.describe_auto_scaling_groups
    assert client_error(describe, MaxRecords=101)[0] == "ValidationError"
    assert client_error(describe, AutoScalingGroupNames=[f"n{i}" for i in range(51)])[0] == "ValidationError"
    assert describe(AutoScalingGroupNames=[f"n{i}" for i in range(100)], MaxRecords=100)["AutoScalingGroups"] == []


def test_unknown_groups_are_a_validation_error(aws):
    """Amazon EC2 Auto Scaling API Reference, Common Errors, ValidationError. The message of the tag calls is in an issue of
    cloud-custodian/cloud-custodian: "An error occurred (ValidationError) when calling the CreateOrUpdateTags operation".
    """
    for call, more in (
        (aws.autoscaling.update_auto_scaling_group, {"MinSize": 1}),
        (aws.autoscaling.delete_auto_scaling_group, {}),
        (aws.autoscaling.describe_lifecycle_hooks, {}),
        (aws.autoscaling.suspend_processes, {}),
    ):
        code, message = client_error(call, AutoScalingGroupName="no-such-group", **more)
        assert (code, "not found" in message) == ("ValidationError", True)
    tag = {"ResourceId": "no-such-group", "ResourceType": "auto-scaling-group", "Key": "k", "Value": "v", "PropagateAtLaunch": True}
    for call in (aws.autoscaling.create_or_update_tags, aws.autoscaling.delete_tags):
        code, message = client_error(call, Tags=[tag])
        assert (code, message) == ("ValidationError", "AutoScalingGroup not found - AutoScaling Group no-such-group not found")


def test_scale_in_selects_the_largest_zone_and_old_versions_first(aws, groups, data):
    """Amazon EC2 Auto Scaling User Guide, "Default termination policy"."""
    name = groups.make(3, MaxSize=6)
    aws.ec2.create_launch_template_version(LaunchTemplateName=groups.template, LaunchTemplateData=data)
    aws.autoscaling.update_auto_scaling_group(
        AutoScalingGroupName=name, LaunchTemplate={"LaunchTemplateName": groups.template, "Version": "2"}, DesiredCapacity=6
    )
    groups.settle(name, 6)
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=3)
    groups.settle(name, 3)
    left = groups.show(name)["Instances"]
    assert [i["LaunchTemplate"]["Version"] for i in left] == ["2"] * 3
    assert len({i["AvailabilityZone"] for i in left}) == 3


@pytest.mark.same_in_moto
def test_protected_instances_are_excluded_from_scale_in(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Use instance scale-in protection"."""
    name = groups.make(2, MinSize=0, MaxSize=2, DesiredCapacity=2)
    protected, _ = groups.settle(name, 2)
    aws.autoscaling.set_instance_protection(AutoScalingGroupName=name, InstanceIds=[protected], ProtectedFromScaleIn=True)
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=0)
    wait_until(lambda: groups.states(name) == ["InService"], "one instance to be left")
    assert groups.settle(name, 1) == [protected]
    assert groups.show(name)["DesiredCapacity"] == 0


def test_a_stopped_instance_is_replaced(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Health checks for instances in an Auto Scaling group": any state other than running is unhealthy."""
    group = groups.make(1, MaxSize=2)
    (old,) = groups.settle(group, 1)
    aws.ec2.stop_instances(InstanceIds=[old])
    wait_until(lambda: old not in [i["InstanceId"] for i in groups.show(group)["Instances"]], "the stopped instance to be replaced")
    groups.settle(group, 1)
    causes = [a["Cause"] for a in groups.activities(group) if a["Description"] == f"Terminating EC2 instance: {old}"]
    assert len(causes) == 1 and "in response to an EC2 health check" in causes[0]


def test_a_protected_group_is_emptied_but_not_deleted(aws, groups):
    """Amazon EC2 Auto Scaling User Guide, "Protect your Auto Scaling group from deletion"."""
    name, delete = groups.make(0), aws.autoscaling.delete_auto_scaling_group
    for protection, refused in (("prevent-all-deletion", (False, True)), ("prevent-force-deletion", (True,))):
        aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, DeletionProtection=protection)
        assert groups.show(name)["DeletionProtection"] == protection
        for forced in refused:
            assert client_error(delete, AutoScalingGroupName=name, ForceDelete=forced)[0] == "ValidationError"
    delete(AutoScalingGroupName=name)
    assert groups.show(name) is None
