"""Requests that break the service's model."""

import pytest
import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from localcloud.aws.request import parse_query_params
from localcloud.aws.request_validation import get_service_model, pattern, rejection, violations
from localcloud.tests.aws.support import events

pytestmark = pytest.mark.patched
GROUP = {"AutoScalingGroupName": "g", "MinSize": "0", "MaxSize": "1"}
NODEGROUP = {"clusterName": "demo", "nodegroupName": "n", "subnets": ["s"], "nodeRole": "r"}


@pytest.mark.same_in_moto
@pytest.mark.parametrize(
    ("service", "operation", "content", "wrong"),
    [
        ("autoscaling", "CreateAutoScalingGroup", {**GROUP, "AutoScalingGroupName": "g" * 256}, "length less than or equal to 255"),
        ("autoscaling", "CreateAutoScalingGroup", {"AutoScalingGroupName": "g", "MinSize": "0"}, "at 'maxSize' failed"),
        ("autoscaling", "CreateAutoScalingGroup", {**GROUP, "MaxSize": "one"}, "of type integer"),
        ("autoscaling", "CreateAutoScalingGroup", {**GROUP, "CapacityRebalance": "yes"}, "of type boolean"),
        ("autoscaling", "CreateAutoScalingGroup", {**GROUP, "Tags": [{"Key": "a\0"}]}, "at 'tags.1.key' failed"),
        ("autoscaling", "CreateAutoScalingGroup", {**GROUP, "Colour": "red"}, "that the operation has"),
        ("autoscaling", "PutWarmPool", {"AutoScalingGroupName": "g", "PoolState": "Frozen"}, "enum value set"),
        ("autoscaling", "EnableMetricsCollection", {"AutoScalingGroupName": "g"}, "at 'granularity' failed"),
        ("ec2", "CreateLaunchTemplate", {"LaunchTemplateName": "lt"}, "at 'LaunchTemplateData' failed"),
        ("ec2", "CreateLaunchTemplate", {"LaunchTemplateName": "ltx", "LaunchTemplateData": {"Monitoring": "on"}}, "must be a structure"),
        ("ec2", "CreateLaunchTemplate", {"LaunchTemplateName": "ltx", "LaunchTemplateData": {"EbsOptimized": "1"}}, "boolean"),
        ("ec2", "DescribeInstanceTypes", {"MaxResults": "101"}, "less than or equal to 100"),
        ("eks", "CreateNodegroup", {key: NODEGROUP[key] for key in list(NODEGROUP)[1:]}, "at 'clusterName' failed"),
        ("eks", "CreateNodegroup", {**NODEGROUP, "scalingConfig": {"minSize": "1"}}, "of type integer"),
        ("eks", "CreateNodegroup", {**NODEGROUP, "labels": {"a": "b" * 64}}, "at 'labels.a.value' failed"),
        ("eks", "CreateNodegroup", {**NODEGROUP, "amiType": "AL1_x86_64"}, "enum value set"),
        ("iam", "CreateRole", {"RoleName": "a b", "AssumeRolePolicyDocument": "{}"}, "regular expression pattern"),
        ("iam", "CreateRole", {"RoleName": "r\u00e9", "AssumeRolePolicyDocument": "{}"}, "regular expression pattern"),
        ("ssm", "GetParameters", {"Names": []}, "greater than or equal to 1"),
        ("ssm", "GetParameters", {"Names": "a"}, "must be a list"),
    ],
)
def test_a_planted_error_is_found(service, operation, content, wrong):
    """botocore's service models: required members, types, lengths, ranges, enumerations and patterns."""
    found = violations(service, operation, content)
    assert len(found) == 1 and wrong in str(found[0]), found


