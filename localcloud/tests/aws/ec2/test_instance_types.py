"""Instance types: paging, filters, offerings, and launches of unsupported types."""

import pytest

from localcloud.tests.aws.support import client_error, wait_until

pytestmark = pytest.mark.patched


def pages(call, result, **parameters):
    """The sizes of the pages of a call, and all their items."""
    sizes, items, token = [], [], {}
    while True:
        answer = call(**parameters, **token)
        sizes.append(len(answer[result]))
        items += answer[result]
        if not answer.get("NextToken"):
            return sizes, items
        token = {"NextToken": answer["NextToken"]}


def zones_of(aws, kind):
    """The zones of the region that offer a type."""
    found = aws.ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": [kind]}]
    )
    return [offering["Location"] for offering in found["InstanceTypeOfferings"]]


@pytest.fixture
def offered(control):
    """Sets whether a zone offers a type, until the end of the test."""
    changed = []

    def set_offered(kind, zone, value):
        control.post("offering", type=kind, zone=zone, offered=value)
        changed.append((kind, zone))

    yield set_offered
    for kind, zone in changed:
        control.post("offering", type=kind, zone=zone, offered=True)


def test_instance_types_are_paginated(aws):
    """Amazon EC2 API Reference, DescribeInstanceTypes, MaxResults: 5 to 100; NextToken."""
    sizes, items = pages(aws.ec2.describe_instance_types, "InstanceTypes", MaxResults=100)
    names = [item["InstanceType"] for item in items]
    assert (len(names), len(set(names)), set(sizes[:-1])) == (len(items), len(items), {100})
    assert len(names) >= 1395
    assert pages(aws.ec2.describe_instance_types, "InstanceTypes")[0] == sizes
    code, message = client_error(aws.ec2.describe_instance_types, MaxResults=101)
    assert (code, "between 5 and 100" in message) == ("InvalidParameterValue", True)
    assert client_error(aws.ec2.describe_instance_types, InstanceTypes=["m5.large"] * 101)[0] == "InvalidParameterValue"


def test_instance_type_filters_apply_to_all_pages(aws):
    """Amazon EC2 API Reference, DescribeInstanceTypes, Filter."""
    chosen = [{"Name": "processor-info.supported-architecture", "Values": ["arm64"]}, {"Name": "instance-type", "Values": ["m6g.*", "m5.*"]}]
    sizes, items = pages(aws.ec2.describe_instance_types, "InstanceTypes", Filters=chosen, MaxResults=5)
    assert sizes == [5, 4]
    assert {item["InstanceType"].split(".")[0] for item in items} == {"m6g"}
    (large,) = [item for item in items if item["InstanceType"] == "m6g.large"]
    facts = large["VCpuInfo"]["DefaultVCpus"], large["MemoryInfo"]["SizeInMiB"], large["ProcessorInfo"]["SupportedArchitectures"]
    assert facts == (2, 8192, ["arm64"])
    assert (large["NetworkInfo"]["MaximumNetworkInterfaces"], large["NetworkInfo"]["Ipv4AddressesPerInterface"]) == (3, 10)


def test_filter_wildcards_match_types_and_offerings(aws, simulator):
    """Amazon EC2 User Guide, "List and filter using the CLI and API": * is zero or more characters, ? zero or one; a backslash escapes."""

    def chosen(*values):
        condition = [{"Name": "instance-type", "Values": list(values)}]
        items = aws.ec2.describe_instance_types(Filters=condition)["InstanceTypes"]
        zones = pages(aws.ec2.describe_instance_type_offerings, "InstanceTypeOfferings", LocationType="availability-zone", Filters=condition)[1]
        names = {item["InstanceType"] for item in items}
        assert names == {offer["InstanceType"] for offer in zones}
        return names

    family = chosen("m5*")
    assert {"m5.large", "m5a.large", "m5dn.24xlarge", "m5.metal"} <= family
    assert all(name.startswith("m5") for name in family) and len(family) > 50
    assert chosen("m5*", "t1*") == family | {"t1.micro"}
    assert chosen("m5?.large") == {"m5.large", "m5a.large", "m5d.large", "m5n.large"}
    assert chosen("m5\\*.large") == chosen("M5.large") == set()
    too_many = [{"Name": "instance-type", "Values": [f"m{n}*" for n in range(201)]}]
    for call in (aws.ec2.describe_instance_types, aws.ec2.describe_instance_type_offerings):
        assert client_error(call, Filters=too_many)[0] == "FilterLimitExceeded"


@pytest.mark.same_in_moto
def test_all_unknown_instance_types_are_listed_in_the_error(aws):
    """Amazon EC2 API Reference, "Common client errors": InvalidInstanceType."""
    code, message = client_error(aws.ec2.describe_instance_types, InstanceTypes=["m5.large", "x1.tiny", "x1.mini"])
    assert (code, message) == ("InvalidInstanceType", "The following supplied instance types do not exist: [x1.tiny, x1.mini]")


