"""Access entries, which moto lacks, and the authentication mode of the cluster."""

import re
import time

import pytest

from localcloud.tests.aws.support import PLAIN_MOTO, TRUST, client_error, events, wait_until

pytestmark = pytest.mark.patched
PROPAGATION = 0.4
POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"
MODE = "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation."


@pytest.fixture
def api(aws, simulator, control):
    """The EKS client of a cluster with access entries. Entries and mode are reset after the test."""
    if PLAIN_MOTO:
        yield aws.eks
        return
    control.post("cluster", authentication_mode="API_AND_CONFIG_MAP")
    yield aws.eks
    for arn in aws.eks.list_access_entries(clusterName=simulator.cluster_name)["accessEntries"]:
        aws.eks.delete_access_entry(clusterName=simulator.cluster_name, principalArn=arn)
    control.post("cluster", authentication_mode="CONFIG_MAP")


@pytest.fixture
def role(aws, name):
    """The ARN of a role with a path, which has propagated."""
    arn = aws.iam.create_role(RoleName=name, Path="/team/blue/", AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    time.sleep(PROPAGATION)
    return arn


@pytest.fixture
def call(simulator, role):
    """Parameters that name an entry."""
    return {"clusterName": simulator.cluster_name, "principalArn": role}


@pytest.mark.parametrize(
    ("kind", "username", "groups"),
    [
        ("EC2_LINUX", "system:node:{{EC2PrivateDNSName}}", {"system:nodes"}),
        ("EC2_WINDOWS", "system:node:{{EC2PrivateDNSName}}", {"system:nodes", "eks:kube-proxy-windows"}),
        ("FARGATE_LINUX", "system:node:{{SessionName}}", {"system:nodes", "system:node-proxier"}),
        ("HYBRID_LINUX", "system:node:{{SessionName}}", {"system:nodes"}),
        ("EC2", "system:node:{{EC2PrivateDNSName}}", {"system:nodes"}),
        ("STANDARD", "arn:aws:sts::123456789012:assumed-role/{name}/{{{{SessionName}}}}", set()),
    ],
)
def test_an_entry_has_the_user_and_groups_of_its_type(api, simulator, call, name, kind, username, groups):
    """EKS User Guide, "Create access entries": usernames that EKS sets, and an ARN with its path; API Reference, AccessEntry."""
    made = api.create_access_entry(**call, type=kind, tags={"a": "b"})["accessEntry"]
    assert api.describe_access_entry(**call)["accessEntry"] == made
    assert made["username"] == (username.format(name=name) if kind == "STANDARD" else username)
    assert (made["type"], made["principalArn"], made["tags"]) == (kind, call["principalArn"], {"a": "b"})
    assert set(made["kubernetesGroups"]) == groups
    pattern = f"arn:aws:eks:us-west-2:123456789012:access-entry/{simulator.cluster_name}/role/123456789012/{name}/[0-9a-f-]{{36}}"
    assert re.fullmatch(pattern, made["accessEntryArn"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "EC2_MACOS"}, "type EC2_MACOS is invalid"),
        ({"type": "EC2_LINUX", "kubernetesGroups": ["mine"]}, "kubernetesGroups can't be specified"),
        ({"type": "EC2_LINUX", "username": "mine"}, "username can't be specified"),
        ({"kubernetesGroups": ["system:masters"]}, "The kubernetes group name system:masters is invalid, it cannot start with system:"),
        ({"username": "system:node:x"}, "The username must not begin with system:"),
        ({"username": "john{{SessionName}}"}, "must include a colon"),
        ({"principalArn": "arn:aws:iam::123456789012:role/nobody"}, "The specified principalArn is invalid: invalid principal."),
        ({"principalArn": "arn:aws:iam::210987654321:role/foreign", "type": "EC2_LINUX"}, "invalid principal"),
        ({"principalArn": "arn:aws:iam::123456789012:role/aws-service-role/a.amazonaws.com/B"}, "Service Linked Role"),
        ({"tags": {"aws:mine": "x"}}, "reserved prefix"),
    ],
)
def test_invalid_entries_are_rejected(api, call, change, message):
    """EKS User Guide, "Create access entries", considerations; API Reference, CreateAccessEntry, InvalidParameterException."""
    code, said = client_error(api.create_access_entry, **call | change)
    assert (code, message in said) == ("InvalidParameterException", True), said


def test_a_new_role_is_rejected_until_it_has_propagated(api, aws, simulator, control, name):
    """IAM User Guide, "Changes that I make are not always immediately visible"; EKS User Guide, "Create access entries": an existing principal."""
    with control.delayed(propagation=600):
        arn = aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
        call = {"clusterName": simulator.cluster_name, "principalArn": arn}
        assert client_error(api.create_access_entry, **call)[1] == "The specified principalArn is invalid: invalid principal."
    time.sleep(PROPAGATION)
    assert api.create_access_entry(**call)["accessEntry"]["principalArn"] == arn


