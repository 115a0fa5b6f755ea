"""EC2 dry runs. Unpatched moto allows every action, and performs some calls."""

import json

import boto3
import pytest

from localcloud.tests.aws.support import TRUST, client_error

pytestmark = pytest.mark.patched
ALLOWED, DENIED = "DryRunOperation", "UnauthorizedOperation"
CLUSTER = {"Key": "example.com/cluster", "Value": "blue"}
DATA = {"ImageId": "ami-0123456789abcdef0"}


@pytest.fixture
def template(aws, name):
    """Creates launch templates with tags. Returns their ids."""
    made = []

    def make(*tags):
        specifications = [{"ResourceType": "launch-template", "Tags": list(tags)}] if tags else []
        made.append(
            aws.ec2.create_launch_template(
                LaunchTemplateName=f"{name}-{len(made)}", LaunchTemplateData=DATA, TagSpecifications=specifications
            )["LaunchTemplate"]["LaunchTemplateId"]
        )
        return made[-1]

    yield make
    for identifier in made:
        aws.ec2.delete_launch_template(LaunchTemplateId=identifier)


@pytest.fixture
def role(simulator, aws, name):
    """Returns an EC2 client with the credentials of a role that these statements allow."""

    def assume(*statements):
        arn = aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
        document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Resource": "*"} | s for s in statements]}
        aws.iam.put_role_policy(RoleName=name, PolicyName="mine", PolicyDocument=json.dumps(document))
        place = {"endpoint_url": simulator.aws_endpoint, "region_name": simulator.region}
        sts = boto3.client("sts", **place, aws_access_key_id="local", aws_secret_access_key="local")
        keys = sts.assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
        return boto3.client(
            "ec2",
            **place,
            aws_access_key_id=keys["AccessKeyId"],
            aws_secret_access_key=keys["SecretAccessKey"],
            aws_session_token=keys["SessionToken"],
        )

    return assume


def dry_run_code(call, **arguments):
    """The error code of a dry run."""
    return client_error(call, DryRun=True, **arguments)[0]


def test_a_dry_run_of_a_read_returns_no_data(aws):
    """EC2 API Reference, DescribeInstanceTypes and the like: DryRun, "without actually making the request"."""
    reads = ("instance_types", "instance_type_offerings", "security_groups", "launch_templates")
    assert [dry_run_code(getattr(aws.ec2, f"describe_{what}")) for what in reads] == [ALLOWED] * len(reads)
    assert dry_run_code(aws.ec2.describe_launch_template_versions, Versions=["$Default"]) == ALLOWED


def test_a_dry_run_of_a_write_changes_nothing(aws, template):
    """EC2 API Reference, ModifyLaunchTemplate and DeleteLaunchTemplateVersions: DryRun."""
    identifier = template()
    aws.ec2.create_launch_template_version(LaunchTemplateId=identifier, LaunchTemplateData=DATA)
    assert dry_run_code(aws.ec2.modify_launch_template, LaunchTemplateId=identifier, DefaultVersion="2") == ALLOWED
    assert dry_run_code(aws.ec2.delete_launch_template_versions, LaunchTemplateId=identifier, Versions=["2"]) == ALLOWED
    (found,) = aws.ec2.describe_launch_templates(LaunchTemplateIds=[identifier])["LaunchTemplates"]
    assert (found["DefaultVersionNumber"], found["LatestVersionNumber"]) == (1, 2)


def test_a_dry_run_checks_the_policies_of_the_role(role):
    """EC2 API Reference, "Common query parameters": DryRun answers UnauthorizedOperation without the permissions."""
    ec2 = role({"Action": "ec2:DescribeSubnets"})
    assert (dry_run_code(ec2.describe_subnets), dry_run_code(ec2.describe_images)) == (ALLOWED, DENIED)


def test_a_dry_run_evaluates_request_and_resource_tags(role, template):
    """EC2 User Guide, "Grant permission to tag Amazon EC2 resources during creation": a tag on creation needs ec2:CreateTags too."""
    on_request = {"StringEquals": {f"aws:RequestTag/{CLUSTER['Key']}": CLUSTER["Value"]}}
    on_resource = {"StringEquals": {f"aws:ResourceTag/{CLUSTER['Key']}": CLUSTER["Value"]}}
    ec2 = role(
        {"Action": "ec2:CreateLaunchTemplate", "Condition": on_request},
        {"Action": "ec2:CreateTags", "Condition": on_request},
        {"Action": "ec2:DeleteLaunchTemplate", "Condition": on_resource},
    )

    def create(*tags):
        specifications = [{"ResourceType": "launch-template", "Tags": list(tags)}] if tags else []
        return dry_run_code(ec2.create_launch_template, LaunchTemplateName="none", LaunchTemplateData=DATA, TagSpecifications=specifications)

    assert [create(CLUSTER), create(CLUSTER | {"Value": "red"}), create()] == [ALLOWED, DENIED, DENIED]
    tagged, untagged = template(CLUSTER), template()
    assert [dry_run_code(ec2.delete_launch_template, LaunchTemplateId=i) for i in (tagged, untagged)] == [ALLOWED, DENIED]
    assert dry_run_code(ec2.create_tags, Resources=[untagged], Tags=[CLUSTER]) == ALLOWED
    assert dry_run_code(ec2.create_tags, Resources=[untagged], Tags=[CLUSTER | {"Value": "red"}]) == DENIED
