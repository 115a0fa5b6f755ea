"""What is wrong is named with place and remedy, and nothing is written to AWS for it."""

import random

import pytest

from e2e import managed
from e2e.test_fargate import manifest as fargate_manifest

WRONG = [
    ({"image": "ubuntu"}, {}, "spec.eks.configuration.image", "ubuntu"),
    ({"instanceType": "large please"}, {}, "spec.eks.configuration.instanceType", "large please"),
    ({"subnets": ["no-such-subnet"]}, {}, "spec.eks.configuration.subnets", "no-such-subnet"),
    ({"securityGroups": ["no-such-group"]}, {}, "spec.eks.configuration.securityGroups", "no-such-group"),
    ({"clusterName": "elsewhere"}, {}, "spec.eks.configuration.clusterName", "elsewhere"),
    ({"roleName": "no-such-role", "instanceProfileName": "no-such-profile"}, {}, "spec.eks.configuration.instanceProfileName", "no-such-profile"),
    ({"image": "ami-nonsense"}, {}, "spec.eks.configuration.image", "ami-nonsense"),
    ({"image": "ssm://1.2.3-nothing"}, {}, "spec.eks.configuration.image", "1.2.3-nothing"),
    ({}, {"minSize": -1, "maxSize": 2}, "spec.eks.minSize", "-1"),
    ({"instanceType": "m9.gigantic"}, {}, "spec.eks.configuration.instanceType", "m9.gigantic"),
    ({"image": "ami-0123456789abcdeff"}, {}, "spec.eks.configuration.image", "ami-0123456789abcdeff"),
    ({"instanceType": "m6g.large"}, {}, "spec.eks.configuration.image", "m6g.large supports arm64"),
    ({"image": "ami-04100000000000001"}, {}, "spec.eks.configuration.image", "Windows image"),
    ({"image": "ami-03100000000000001"}, {}, "spec.eks.configuration.image", "bottlerocket-aws-k8s-"),
    ({"volumes": [{"name": "/dev/xvdb", "type": "io2", "size": 50}]}, {}, "spec.eks.configuration.volumes[name=/dev/xvdb].iops", "io2"),
    ({"userData": [{"name": "setup", "stage": "NodeConfigYaml", "data": "spec: ["}]}, {}, "spec.eks.configuration.userData", "setup"),
    ({"userData": [{"name": "big", "stage": "PostBootstrap", "data": random.Random(1).randbytes(25000).hex(" ")}]}, {}, "spec.eks.configuration.userData", "big"),
    ({"userData": [{"name": "cut", "stage": "PreBootstrap", "data": "ZWNobyBwb3N0="}]}, {}, "spec.eks.configuration.userData", "cut"),
]


@pytest.mark.parametrize(("configuration", "eks", "path", "value"), WRONG, ids=[f"{path.rsplit('.', 1)[-1]}-{value.split()[0]}" for _, _, path, value in WRONG])
def test_an_invalid_value_is_reported_with_its_field(tenant, configuration, eks, path, value):
    """A tenant who reads `kubectl describe` must find what to correct, and AWS must see nothing of it."""
    tenant.set_defaults(eks=eks, **configuration)
    group = tenant.group()
    stalled = group.wait_condition("Stalled")
    assert path in stalled["message"] and value in stalled["message"], stalled["message"]
    assert group.state() == "Error" and group.has_condition("Ready", "False")
    assert group.wait_event(stalled["reason"], path)
    assert group.writes() == []
    group.delete()
    group.wait_gone()
    assert group.writes() == []


def test_all_mistakes_of_a_new_group_are_reported_at_once(tenant):
    """Who corrects one field must not learn of the next one in another round: what cannot be parsed hides nothing that must be looked up."""
    tenant.set_defaults(image="ami-0123456789abcdeff", instanceType="large please", subnets=["no-such-subnet"])
    message = tenant.group().wait_condition("Stalled")["message"]
    for path in ("image `ami-0123456789abcdeff`", "instanceType `large please`", "subnets `no-such-subnet`"):
        assert f"spec.eks.configuration.{path}" in message, message
    missing = f"arn:aws:iam::123456789012:role/{tenant.unique}-missing"
    group = managed.apply(tenant, "managed", role_arn=missing, subnets=["no-such-subnet"], taints=[{"key": "a" * 64, "effect": "NO_SCHEDULE"}])
    message = group.wait_condition("Stalled")["message"]
    for path in (f"nodeRole `{missing}`", "subnets `no-such-subnet`", "taints[0].key"):
        assert f"spec.eks-managed.configuration.{path}" in message, message
    wrong = fargate_manifest(tenant, "pods", subnets=["demo-public-a"], selectors=[{"namespace": "No_Namespace"}])
    message = tenant.apply(wrong).wait_condition("Stalled")["message"]
    for path in ("subnets", "selectors[0].namespace"):
        assert f"spec.eks-fargate.{path}" in message, message