def test_a_standard_entry_accepts_users_and_other_accounts(api, aws, simulator, name):
    """EKS User Guide, "Create access entries": STANDARD takes principals of other accounts, and users."""
    user = aws.iam.create_user(UserName=name)["User"]["Arn"]
    time.sleep(PROPAGATION)
    for arn in (user, "arn:aws:iam::210987654321:role/foreign"):
        api.create_access_entry(clusterName=simulator.cluster_name, principalArn=arn, kubernetesGroups=["mine"])
        found = api.describe_access_entry(clusterName=simulator.cluster_name, principalArn=arn)["accessEntry"]
        assert (found["kubernetesGroups"], found["type"]) == (["mine"], "STANDARD")
    assert client_error(api.create_access_entry, clusterName=simulator.cluster_name, principalArn=user, type="EC2_LINUX")[1].endswith("principal.")


def test_a_principal_has_one_entry_and_a_client_token_makes_creation_idempotent(api, call):
    """API Reference, CreateAccessEntry: ResourceInUseException; clientRequestToken "ensures the idempotency of the request"."""
    token = {"clientRequestToken": "once"}
    made = api.create_access_entry(**call, **token, type="EC2_LINUX")["accessEntry"]
    assert api.create_access_entry(**call, **token, type="EC2_LINUX")["accessEntry"] == made
    assert client_error(api.create_access_entry, **call, **token, type="EC2_WINDOWS")[0] == "InvalidParameterException"
    code, said = client_error(api.create_access_entry, **call, type="EC2_LINUX")
    assert (code, said) == ("ResourceInUseException", "The specified access entry resource is already in use on this cluster.")
    api.delete_access_entry(**call)
    again = api.create_access_entry(**call, **token, type="EC2_LINUX")["accessEntry"]
    assert again["accessEntryArn"] != made["accessEntryArn"]


def test_missing_entries_are_not_found(api, call):
    """API Reference, DescribeAccessEntry, UpdateAccessEntry, DeleteAccessEntry: ResourceNotFoundException."""
    for function in (api.describe_access_entry, api.update_access_entry, api.delete_access_entry, api.list_associated_access_policies):
        code, said = client_error(function, **call)
        assert (code, "principalArn could not be found" in said) == ("ResourceNotFoundException", True)
    assert client_error(api.describe_access_entry, **call | {"clusterName": "nowhere"})[0] == "ResourceNotFoundException"


def test_user_and_groups_of_a_standard_entry_can_be_updated(api, call):
    """EKS User Guide, "Update access entries"; API Reference, UpdateAccessEntry, which has no type."""
    api.create_access_entry(**call, kubernetesGroups=["a"])
    changed = api.update_access_entry(**call, kubernetesGroups=["b"], username="mine")["accessEntry"]
    assert (changed["kubernetesGroups"], changed["username"]) == (["b"], "mine")
    assert changed["modifiedAt"] > changed["createdAt"]
    api.delete_access_entry(**call)
    api.create_access_entry(**call, type="EC2_LINUX")
    assert client_error(api.update_access_entry, **call, kubernetesGroups=["b"])[0] == "InvalidParameterException"


def test_entries_are_paginated_and_filtered_by_policy(api, aws, simulator, name):
    """API Reference, ListAccessEntries: maxResults from 1 to 100, nextToken, associatedPolicyArn."""
    cluster = {"clusterName": simulator.cluster_name}
    arns = [aws.iam.create_role(RoleName=f"{name}-{n}", AssumeRolePolicyDocument=TRUST)["Role"]["Arn"] for n in range(5)]
    time.sleep(PROPAGATION)
    for arn in arns:
        api.create_access_entry(**cluster, principalArn=arn)
    api.associate_access_policy(**cluster, principalArn=arns[3], policyArn=POLICY, accessScope={"type": "cluster"})
    pages, token = [], {}
    while True:
        answer = api.list_access_entries(**cluster, maxResults=2, **token)
        pages.append(answer["accessEntries"])
        if "nextToken" not in answer:
            break
        token = {"nextToken": answer["nextToken"]}
    assert {len(page) for page in pages[:-1]} == {2}
    assert set(arns) <= set(sum(pages, []))
    assert api.list_access_entries(**cluster, associatedPolicyArn=POLICY)["accessEntries"] == [arns[3]]
    for bad in ({"maxResults": 101}, {"nextToken": "x"}):
        assert client_error(api.list_access_entries, **cluster, **bad)[0] == "InvalidParameterException"


def test_access_policies_require_a_standard_entry(api, call):
    """API Reference, AssociateAccessPolicy, ListAssociatedAccessPolicies, DisassociateAccessPolicy; User Guide, "Create access entries"."""
    api.create_access_entry(**call)
    scope = {"type": "namespace", "namespaces": ["a"]}
    api.associate_access_policy(**call, policyArn=POLICY, accessScope=scope)
    (found,) = api.list_associated_access_policies(**call)["associatedAccessPolicies"]
    assert (found["policyArn"], found["accessScope"]) == (POLICY, scope)
    assert POLICY in [p["arn"] for p in api.list_access_policies()["accessPolicies"]]
    assert client_error(api.associate_access_policy, **call, policyArn=POLICY + "x", accessScope=scope)[0] == "InvalidParameterException"
    api.disassociate_access_policy(**call, policyArn=POLICY)
    assert api.list_associated_access_policies(**call)["associatedAccessPolicies"] == []
    assert client_error(api.disassociate_access_policy, **call, policyArn=POLICY)[0] == "ResourceNotFoundException"
    api.delete_access_entry(**call)
    api.create_access_entry(**call, type="EC2_LINUX")
    assert client_error(api.associate_access_policy, **call, policyArn=POLICY, accessScope=scope)[0] == "InvalidRequestException"


