"""Updates of managed node groups: validation, concurrency and results."""

import pytest

from localcloud.tests.aws.eks.nodegroups import RELEASES, NodeGroups
from localcloud.tests.aws.support import client_error, events, wait_until

pytestmark = pytest.mark.patched


@pytest.fixture(scope="module")
def managed(simulator, aws):
    """Creates node groups, and deletes them after the module."""
    made = NodeGroups(aws, vars(simulator))
    yield made
    made.clear()


def test_a_configuration_update_takes_time_and_blocks_other_changes(aws, managed, control):
    """Amazon EKS API Reference, UpdateNodegroupConfig and DescribeUpdate; Errors: ResourceInUseException."""
    name = managed.make(1)
    with control.paused():
        update = managed.configure(name, scalingConfig={"minSize": 2, "maxSize": 4, "desiredSize": 3})
        assert (update["status"], update["type"], update["errors"]) == ("InProgress", "ConfigUpdate", [])
        assert {p["type"]: p["value"] for p in update["params"]} == {"MinSize": "2", "MaxSize": "4", "DesiredSize": "3"}
        assert managed.show(name)["status"] == "UPDATING"
        busy = "Nodegroup cannot be updated as it is currently not in Active State"
        which = {**managed.cluster, "nodegroupName": name}
        assert client_error(aws.eks.update_nodegroup_config, **which, scalingConfig={"maxSize": 5}) == ("ResourceInUseException", busy)
        assert client_error(aws.eks.update_nodegroup_version, **which) == ("ResourceInUseException", busy)
        assert client_error(aws.eks.delete_nodegroup, **which)[0] == "ResourceInUseException"
    assert managed.wait_for_update(name, update)["status"] == "Successful"
    shown = managed.show(name)
    assert (shown["status"], shown["scalingConfig"]) == ("ACTIVE", {"minSize": 2, "maxSize": 4, "desiredSize": 3})
    group = managed.scaling_group(name)
    assert (group["MinSize"], group["MaxSize"], group["DesiredCapacity"]) == (2, 4, 3)
    states = [line["state"] for line in events(managed.facts["aws_log"], object="update", id=update["id"])]
    assert states == ["InProgress", "Successful"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"scalingConfig": {"maxSize": 1}}, "Desired capacity 2 can't be greater than max size 1"),
        ({"scalingConfig": {"minSize": 3}}, "Minimum capacity 3 can't be greater than desired size 2"),
        ({"labels": {"addOrUpdateLabels": {"a": "no spaces"}}}, "alphanumeric"),
        ({"labels": {"addOrUpdateLabels": {"a": "b"}, "removeLabels": ["a"]}}, "both updated and removed"),
        ({"updateConfig": {"maxUnavailable": 1, "maxUnavailablePercentage": 5}}, "Exactly one"),
        ({"updateConfig": {"maxUnavailable": 10}}, "max-unavailable must be within the range 1 and max size"),
        ({"labels": {}}, "Both or either addOrUpdateLabels or removeLabels must not be empty"),
        ({"taints": {"addOrUpdateTaints": []}}, "Both or either addOrUpdateTaints or removeTaints must not be empty"),
        ({"scalingConfig": {}}, "Either all or at least one of minSize, maxSize, desiredSize must be provided"),
        ({}, "At least one"),
    ],
)
def test_invalid_configurations_are_rejected(aws, managed, changes, words):
    """Amazon EKS API Reference, UpdateNodegroupConfig, and data type NodegroupScalingConfig: the sizes must still fit each other."""
    name = managed.make(2)
    code, message = client_error(aws.eks.update_nodegroup_config, **managed.cluster, nodegroupName=name, **changes)
    assert (code, words in message) == ("InvalidParameterException", True)
    assert managed.show(name)["status"] == "ACTIVE"


def test_labels_taints_and_settings_are_updated_individually(managed):
    """Amazon EKS API Reference, data types UpdateLabelsPayload, UpdateTaintsPayload, NodegroupUpdateConfig and NodeRepairConfig."""
    taints = [{"key": key, "value": "1", "effect": "NO_SCHEDULE"} for key in ("a", "b")]
    name = managed.make(0, labels={"a": "1", "b": "2"}, taints=[*taints, {"key": "c", "value": "", "effect": "NO_EXECUTE"}])
    update = managed.configure(
        name,
        labels={"addOrUpdateLabels": {"b": "3", "c": "4"}, "removeLabels": ["a"]},
        taints={"addOrUpdateTaints": [taints[1] | {"value": "2"}], "removeTaints": taints[:1]},
        updateConfig={"maxUnavailablePercentage": 50},
        nodeRepairConfig={"enabled": True},
    )
    kinds = {param["type"] for param in managed.wait_for_update(name, update)["params"]}
    assert kinds == {"LabelsToAdd", "LabelsToRemove", "TaintsToAdd", "TaintsToRemove", "MaxUnavailablePercentage", "NodeRepairConfig"}
    shown = managed.show(name)
    assert shown["labels"] == {"b": "3", "c": "4"}
    assert shown["taints"] == [{"key": "c", "effect": "NO_EXECUTE"}, taints[1] | {"value": "2"}]
    assert (shown["updateConfig"], shown["nodeRepairConfig"]) == ({"maxUnavailablePercentage": 50}, {"enabled": True})


