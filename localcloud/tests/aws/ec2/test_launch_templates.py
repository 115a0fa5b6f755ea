"""Launch templates: versions, client tokens, deletion, paging and validation."""

import base64

import pytest

from localcloud.tests.aws.support import client_error

pytestmark = pytest.mark.patched


def versions(aws, name, **more):
    """The version numbers of a template."""
    shown = aws.ec2.describe_launch_template_versions(LaunchTemplateName=name, **more)["LaunchTemplateVersions"]
    return [version["VersionNumber"] for version in shown]


def test_versions_are_deleted_except_the_default(aws, template, data):
    """Amazon EC2 API Reference, DeleteLaunchTemplateVersions and ResponseError."""
    for _ in range(2):
        aws.ec2.create_launch_template_version(LaunchTemplateName=template, LaunchTemplateData=data)
    answer = aws.ec2.delete_launch_template_versions(LaunchTemplateName=template, Versions=["1", "2", "9"])
    assert [v["VersionNumber"] for v in answer["SuccessfullyDeletedLaunchTemplateVersions"]] == [2]
    failed = {v["VersionNumber"]: v["ResponseError"]["Code"] for v in answer["UnsuccessfullyDeletedLaunchTemplateVersions"]}
    assert failed[9] == "launchTemplateVersionDoesNotExist"
    assert versions(aws, template) == [3, 1]
    aws.ec2.create_launch_template_version(LaunchTemplateName=template, LaunchTemplateData=data)
    assert versions(aws, template) == [4, 3, 1]


def test_a_client_token_makes_create_idempotent(aws, data, name):
    """Amazon EC2 API Reference, CreateLaunchTemplate, ClientToken; "Ensuring idempotency in Amazon EC2 API requests"."""
    create = aws.ec2.create_launch_template
    first = create(LaunchTemplateName=name, LaunchTemplateData=data, ClientToken=f"t-{name}")["LaunchTemplate"]
    again = create(LaunchTemplateName=name, LaunchTemplateData=data, ClientToken=f"t-{name}")["LaunchTemplate"]
    assert again["LaunchTemplateId"] == first["LaunchTemplateId"]
    assert client_error(create, LaunchTemplateName=name, LaunchTemplateData=data)[0] == "InvalidLaunchTemplateName.AlreadyExistsException"
    other = data | {"InstanceType": "m5.xlarge"}
    assert client_error(create, LaunchTemplateName=name, LaunchTemplateData=other, ClientToken=f"t-{name}")[0] == "IdempotentParameterMismatch"


def test_a_client_token_makes_version_creation_idempotent(aws, template, data):
    """Amazon EC2 API Reference, CreateLaunchTemplateVersion, ClientToken."""
    for _ in range(2):
        made = aws.ec2.create_launch_template_version(LaunchTemplateName=template, LaunchTemplateData=data, ClientToken=f"v-{template}")
        assert made["LaunchTemplateVersion"]["VersionNumber"] == 2
    assert versions(aws, template) == [2, 1]


def test_a_client_token_outlives_what_it_created(aws, template, data, name):
    """Amazon EC2 Developer Guide, "Ensuring idempotency in Amazon EC2 API requests": a retry of a completed request
    succeeds without further action, and a token must not be used again. No rule ends that at the deletion of the resource.
    """
    token = {"LaunchTemplateName": template, "LaunchTemplateData": data, "ClientToken": f"v-{name}"}
    assert aws.ec2.create_launch_template_version(**token)["LaunchTemplateVersion"]["VersionNumber"] == 2
    aws.ec2.create_launch_template_version(LaunchTemplateName=template, LaunchTemplateData=data)
    aws.ec2.delete_launch_template_versions(LaunchTemplateName=template, Versions=["2"])
    assert aws.ec2.create_launch_template_version(**token)["LaunchTemplateVersion"]["VersionNumber"] == 2
    assert versions(aws, template) == [3, 1]
    token = {"LaunchTemplateName": f"{name}-other", "LaunchTemplateData": data, "ClientToken": f"t-{name}"}
    made = aws.ec2.create_launch_template(**token)["LaunchTemplate"]["LaunchTemplateId"]
    aws.ec2.delete_launch_template(LaunchTemplateId=made)
    assert aws.ec2.create_launch_template(**token)["LaunchTemplate"]["LaunchTemplateId"] == made
    assert client_error(aws.ec2.describe_launch_templates, LaunchTemplateIds=[made])[0] == "InvalidLaunchTemplateId.NotFound"


