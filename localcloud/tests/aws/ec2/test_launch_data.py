"""Launch template data: validation at launch, tags and volumes. Also reads that unpatched moto supports."""

import pytest

from localcloud.tests.aws.support import client_error, wait_until

HOSTS = "arn:aws:resource-groups:us-west-2:123456789012:group/hosts"
LICENSE = f"arn:aws:license-manager:us-west-2:123456789012:license-configuration:lic-{'0123456789abcdef' * 2}"


def device(**ebs):
    """A block device mapping."""
    return {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": ebs}]}


@pytest.mark.patched
@pytest.mark.parametrize(
    ("change", "part"),
    [
        (device(VolumeType="gp9", VolumeSize=8), "Invalid volume type"),
        (device(VolumeType="gp2", VolumeSize=8, Iops=3000), "iops is not supported for gp2"),
        (device(VolumeType="io1", VolumeSize=8), "iops must be specified for io1"),
        (device(VolumeType="gp3", VolumeSize=8, Iops=100), "Volume iops of 100"),
        (device(VolumeType="gp2", VolumeSize=8, Throughput=125), "throughput is not supported"),
        (device(VolumeType="st1", VolumeSize=8), "smaller than"),
        (device(SnapshotId="snap-0123456789abcdef0"), "does not exist"),
        ({"BlockDeviceMappings": device(VolumeSize=8)["BlockDeviceMappings"] * 2}, "more than one block-device mapping"),
        ({"MetadataOptions": {"HttpTokens": "maybe"}}, "HttpTokens"),
        ({"MetadataOptions": {"HttpPutResponseHopLimit": 65}}, "HttpPutResponseHopLimit"),
        ({"Placement": {"Tenancy": "shared"}}, "tenancy"),
        ({"Placement": {"Tenancy": "dedicated", "HostResourceGroupArn": HOSTS}}, "tenancy other than host"),
        ({"Placement": {"HostResourceGroupArn": "hosts"}}, "hostResourceGroupArn"),
        ({"LicenseSpecifications": [{"LicenseConfigurationArn": "windows"}]}, "licenseConfigurationArn"),
    ],
)
def test_invalid_launch_data_is_rejected_by_auto_scaling(aws, groups, data, name, change, part):
    """Amazon EBS User Guide, "Amazon EBS volume types"; Amazon EC2 API Reference, the data types that localcloud.aws.ec2.launch_validation names."""
    aws.ec2.create_launch_template(LaunchTemplateName=f"bad-{name}", LaunchTemplateData=data | change)
    wanted = {"LaunchTemplateName": f"bad-{name}", "Version": "1"}
    code, message = client_error(aws.autoscaling.create_auto_scaling_group, **groups.parameters(name, LaunchTemplate=wanted))
    assert (code, part in message) == ("ValidationError", True), message


@pytest.mark.patched
@pytest.mark.parametrize("kind", ["auto-scaling-group", "snapshot"])
def test_a_template_tags_only_resources_of_a_launch(aws, data, name, kind):
    """Amazon EC2 API Reference, LaunchTemplateTagSpecificationRequest, ResourceType."""
    tags = {"TagSpecifications": [{"ResourceType": kind, "Tags": [{"Key": "k", "Value": "v"}]}]}
    assert client_error(aws.ec2.create_launch_template, LaunchTemplateName=name, LaunchTemplateData=data | tags)[0] == "InvalidParameterValue"


@pytest.mark.patched
def test_reserved_tags_cannot_be_added_later(aws, template):
    """Amazon EC2 User Guide, "Tag your Amazon EC2 resources", Tag restrictions."""
    (shown,) = aws.ec2.describe_launch_templates(LaunchTemplateNames=[template])["LaunchTemplates"]
    assert (
        client_error(aws.ec2.create_tags, Resources=[shown["LaunchTemplateId"]], Tags=[{"Key": "aws:x", "Value": "y"}])[0]
        == "InvalidParameterValue"
    )


@pytest.mark.patched
def test_instances_and_volumes_carry_the_tags_of_template_and_group(aws, groups, data, name):
    """Amazon EC2 Auto Scaling User Guide, "Tag Auto Scaling groups and instances"."""
    specifications = [{"ResourceType": kind, "Tags": [{"Key": "from", "Value": f"template-{kind}"}]} for kind in ("instance", "volume")]
    more = device(VolumeType="gp3", VolumeSize=40) | {"TagSpecifications": specifications}
    aws.ec2.create_launch_template(LaunchTemplateName=f"tags-{name}", LaunchTemplateData=data | more)
    group = groups.make(
        1,
        LaunchTemplate={"LaunchTemplateName": f"tags-{name}", "Version": "1"},
        Tags=[{"Key": "far", "Value": "1", "PropagateAtLaunch": True}, {"Key": "near", "Value": "1", "PropagateAtLaunch": False}],
    )
    (identifier,) = groups.settle(group, 1)
    instance = aws.ec2.describe_instances(InstanceIds=[identifier])["Reservations"][0]["Instances"][0]
    tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    assert (tags["far"], tags["from"], "near" in tags) == ("1", "template-instance", False)
    (volume,) = aws.ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [identifier]}])["Volumes"]
    assert (volume["Size"], volume["Tags"]) == (40, [{"Key": "from", "Value": "template-volume"}])