def test_offerings_are_listed_by_zone_in_pages(aws, simulator):
    """Amazon EC2 API Reference, DescribeInstanceTypeOfferings: LocationType, Filter, MaxResults 5 to 1000."""
    place = [{"Name": "location", "Values": [f"{simulator.region}a", f"{simulator.region}b"]}]
    call = aws.ec2.describe_instance_type_offerings
    sizes, items = pages(call, "InstanceTypeOfferings", LocationType="availability-zone", Filters=place)
    assert sizes[0] == 1000
    assert {item["Location"] for item in items} == {f"{simulator.region}a", f"{simulator.region}b"}
    assert len({(item["Location"], item["InstanceType"]) for item in items}) == len(items)
    assert "between 5 and 1000" in client_error(call, MaxResults=1001)[1]
    assert client_error(call, LocationType="moon")[0] == "InvalidParameterValue"


def test_a_zone_can_stop_offering_a_type(aws, simulator, offered):
    """Amazon EC2 User Guide, "Find an Amazon EC2 instance type": types differ by Availability Zone."""
    zone = f"{simulator.region}c"
    assert zone in zones_of(aws, "m5.xlarge")
    offered("m5.xlarge", zone, False)
    assert zone not in zones_of(aws, "m5.xlarge")


def test_a_new_instance_type_can_be_added(aws, simulator, control, name):
    """Amazon EC2 API Reference, DescribeInstanceTypes: new types are listed and can be launched."""
    kind = f"m5{name.replace('-', '')}.large"
    control.post("instance-type", name=kind, like="m5.large", zones=[f"{simulator.region}b"])
    (shown,) = aws.ec2.describe_instance_types(InstanceTypes=[kind])["InstanceTypes"]
    assert (shown["InstanceType"], shown["VCpuInfo"]["DefaultVCpus"]) == (kind, 2)
    assert zones_of(aws, kind) == [f"{simulator.region}b"]


def test_a_launch_uses_a_zone_that_offers_the_type(aws, simulator, groups, offered):
    """Amazon EC2 Auto Scaling User Guide, "Troubleshoot: instance launch failure" and "Availability Zone distribution"."""
    zone = f"{simulator.region}a"
    offered("m5.large", zone, False)
    name = groups.make(2)
    assert [i["AvailabilityZone"] for i in groups.show(name)["Instances"]] == [f"{simulator.region}b", f"{simulator.region}c"]
    failed = [a for a in groups.activities(name) if a["StatusCode"] == "Failed"]
    start = f"Your requested instance type (m5.large) is not supported in your requested Availability Zone ({zone}). Please retry"
    assert failed[0]["StatusMessage"].startswith(start)
    assert failed[0]["StatusMessage"].endswith(f"{simulator.region}d. Launching EC2 instance failed.")


def test_a_type_that_no_zone_offers_fails_at_launch_and_update(aws, simulator, groups, offered, template):
    """Amazon EC2 Auto Scaling User Guide, "Troubleshoot Amazon EC2 Auto Scaling: Launch templates"."""
    name = groups.make()
    for letter in "abc":
        offered("m5.large", simulator.region + letter, False)
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=1)
    (failed,) = wait_until(lambda: groups.activities(name)[:1], "an activity")
    assert (failed["StatusCode"], "is not supported in your requested" in failed["StatusMessage"]) == ("Failed", True)
    pin = {"LaunchTemplateName": template, "Version": "1"}
    code, message = client_error(aws.autoscaling.update_auto_scaling_group, AutoScalingGroupName=name, LaunchTemplate=pin)
    assert (code, "Your requested instance type (m5.large) is not supported" in message) == ("ValidationError", True)


def test_an_image_of_another_architecture_does_not_launch(aws, simulator, groups, data, control, template):
    """Amazon EC2 User Guide, "Troubleshoot Amazon EC2 instance launch issues": architectures must match."""
    pin = {"LaunchTemplateName": template, "Version": "$Latest"}
    name = groups.make(LaunchTemplate=pin)
    arm = simulator.amis["amazonlinux2023-arm64"][0]
    aws.ec2.create_launch_template_version(LaunchTemplateName=template, LaunchTemplateData=data | {"ImageId": arm})
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=1)
    (failed,) = wait_until(lambda: groups.activities(name)[:1], "an activity")
    wanted = (
        "The architecture 'x86_64' of the specified instance type does not match the architecture 'arm64' of the specified AMI. "
        "Specify an instance type and an AMI that have matching architectures, and try again. Launching EC2 instance failed."
    )
    assert (failed["StatusCode"], failed["StatusMessage"]) == ("Failed", wanted)


def test_describe_images_returns_architecture_state_and_platform(aws, simulator, control):
    """Amazon EC2 API Reference, Image: Architecture, State, PlatformDetails."""
    for family, architecture in (("amazonlinux2023", "x86_64"), ("bottlerocket-arm64", "arm64")):
        (image,) = aws.ec2.describe_images(ImageIds=[simulator.amis[family][0]])["Images"]
        assert (image["Architecture"], image["State"], image["PlatformDetails"]) == (architecture, "available", "Linux/UNIX")
    (image,) = aws.ec2.describe_images(ImageIds=[simulator.amis["windows"][0]])["Images"]
    assert (image["Platform"], image["PlatformDetails"]) == ("windows", "Windows")
    made = control.post("ami", id="ami-0aaaaaaaaaaaaaaaa", architecture="arm64")["id"]
    (image,) = aws.ec2.describe_images(ImageIds=[made])["Images"]
    assert image["Architecture"] == "arm64"
