"""Managed node groups: validation, status, health and resources."""

import boto3
import pytest
from botocore.config import Config

from localcloud.tests.aws.eks.nodegroups import RELEASES, NodeGroups, trust
from localcloud.tests.aws.support import client_error, events, wait_until

pytestmark = pytest.mark.patched


@pytest.fixture(scope="module")
def managed(simulator, aws):
    """Creates node groups, and deletes them after the module."""
    made = NodeGroups(aws, vars(simulator))
    yield made
    made.clear()


@pytest.fixture(scope="module")
def unchecked(simulator):
    """An EKS client without parameter validation."""
    place = {"endpoint_url": simulator.aws_endpoint, "region_name": simulator.region}
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    return boto3.client("eks", **place, **keys, config=Config(retries={"max_attempts": 0}, parameter_validation=False))


@pytest.fixture(scope="module")
def key(aws):
    """A key pair."""
    return aws.ec2.create_key_pair(KeyName="managed")["KeyName"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"nodegroupName": "a" * 64}, "63 characters"),
        ({"nodegroupName": "-a"}, "letter or digit"),
        ({"nodegroupName": "a.b"}, "hyphens and underscores"),
        ({"subnets": []}, "Subnets"),
        ({"subnets": ["subnet-0123456789abcdef0"]}, "does not exist"),
        ({"nodeRole": "arn:aws:iam::123456789012:role/no-such"}, "cannot be found"),
        ({"nodeRole": "no-arn"}, "not the ARN of a role"),
        ({"instanceTypes": ["m5.huge"]}, "do not exist: [m5.huge]"),
        ({"instanceTypes": ["m6g.large"]}, "not a valid instance type for requested amiType AL2023_x86_64_STANDARD"),
        ({"amiType": "AL2_ARM_64"}, "[m5.large] is not a valid instance type"),
        ({"amiType": "AL3_x86_64"}, "AL3_x86_64"),
        ({"scalingConfig": {"minSize": 3, "maxSize": 4, "desiredSize": 2}}, "Minimum capacity 3 can't be greater than desired size 2"),
        ({"scalingConfig": {"minSize": 1, "maxSize": 2, "desiredSize": 3}}, "Desired capacity 3 can't be greater than max size 2"),
        ({"scalingConfig": {"minSize": 0, "maxSize": 0, "desiredSize": 0}}, "maxSize at least 1"),
        ({"labels": {"a": "no spaces"}}, "alphanumeric"),
        ({"labels": {"a": ""}}, "alphanumeric"),
        ({"labels": {"a": "b" * 64}}, "alphanumeric"),
        ({"labels": {"example.com/" + "a" * 52: "b"}}, "alphanumeric"),
        ({"labels": {"eks.amazonaws.com/nodegroup": "mine"}}, "reserved prefixes"),
        ({"taints": [{"key": "a", "effect": "NoSchedule"}]}, "Invalid taint effect: NoSchedule, must be one of these [NO_SCHEDULE, "),
        ({"taints": [{"key": "", "effect": "NO_SCHEDULE"}]}, "taint key"),
        ({"taints": [{"key": "example.com/" + "a" * 52, "effect": "NO_SCHEDULE"}]}, "taint key"),
        ({"taints": [{"key": f"k{i}", "effect": "NO_SCHEDULE"} for i in range(51)]}, "maximum of 50 taints"),
        ({"capacityType": "RESERVED"}, "RESERVED"),
        ({"diskSize": -1}, "Disk size"),
        ({"tags": {"aws:mine": "x"}}, "reserved prefix"),
        ({"tags": {f"k{i}": "v" for i in range(51)}}, "50"),
        ({"updateConfig": {"maxUnavailable": 1, "maxUnavailablePercentage": 10}}, "Exactly one"),
        ({"updateConfig": {"maxUnavailable": 101}}, "between 1 and 100"),
        ({"updateConfig": {"maxUnavailable": 10}}, "max-unavailable must be within the range 1 and max size of the node group"),
        ({"nodeRepairConfig": {"maxParallelNodesRepairedCount": 1, "maxParallelNodesRepairedPercentage": 1}}, "together"),
        ({"remoteAccess": {"sourceSecurityGroups": ["sg-1"]}}, "ec2SshKey"),
        ({"remoteAccess": {"ec2SshKey": "no-such"}}, "does not exist"),
        ({"version": "1.31"}, "Allowed nodegroup version is 1.32"),
        ({"releaseVersion": "1.31.0-20250101"}, "not valid for kubernetes version 1.32"),
    ],
)
def test_invalid_node_groups_are_rejected(unchecked, managed, changes, words):
    """Amazon EKS API Reference, CreateNodegroup; Amazon EKS User Guide, "Create a managed node group" and "Node taints"."""
    code, message = client_error(unchecked.create_nodegroup, **managed.parameters(**changes))
    assert code == "InvalidParameterException"
    assert words in message


