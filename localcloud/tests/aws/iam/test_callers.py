"""The session of the controller's role, and what IAM says about the role."""

import json

import boto3
import pytest

from localcloud.tests.aws.support import TRUST, client_error

pytestmark = pytest.mark.patched
TERMINATE = "autoscaling:TerminateInstanceInAutoScalingGroup"
STANDBY = "autoscaling:EnterStandby"


@pytest.fixture
def role(aws):
    """The ARN of the controller's role, which has a path and may do all of Auto Scaling."""
    arn = aws.iam.create_role(RoleName="instance-manager", Path="/team/", AssumeRolePolicyDocument=TRUST)["Role"]["Arn"]
    statement = {"Effect": "Allow", "Action": "autoscaling:*", "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    aws.iam.put_role_policy(RoleName="instance-manager", PolicyName="all", PolicyDocument=document)
    yield arn
    aws.iam.delete_role_policy(RoleName="instance-manager", PolicyName="all")
    aws.iam.delete_role(RoleName="instance-manager")


def identity(simulator, key):
    """What GetCallerIdentity answers to the client with that access key."""
    place = {"endpoint_url": simulator.aws_endpoint, "region_name": simulator.region}
    return boto3.client("sts", **place, aws_access_key_id=key, aws_secret_access_key="local").get_caller_identity()


def test_a_session_is_named_after_its_role_without_the_path(simulator, aws, role):
    """IAM User Guide, "AWS JSON policy elements: Principal", role session principals; STS API Reference, GetCallerIdentity."""
    found = identity(simulator, "controller")
    kind, name, session = found["Arn"].split(":")[-1].split("/")
    assert found["Arn"].startswith(f"arn:aws:sts::{simulator.account}:assumed-role/")
    assert (kind, name) == ("assumed-role", "instance-manager")
    assert found["UserId"] == f"{aws.iam.get_role(RoleName=name)['Role']['RoleId']}:{session}"
    assert "assumed-role" not in identity(simulator, "somebody")["Arn"]


def test_a_role_is_found_by_its_whole_arn_and_a_session_is_not_an_entity(simulator, aws, role):
    """IAM API Reference, SimulatePrincipalPolicy: "the ARN of a user, group, or role"; User Guide, "IAM identifiers": paths."""
    ask = aws.iam.simulate_principal_policy
    without_path = role.replace("/team/", "/")
    assert client_error(ask, PolicySourceArn=without_path, ActionNames=[TERMINATE])[0] == "NoSuchEntity"
    session = identity(simulator, "controller")["Arn"]
    assert client_error(ask, PolicySourceArn=session, ActionNames=[TERMINATE])[0] == "InvalidInput"
    assert ask(PolicySourceArn=role, ActionNames=[TERMINATE])["EvaluationResults"][0]["EvalDecision"] == "allowed"


def test_an_action_that_is_denied_to_the_session_is_denied_in_the_simulation(aws, control, role):
    """IAM API Reference, EvaluationResult: EvalDecision; User Guide, "Policy evaluation logic": implicit denies."""

    def decisions():
        answer = aws.iam.simulate_principal_policy(PolicySourceArn=role, ActionNames=[TERMINATE, STANDBY])
        return [result["EvalDecision"] for result in answer["EvaluationResults"]]

    for fault in ({"caller": "somebody"}, {"match": "group-of-another"}, {"count": 0}, {"after": 1}, {"action": "throttle"}):
        number = control.post("faults", **{"action": "deny", "operation": TERMINATE.split(":")[1], "count": -1, **fault})["id"]
        assert decisions() == ["allowed", "allowed"], fault
        control.delete("faults", id=number)
    number = control.post("faults", action="deny", operation="TerminateInstanceInAutoScalingGroup", caller="controller", count=1)["id"]
    assert [decisions(), decisions()] == [["implicitDeny", "allowed"]] * 2, "a question uses up no fault"
    control.delete("faults", id=number)
    assert decisions() == ["allowed", "allowed"]
