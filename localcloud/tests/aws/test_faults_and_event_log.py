"""Fault injection, the event log, the call counters and the snapshot."""

import threading
import time

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectionClosedError,
    EndpointConnectionError,
    HTTPClientError,
)

from localcloud.tests.aws.support import TRUST, client_error, events, wait_until

pytestmark = pytest.mark.patched


@pytest.mark.parametrize(
    ("service", "call", "codes"),
    [
        ("autoscaling", "describe_tags", ("Throttling", "InternalFailure", "AccessDenied")),
        ("ec2", "describe_vpcs", ("RequestLimitExceeded", "InternalError", "UnauthorizedOperation")),
        ("iam", "list_roles", ("Throttling", "ServiceFailure", "AccessDenied")),
        ("eks", "list_clusters", ("ThrottlingException", "ServerException", "AccessDeniedException")),
        ("ssm", "describe_parameters", ("ThrottlingException", "InternalServerError", "AccessDeniedException")),
    ],
)
def test_faults_use_the_error_codes_of_each_service(aws, control, service, call, codes):
    """The "Common Errors" page of each service's API reference; EC2: "Error codes for the Amazon EC2 API"."""
    for action, code in zip(("throttle", "error5xx", "deny"), codes, strict=True):
        control.post("faults", service=service, action=action)
        assert client_error(getattr(getattr(aws, service), call))[0] == code
        getattr(getattr(aws, service), call)()


def test_a_fault_hits_only_matching_calls(aws, control, name):
    """Faults match by service, operation, parameters, number of skipped calls and count."""
    control.post(
        "faults", action="error", code="Sorry", message="not now", status=400, operation="CreateRole", match=name, after=1, count=2
    )
    codes = []
    for i in range(4):
        try:
            aws.iam.create_role(RoleName=f"{name}-{i}", AssumeRolePolicyDocument=TRUST)
            codes.append("ok")
        except ClientError as error:
            codes.append(error.response["Error"]["Code"])
    assert codes == ["ok", "Sorry", "Sorry", "ok"]
    assert control.get("faults")[0]["hits"] == 2


def test_a_fault_can_be_limited_to_one_client(aws, control, name):
    """Faults match the access key or the user agent of the client."""
    control.post("faults", action="deny", operation="CreateRole", match=name, caller="somebody-else")
    control.post("faults", action="throttle", operation="CreateRole", match=name, caller="Boto3")
    assert client_error(aws.iam.create_role, RoleName=name, AssumeRolePolicyDocument=TRUST)[0] == "Throttling"


def test_a_call_with_a_lost_response_is_performed(aws, control, name):
    """AWS General Reference, "Timeouts, retries, and backoff": the outcome of a call without a response is unknown."""
    control.post("faults", action="lose", operation="CreateRole", match=name)
    with pytest.raises((ConnectionClosedError, HTTPClientError, EndpointConnectionError)):
        aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)
    assert aws.iam.get_role(RoleName=name)["Role"]["RoleName"] == name
    control.post("faults", action="lose", operation="DeleteRole", match=name, before=True)
    with pytest.raises((ConnectionClosedError, HTTPClientError, EndpointConnectionError)):
        aws.iam.delete_role(RoleName=name)
    aws.iam.delete_role(RoleName=name)


def test_a_held_call_waits_until_it_is_released(aws, control, name):
    """A call can be held before or after it is performed."""
    for before in (False, True):
        role = f"{name}-{before}"
        fault = control.post("faults", action="hold", operation="CreateRole", match=role, before=before)["id"]
        thread = threading.Thread(target=aws.iam.create_role, kwargs={"RoleName": role, "AssumeRolePolicyDocument": TRUST})
        thread.start()
        held = wait_until(lambda: control.get("held"), "the held call")
        call = next(iter(held.values()))
        assert (call["operation"], call["fault"]) == ("CreateRole", fault)
        there = any(r["RoleName"] == role for r in aws.iam.list_roles(MaxItems=1000)["Roles"])
        assert there is not before
        control.post("release")
        thread.join(10)
        assert aws.iam.get_role(RoleName=role)


def test_a_delayed_call_succeeds(aws, control, name):
    """A delayed response is a valid response."""
    control.post("faults", action="delay", seconds=0.3, operation="CreateRole", match=name)
    begun = time.monotonic()
    aws.iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)
    assert time.monotonic() - begun >= 0.3