def test_a_subnet_of_another_vpc_is_rejected(aws, managed, simulator):
    """Amazon EKS User Guide, "View Amazon EKS networking requirements": nodes run in the cluster's VPC."""
    filters = [{"Name": "vpc-id", "Values": [simulator.other_vpc]}]
    other = aws.ec2.describe_subnets(Filters=filters)["Subnets"][0]["SubnetId"]
    code, message = client_error(aws.eks.create_nodegroup, **managed.parameters(subnets=[other]))
    assert code == "InvalidParameterException"
    assert simulator.vpc in message


def test_a_role_that_ec2_cannot_assume_is_rejected(aws, managed):
    """Amazon EKS User Guide, "Amazon EKS node IAM role": its trust policy names ec2.amazonaws.com."""
    role = managed.role(trust=trust("lambda.amazonaws.com"))
    code, message = client_error(aws.eks.create_nodegroup, **managed.parameters(nodeRole=role))
    assert code == "InvalidParameterException"
    assert "[ec2.amazonaws.com] were not found in the trust relationships" in message


def test_amazon_linux_2_is_unsupported_after_kubernetes_1_32(aws, managed, control):
    """Amazon EKS User Guide, "EKS AL2 AMI deprecation"."""
    control.post("cluster", version="1.33")
    try:
        code, message = client_error(aws.eks.create_nodegroup, **managed.parameters(amiType="AL2_x86_64"))
    finally:
        control.post("cluster", version="1.32")
    assert (code, "AL2_x86_64" in message) == ("InvalidParameterException", True)


def test_creation_takes_time_and_an_existing_name_is_rejected(aws, managed, name, control):
    """Amazon EKS API Reference, CreateNodegroup, Errors: ResourceInUseException; data type Nodegroup, status."""
    parameters = managed.parameters(nodegroupName=name)
    managed.made.append(name)
    with control.paused():
        shown = aws.eks.create_nodegroup(**parameters)["nodegroup"]
        assert (shown["status"], shown["resources"]) == ("CREATING", {})
        code, message = client_error(aws.eks.create_nodegroup, **parameters)
        assert (code, message) == ("ResourceInUseException", f"NodeGroup already exists with name {name} and cluster name demo")
        assert client_error(aws.eks.delete_nodegroup, **managed.cluster, nodegroupName=name)[0] == "ResourceInUseException"
    shown = managed.settle(name)
    assert shown["health"]["issues"] == []
    assert [line["state"] for line in managed.log(name)] == ["CREATING", "ACTIVE"]


def test_omitted_parameters_have_the_defaults_of_eks(managed):
    """Amazon EKS API Reference, CreateNodegroup: amiType, diskSize, instanceTypes, capacityType, updateConfig, releaseVersion."""
    parameters = managed.parameters(0)
    del parameters["instanceTypes"]
    managed.aws.eks.create_nodegroup(**parameters)
    managed.made.append(parameters["nodegroupName"])
    shown = managed.settle(parameters["nodegroupName"])
    assert (shown["amiType"], shown["diskSize"], shown["instanceTypes"]) == ("AL2023_x86_64_STANDARD", 20, ["t3.medium"])
    assert (shown["capacityType"], shown["updateConfig"]) == ("ON_DEMAND", {"maxUnavailable": 1})
    assert (shown["version"], shown["releaseVersion"], shown["taints"]) == ("1.32", RELEASES[0], [])
    assert "remoteAccess" not in shown