def test_entries_are_tagged_by_arn(api, call):
    """API Reference, TagResource, UntagResource, ListTagsForResource: any EKS resource, by its ARN."""
    arn = api.create_access_entry(**call, tags={"a": "1"})["accessEntry"]["accessEntryArn"]
    api.tag_resource(resourceArn=arn, tags={"b": "2"})
    api.untag_resource(resourceArn=arn, tagKeys=["a", "not-there"])
    assert api.list_tags_for_resource(resourceArn=arn)["tags"] == {"b": "2"}
    assert api.describe_access_entry(**call)["accessEntry"]["tags"] == {"b": "2"}
    assert client_error(api.tag_resource, resourceArn=arn + "0", tags={"b": "2"})[0] == "NotFoundException"


def test_a_config_map_cluster_has_no_access_entries(aws, call):
    """EKS User Guide, "Change authentication mode to use access entries": the mode adds the API for access entries."""
    for function in (aws.eks.create_access_entry, aws.eks.describe_access_entry, aws.eks.delete_access_entry):
        assert client_error(function, **call) == ("InvalidRequestException", MODE)
    assert client_error(aws.eks.list_access_entries, clusterName=call["clusterName"])[0] == "InvalidRequestException"


def test_the_authentication_mode_changes_one_step_forward_only(aws, simulator, control):
    """EKS User Guide, "Change authentication mode to use access entries"; API Reference, UpdateClusterConfig, DescribeUpdate, ListUpdates."""
    eks, cluster = aws.eks, {"name": simulator.cluster_name}

    def change(mode, **more):
        return eks.update_cluster_config(**cluster, accessConfig={"authenticationMode": mode}, **more)["update"]

    def shown():
        found = eks.describe_cluster(**cluster)["cluster"]
        return found["status"], found["accessConfig"]["authenticationMode"]

    said = client_error(eks.update_cluster_config, **cluster, accessConfig={"authenticationMode": "API"})
    assert said == ("InvalidParameterException", "Unsupported authentication mode update from CONFIG_MAP to API")
    for before, mode in (("CONFIG_MAP", "API_AND_CONFIG_MAP"), ("API_AND_CONFIG_MAP", "API")):
        with control.paused():
            update = change(mode, clientRequestToken=f"to-{mode}")
            assert (update["type"], update["status"]) == ("AccessConfigUpdate", "InProgress")
            assert update["params"] == [{"type": "AuthenticationMode", "value": mode}]
            assert change(mode, clientRequestToken=f"to-{mode}")["id"] == update["id"]
            assert shown() == ("UPDATING", before)
            assert client_error(eks.update_cluster_config, **cluster, accessConfig={"authenticationMode": mode})[0] == "ResourceInUseException"
        identifier = {**cluster, "updateId": update["id"]}
        wait_until(lambda i=identifier: eks.describe_update(**i)["update"]["status"] == "Successful", "the update")
        assert shown() == ("ACTIVE", mode)
        assert update["id"] == eks.list_updates(**cluster)["updateIds"][0]
    for back in ("API", "API_AND_CONFIG_MAP", "CONFIG_MAP"):
        said = client_error(eks.update_cluster_config, **cluster, accessConfig={"authenticationMode": back})[1]
        assert said == f"Unsupported authentication mode update from API to {back}"
    assert client_error(eks.describe_update, **cluster, updateId="none")[0] == "ResourceNotFoundException"
    control.post("cluster", authentication_mode="CONFIG_MAP")


def test_access_entry_operations_are_logged_and_faults_apply(api, control, simulator, call):
    """Logging and faults work for operations with an ARN in the path."""
    seq = control.post("reset-log")["seq"]
    control.post("faults", action="deny", operation="CreateAccessEntry")
    assert client_error(api.create_access_entry, **call)[0] == "AccessDeniedException"
    control.post("faults", action="throttle", operation="DeleteAccessEntry", match=call["principalArn"])
    api.create_access_entry(**call)
    assert client_error(api.delete_access_entry, **call)[0] == "ThrottlingException"
    api.describe_access_entry(**call)
    lines = [line for line in events(simulator.aws_log) if line["seq"] > seq and line["kind"] in ("call", "read")]
    assert [line["operation"] for line in lines] == [
        "CreateAccessEntry",
        "CreateAccessEntry",
        "DeleteAccessEntry",
        "DescribeAccessEntry",
    ]
    (state,) = (line for line in events(simulator.aws_log, kind="state", object="access-entry") if line["seq"] > seq)
    assert (state["id"], state["state"]) == (call["principalArn"], "present")
