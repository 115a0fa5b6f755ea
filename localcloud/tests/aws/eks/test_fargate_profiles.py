"""Fargate profiles. moto creates and deletes them immediately, with little validation."""

import time

import pytest

from localcloud.tests.aws.eks.fargate import FARGATE, Profiles
from localcloud.tests.aws.support import PLAIN_MOTO, TRUST, client_error, wait_until

pytestmark = pytest.mark.patched
PROPAGATION = 0.4


def pod_role(aws, name, trust=FARGATE):
    """Create a pod execution role that has propagated. Returns its ARN."""
    arn = aws.iam.create_role(RoleName=f"{name}-pods", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
    time.sleep(PROPAGATION)
    return arn


@pytest.fixture
def call(aws, simulator, name):
    """Valid parameters of CreateFargateProfile."""
    return {
        "clusterName": simulator.cluster_name,
        "fargateProfileName": name,
        "podExecutionRoleArn": pod_role(aws, name),
        "subnets": simulator.subnets[:2],
        "selectors": [{"namespace": "a"}],
    }


@pytest.fixture
def profiles(aws, simulator, control):
    """Creates, reads and deletes profiles, and deletes all of them after the test."""
    made = Profiles(aws.eks, simulator.cluster_name)
    yield made
    if not PLAIN_MOTO:
        control.post("fargate-failure", profile="*", state="CREATE_FAILED", code=None)
        control.post("fargate-failure", profile="*", state="DELETE_FAILED", code=None)
    for name in made.names():
        if not PLAIN_MOTO:
            made.settle(name)
        if made.status(name):
            made.delete(name)
            wait_until(lambda n=name: made.status(n) is None, f"the profile {name} to be gone")


def test_profile_creation_and_deletion_take_time(profiles, simulator, control, call, name):
    """EKS API Reference, FargateProfile: status and ARN; CreateFargateProfile, DeleteFargateProfile."""
    made = profiles.eks.create_fargate_profile(**call, tags={"a": "b"})["fargateProfile"]
    assert (made["status"], made["health"], made["tags"]) == ("CREATING", {"issues": []}, {"a": "b"})
    assert made["fargateProfileArn"].startswith(f"arn:aws:eks:us-west-2:123456789012:fargateprofile/{simulator.cluster_name}/{name}/")
    assert (made["subnets"], made["selectors"], made["podExecutionRoleArn"]) == tuple(
        call[key] for key in ("subnets", "selectors", "podExecutionRoleArn")
    )
    wait_until(lambda: profiles.status(name) == "ACTIVE", "the profile to be ACTIVE")
    with control.paused():
        assert profiles.delete(name)["status"] == "DELETING"
        assert profiles.status(name) == "DELETING"
    wait_until(lambda: profiles.status(name) is None, "the profile to be gone")
    assert client_error(profiles.eks.delete_fargate_profile, clusterName=simulator.cluster_name, fargateProfileName=name)[0] == (
        "ResourceNotFoundException"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fargateProfileName": "a" * 101}, "The Fargate profile name parameter should not be greater than 100 characters."),
        ({"fargateProfileName": "eks-mine"}, "The fargate profile name starts with the reserved prefix: 'eks-'."),
        ({"fargateProfileName": "a.b"}, "contains invalid characters"),
        ({"selectors": [{"namespace": n} for n in "abcdef"]}, "at most 5 selectors"),
        ({"selectors": [{"namespace": "a b"}]}, "namespace a b is invalid"),
        ({"selectors": [{"namespace": "a", "labels": {"k": "?x y"}}]}, "label k=?x y is invalid"),
        ({"tags": {"aws:x": "y"}}, "reserved prefix aws:"),
        ({"podExecutionRoleArn": "arn:aws:iam::123456789012:role/nobody"}, "Misconfigured PodExecutionRole Trust Policy"),
        ({"subnets": ["subnet-0123456789abcdef0"]}, "The subnet ID 'subnet-0123456789abcdef0' does not exist"),
    ],
)
def test_invalid_profiles_are_rejected(profiles, call, change, message):
    """EKS API Reference, CreateFargateProfile: InvalidParameterException; User Guide, "Define which Pods use AWS Fargate when launched"."""
    code, said = client_error(profiles.eks.create_fargate_profile, **call | change)
    assert (code, message in said) == ("InvalidParameterException", True), said
    assert profiles.names() == []


@pytest.mark.same_in_moto
@pytest.mark.parametrize("selectors", [[], [{"namespace": "a", "labels": {str(n): "v" for n in range(6)}}], [{"labels": {"a": "b"}}]])
def test_selectors_have_namespaces_and_at_most_five_labels(profiles, call, selectors):
    """EKS API Reference, FargateProfileSelector."""
    assert client_error(profiles.eks.create_fargate_profile, **call | {"selectors": selectors})[0] == "InvalidParameterException"