def test_a_subnet_of_another_vpc_is_reported_with_its_vpc(tenant, shared):
    """A tenant who copies an id from another cluster must see where it belongs."""
    ec2 = shared.boto("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.77.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.77.1.0/24")["Subnet"]["SubnetId"]
    tenant.set_defaults(subnets=[subnet])
    group = tenant.group()
    stalled = group.wait_condition("Stalled", reason="NotFound")
    assert f"spec.eks.configuration.subnets `{subnet}` is in {vpc}" in stalled["message"]
    assert group.writes() == []


def test_a_hook_with_an_invalid_notification_target_is_rejected(tenant):
    """AWS would refuse it together with the scaling group, when the role has been made already."""
    group = tenant.group(lifecycleHooks=[{"name": "up", "lifecycle": "launch", "notificationArn": "my-topic"}])
    stalled = group.wait_condition("Stalled", reason="InvalidSpec")
    assert "spec.eks.configuration.lifecycleHooks[0].notificationArn `my-topic`" in stalled["message"]
    assert group.writes() == []


def test_a_group_recovers_when_its_spec_is_corrected(tenant):
    """A tenant corrects the field and needs nothing else."""
    tenant.set_defaults(instanceType="large please")
    group = tenant.group(size=(1, 1))
    group.wait_condition("Stalled", reason="InvalidSpec")
    tenant.set_defaults(instanceType="m5.large")
    group.wait_ready(nodes=1)
    assert group.has_condition("Stalled", "False")


def test_an_invalid_change_does_not_affect_the_running_group(tenant):
    """A typo in an edit must not cost a node, nor hold the sizes' drift."""
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    before, mark = group.instances(), tenant.cloud.log_position()
    tenant.set_defaults(image="ami-nonsense")
    group.wait_condition("Stalled")
    assert group.instances() == before and group.writes(after=mark) == []
    tenant.set_defaults()
    group.wait_ready(nodes=1)
    assert group.instances() == before and group.writes(after=mark) == []


def test_an_image_of_another_family_replaces_no_node(tenant):
    """Nodes of another family never join: the first batch would be lost. The tenant sees both families and the AMI's own name."""
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    before, mark = group.instances(), tenant.cloud.log_position()
    tenant.set_defaults(image=tenant.cloud["amis"]["amazonlinux2"][0])
    message = group.wait_condition("Stalled", reason="InvalidSpec")["message"]
    for part in ("spec.eks.configuration.image", "amazon-eks-node-1.32-v20250101", "amazonlinux2023", "os-family"):
        assert part in message, message
    assert group.instances() == before and group.writes(after=mark) == []


def fail_launches(group, code):
    """Lets the launches of a group fail from now on; None ends it."""
    group.cloud.control("POST", "launch-failure", group=group.scaling_group, code=code)


def test_a_launch_that_a_default_of_the_account_refuses_names_it(tenant):
    """The tag key that EC2 names is Kubernetes' own: no user would look for the cause among the account's defaults."""
    group = tenant.group(size=(1, 3)).wait_ready(nodes=1)
    words = "'kubernetes.io/cluster/demo' is not a valid tag key. Tag keys must match pattern. Launching EC2 instance failed."
    group.cloud.control("POST", "launch-failure", group=group.scaling_group, code="InvalidParameterValue", message=words)
    group.patch_spec(eks={"minSize": 2})
    message = group.wait_condition("Stalled", reason="LaunchFailed")["message"]
    assert "'kubernetes.io/cluster/demo' is not a valid tag key" in message and "modify-instance-metadata-defaults" in message
    fail_launches(group, None)
    group.wait_ready(nodes=2)


@pytest.mark.parametrize(("code", "reason", "words"), [
    ("InsufficientInstanceCapacity", "InsufficientCapacity", "do not have sufficient"),
    ("VcpuLimitExceeded", "QuotaExceeded", "vCPU"),
    ("InvalidIamInstanceProfile", "LaunchFailed", "Invalid IAM Instance Profile"),
])
def test_launch_failures_are_reported_with_the_message_of_aws(tenant, code, reason, words):
    """Without it, a group stays small and the tenant does not know why."""
    group = tenant.group(size=(1, 3)).wait_ready(nodes=1)
    fail_launches(group, code)
    group.patch_spec(eks={"minSize": 2})
    stalled = group.wait_condition("Stalled", reason=reason)
    assert words in stalled["message"] and f"m5.large failed to launch in {tenant.cloud['region']}" in stalled["message"]
    group.wait_event(reason, words)
    fail_launches(group, None)
    group.wait_ready(nodes=2)
    assert group.has_condition("Stalled", "False")


def test_annotations_without_effect_are_reported(tenant):
    """A tenant who misspells the emergency lock must learn it before the rotation that the lock should stop."""
    group = tenant.group(annotations={"instancemgr.keikoproj.io/lock-upgrade": "true"})
    message = group.wait_condition("AnnotationsIgnored")["message"]
    assert message.endswith("did you mean instancemgr.keikoproj.io/lock-upgrades?")
    assert group.wait_event("AnnotationsIgnored", "lock-upgrade ")
    group.annotate(lock_upgrade=None, lock_upgrades="yes")
    group.wait(lambda g: g.has_condition("AnnotationsIgnored", "False"), what="a condition that is over")