def test_a_client_token_makes_node_group_creation_idempotent(aws, managed, name):
    """Amazon EKS API Reference, CreateNodegroup, clientRequestToken."""
    parameters = managed.parameters(0, nodegroupName=name, clientRequestToken=f"token-{name}")
    managed.made.append(name)
    first, second = (aws.eks.create_nodegroup(**parameters)["nodegroup"] for _ in range(2))
    assert first["nodegroupArn"] == second["nodegroupArn"]
    assert client_error(aws.eks.create_nodegroup, **parameters | {"diskSize": 30})[0] == "InvalidParameterException"


def test_a_group_has_its_own_tagged_scaling_group_and_template(aws, managed, simulator):
    """Amazon EKS User Guide, "Managed node groups concepts" and "Tag your Amazon EKS resources": tags do not propagate."""
    name = managed.make(2, tags={"team": "a"}, labels={"role": "web"}, instanceTypes=["m5.large", "m5a.large"])
    group = managed.scaling_group(name)
    assert group["AutoScalingGroupName"].startswith(f"eks-{name}-")
    tags = {tag["Key"]: tag["Value"] for tag in group["Tags"]}
    assert tags == {
        "eks:cluster-name": "demo",
        "eks:nodegroup-name": name,
        "kubernetes.io/cluster/demo": "owned",
        "k8s.io/cluster-autoscaler/demo": "owned",
        "k8s.io/cluster-autoscaler/enabled": "true",
    }
    overrides = group["MixedInstancesPolicy"]["LaunchTemplate"]["Overrides"]
    assert [override["InstanceType"] for override in overrides] == ["m5.large", "m5a.large"]
    ids = [instance["InstanceId"] for instance in group["Instances"]]
    (reservation, *_) = aws.ec2.describe_instances(InstanceIds=ids)["Reservations"]
    carried = {tag["Key"]: tag["Value"] for tag in reservation["Instances"][0]["Tags"]}
    assert (carried["eks:nodegroup-name"], "team" in carried) == (name, False)
    template = group["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]["LaunchTemplateId"]
    (found,) = aws.ec2.describe_launch_templates(LaunchTemplateIds=[template])["LaunchTemplates"]
    assert {"Key": "eks:nodegroup-name", "Value": name} in found["Tags"]


def test_a_spot_group_launches_spot_instances(aws, managed):
    """Amazon EKS User Guide, "Managed node group capacity types": only Spot, price-capacity-optimized, with Capacity Rebalancing."""
    group = managed.scaling_group(managed.make(1, capacityType="SPOT"))
    assert group["CapacityRebalance"]
    assert group["MixedInstancesPolicy"]["InstancesDistribution"]["SpotAllocationStrategy"] == "price-capacity-optimized"
    identifier = group["Instances"][0]["InstanceId"]
    (reservation,) = aws.ec2.describe_instances(InstanceIds=[identifier])["Reservations"]
    assert reservation["Instances"][0]["InstanceLifecycle"] == "spot"


def test_a_key_pair_creates_a_security_group_for_ssh(aws, managed, key):
    """Amazon EKS API Reference, data types RemoteAccessConfig and NodegroupResources."""
    name = managed.make(0, remoteAccess={"ec2SshKey": key})
    group = managed.show(name)["resources"]["remoteAccessSecurityGroup"]
    assert aws.ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
    managed.delete(name)
    managed.settle(name, None)
    assert client_error(aws.ec2.describe_security_groups, GroupIds=[group])[0] == "InvalidGroup.NotFound"


def test_a_public_subnet_without_public_addresses_fails_the_creation(managed, simulator):
    """Amazon EKS User Guide, "Managed node groups concepts" (MapPublicIpOnLaunch); data type Issue: Ec2SubnetInvalidConfiguration."""
    name = managed.make(1, "CREATE_FAILED", subnets=[simulator.public_subnet])
    (issue,) = managed.show(name)["health"]["issues"]
    assert (issue["code"], issue["resourceIds"]) == ("Ec2SubnetInvalidConfiguration", [simulator.public_subnet])


def test_deletion_takes_time_and_removes_all_resources(aws, managed, simulator, control):
    """Amazon EKS User Guide, "Delete a managed node group": sizes go to zero, and the scaling group at the end."""
    role = managed.role()
    name = managed.make(2, nodeRole=role)
    group = managed.scaling_group(name)
    with control.paused():
        assert managed.delete(name)["status"] == "DELETING"
        assert client_error(aws.eks.delete_nodegroup, **managed.cluster, nodegroupName=name)[0] == "ResourceInUseException"
    managed.settle(name, None)
    names = [group["AutoScalingGroupName"]]
    assert aws.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=names)["AutoScalingGroups"] == []
    assert len(events(simulator.aws_log, object="instance", group=names[0], state="gone")) == 2
    assert aws.iam.list_instance_profiles_for_role(RoleName=role.rsplit("/", 1)[1])["InstanceProfiles"] == []
    code, message = client_error(aws.eks.describe_nodegroup, **managed.cluster, nodegroupName=name)
    assert (code, message) == ("ResourceNotFoundException", f"No node group found for name: {name}.")


