"""IAM is shared by all regions of an account."""

import contextlib
import json

import pytest
from botocore.exceptions import ClientError

from localcloud.tests.aws.support import TRUST, Groups, client_error, wait_until

pytestmark = pytest.mark.patched


def last_used_region(aws, role):
    """The region in which AWS reports the last use of a role, or None."""
    return aws.iam.get_role(RoleName=role)["Role"].get("RoleLastUsed", {}).get("Region")


def made(groups, template):
    """Creates a group that launches from a template. EC2 refuses an instance profile that has not propagated."""
    with contextlib.suppress(ClientError):
        return groups.make(1, wait=False, LaunchTemplate={"LaunchTemplateName": template, "Version": "1"})


def test_roles_and_profiles_belong_to_no_region(aws, other_aws, name):
    """IAM User Guide, "Resilience in AWS Identity and Access Management": IAM is a global service; CreateRole, Errors."""
    tags = [{"Key": "k", "Value": "v"}]
    made = aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST, Tags=tags)["Role"]
    aws.iam.create_instance_profile(InstanceProfileName=name)
    aws.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    assert client_error(other_aws.iam.create_role, RoleName=name, AssumeRolePolicyDocument=TRUST)[0] == "EntityAlreadyExists"
    found = other_aws.iam.get_role(RoleName=name)["Role"]
    assert (found["RoleId"], found["Tags"]) == (made["RoleId"], tags)
    other_aws.iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=name)
    other_aws.iam.delete_instance_profile(InstanceProfileName=name)
    other_aws.iam.delete_role(RoleName=name)
    assert client_error(aws.iam.get_role, RoleName=name)[0] == "NoSuchEntity"


@pytest.mark.same_in_moto
def test_scaling_groups_and_templates_belong_to_one_region(aws, other_aws, other_region, groups, name):
    """EC2 User Guide, "Resource locations": launch templates and scaling groups are tied to their Region."""
    group = groups.make()
    assert other_aws.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])["AutoScalingGroups"] == []
    assert groups.template not in json.dumps(other_aws.ec2.describe_launch_templates()["LaunchTemplates"], default=str)
    arn = other_aws.eks.describe_cluster(name=other_region.cluster_name)["cluster"]["arn"]
    assert arn == f"arn:aws:eks:eu-west-1:{other_region.account}:cluster/demo"


def test_the_last_use_of_a_role_names_the_region_of_its_instances(aws, other_aws, other_region, groups, data, name):
    """IAM API Reference, RoleLastUsed: the Region in which the role was last used; null without a use."""
    aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)
    assert last_used_region(aws, name) is None
    profile = aws.iam.create_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Arn"]
    aws.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    launched, template = {**data, "IamInstanceProfile": {"Arn": profile}}, f"{name}-used"
    aws.ec2.create_launch_template(LaunchTemplateName=template, LaunchTemplateData=launched)
    wait_until(lambda: made(groups, template), "a group with the new profile")
    wait_until(lambda: last_used_region(aws, name) == "us-west-2", "the use of the role")
    elsewhere = {
        **launched,
        "ImageId": other_region.amis["amazonlinux2"][0],
        "SecurityGroupIds": [other_region.security_group],
    }
    other_aws.ec2.create_launch_template(LaunchTemplateName=template, LaunchTemplateData=elsewhere)
    others = Groups(other_region, other_aws, template)
    others.make(1)
    wait_until(lambda: last_used_region(aws, name) == "eu-west-1", "the use of the role in another region")
    for group in others.made:
        other_aws.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=group, ForceDelete=True)