@pytest.mark.same_in_moto
@pytest.mark.parametrize(
    ("service", "operation", "content"),
    [
        ("autoscaling", "CreateAutoScalingGroup", {**GROUP, "Tags": [{"Key": "\u00fc \U0001f600"}], "SuspendedProcesses": ""}),
        ("autoscaling", "DescribeAutoScalingGroups", parse_query_params({"AutoScalingGroupNames.member.1": "g", "MaxRecords": "100"})),
        ("ec2", "DescribeImages", parse_query_params({"Filter.1.Name": "a", "Filter.1.Value.1": "b", "ImageId.1": "ami-1"})),
        ("iam", "TagRole", parse_query_params({"RoleName": "r", "Tags.member.1.Key": "\u00fc", "Tags.member.1.Value": ""})),
        ("sts", "GetCallerIdentity", {}),
        ("s3", "NoSuchOperation", {"any": 1}),
    ],
)
def test_valid_requests_pass(service, operation, content):
    """The same models. What has no model is not checked."""
    wanted = [] if "SuspendedProcesses" not in content else ["SuspendedProcesses"]
    assert [violation.path for violation in violations(service, operation, content)] == wanted


@pytest.mark.same_in_moto
def test_the_front_end_leaves_values_to_services_with_checks_of_their_own():
    """Amazon EC2 User Guide: "Launch template parameters are not fully validated when you create the launch template"."""
    data = {"LaunchTemplateName": "web", "LaunchTemplateData": {"Placement": {"Tenancy": "shared"}}}
    found = violations("ec2", "CreateLaunchTemplate", data)
    assert len(found) == 1 and rejection("ec2", found) is None
    missing = rejection("ec2", violations("ec2", "CreateLaunchTemplate", {"LaunchTemplateName": "web"}))
    assert missing == ("MissingParameter", "The request must contain the parameter LaunchTemplateData")
    assert violations("ec2", "DescribeInstanceTypes", {"InstanceType": ["m99.large"]}) == [], "EC2 has types before botocore has"


@pytest.mark.same_in_moto
def test_patterns_of_the_models_are_read():
    """Python reads all but one pattern of the services' models, which Java's regular expressions accept."""
    texts = {}
    for service in ("autoscaling", "ec2", "eks", "iam", "ssm", "sts"):
        model = get_service_model(service)
        texts |= {name: model.shape_for(name).metadata.get("pattern") for name in model.shape_names}
    assert [name for name, text in texts.items() if text and pattern(text).pattern == "(?s:.*)"] == ["CloudConnectorIamRoleArn"]


def send(simulator, service, body, target=None, path="/"):
    """Send a request that no SDK would send."""
    headers = {"Content-Type": "application/x-amz-json-1.1" if target else "application/x-www-form-urlencoded"}
    if target:
        headers["X-Amz-Target"] = target
    request = AWSRequest("POST", simulator.aws_endpoint + path, data=body, headers=headers)
    SigV4Auth(Credentials("local", "local"), service, simulator.region).add_auth(request)
    return requests.post(request.url, data=body, headers=dict(request.headers), timeout=60)


@pytest.mark.parametrize(
    ("service", "body", "target", "code", "part"),
    [
        ("autoscaling", "Action=PutWarmPool&PoolState=Frozen", None, "ValidationError", "2 validation errors detected: Value 'Frozen'"),
        ("iam", "Action=GetRole&RoleName=a%20b", None, "ValidationError", "1 validation error detected: Value 'a b' at 'roleName'"),
        ("ec2", "Action=CreateLaunchTemplate&LaunchTemplateName=lt1", None, "MissingParameter", "LaunchTemplateData"),
        ("ssm", '{"Names": []}', "AmazonSSM.GetParameters", "ValidationException", "greater than or equal to 1"),
    ],
)
def test_the_response_is_the_services_own(simulator, service, body, target, code, part):
    """ "Common errors" of each service's API reference. The event log says what is wrong."""
    before = len(events(simulator.aws_log, kind="invalid"))
    response = send(simulator, service, body, target)
    assert response.status_code == 400
    text = response.text.replace("&#x27;", "'").replace("&apos;", "'")
    assert code in text and part in text
    (logged,) = events(simulator.aws_log, kind="invalid")[before:]
    assert logged["service"] == service and logged["violations"]