def test_a_stale_read_returns_the_previous_state(aws, control, groups):
    """Amazon EC2 API Reference, "Eventual consistency in the Amazon EC2 API"."""
    name = groups.make()
    control.post("faults", action="stale", operation="DescribeAutoScalingGroups", match=name)
    aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=7)
    assert groups.show(name)["MaxSize"] == 1
    assert groups.show(name)["MaxSize"] == 7


def test_calls_are_counted_and_logged_in_order_without_user_data(aws, control, simulator, groups, data):
    """The log has every write with its parameters, every read by name, and every state change of an instance."""
    seq = control.post("reset-log")["seq"]
    name = groups.make(1)
    aws.ec2.create_launch_template_version(LaunchTemplateName=groups.template, LaunchTemplateData=data)
    client_error(aws.autoscaling.create_auto_scaling_group, **groups.parameters(name))
    counts = control.get("calls")
    assert counts["writes"] == {"autoscaling:CreateAutoScalingGroup": 2, "ec2:CreateLaunchTemplateVersion": 1}
    lines = [line for line in events(simulator.aws_log) if line["seq"] > seq]
    assert [line["seq"] for line in lines] == list(range(seq + 1, seq + 1 + len(lines)))
    states = [line["state"] for line in lines if line["kind"] == "state" and line.get("group") == name]
    assert states == ["Pending", "InService"]
    calls = [(line["operation"], line["status"], line.get("error")) for line in lines if line["kind"] == "call"]
    assert [line.get("version") for line in lines if line["kind"] == "call"] == [None, 2, None]
    assert calls == [
        ("CreateAutoScalingGroup", 200, None),
        ("CreateLaunchTemplateVersion", 200, None),
        ("CreateAutoScalingGroup", 400, "AlreadyExists"),
    ]
    text = "\n".join(str(line) for line in lines)
    assert data["UserData"] not in text
    assert lines[0]["params"]["LaunchTemplate"]["LaunchTemplateName"] == groups.template


def test_a_snapshot_is_stable_and_complete(aws, control, groups):
    """Two snapshots without a change between them are equal."""
    name = groups.make(1)
    first = control.get("snapshot")
    assert first["groups"][name]["Instances"][0]["LifecycleState"] == "InService"
    assert first["templates"][groups.template]["default"] == 1
    assert "nodes" in first["roles"]
    second = control.get("snapshot")
    # Groups of earlier tests may still be ending.
    for snapshot in (first, second):
        snapshot["groups"] = {name: snapshot["groups"][name]}
    assert second == first


def test_a_stale_read_can_follow_the_state_some_writes_behind(aws, control, groups):
    """Amazon EC2 API Reference, "Eventual consistency in the Amazon EC2 API"."""
    name = groups.make()
    fault = control.post("faults", action="stale", operation="DescribeAutoScalingGroups", match=name, writes=2, count=-1)["id"]
    seen = []
    for size in (5, 6, 7, 8):
        aws.autoscaling.update_auto_scaling_group(AutoScalingGroupName=name, MaxSize=size)
        seen.append(groups.show(name)["MaxSize"])
    assert seen == [1, 1, 5, 6]
    control.delete("faults", id=fault)
    assert groups.show(name)["MaxSize"] == 8


def test_one_fault_can_be_removed_alone(aws, control):
    """Each fault of a test ends at its own time."""
    first, second = (control.post("faults", action="deny", operation=name, count=-1)["id"] for name in ("ListRoles", "ListGroups"))
    control.delete("faults", id=first)
    assert aws.iam.list_roles(MaxItems=1)["Roles"]
    assert [fault["id"] for fault in control.get("faults")] == [second]
    assert client_error(aws.iam.list_groups)[0] == "AccessDenied"


def test_delays_can_be_changed(control, groups):
    """Instances that boot slowly for a while, on demand."""
    before = control.post("delays")["pending"]
    try:
        assert control.post("delays", pending=30)["pending"] == 30
        group = groups.make(1, wait=False)
        wait_until(lambda: groups.states(group) == ["Pending"], "an instance that is pending")
    finally:
        assert control.post("delays", pending=before)["pending"] == before