def test_templates_are_paginated(aws, data, name):
    """Amazon EC2 API Reference, DescribeLaunchTemplates, MaxResults and NextToken."""
    for i in range(3):
        aws.ec2.create_launch_template(LaunchTemplateName=f"{name}-{i}", LaunchTemplateData=data)
    condition = [{"Name": "launch-template-name", "Values": [f"{name}-*"]}]
    first = aws.ec2.describe_launch_templates(Filters=condition, MaxResults=2)
    rest = aws.ec2.describe_launch_templates(Filters=condition, MaxResults=2, NextToken=first["NextToken"])
    names = [t["LaunchTemplateName"] for t in first["LaunchTemplates"] + rest["LaunchTemplates"]]
    assert names == [f"{name}-{i}" for i in range(3)]
    assert "NextToken" not in rest
    assert client_error(aws.ec2.describe_launch_templates, MaxResults=201)[0] == "InvalidParameterValue"


def test_versions_are_paginated_newest_first(aws, template, data):
    """Amazon EC2 API Reference, DescribeLaunchTemplateVersions, MaxResults and NextToken."""
    for _ in range(16):
        aws.ec2.create_launch_template_version(LaunchTemplateName=template, LaunchTemplateData=data)
    assert versions(aws, template) == list(range(17, 0, -1))
    page = aws.ec2.describe_launch_template_versions(LaunchTemplateName=template, MaxResults=5)
    following = aws.ec2.describe_launch_template_versions(LaunchTemplateName=template, MaxResults=5, NextToken=page["NextToken"])
    assert [v["VersionNumber"] for v in following["LaunchTemplateVersions"]] == [12, 11, 10, 9, 8]
    assert versions(aws, template, MinVersion="3", MaxVersion="4") == [4, 3]


def test_versions_are_found_by_number_default_and_latest(aws, template, data):
    """Amazon EC2 API Reference, DescribeLaunchTemplateVersions, LaunchTemplateVersion.N; ModifyLaunchTemplate, SetDefaultVersion."""
    aws.ec2.create_launch_template_version(
        LaunchTemplateName=template, LaunchTemplateData=data | {"InstanceType": "m5.xlarge"}, VersionDescription="second"
    )
    assert versions(aws, template, Versions=["$Latest", "$Default"]) == [2, 1]
    aws.ec2.modify_launch_template(LaunchTemplateName=template, DefaultVersion="2")
    assert versions(aws, template, Versions=["$Default"]) == [2]
    everything = aws.ec2.describe_launch_template_versions(Versions=["$Latest"])["LaunchTemplateVersions"]
    mine = [v for v in everything if v["LaunchTemplateName"] == template]
    assert [(v["VersionNumber"], v["VersionDescription"], v["DefaultVersion"]) for v in mine] == [(2, "second", True)]
    code, message = client_error(aws.ec2.describe_launch_template_versions, LaunchTemplateName=template, Versions=["77"])
    assert (code, "77" in message) == ("InvalidLaunchTemplateId.VersionNotFound", True)
    aws.ec2.delete_launch_template_versions(LaunchTemplateName=template, Versions=["1"])
    assert (
        client_error(aws.ec2.modify_launch_template, LaunchTemplateName=template, DefaultVersion="1")[0]
        == "InvalidLaunchTemplateId.VersionNotFound"
    )