def test_omitted_sizes_keep_the_values_of_the_scaling_group(aws, managed):
    """Amazon EKS API Reference, data type NodegroupScalingConfig: desiredSize is altered by the Cluster Autoscaler."""
    name = managed.make(1)
    group = managed.scaling_group(name)["AutoScalingGroupName"]
    aws.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=4)
    managed.wait_for_update(name, managed.configure(name, scalingConfig={"minSize": 2, "maxSize": 6}))
    assert managed.show(name)["scalingConfig"] == {"minSize": 2, "maxSize": 6, "desiredSize": 4}


def test_a_client_token_makes_an_update_idempotent(managed):
    """Amazon EKS API Reference, UpdateNodegroupVersion, clientRequestToken."""
    name = managed.make(1)
    first, second = (managed.upgrade(name, releaseVersion=RELEASES[1], clientRequestToken=f"token-{name}") for _ in range(2))
    assert first["id"] == second["id"]
    managed.wait_for_update(name, first)
    assert managed.upgrade(name, releaseVersion=RELEASES[1], clientRequestToken=f"token-{name}")["id"] == first["id"]


def test_updates_are_listed_for_their_group_only(aws, managed):
    """Amazon EKS API Reference, ListUpdates and DescribeUpdate, nodegroupName."""
    name, other = managed.make(0), managed.make(0)
    made = []
    for size in (7, 8):
        made.append(managed.configure(name, scalingConfig={"maxSize": size})["id"])
        managed.wait_for_update(name, {"id": made[-1]})
    place = {"name": managed.facts["cluster_name"]}
    assert sorted(aws.eks.list_updates(**place, nodegroupName=name)["updateIds"]) == sorted(made)
    assert aws.eks.list_updates(**place, nodegroupName=other)["updateIds"] == []
    assert client_error(aws.eks.describe_update, **place, nodegroupName=other, updateId=made[0])[0] == "ResourceNotFoundException"
    assert client_error(aws.eks.describe_update, **place, updateId=made[0])[0] == "ResourceNotFoundException"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": "1.33"}, "should be equal to Cluster kubernetes version 1.32 or NodeGroup kubernetes version 1.32"),
        ({"version": "1.31"}, "should be equal to Cluster kubernetes version 1.32 or NodeGroup kubernetes version 1.32"),
        ({"version": "latest"}, "not valid"),
        ({"releaseVersion": "1.33.0-20250601"}, "not valid for kubernetes version 1.32"),
        ({"releaseVersion": RELEASES[0]}, "cannot roll back"),
        ({"launchTemplate": {"id": "lt-1"}}, "not deployed with a launch template"),
    ],
)
def test_invalid_versions_are_rejected(aws, managed, changes, words):
    """Amazon EKS API Reference, UpdateNodegroupVersion; User Guide, "Update a managed node group for your cluster"."""
    name = managed.make(0, releaseVersion=RELEASES[1])
    code, message = client_error(aws.eks.update_nodegroup_version, **managed.cluster, nodegroupName=name, **changes)
    assert (code, words in message) == ("InvalidParameterException", True)


def test_a_version_between_those_of_the_nodes_and_the_cluster_is_rejected(aws, managed, control):
    """aws/aws-k8s-tester, upgrade of managed node groups: EKS accepts the version of the cluster and that of the node group."""
    name = managed.make(0)
    control.post("cluster", version="1.34")
    try:
        refused = client_error(aws.eks.update_nodegroup_version, **managed.cluster, nodegroupName=name, version="1.33")
    finally:
        control.post("cluster", version="1.32")
    words = "Nodegroup Kubernetes version should be equal to Cluster kubernetes version 1.34 or NodeGroup kubernetes version 1.32"
    assert refused == ("InvalidParameterException", words)


def test_a_version_update_launches_new_instances_first(aws, managed):
    """Amazon EKS User Guide, "Understand each phase of node updates": the sizes rise for its time, and return."""
    name = managed.make(3)
    group = managed.scaling_group(name)
    before = {instance["InstanceId"] for instance in group["Instances"]}
    launches = {"AutoScalingGroupName": group["AutoScalingGroupName"], "ScalingProcesses": ["Launch"]}
    aws.autoscaling.suspend_processes(**launches)
    update = managed.upgrade(name, releaseVersion=RELEASES[2])
    assert {p["type"]: p["value"] for p in update["params"]} == {"Version": "1.32", "ReleaseVersion": RELEASES[2]}
    wait_until(lambda: managed.scaling_group(name)["DesiredCapacity"] > 3, "more instances than desired")
    shown = managed.show(name)
    assert (shown["scalingConfig"]["desiredSize"], shown["releaseVersion"]) == (3, RELEASES[0])
    aws.autoscaling.resume_processes(**launches)
    assert managed.wait_for_update(name, update)["status"] == "Successful"
    group = managed.scaling_group(name)
    assert (group["DesiredCapacity"], group["MaxSize"]) == (3, 9)
    assert not before & {instance["InstanceId"] for instance in group["Instances"]}
    assert managed.show(name)["releaseVersion"] == RELEASES[2]