def test_creation_requires_that_the_caller_may_read_the_service_linked_role(aws, managed, control):
    """terraform-aws-modules/terraform-aws-eks, "aws_eks_node_group cannot find service linked role"; the Amazon EKS User Guide only has the permission to create it."""
    given = managed.parameters(0)
    control.post("faults", action="deny", service="iam", operation="GetRole", count=-1)
    message = "Failed to validate if SLR: AWSServiceRoleForAmazonEKSNodegroup already exists due to missing permissions for 'iam:GetRole'"
    assert client_error(aws.eks.create_nodegroup, **given) == ("InvalidRequestException", message)
    control.delete("faults")
    aws.eks.create_nodegroup(**given)
    managed.made.append(given["nodegroupName"])
    managed.settle(given["nodegroupName"], "ACTIVE")


def test_creation_fails_with_the_reason_of_a_launch_failure(aws, managed, control):
    """Amazon EKS API Reference, data type Issue: AsgInstanceLaunchFailures and InstanceLimitExceeded."""
    control.post("launch-failure", group="*", instance_type="c5.large", code="InsufficientInstanceCapacity")
    name = managed.make(1, None, instanceTypes=["c5.large"])
    control.post("nodegroup", name=name, delays={"node_join_timeout": 3})
    (issue,) = managed.settle(name, "CREATE_FAILED")["health"]["issues"]
    assert (issue["code"], "sufficient" in issue["message"]) == ("AsgInstanceLaunchFailures", True)
    assert issue["resourceIds"] == [managed.scaling_group(name)["AutoScalingGroupName"]]
    control.post("launch-failure", group="*", instance_type="c5.large", code=None)
    refused = client_error(aws.eks.update_nodegroup_config, **managed.cluster, nodegroupName=name, scalingConfig={"maxSize": 5})
    assert refused == ("ResourceInUseException", "Nodegroup cannot be updated as it is currently not in Active State")


def test_a_group_without_its_scaling_group_or_role_is_degraded(aws, managed):
    """Amazon EKS API Reference, data type Issue: AutoScalingGroupNotFound, IamNodeRoleNotFound."""
    name = managed.make(0)
    group = managed.scaling_group(name)["AutoScalingGroupName"]
    aws.autoscaling.delete_auto_scaling_group(AutoScalingGroupName=group, ForceDelete=True)
    shown = managed.settle(name, "DEGRADED")
    assert [issue["code"] for issue in shown["health"]["issues"]] == ["AutoScalingGroupNotFound"]
    refused = client_error(aws.eks.update_nodegroup_version, **managed.cluster, nodegroupName=name, releaseVersion=RELEASES[1])
    assert (refused[0], "health has issues" in refused[1]) == ("InvalidRequestException", True)
    managed.delete(name)
    managed.settle(name, None)


def test_creation_and_deletion_failures_can_be_injected(managed, control):
    """Amazon EKS API Reference, data type Nodegroup, status: CREATE_FAILED, DELETE_FAILED and DEGRADED, with health issues."""
    with control.paused():
        name = managed.make(0, None)
        control.post("nodegroup", name=name, operation="create", code="IamLimitExceeded", message="no more")
    assert managed.settle(name, "CREATE_FAILED")["health"]["issues"][0]["message"] == "no more"
    control.post("nodegroup", name=name, operation="delete", code="Ec2SecurityGroupDeletionFailure", resources=["sg-1"])
    managed.delete(name)
    (issue,) = managed.settle(name, "DELETE_FAILED")["health"]["issues"]
    assert (issue["code"], issue["resourceIds"]) == ("Ec2SecurityGroupDeletionFailure", ["sg-1"])
    control.post("nodegroup", name=name, operation="delete", code=None)
    managed.delete(name)
    managed.settle(name, None)