def test_error_codes_of_missing_templates(aws, data):
    """Amazon EC2 API Reference, "Error codes": InvalidLaunchTemplateName.NotFoundException, InvalidLaunchTemplateId.NotFound, .Malformed."""
    assert client_error(aws.ec2.describe_launch_templates, LaunchTemplateNames=["no-such"])[0] == "InvalidLaunchTemplateName.NotFoundException"
    assert client_error(aws.ec2.describe_launch_templates, LaunchTemplateIds=["lt-0123456789abcdef0"])[0] == "InvalidLaunchTemplateId.NotFound"
    assert client_error(aws.ec2.delete_launch_template, LaunchTemplateName="no-such")[0] == "InvalidLaunchTemplateName.NotFoundException"
    assert client_error(aws.ec2.delete_launch_template, LaunchTemplateId="nonsense")[0] == "InvalidLaunchTemplateId.Malformed"
    create = aws.ec2.create_launch_template_version
    assert client_error(create, LaunchTemplateName="no-such", LaunchTemplateData=data)[0] == "InvalidLaunchTemplateName.NotFoundException"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"LaunchTemplateName": "a name"}, "InvalidLaunchTemplateName.MalformedException"),
        ({"LaunchTemplateName": "n" * 129}, "InvalidLaunchTemplateName.MalformedException"),
        ({"VersionDescription": "d" * 256}, "InvalidParameterValue"),
        pytest.param({"LaunchTemplateData": {"UserData": "*not base64*"}}, "InvalidUserData.Malformed", marks=pytest.mark.same_in_moto),
        ({"LaunchTemplateData": {"UserData": base64.b64encode(b"x" * 16385).decode()}}, "InvalidParameterValue"),
        ({"TagSpecifications": [{"ResourceType": "launch-template", "Tags": [{"Key": "aws:x", "Value": "y"}]}]}, "InvalidParameterValue"),
        ({"TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "x", "Value": "y"}]}]}, "InvalidParameterValue"),
        pytest.param(
            {"TagSpecifications": [{"ResourceType": "launch-template", "Tags": [{"Key": f"k{i}", "Value": ""} for i in range(51)]}]},
            "TagLimitExceeded",
            marks=pytest.mark.same_in_moto,
        ),
    ],
)
def test_invalid_template_parameters_are_rejected(aws, data, name, change, code):
    """Amazon EC2 API Reference, CreateLaunchTemplate, Request Parameters; "Tag your Amazon EC2 resources", Tag restrictions."""
    assert client_error(aws.ec2.create_launch_template, **{"LaunchTemplateName": name, "LaunchTemplateData": data} | change)[0] == code


def test_template_tags_can_be_filtered_and_do_not_propagate(aws, data, name):
    """Amazon EC2 API Reference, CreateLaunchTemplate, TagSpecification; DescribeLaunchTemplates, Filters; CreateTags."""
    tags = [{"ResourceType": "launch-template", "Tags": [{"Key": "owner", "Value": name}]}]
    made = aws.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data, TagSpecifications=tags)["LaunchTemplate"]
    aws.ec2.create_tags(Resources=[made["LaunchTemplateId"]], Tags=[{"Key": "more", "Value": "x"}])
    for condition in ({"Name": "tag:owner", "Values": [name]}, {"Name": "tag-key", "Values": ["mo?e"]}):
        (shown,) = aws.ec2.describe_launch_templates(Filters=[condition])["LaunchTemplates"]
        assert {t["Key"]: t["Value"] for t in shown["Tags"]} == {"owner": name, "more": "x"}
    (version,) = aws.ec2.describe_launch_template_versions(LaunchTemplateName=name)["LaunchTemplateVersions"]
    assert "TagSpecifications" not in version["LaunchTemplateData"]


def test_a_version_can_have_a_source_version(aws, template, data):
    """Amazon EC2 API Reference, CreateLaunchTemplateVersion, SourceVersion."""
    aws.ec2.create_launch_template_version(LaunchTemplateName=template, SourceVersion="1", LaunchTemplateData={"InstanceType": "m5.xlarge"})
    (shown,) = aws.ec2.describe_launch_template_versions(LaunchTemplateName=template, Versions=["2"])["LaunchTemplateVersions"]
    assert shown["LaunchTemplateData"]["InstanceType"] == "m5.xlarge"
    assert shown["LaunchTemplateData"]["ImageId"] == data["ImageId"]
