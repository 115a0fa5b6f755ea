"""SimulatePrincipalPolicy, which moto lacks."""

import json

import pytest

from localcloud.tests.aws.support import TRUST, client_error

pytestmark = pytest.mark.patched


def statement(effect="Allow", action="ec2:CreateTags", resource="*", **condition):
    """One statement; `condition` is by operator."""
    return {"Effect": effect, "Action": action, "Resource": resource} | ({"Condition": condition} if condition else {})


@pytest.fixture
def allowed(aws, name):
    """Evaluates actions with an inline policy of a new role. Returns the evaluation results."""
    arn = aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]

    def ask(statements, actions, **more):
        document = json.dumps({"Version": "2012-10-17", "Statement": statements})
        aws.iam.put_role_policy(RoleName=name, PolicyName="mine", PolicyDocument=document)
        answer = aws.iam.simulate_principal_policy(PolicySourceArn=arn, ActionNames=actions, **more)
        return {result["EvalActionName"]: result for result in answer["EvaluationResults"]}

    ask.arn = arn
    return ask


def decisions(results):
    return [result["EvalDecision"] for result in results.values()]


def test_implicit_and_explicit_deny(allowed):
    """IAM API Reference, SimulatePrincipalPolicy, and EvaluationResult: EvalDecision."""
    statements = [statement(action=["ec2:Create*", "iam:GetRole"]), statement("Deny", "ec2:CreateTags")]
    asked = ["ec2:CreateLaunchTemplate", "EC2:createtags", "ec2:DeleteTags", "iam:GetRole"]
    assert decisions(allowed(statements, asked)) == ["allowed", "explicitDeny", "implicitDeny", "allowed"]


def test_resources_and_context_are_evaluated(allowed):
    """IAM API Reference, EvaluationResult: MissingContextValues and ResourceSpecificResults; User Guide, condition operators."""
    roles = "arn:aws:iam::123456789012:role/blue-"
    statements = [statement(action="iam:TagRole", resource=f"{roles}*", StringEquals={"aws:RequestTag/a": "b"})]
    right = {"ContextKeyName": "aws:requesttag/a", "ContextKeyType": "string"}

    def ask(resource, value=None):
        entries = [right | {"ContextKeyValues": [value]}] if value else []
        (result,) = allowed(statements, ["iam:TagRole"], ResourceArns=[resource], ContextEntries=entries).values()
        return result

    assert ask(f"{roles}x", "b")["EvalDecision"] == "allowed"
    assert ask(f"{roles}x", "c")["EvalDecision"] == "implicitDeny"
    assert ask(roles.replace("blue", "red"), "b")["EvalDecision"] == "implicitDeny"
    untold = ask(f"{roles}x")
    assert (untold["EvalDecision"], untold["MissingContextValues"]) == ("implicitDeny", [])
    assert untold["ResourceSpecificResults"][0]["MissingContextValues"] == ["aws:RequestTag/a"]


def test_missing_context_keys_match_only_if_exists_operators(allowed):
    """IAM User Guide, "IAM JSON policy elements: Condition operators", ...IfExists."""
    statements = [
        statement(action="ec2:CreateTags", StringEqualsIfExists={"aws:ResourceTag/a": "b"}),
        statement(action="ec2:RunInstances", ArnLike={"ec2:LaunchTemplate": "arn:aws:ec2:*:launch-template/*"}),
    ]
    found = allowed(statements, ["ec2:CreateTags", "ec2:RunInstances"])
    assert decisions(found) == ["allowed", "implicitDeny"]
    assert found["ec2:RunInstances"]["MissingContextValues"] == ["ec2:LaunchTemplate"]
    entry = {"ContextKeyName": "aws:ResourceTag/a", "ContextKeyValues": ["c"], "ContextKeyType": "string"}
    assert decisions(allowed(statements, ["ec2:CreateTags"], ContextEntries=[entry])) == ["implicitDeny"]


def test_all_values_of_a_key_that_may_be_absent(allowed):
    """IAM User Guide, "Multivalued context keys": ForAllValues is true if every value matches, and if the key is absent."""
    statements = [statement(action="ec2:DeleteTags", **{"ForAllValues:StringNotLike": {"aws:TagKeys": ["own/*"]}})]

    def ask(*keys):
        entries = [{"ContextKeyName": "aws:TagKeys", "ContextKeyValues": list(keys), "ContextKeyType": "stringList"}] if keys else []
        return decisions(allowed(statements, ["ec2:DeleteTags"], ContextEntries=entries))

    assert ask() == ["allowed"] and ask("cost", "team") == ["allowed"]
    assert ask("cost", "own/a") == ["implicitDeny"]


def test_managed_policies_are_evaluated_and_the_role_must_exist(aws, name, allowed):
    """IAM API Reference, SimulatePrincipalPolicy: "all policies ... attached to the entity"; Errors: NoSuchEntity, InvalidInput."""
    policy = "arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryReadOnly"
    aws.iam.attach_role_policy(RoleName=name, PolicyArn=policy)
    assert decisions(allowed([statement()], ["ecr:BatchGetImage", "ecr:PutImage"])) == ["allowed", "implicitDeny"]
    aws.iam.detach_role_policy(RoleName=name, PolicyArn=policy)
    assert decisions(allowed([statement()], ["ecr:BatchGetImage"])) == ["implicitDeny"]
    ask = aws.iam.simulate_principal_policy
    assert client_error(ask, PolicySourceArn=f"{allowed.arn}-not", ActionNames=["iam:GetRole"])[0] == "NoSuchEntity"
    assert client_error(ask, PolicySourceArn="arn:aws:iam::123456789012:nothing", ActionNames=["iam:GetRole"])[0] == "InvalidInput"