def test_a_degraded_status_can_be_injected(managed, control):
    """Amazon EKS API Reference, data type Nodegroup, status DEGRADED."""
    name = managed.make(0)
    control.post("nodegroup", name=name, operation="degraded", code="Ec2SubnetNotFound", message="gone", resources=["subnet-1"])
    shown = managed.show(name)
    assert (shown["status"], shown["health"]["issues"][0]["code"]) == ("DEGRADED", "Ec2SubnetNotFound")
    control.post("nodegroup", name=name, operation="degraded", code=None)
    assert managed.show(name)["status"] == "ACTIVE"


def test_node_group_tags_are_changed_by_arn(aws, managed):
    """Amazon EKS API Reference, TagResource, UntagResource and ListTagsForResource."""
    name = managed.make(0, tags={"a": "1", "b": "2"})
    arn = managed.show(name)["nodegroupArn"]
    aws.eks.tag_resource(resourceArn=arn, tags={"b": "3", "c": "4"})
    aws.eks.untag_resource(resourceArn=arn, tagKeys=["a"])
    assert aws.eks.list_tags_for_resource(resourceArn=arn)["tags"] == {"b": "3", "c": "4"}
    assert managed.show(name)["tags"] == {"b": "3", "c": "4"}


def test_node_groups_are_paginated(aws, managed):
    """Amazon EKS API Reference, ListNodegroups, maxResults (1 to 100) and nextToken."""
    made = {managed.make(0, None) for _ in range(3)}
    names, token = [], None
    while True:
        answer = aws.eks.list_nodegroups(**managed.cluster, maxResults=2, **({"nextToken": token} if token else {}))
        assert len(answer["nodegroups"]) <= 2
        names, token = names + answer["nodegroups"], answer.get("nextToken")
        if not token:
            break
    assert made <= set(names)
    assert client_error(aws.eks.list_nodegroups, **managed.cluster, maxResults=101)[0] == "InvalidParameterException"


def test_the_desired_size_is_that_of_the_scaling_group(aws, managed):
    """Amazon EKS API Reference, data type NodegroupScalingConfig: desiredSize is altered by the Cluster Autoscaler."""
    name = managed.make(1)
    group = managed.scaling_group(name)["AutoScalingGroupName"]
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=3)
    assert managed.show(name)["scalingConfig"] == {"minSize": 0, "maxSize": 9, "desiredSize": 3}


@pytest.mark.parametrize(("ami_type", "kind"), [("AL2023_x86_64_STANDARD", "EC2_LINUX"), ("WINDOWS_CORE_2022_x86_64", "EC2_WINDOWS")])
def test_eks_creates_an_access_entry_for_the_role_and_keeps_it(aws, managed, control, ami_type, kind):
    """Amazon EKS User Guide, "Create access entries": EKS creates them; it does not remove them (containers-roadmap 2631)."""
    role = managed.role()
    control.post("cluster", authentication_mode="API")
    try:
        name = managed.make(0, nodeRole=role, amiType=ami_type)
        assert aws.eks.describe_access_entry(**managed.cluster, principalArn=role)["accessEntry"]["type"] == kind
        managed.delete(name)
        managed.settle(name, None)
        assert role in aws.eks.list_access_entries(**managed.cluster)["accessEntries"]
    finally:
        control.post("cluster", authentication_mode="CONFIG_MAP")


def test_faults_apply_to_node_group_operations(aws, managed, control, name):
    """Amazon EKS API Reference, "Common Errors"; AWS performs a call whose response is lost."""
    parameters = managed.parameters(0, nodegroupName=name)
    managed.made.append(name)
    control.post("faults", service="eks", operation="CreateNodegroup", action="deny")
    assert client_error(aws.eks.create_nodegroup, **parameters)[0] == "AccessDeniedException"
    assert managed.show(name) is None
    control.post("faults", service="eks", operation="CreateNodegroup", action="lose")
    with pytest.raises(Exception, match=r"(?i)connection"):
        aws.eks.create_nodegroup(**parameters)
    managed.settle(name)
    calls = wait_until(lambda: events(managed.facts["aws_log"], kind="call", operation="CreateNodegroup", fault="lose"), "the logged call")
    assert calls[-1]["params"]["nodegroupName"] == name