@pytest.mark.patched
def test_volumes_have_the_type_and_the_speed_of_the_template(aws, groups, data, name):
    """Amazon EC2 API Reference, LaunchTemplateEbsBlockDeviceRequest: VolumeType, Iops, Throughput, SnapshotId."""
    old = aws.ec2.create_volume(AvailabilityZone="us-west-2a", Size=9)["VolumeId"]
    snapshot = aws.ec2.create_snapshot(VolumeId=old)["SnapshotId"]
    volumes = {
        "/dev/xvda": {"VolumeType": "gp3", "VolumeSize": 20, "Iops": 4000, "Throughput": 250},
        "/dev/xvdb": {"VolumeType": "io2", "VolumeSize": 30, "Iops": 500},
        "/dev/xvdc": {"VolumeType": "gp2", "SnapshotId": snapshot},
    }
    devices = {"BlockDeviceMappings": [{"DeviceName": device, "Ebs": ebs} for device, ebs in volumes.items()]}
    aws.ec2.create_launch_template(LaunchTemplateName=f"fast-{name}", LaunchTemplateData=data | devices)
    group = groups.make(1, LaunchTemplate={"LaunchTemplateName": f"fast-{name}", "Version": "1"})
    (identifier,) = groups.settle(group, 1)
    found = aws.ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [identifier]}])["Volumes"]
    made = {volume["Attachments"][0]["Device"]: volume for volume in found}
    assert {device: (v["VolumeType"], v["Size"]) for device, v in made.items()} == {
        "/dev/xvda": ("gp3", 20),
        "/dev/xvdb": ("io2", 30),
        "/dev/xvdc": ("gp2", 9),
    }
    assert (made["/dev/xvda"]["Iops"], made["/dev/xvda"]["Throughput"], made["/dev/xvdb"]["Iops"]) == (4000, 250, 500)


def test_networks_images_and_types_can_be_described_by_id_and_filter(aws, simulator):
    """Amazon EC2 API Reference, DescribeSubnets, DescribeSecurityGroups, DescribeImages and DescribeInstanceTypes."""
    here = {"Name": "vpc-id", "Values": [simulator.vpc]}
    named = {"Name": "tag:Name", "Values": [simulator.subnet_names[1]]}
    assert [s["SubnetId"] for s in aws.ec2.describe_subnets(Filters=[here, named])["Subnets"]] == [simulator.subnets[1]]
    groups = aws.ec2.describe_security_groups(Filters=[here, {"Name": "tag:Name", "Values": [simulator.security_group_name]}])
    assert [g["GroupId"] for g in groups["SecurityGroups"]] == [simulator.security_group]
    (kind,) = aws.ec2.describe_instance_types(InstanceTypes=["m6g.large"])["InstanceTypes"]
    assert kind["ProcessorInfo"]["SupportedArchitectures"] == ["arm64"]
    assert client_error(aws.ec2.describe_subnets, SubnetIds=["subnet-0123456789abcdef0"])[0] == "InvalidSubnetID.NotFound"
    assert client_error(aws.ec2.describe_security_groups, GroupIds=["sg-0123456789abcdef0"])[0] == "InvalidGroup.NotFound"
    assert client_error(aws.ec2.describe_images, ImageIds=["ami-00000000000000bad"])[0] == "InvalidAMIID.NotFound"
    assert client_error(aws.ec2.describe_instance_types, InstanceTypes=["x1.tiny"])[0] == "InvalidInstanceType"


@pytest.mark.patched
@pytest.mark.parametrize("call", ["describe_instances", "describe_launch_templates", "describe_subnets"])
def test_more_than_two_hundred_filter_values_are_rejected(aws, call):
    """Amazon EC2 User Guide, "Find your Amazon EC2 resources": at most 200 filter values in a call (FilterLimitExceeded)."""
    condition = {"Name": "tag:Name", "Values": [f"n{i}" for i in range(201)]}
    assert client_error(getattr(aws.ec2, call), Filters=[condition])[0] == "FilterLimitExceeded"


