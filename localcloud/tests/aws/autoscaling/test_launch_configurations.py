"""Launch configurations: creation in old accounts only, validation, and migration to launch templates."""

import pytest

from localcloud.tests.aws.support import PLAIN_MOTO, client_error

pytestmark = pytest.mark.patched


@pytest.fixture
def old_account(control):
    """An account that may still create launch configurations."""
    if not PLAIN_MOTO:
        control.post("allow-launch-configurations", allowed=True)
    yield
    if not PLAIN_MOTO:
        control.post("allow-launch-configurations", allowed=False)


@pytest.fixture
def configuration(data):
    """Parameters of CreateLaunchConfiguration that correspond to the template data."""
    return {
        "ImageId": data["ImageId"],
        "InstanceType": data["InstanceType"],
        "SecurityGroups": data["SecurityGroupIds"],
        "IamInstanceProfile": data["IamInstanceProfile"]["Arn"],
        "UserData": "#!/bin/bash\n",
    }


def from_configuration(groups, name, size=0, **more):
    """Parameters of CreateAutoScalingGroup with a launch configuration."""
    given = groups.parameters(name, size, LaunchConfigurationName=name, **more)
    del given["LaunchTemplate"]
    return given


def make(aws, groups, name, configuration, size=0, **more):
    """Create a group with a launch configuration of the same name."""
    aws.autoscaling.create_launch_configuration(LaunchConfigurationName=name, **configuration)
    aws.autoscaling.create_auto_scaling_group(**from_configuration(groups, name, size, **more))
    groups.made.append(name)
    groups.settle(name, size)
    return name


def test_new_accounts_cannot_create_launch_configurations(aws, configuration, name):
    """Amazon EC2 Auto Scaling User Guide, "Auto Scaling launch configurations": new accounts cannot create any."""
    code, message = client_error(aws.autoscaling.create_launch_configuration, LaunchConfigurationName=name, **configuration)
    assert code == "UnsupportedOperation"
    assert message.startswith("The Launch Configuration creation operation is not available in your account.")


def test_launch_configurations_are_described_and_names_are_unique(aws, old_account, configuration, name):
    """Amazon EC2 Auto Scaling API Reference, LaunchConfiguration; CreateLaunchConfiguration, Errors: AlreadyExists."""
    create = aws.autoscaling.create_launch_configuration
    create(LaunchConfigurationName=name, **configuration, SpotPrice="0.05")
    (shown,) = aws.autoscaling.describe_launch_configurations(LaunchConfigurationNames=[name, "no-such"])["LaunchConfigurations"]
    wanted = configuration | {"UserData": "IyEvYmluL2Jhc2gK", "SpotPrice": "0.05", "InstanceMonitoring": {"Enabled": True}, "KeyName": ""}
    assert {key: shown.get(key) for key in wanted} == wanted
    assert shown["LaunchConfigurationARN"].endswith(f":launchConfigurationName/{name}")
    code, message = client_error(create, LaunchConfigurationName=name, **configuration)
    assert (code, name in message) == ("AlreadyExists", True)
    aws.autoscaling.delete_launch_configuration(LaunchConfigurationName=name)
    code, message = client_error(aws.autoscaling.delete_launch_configuration, LaunchConfigurationName=name)
    assert (code, message.startswith("Launch configuration name not found")) == ("ValidationError", True)


def test_invalid_launch_configurations_are_rejected(aws, old_account, configuration, name):
    """Amazon EC2 Auto Scaling API Reference, CreateLaunchConfiguration, Request Parameters."""
    changes = ({"ImageId": "ami-00000000000000bad"}, {"KeyName": "no-such-key"}, {"SpotPrice": "cheap"})
    for change in changes:
        given = {"LaunchConfigurationName": name, **configuration, **change}
        code, message = client_error(aws.autoscaling.create_launch_configuration, **given)
        assert (code, next(iter(change.values())) in message) == ("ValidationError", True)