def test_creation_requires_that_the_caller_may_read_the_service_linked_role(call, aws, control):
    """awsdocs/amazon-eks-user-guide, "Failed to validate if SLR: AWSServiceRoleForAmazonEKSForFargate already exists"."""
    control.post("faults", action="deny", service="iam", operation="GetRole", count=-1)
    message = "Failed to validate if SLR: AWSServiceRoleForAmazonEKSForFargate already exists due to missing permissions for 'iam:GetRole'"
    assert client_error(aws.eks.create_fargate_profile, **call) == ("InvalidRequestException", message)


def test_subnets_must_be_private_and_default_to_those_of_the_cluster(profiles, aws, simulator, call, name):
    """EKS API Reference, CreateFargateProfile, subnets: "only private subnets (with no direct route to an Internet Gateway)"."""
    said = client_error(profiles.eks.create_fargate_profile, **call | {"subnets": [simulator.subnets[0], simulator.public_subnet]})
    assert said == ("InvalidParameterException", f"Subnet {simulator.public_subnet} provided in Fargate Profile is not a private subnet")
    (foreign, *_) = aws.ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [simulator.other_vpc]}])["Subnets"]
    assert "VPC" in client_error(profiles.eks.create_fargate_profile, **call | {"subnets": [foreign["SubnetId"]]})[1]
    profiles.make({key: value for key, value in call.items() if key != "subnets"})
    assert profiles.show(name)["subnets"] == simulator.subnets


@pytest.mark.parametrize(
    "trust",
    [
        TRUST,
        FARGATE.replace("/demo/", "/other/"),
        FARGATE.replace('"Allow"', '"Deny"'),
        FARGATE.replace('{"Service": "eks-fargate-pods.amazonaws.com"}', '"*"'),
    ],
)
def test_the_pod_execution_role_must_trust_fargate_for_this_cluster(profiles, aws, call, name, trust):
    """EKS User Guide, "Amazon EKS Pod execution IAM role": trust of eks-fargate-pods.amazonaws.com, for the profiles of one cluster."""
    role = pod_role(aws, f"{name}-wrong", trust)
    code, said = client_error(profiles.eks.create_fargate_profile, **call | {"podExecutionRoleArn": role})
    assert (code, said) == (
        "InvalidParameterException",
        "Misconfigured PodExecutionRole Trust Policy; Please add the eks-fargate-pods.amazonaws.com Service Principal",
    )


def test_a_new_pod_execution_role_is_rejected_until_it_has_propagated(profiles, aws, control, call, name):
    """IAM User Guide, "Changes that I make are not always immediately visible"."""
    with control.delayed(propagation=600):
        role = aws.iam.create_role(RoleName=f"{name}-new", AssumeRolePolicyDocument=FARGATE)["Role"]["Arn"]
        assert "Trust Policy" in client_error(profiles.eks.create_fargate_profile, **call | {"podExecutionRoleArn": role})[1]
    time.sleep(PROPAGATION)
    profiles.make(call, podExecutionRoleArn=role)


def test_only_one_profile_changes_at_a_time(profiles, control, call, name):
    """EKS User Guide, "Delete a Fargate profile": one in DELETING at a time, and none is made meanwhile; the same holds for CREATING."""

    def busy(verb, wanted, other, status):
        function = profiles.eks.create_fargate_profile if verb == "create" else profiles.eks.delete_fargate_profile
        given = call | {"fargateProfileName": wanted}
        fields = given if verb == "create" else {key: given[key] for key in ("clusterName", "fargateProfileName")}
        code, said = client_error(function, **fields)
        assert code == "ResourceInUseException"
        assert said == f"Cannot {verb} Fargate Profile {wanted} because cluster demo currently has Fargate profile {other} in status {status}"

    profiles.make(call, fargateProfileName=f"{name}-old")
    with control.paused():
        profiles.eks.create_fargate_profile(**call)
        busy("create", f"{name}-next", name, "CREATING")
        busy("Delete", f"{name}-old", name, "CREATING")
        busy("Delete", name, name, "CREATING")
    wait_until(lambda: profiles.status(name) == "ACTIVE", "the profile to be ACTIVE")
    assert client_error(profiles.eks.create_fargate_profile, **call)[1] == "A Fargate Profile already exists with this name in this cluster."
    with control.paused():
        profiles.delete(name)
        busy("create", f"{name}-next", name, "DELETING")
        busy("Delete", f"{name}-old", name, "DELETING")


def test_no_profile_changes_during_a_cluster_update(profiles, control, call):
    """EKS API Reference, UpdateClusterConfig: the cluster is UPDATING meanwhile; ResourceInUseException."""
    with control.paused():
        update = profiles.eks.update_cluster_config(name=profiles.cluster, accessConfig={"authenticationMode": "API_AND_CONFIG_MAP"})["update"]
        code, said = client_error(profiles.eks.create_fargate_profile, **call)
    assert (code, said.endswith("because cluster demo currently has an update in progress")) == ("ResourceInUseException", True)
    shown = {"name": profiles.cluster, "updateId": update["id"]}
    wait_until(lambda: profiles.eks.describe_update(**shown)["update"]["status"] == "Successful", "the update")
    control.post("cluster", authentication_mode="CONFIG_MAP")