@pytest.mark.patched
def test_an_instance_uses_the_hosts_and_licenses_of_its_template(aws, groups, data, name):
    """Amazon EC2 API Reference, Placement (HostResourceGroupArn: tenancy host, or none) and LicenseConfiguration."""
    more = {"Placement": {"Tenancy": "host", "HostResourceGroupArn": HOSTS}, "LicenseSpecifications": [{"LicenseConfigurationArn": LICENSE}]}
    aws.ec2.create_launch_template(LaunchTemplateName=f"hosts-{name}", LaunchTemplateData=data | more)
    group = groups.make(1, LaunchTemplate={"LaunchTemplateName": f"hosts-{name}", "Version": "1"})
    (identifier,) = groups.settle(group, 1)
    instance = aws.ec2.describe_instances(InstanceIds=[identifier])["Reservations"][0]["Instances"][0]
    assert (instance["Placement"]["Tenancy"], instance["Placement"]["HostResourceGroupArn"]) == ("host", HOSTS)
    assert instance["Licenses"] == [{"LicenseConfigurationArn": LICENSE}]


@pytest.mark.patched
def test_launches_fail_where_the_account_shows_tags_in_metadata_that_may_not_be_there(aws, groups, data, name, control):
    """Amazon EC2 User Guide, "Configure the Instance Metadata Service options", Order of precedence; "Work with instance tags in instance metadata"."""
    control.post("metadata-defaults", InstanceMetadataTags="enabled", HttpTokens="required")
    try:
        check_tags_in_metadata(aws, groups, data, name)
    finally:
        control.post("metadata-defaults")


def check_tags_in_metadata(aws, groups, data, name):
    """Launch with keys that are not allowed, without such tags, and with keys that are allowed."""
    slash = [{"Key": "kubernetes.io/cluster/demo", "Value": "owned", "PropagateAtLaunch": True}]
    group = groups.make(0, Tags=slash)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, MinSize=1, MaxSize=1)
    failed = wait_until(lambda: [a for a in groups.activities(group) if a["StatusCode"] == "Failed"], "a launch that fails")
    assert failed[0]["StatusMessage"] == (
        "'kubernetes.io/cluster/demo' is not a valid tag key. Tag keys must match pattern ([0-9a-zA-Z\\\\-_+=,.@:]{1,255}), "
        "and must not be a reserved name ('.', '..', '_index'). Launching EC2 instance failed."
    )
    options = {"MetadataOptions": {"InstanceMetadataTags": "disabled"}}
    aws.ec2.create_launch_template(LaunchTemplateName=f"off-{name}", LaunchTemplateData=data | options)
    disabled = {"LaunchTemplateName": f"off-{name}", "Version": "1"}
    plain = [{"Key": "team:role", "Value": "web", "PropagateAtLaunch": True}, slash[0] | {"PropagateAtLaunch": False}]
    for made, tags in ((groups.make(1, Tags=slash, LaunchTemplate=disabled), "disabled"), (groups.make(1, Tags=plain), "enabled")):
        (identifier,) = groups.settle(made, 1)
        shown = aws.ec2.describe_instances(InstanceIds=[identifier])["Reservations"][0]["Instances"][0]["MetadataOptions"]
        assert (shown["InstanceMetadataTags"], shown["HttpTokens"]) == (tags, "required"), "each option has its own default"


def test_a_template_returns_its_data_unchanged(aws, data, name):
    """Amazon EC2 API Reference, ResponseLaunchTemplateData: each member as it was in the request."""
    spot = {"MaxPrice": "0.05", "SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
    given = data | device(VolumeType="gp3", VolumeSize=40, Iops=4000, Throughput=250, Encrypted=True, DeleteOnTermination=True)
    given |= {
        "Placement": {"Tenancy": "host", "HostResourceGroupArn": HOSTS, "AvailabilityZone": "us-west-2a"},
        "LicenseSpecifications": [{"LicenseConfigurationArn": LICENSE}],
        "InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": spot},
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled", "HttpPutResponseHopLimit": 2, "InstanceMetadataTags": "disabled"},
        "TagSpecifications": [{"ResourceType": "volume", "Tags": [{"Key": "a", "Value": "b"}]}],
        "EbsOptimized": True,
    }
    aws.ec2.create_launch_template(LaunchTemplateName=f"whole-{name}", LaunchTemplateData=given)
    (version,) = aws.ec2.describe_launch_template_versions(LaunchTemplateName=f"whole-{name}")["LaunchTemplateVersions"]
    assert version["LaunchTemplateData"] == given


@pytest.mark.patched
def test_instances_are_found_by_their_instance_profile(aws, groups, profile):
    """EC2 API Reference, DescribeInstances, Filters: iam-instance-profile.arn and instance-state-name."""
    group = groups.make(1)
    (identifier,) = groups.settle(group, 1)

    def found(arn):
        names = [{"Name": "iam-instance-profile.arn", "Values": [arn]}, {"Name": "instance-state-name", "Values": ["pending", "running"]}]
        answer = aws.ec2.describe_instances(Filters=names)
        return {i["InstanceId"] for reservation in answer["Reservations"] for i in reservation["Instances"]}

    assert identifier in found(profile) and not found(profile + "-2")