def test_launch_configurations_are_paginated(aws, old_account, configuration, name):
    """Amazon EC2 Auto Scaling API Reference, DescribeLaunchConfigurations, MaxRecords and NextToken."""
    names = [f"{name}-{i}" for i in range(3)]
    for each in names:
        aws.autoscaling.create_launch_configuration(LaunchConfigurationName=each, **configuration)
    describe = aws.autoscaling.describe_launch_configurations
    first = describe(LaunchConfigurationNames=names, MaxRecords=2)
    rest = describe(LaunchConfigurationNames=names, MaxRecords=2, NextToken=first["NextToken"])
    listed = first["LaunchConfigurations"] + rest["LaunchConfigurations"]
    assert [c["LaunchConfigurationName"] for c in listed] == names
    assert client_error(describe, MaxRecords=101)[0] == "ValidationError"


def test_a_used_launch_configuration_cannot_be_deleted(aws, groups, old_account, configuration, name):
    """Amazon EC2 Auto Scaling API Reference, CreateAutoScalingGroup, LaunchConfigurationName; DeleteLaunchConfiguration, ResourceInUse."""
    group = make(aws, groups, name, configuration | {"SpotPrice": "0.05"}, size=1)
    shown = groups.show(group)
    assert (shown["LaunchConfigurationName"], "LaunchTemplate" in shown) == (name, False)
    (instance,) = shown["Instances"]
    assert (instance["LaunchConfigurationName"], "LaunchTemplate" in instance) == (name, False)
    launched = aws.ec2.describe_instances(InstanceIds=[instance["InstanceId"]])["Reservations"][0]["Instances"][0]
    assert (launched["ImageId"], launched["InstanceLifecycle"]) == (configuration["ImageId"], "spot")
    assert "aws:ec2launchtemplate:id" not in {tag["Key"] for tag in launched["Tags"]}
    code, message = client_error(aws.autoscaling.delete_launch_configuration, LaunchConfigurationName=name)
    assert (code, message) == (
        "ResourceInUse",
        f"Cannot delete launch configuration {name} because it is attached to AutoScalingGroup {group}",
    )


def test_an_unknown_launch_configuration_is_rejected(aws, groups, name):
    """Amazon EC2 Auto Scaling API Reference, CreateAutoScalingGroup, LaunchConfigurationName; Common Errors, ValidationError."""
    code, message = client_error(aws.autoscaling.create_auto_scaling_group, **from_configuration(groups, name))
    assert (code, message.startswith("Launch configuration name not found")) == ("ValidationError", True)


def test_a_group_migrates_to_a_launch_template_in_place(aws, groups, old_account, configuration, name):
    """Amazon EC2 Auto Scaling User Guide, "Migrate your Auto Scaling groups to launch templates": existing instances keep running."""
    group = make(aws, groups, name, configuration, size=1, MaxSize=2)
    (old,) = groups.settle(group, 1)
    pin = {"LaunchTemplateName": groups.template, "Version": "1"}
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, LaunchTemplate=pin, DesiredCapacity=2)
    groups.settle(group, 2)
    shown = groups.show(group)
    assert (shown["LaunchTemplate"]["Version"], "LaunchConfigurationName" in shown) == ("1", False)
    by_id = {i["InstanceId"]: i for i in shown["Instances"]}
    assert (by_id[old]["LaunchConfigurationName"], "LaunchTemplate" in by_id[old]) == (name, False)
    (new,) = (i for i in by_id.values() if i["InstanceId"] != old)
    assert (new["LaunchTemplate"]["Version"], "LaunchConfigurationName" in new) == ("1", False)
    aws.autoscaling.delete_launch_configuration(LaunchConfigurationName=name)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, DesiredCapacity=1)
    assert groups.settle(group, 1) == [new["InstanceId"]], "the default termination policy takes the one of the configuration first"