def test_a_client_token_makes_profile_creation_idempotent(profiles, call):
    """EKS API Reference, CreateFargateProfile, clientRequestToken: idempotency."""
    made = profiles.eks.create_fargate_profile(**call, clientRequestToken="once")["fargateProfile"]
    again = profiles.eks.create_fargate_profile(**call, clientRequestToken="once")["fargateProfile"]
    assert again["fargateProfileArn"] == made["fargateProfileArn"]
    other = call | {"selectors": [{"namespace": "b"}]}
    assert client_error(profiles.eks.create_fargate_profile, **other, clientRequestToken="once")[0] == "InvalidParameterException"


def test_profiles_are_paginated_and_tagged_by_arn(profiles, call, name):
    """EKS API Reference, ListFargateProfiles, TagResource, UntagResource."""
    names = [f"{name}-{n}" for n in range(3)]
    for wanted in names:
        profiles.make(call, fargateProfileName=wanted)
    page = profiles.eks.list_fargate_profiles(clusterName=profiles.cluster, maxResults=2)
    rest = profiles.eks.list_fargate_profiles(clusterName=profiles.cluster, maxResults=2, nextToken=page["nextToken"])
    assert (page["fargateProfileNames"], rest["fargateProfileNames"], "nextToken" in rest) == (names[:2], names[2:], False)
    assert client_error(profiles.eks.list_fargate_profiles, clusterName=profiles.cluster, maxResults=100, nextToken="x")[0] == (
        "InvalidParameterException"
    )
    arn = profiles.show(names[0])["fargateProfileArn"]
    profiles.eks.tag_resource(resourceArn=arn, tags={"a": "1", "b": "2"})
    profiles.eks.untag_resource(resourceArn=arn, tagKeys=["a"])
    assert profiles.show(names[0])["tags"] == profiles.eks.list_tags_for_resource(resourceArn=arn)["tags"] == {"b": "2"}


def test_profile_creation_and_deletion_failures_can_be_injected(profiles, control, call, name):
    """EKS API Reference, FargateProfile: CREATE_FAILED, DELETE_FAILED, and FargateProfileIssue; either can be deleted again."""
    control.post("fargate-failure", profile=name, state="CREATE_FAILED", code="AccessDenied", message="not yours")
    profiles.eks.create_fargate_profile(**call)
    wait_until(lambda: profiles.status(name) == "CREATE_FAILED", "the profile to fail")
    assert profiles.show(name)["health"]["issues"] == [
        {"code": "AccessDenied", "message": "not yours", "resourceIds": [call["podExecutionRoleArn"]]}
    ]
    control.post("fargate-failure", profile="*", state="DELETE_FAILED", code="InternalFailure")
    profiles.delete(name)
    wait_until(lambda: profiles.status(name) == "DELETE_FAILED", "the deletion to fail")
    assert profiles.show(name)["health"]["issues"][0]["code"] == "InternalFailure"
    control.post("fargate-failure", profile="*", state="DELETE_FAILED", code=None)
    control.post("fargate-failure", profile=name, state="CREATE_FAILED", code=None)
    profiles.delete(name)
    wait_until(lambda: profiles.status(name) is None, "the profile to be gone")
    profiles.make(call)


def test_eks_creates_the_access_entry_of_a_pod_execution_role(profiles, control, simulator, call, name):
    """EKS User Guide, "Create access entries": "EKS will create access entries (if enabled)"; containers-roadmap 185: also when the mode changes."""
    entry = {"clusterName": simulator.cluster_name, "principalArn": call["podExecutionRoleArn"]}
    profiles.make(call)
    control.post("cluster", authentication_mode="API_AND_CONFIG_MAP")
    found = profiles.eks.describe_access_entry(**entry)["accessEntry"]
    assert (found["type"], found["username"]) == ("FARGATE_LINUX", "system:node:{{SessionName}}")
    profiles.eks.delete_access_entry(**entry)
    profiles.make(call, fargateProfileName=f"{name}-2")
    assert profiles.eks.describe_access_entry(**entry)["accessEntry"]["type"] == "FARGATE_LINUX"
    profiles.eks.delete_access_entry(**entry)
    control.post("cluster", authentication_mode="CONFIG_MAP")


def test_faults_apply_to_fargate_operations(profiles, control, call, name):
    """The control endpoint's faults work on the operations of Fargate profiles."""
    control.post("faults", action="deny", operation="CreateFargateProfile", match=name)
    assert client_error(profiles.eks.create_fargate_profile, **call)[0] == "AccessDeniedException"
    control.post("faults", action="lose", operation="CreateFargateProfile", match=name)
    with control.paused():
        with pytest.raises(Exception, match="onnection"):
            profiles.eks.create_fargate_profile(**call)
        assert profiles.status(name) == "CREATING"
