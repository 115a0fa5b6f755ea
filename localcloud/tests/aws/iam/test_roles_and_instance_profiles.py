"""IAM roles, managed policies and instance profiles."""

import json

import pytest

from localcloud.tests.aws.support import TRUST, client_error

POLICY = "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"


@pytest.mark.patched
def test_aws_managed_policies_exist_and_list_their_roles(aws, name):
    """AWS Managed Policy Reference, AmazonEKSWorkerNodePolicy; IAM API Reference, ListEntitiesForPolicy and PolicyRole."""
    role_id = aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)["Role"]["RoleId"]
    aws.iam.attach_role_policy(RoleName=name, PolicyArn=POLICY)
    roles = aws.iam.list_entities_for_policy(PolicyArn=POLICY, EntityFilter="Role", MaxItems=1000)["PolicyRoles"]
    assert {"RoleName": name, "RoleId": role_id} in roles
    assert client_error(aws.iam.delete_role, RoleName=name)[0] == "DeleteConflict"
    aws.iam.detach_role_policy(RoleName=name, PolicyArn=POLICY)
    assert client_error(aws.iam.detach_role_policy, RoleName=name, PolicyArn=POLICY)[0] == "NoSuchEntity"
    aws.iam.delete_role(RoleName=name)


def test_error_codes_of_existing_missing_and_used_resources(aws, name):
    """IAM API Reference, CreateRole (EntityAlreadyExists), GetRole (NoSuchEntity), DeleteInstanceProfile (DeleteConflict)."""
    aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)
    aws.iam.create_instance_profile(InstanceProfileName=name)
    aws.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
    assert client_error(aws.iam.create_role, RoleName=name, AssumeRolePolicyDocument=TRUST)[0] == "EntityAlreadyExists"
    assert client_error(aws.iam.create_instance_profile, InstanceProfileName=name)[0] == "EntityAlreadyExists"
    assert client_error(aws.iam.add_role_to_instance_profile, InstanceProfileName=name, RoleName=name)[0] == "LimitExceeded"
    assert client_error(aws.iam.delete_instance_profile, InstanceProfileName=name)[0] == "DeleteConflict"
    assert client_error(aws.iam.delete_role, RoleName=name)[0] == "DeleteConflict"
    assert client_error(aws.iam.get_role, RoleName="no-such")[0] == "NoSuchEntity"
    assert client_error(aws.iam.attach_role_policy, RoleName=name, PolicyArn="arn:aws:iam::aws:policy/NoSuch")[0] == "NoSuchEntity"


@pytest.mark.patched
def test_a_role_that_is_not_in_a_profile_cannot_be_removed_from_it(aws, name):
    """IAM API Reference, RemoveRoleFromInstanceProfile, Errors: NoSuchEntity."""
    aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)
    aws.iam.create_instance_profile(InstanceProfileName=name)
    assert client_error(aws.iam.remove_role_from_instance_profile, InstanceProfileName=name, RoleName=name)[0] == "NoSuchEntity"


@pytest.mark.patched
def test_instance_profiles_are_listed_in_pages_without_their_tags(aws, name):
    """IAM API Reference, ListInstanceProfiles, MaxItems and Marker: a listing returns no tags."""
    for i in range(3):
        aws.iam.create_instance_profile(InstanceProfileName=f"{name}-{i}", Tags=[{"Key": "k", "Value": "v"}])
    page = aws.iam.list_instance_profiles(MaxItems=2)
    assert (len(page["InstanceProfiles"]), page["IsTruncated"]) == (2, True)
    everything = page["InstanceProfiles"]
    while page["IsTruncated"]:
        page = aws.iam.list_instance_profiles(MaxItems=2, Marker=page["Marker"])
        everything += page["InstanceProfiles"]
    assert {f"{name}-{i}" for i in range(3)} <= {p["InstanceProfileName"] for p in everything}
    assert not any(p.get("Tags") for p in everything)
    assert aws.iam.get_instance_profile(InstanceProfileName=f"{name}-0")["InstanceProfile"]["Tags"] == [{"Key": "k", "Value": "v"}]


@pytest.mark.patched
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"RoleName": "r" * 65}, "ValidationError"),
        ({"AssumeRolePolicyDocument": "{"}, "MalformedPolicyDocument"),
        ({"AssumeRolePolicyDocument": '{"Statement":[{"Effect":"Allow","Action":"sts:AssumeRole"}]}'}, "MalformedPolicyDocument"),
        ({"Tags": [{"Key": "aws:x", "Value": "y"}]}, "InvalidInput"),
    ],
)
def test_invalid_roles_are_rejected(aws, name, change, code):
    """IAM API Reference, CreateRole, Request Parameters and Errors; IAM User Guide, "Tags for IAM resources"."""
    assert client_error(aws.iam.create_role, **{"RoleName": name, "AssumeRolePolicyDocument": TRUST} | change)[0] == code


def test_tags_of_roles_and_profiles_are_kept(aws, name):
    """IAM API Reference, TagRole and TagInstanceProfile."""
    aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST, Tags=[{"Key": "a", "Value": "1"}])
    aws.iam.tag_role(RoleName=name, Tags=[{"Key": "b", "Value": "2"}])
    assert sorted(t["Key"] for t in aws.iam.get_role(RoleName=name)["Role"]["Tags"]) == ["a", "b"]
    aws.iam.create_instance_profile(InstanceProfileName=name)
    aws.iam.tag_instance_profile(InstanceProfileName=name, Tags=[{"Key": "c", "Value": "3"}])
    assert [t["Key"] for t in aws.iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Tags"]] == ["c"]


def test_inline_policies_block_the_deletion_of_a_role(aws, name):
    """IAM API Reference, DeleteRole: DeleteConflict while inline policies remain."""
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}]}
    aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)
    aws.iam.put_role_policy(RoleName=name, PolicyName="mine", PolicyDocument=json.dumps(document))
    assert client_error(aws.iam.delete_role, RoleName=name)[0] == "DeleteConflict"


@pytest.mark.patched
def test_a_role_has_at_most_ten_managed_policies(aws, name):
    """IAM User Guide, "IAM and AWS STS quotas": managed policies attached to an IAM role; AttachRolePolicy, LimitExceeded."""
    aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)
    pages = aws.iam.get_paginator("list_policies").paginate(Scope="AWS")
    arns = [policy["Arn"] for page in pages for policy in page["Policies"]][:11]
    for arn in arns[:10]:
        aws.iam.attach_role_policy(RoleName=name, PolicyArn=arn)
    assert client_error(aws.iam.attach_role_policy, RoleName=name, PolicyArn=arns[10])[0] == "LimitExceeded"
    aws.iam.attach_role_policy(RoleName=name, PolicyArn=arns[0])
    aws.iam.detach_role_policy(RoleName=name, PolicyArn=arns[0])
    aws.iam.attach_role_policy(RoleName=name, PolicyArn=arns[10])