def test_the_minimal_strategy_adds_no_instances(managed):
    """Amazon EKS User Guide, "Understand each phase of node updates": the minimal strategy terminates old nodes first."""
    name = managed.make(2, updateConfig={"maxUnavailable": 1, "updateStrategy": "MINIMAL"})
    update = managed.upgrade(name, releaseVersion=RELEASES[1])
    desired = set()

    def ended():
        desired.add(managed.scaling_group(name)["DesiredCapacity"])
        return managed.update(name, update["id"])["status"] != "InProgress"

    wait_until(ended, "the end of the update")
    assert desired == {2}
    assert managed.show(name)["releaseVersion"] == RELEASES[1]


def test_a_group_without_nodes_is_updated_immediately(managed):
    """Amazon EKS User Guide, "Update a managed node group": new nodes get the version when there are any."""
    name = managed.make(0)
    assert managed.wait_for_update(name, managed.upgrade(name, releaseVersion=RELEASES[1]))["status"] == "Successful"
    assert managed.show(name)["releaseVersion"] == RELEASES[1]


def test_an_update_uses_the_clusters_version_and_its_latest_release_by_default(aws, managed, control, simulator):
    """Amazon EKS API Reference, UpdateNodegroupVersion, parameters version and releaseVersion; Systems Manager User Guide,
    "Discovering public parameters".
    """
    name = managed.make(0)
    parameter = "/aws/service/eks/optimized-ami/1.32/amazon-linux-2023/x86_64/standard/recommended/image_id"
    control.post("ssm", name=parameter, value=simulator.amis["amazonlinux2023"][1])
    control.post("cluster", version="1.33")
    try:
        managed.wait_for_update(name, managed.upgrade(name, version="1.32"))
        shown = managed.show(name)
        assert (shown["version"], shown["releaseVersion"]) == ("1.32", RELEASES[1])
        managed.wait_for_update(name, managed.upgrade(name))
        assert managed.show(name)["version"] == "1.33"
    finally:
        control.post("ssm", name=parameter, value=simulator.amis["amazonlinux2023"][0])
        control.post("cluster", version="1.32")


def test_an_update_without_a_recommended_release_uses_the_newest_one(managed, control, simulator):
    """Amazon EKS API Reference, UpdateNodegroupVersion, parameter releaseVersion: the latest release by default."""
    name = managed.make(0, releaseVersion=RELEASES[1])
    parameter = "/aws/service/eks/optimized-ami/1.32/amazon-linux-2023/x86_64/standard/recommended/image_id"
    control.post("ssm", name=parameter, value=None)
    try:
        managed.wait_for_update(name, managed.upgrade(name))
        assert managed.show(name)["releaseVersion"] == RELEASES[-1]
    finally:
        control.post("ssm", name=parameter, value=simulator.amis["amazonlinux2023"][0])


def test_update_failures_can_be_injected(managed, control):
    """Amazon EKS API Reference, data types Update (status Failed) and ErrorDetail."""
    name = managed.make(1)
    control.post("nodegroup", name=name, operation="update", code="AccessDenied", message="no permissions", resources=["node-1"])
    for update in (managed.configure(name, scalingConfig={"maxSize": 5}), None):
        shown = managed.wait_for_update(name, update or managed.upgrade(name, releaseVersion=RELEASES[1]))
        assert shown["status"] == "Failed"
        assert shown["errors"] == [{"errorCode": "AccessDenied", "errorMessage": "no permissions", "resourceIds": ["node-1"]}]
    shown = managed.show(name)
    assert (shown["status"], shown["scalingConfig"]["maxSize"], shown["releaseVersion"]) == ("ACTIVE", 9, RELEASES[0])


def test_a_launch_failure_fails_the_update(managed, control):
    """Amazon EKS User Guide, "Understand each phase of node updates": insufficient capacity leads to NodeCreationFailure."""
    name = managed.make(1, instanceTypes=["c5.xlarge"])
    control.post("nodegroup", name=name, delays={"node_join_timeout": 3})
    control.post("launch-failure", group="*", instance_type="c5.xlarge", code="InsufficientInstanceCapacity")
    try:
        update = managed.wait_for_update(name, managed.upgrade(name, releaseVersion=RELEASES[1]))
    finally:
        control.post("launch-failure", group="*", instance_type="c5.xlarge", code=None)
    assert (update["status"], update["errors"][0]["errorCode"]) == ("Failed", "NodeCreationFailure")
    group = managed.scaling_group(name)
    assert (len(group["Instances"]), group["DesiredCapacity"], group["MaxSize"]) == (1, 1, 9)
