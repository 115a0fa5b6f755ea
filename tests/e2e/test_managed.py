"""Managed node groups: made, changed in place, updated, replaced by another, and deleted."""

import time
from operator import itemgetter

import pytest
import yaml

from localcloud.tests import support
from e2e import harness, logs, managed, rotation
from e2e.harness import OWNERSHIP
from e2e.managed import LABEL, RELEASES, UPDATES
from e2e.test_plan import planned

ROTATION = 400

def test_a_node_group_is_created_updated_in_place_and_deleted(tenant):
    """A user gets nodes with the sizes, labels, taints and tags of the spec, and nothing is left behind."""
    taint = {"key": "dedicated", "value": "web", "effect": "NO_SCHEDULE"}
    group = managed.apply(tenant, nodeLabels={"team": "web"}, tags=[{"key": "owner", "value": "web"}]).wait_ready(nodes=2)
    found = group.nodegroup()
    assert found["tags"][OWNERSHIP + "InstanceGroup"] == "web" and found["tags"][OWNERSHIP + "Namespace"] == tenant.namespace
    assert found["tags"]["owner"] == "web" and found["status"] == "ACTIVE"
    assert {n["metadata"]["labels"]["team"] for n in group.managed_nodes()} == {"web"}
    status = group.status()
    assert status["provisioner"] == "eks-managed" and status["strategy"] == "managed"
    assert status["activeScalingGroupName"] == found["resources"]["autoScalingGroups"][0]["name"]
    assert (status["currentMin"], status["currentMax"]) == (2, 4)
    first, mark = {n["metadata"]["name"] for n in group.managed_nodes()}, tenant.cloud.log_position()
    group.change({"minSize": 3, "maxSize": 5}, nodeLabels={"team": None, "tier": "gold"}, taints=[taint], tags=[{"key": "owner", "value": "core"}])
    group.wait_ready(nodes=3)
    found = group.nodegroup()
    assert (found["scalingConfig"]["minSize"], found["scalingConfig"]["maxSize"]) == (3, 5)
    assert found["labels"] == {"tier": "gold"} and found["taints"] == [taint] and found["tags"]["owner"] == "core"
    assert len(group.calls(*UPDATES, after=mark)) == 1, "one update changes everything in place"
    assert first < {n["metadata"]["name"] for n in group.managed_nodes()}, "no node was replaced"
    name = found["nodegroupName"]
    group.delete()
    group.wait_gone(ROTATION)
    assert name not in managed.names_in_eks(tenant.cloud)


def test_the_desired_capacity_of_the_autoscaler_is_kept(tenant):
    """The autoscaler owns the desired size: sizes change without it, unless it is outside of them."""
    group = managed.apply(tenant, size=(1, 5)).wait_ready(nodes=1)
    tenant.cloud.boto("autoscaling").set_desired_capacity(AutoScalingGroupName=group.scaling_group, DesiredCapacity=3)
    group.wait_ready(nodes=3)
    mark = tenant.cloud.log_position()
    group.change({"minSize": 2, "maxSize": 4})
    group.wait(lambda g: g.nodegroup()["scalingConfig"]["maxSize"] == 4, what="the new sizes")
    group.wait_ready(nodes=3)
    (call,) = group.calls(*UPDATES, after=mark)
    assert "desiredSize" not in str(call)
    assert group.asg()["DesiredCapacity"] == 3


def test_a_new_release_is_rolled_out_as_one_update(tenant):
    """A user sees which update runs and how far it is, and every node runs the release in the end."""
    group = managed.apply(tenant, releaseVersion=RELEASES[0]).wait_ready(nodes=2)
    # The update lasts until its progress has been seen.
    tenant.cloud.control("POST", "nodegroup", name=group.names[-1], delays={"cordoned": 10})
    mark = tenant.cloud.log_position()
    group.change(releaseVersion=RELEASES[2])
    identifier = group.wait(lambda g: g.status().get("updateId"), what="the update's id")
    is_told = lambda status: any("run the new version" in c.get("message", "") for c in status["conditions"] if c["type"] == "Ready")  # noqa: E731
    group.wait(lambda g: is_told(status := g.status()) and status["currentState"] == "InitUpgrade", what="progress")
    group.wait_ready(nodes=2, timeout=ROTATION)
    assert group.nodegroup()["releaseVersion"] == RELEASES[2]
    assert group.status()["updateId"] == identifier and "updateOf" not in group.status()
    assert identifier in group.wait_event("NodegroupUpdated", "has completed the update")["note"]
    assert len(group.calls(*UPDATES, after=mark)) == 1
    eks = tenant.cloud.boto("eks")
    update = eks.describe_update(name=tenant.cloud["cluster_name"], nodegroupName=group.names[-1], updateId=identifier)["update"]
    assert update["status"] == "Successful" and update["type"] == "VersionUpdate"


def test_an_update_blocked_by_a_budget_is_reported_and_not_restarted(tenant):
    """EKS gives up on pods that may not go: the group says which, and does not try again and again."""
    group = managed.apply(tenant, size=(1, 3), releaseVersion=RELEASES[0], nodeLabels={"pool": tenant.unique}).wait_ready(nodes=1)
    tenant.deployment("held", 1, {"pool": tenant.unique}, {"maxUnavailable": 0})
    tenant.wait_pods_running(1)
    mark = tenant.cloud.log_position()
    group.change(releaseVersion=RELEASES[2])
    stalled = group.wait_condition("Stalled", reason="DrainBlocked", timeout=ROTATION)
    assert "PodEvictionFailure" in stalled["message"] and "PodDisruptionBudget held" in stalled["message"]
    pod = tenant.pods()[0]["metadata"]["name"]
    assert pod in stalled["message"] and "maxUnavailable 0 of 1 pod" in stalled["message"], "which pod, and why"
    # EKS terminates the new node of a failed update, which counts as updated until it is gone.
    group.wait(lambda g: itemgetter("updated", "outdated")(g.status()["nodes"]) == (0, 1), what="one outdated node and no updated one")
    time.sleep(3)
    assert len(group.calls(*UPDATES, after=mark)) == 1
    tenant.wait_pods_running(1)


def test_another_instance_type_replaces_the_node_group_blue_green(tenant):
    """EKS cannot change the type in place: the new nodes are Ready before the first pod moves, and no budget is broken."""
    label = {"pool": tenant.unique}
    group = managed.apply(tenant, nodeLabels=label).wait_ready(nodes=2)
    tenant.deployment("app", 4, label, {"maxUnavailable": 1})
    tenant.wait_pods_running(4)
    (old,), mark = group.names, tenant.cloud.log_position()
    asg = group.scaling_group
    group.change(instanceType="c5.large")
    group.wait(lambda g: g.nodegroup(old) is None, ROTATION, "the end of the old node group")
    group.wait_ready(nodes=2)
    (new,) = group.names
    assert new != old and group.nodegroup()["instanceTypes"] == ["c5.large"]
    tenant.wait_pods_running(4)
    homes = {p["spec"]["nodeName"] for p in tenant.pods()}
    assert homes <= {n["metadata"]["name"] for n in group.managed_nodes(new)}
    made, deleted = group.calls("CreateNodegroup", after=mark), group.calls("DeleteNodegroup", after=mark)
    assert len(made) == 1 and len(deleted) == 1
    evicted = [e for e in tenant.cloud.audit() if e["verb"] == "create" and e.get("objectRef", {}).get("subresource") == "eviction"]
    assert any(tenant.namespace == e["objectRef"]["namespace"] for e in evicted)
    ended = [e for e in tenant.cloud.aws_events(mark) if e.get("group") == asg and e.get("state") == "Terminating"]
    assert all(e["seq"] > deleted[0]["seq"] for e in ended), "an old node went before its group was deleted"


def test_the_image_of_arm_nodes_is_not_lost_with_its_field(tenant):
    """EKS's default image is for x86. The replacement would be refused for Arm types; with GPUs, pods would move to nodes without drivers."""
    group = managed.apply(tenant, size=(1, 2), instanceType="m6g.large", amiType="AL2023_ARM_64_STANDARD", volSize=20).wait_ready(nodes=1)
    before, mark = group.names, tenant.cloud.log_position()
    group.change(amiType=None, volSize=30)
    message = group.wait_condition("Stalled", reason="InvalidSpec")["message"]
    assert "amiType is omitted" in message and "AL2023_ARM_64_STANDARD" in message, message
    assert group.names == before and not [e for e in tenant.cloud.aws_events(mark) if e.get("operation") == "CreateNodegroup" and tenant.namespace in str(e)]
    group.change(amiType="AL2023_ARM_64_STANDARD")
    group.wait(lambda g: g.names and g.names != before and g.nodegroup(before[0]) is None, what="the replacement")
    assert group.wait_ready(nodes=1).nodegroup()["diskSize"] == 30


def test_a_lock_blocks_the_replacement_and_plan_lists_the_affected_nodes(tenant):
    """A user who set the lock sees which nodes it affects, and the controller creates nothing until the user removes it."""
    group = managed.apply(tenant, size=(1, 2)).wait_ready(nodes=1)
    (old,), mark = group.names, tenant.cloud.log_position()
    group.annotate(lock_upgrades="true")
    group.change(instanceType="c5.large")
    group.wait_state("Locked")
    _, answer = planned(tenant.cloud, group.key)
    (planned_group,) = answer["groups"]
    assert planned_group["change"] == "rotate" and planned_group["blockedBy"], planned_group
    assert [n["reasons"] for n in planned_group["rotate"]] == [[{"field": "instanceType", "from": "m5.large", "to": "c5.large"}]]
    assert group.calls("CreateNodegroup", *UPDATES, after=mark) == []
    group.annotate(lock_upgrades=None)
    group.wait(lambda g: g.nodegroup(old) is None, ROTATION, "the end of the old node group")
    group.wait_ready(nodes=1)


def test_a_reverted_change_keeps_the_old_nodes(tenant):
    """A user who reverts in the middle has the nodes of before, schedulable, and the second group goes."""
    label = {"pool": tenant.unique}
    group = managed.apply(tenant, nodeLabels=label).wait_ready(nodes=2)
    tenant.deployment("app", 2, label, {"maxUnavailable": 0})
    tenant.wait_pods_running(2)
    (old,) = group.names
    before = {n["metadata"]["name"] for n in group.managed_nodes(old)}
    group.change(instanceType="c5.large")
    group.wait(lambda g: any(n["spec"].get("unschedulable") for n in g.managed_nodes(old)), ROTATION, "a drain")
    group.change(instanceType="m5.large")
    group.wait(lambda g: g.names == [old], ROTATION, "the end of the second node group")
    group.wait_ready(nodes=2)
    assert {n["metadata"]["name"] for n in group.ready_nodes()} == before
    tenant.wait_pods_running(2)


def test_the_example_gives_what_it_asks_for(tenant):
    """The group that a user copies: labels, taints, disk and several types, from subnets by their names."""
    body = yaml.safe_load((support.REPOSITORY / "examples" / "managed.yaml").read_text())
    body["metadata"]["annotations"] = {"e2e": tenant.unique}
    managed.give_role(tenant, managed.role(tenant))
    tenant.apply(body)
    group = managed.Managed(tenant, "managed").wait_ready(nodes=1)
    found, (node,) = group.nodegroup(), group.managed_nodes()
    assert found["instanceTypes"] == ["m5.large", "m5a.large"] and found["diskSize"] == 40
    assert set(found["subnets"]) == set(tenant.cloud["subnets"]) and found["nodeRepairConfig"]["enabled"]
    assert node["metadata"]["labels"]["team"] == "search"
    assert {"key": "dedicated", "value": "search", "effect": "NoSchedule"} in node["spec"]["taints"]


def make(cloud, name, arn):
    """A node group without ownership tags."""
    call = {"clusterName": cloud["cluster_name"], "nodegroupName": name, "nodeRole": arn, "subnets": cloud["subnets"]}
    cloud.boto("eks").create_nodegroup(**call, scalingConfig={"minSize": 1, "maxSize": 2, "desiredSize": 1}, instanceTypes=["m5.large"])


def test_an_existing_node_group_is_not_adopted_by_its_name(tenant):
    """A tenant can give an InstanceGroup the name of any node group: it must not get that one's nodes."""
    cloud, arn, name = tenant.cloud, managed.role(tenant), f"system-{tenant.unique}"
    make(cloud, name, arn)
    described = lambda: cloud.boto("eks").describe_nodegroup(clusterName=cloud["cluster_name"], nodegroupName=name)["nodegroup"]
    support.eventually(lambda: described()["status"] == "ACTIVE", ROTATION, "the node group")
    mark = cloud.log_position()
    group = managed.apply(tenant, name, size=(1, 2), role_arn=arn)
    message = group.wait_condition("Stalled", reason="OwnershipConflict")["message"]
    tags = {OWNERSHIP + "ClusterName": cloud["cluster_name"], OWNERSHIP + "InstanceGroup": name, OWNERSHIP + "Namespace": tenant.namespace}
    assert all(f"{key}={value}" in message for key, value in tags.items())
    group.delete()
    group.wait_gone()
    assert described()["status"] == "ACTIVE" and not described()["tags"]
    again = managed.apply(tenant, name, size=(1, 2), role_arn=arn)
    again.wait_condition("Stalled", reason="OwnershipConflict")
    cloud.boto("eks").tag_resource(resourceArn=described()["nodegroupArn"], tags=tags)
    again.wait_ready(timeout=ROTATION)
    assert again.names == [name] and again.calls("CreateNodegroup", "DeleteNodegroup", after=mark) == []
    again.delete()
    again.wait_gone(ROTATION)
    assert name not in managed.names_in_eks(cloud)


def test_a_node_group_of_the_keiko_controller_is_adopted(tenant):
    """A node group that bears the InstanceGroup's name is adopted: tagged, and neither doubled nor replaced."""
    cloud, arn = tenant.cloud, managed.role(tenant)
    name = f"web-{tenant.unique}"
    # keikoproj/instance-manager creates its node group after the InstanceGroup; this one cannot be worked with yet.
    group = managed.apply(tenant, name, size=(1, 2), role_arn=arn, instanceType="c5.large", taints=harness.REPEATED_TAINTS)
    group.wait_condition("Stalled", reason="InvalidSpec")
    make(cloud, name, arn)
    described = lambda: cloud.boto("eks").describe_nodegroup(clusterName=cloud["cluster_name"], nodegroupName=name)["nodegroup"]
    support.eventually(lambda: described()["status"] == "ACTIVE", ROTATION, "the node group")
    cloud.set_status(group.path, {"activeScalingGroupName": described()["resources"]["autoScalingGroups"][0]["name"]})
    mark = cloud.log_position()
    group.change(taints=None)
    group.wait_ready()
    found = group.nodegroup()
    assert group.names == [name] and found["tags"][OWNERSHIP + "Namespace"] == tenant.namespace
    group.wait_condition("Adopted", text="m5.large -> c5.large")
    time.sleep(3)
    assert group.calls("CreateNodegroup", *UPDATES, after=mark) == []
    group.delete()
    group.wait_gone(ROTATION)
    assert name not in managed.names_in_eks(cloud)


def test_a_node_group_recorded_by_another_tenant_is_not_adopted(make_tenant, unique):
    """keikoproj/instance-manager gives node groups of two namespaces one name: a new group must not get the other one's nodes."""
    one, two = (make_tenant(namespace=f"{unique}-{end}") for end in ("one", "two"))
    cloud, name = one.cloud, f"web-{unique}"
    arn, eks = managed.role(one), cloud.boto("eks")
    sizes = {"minSize": 1, "maxSize": 2, "desiredSize": 1}
    eks.create_nodegroup(clusterName=cloud["cluster_name"], nodegroupName=name, subnets=cloud["subnets"], nodeRole=arn, scalingConfig=sizes, instanceTypes=["m5.large"])
    described = lambda: eks.describe_nodegroup(clusterName=cloud["cluster_name"], nodegroupName=name)["nodegroup"]
    support.eventually(lambda: described()["status"] == "ACTIVE", ROTATION, "the node group of keikoproj/instance-manager")
    # The first cannot be taken over yet, because its spec is invalid; its status is that of keikoproj/instance-manager.
    first = managed.apply(one, name, size=(1, 2), role_arn=arn, taints=harness.REPEATED_TAINTS)
    first.wait_condition("Stalled", reason="InvalidSpec")
    asg = described()["resources"]["autoScalingGroups"][0]["name"]
    cloud.set_status(first.path, {"activeScalingGroupName": asg})
    second = managed.apply(two, name, size=(1, 2), role_arn=arn).wait_ready(nodes=1)
    assert name not in second.names and not any(key.startswith(OWNERSHIP) for key in described()["tags"])
    first.change(taints=None)
    first.wait_ready(nodes=1)
    assert first.names == [name] and described()["tags"][OWNERSHIP + "Namespace"] == one.namespace


def test_invalid_values_are_reported_by_field_and_nothing_is_created(tenant):
    """A wrong subnet and a missing role: the condition names both fields, and EKS is not asked."""
    mark = tenant.cloud.log_position()
    missing = f"arn:aws:iam::123456789012:role/{tenant.unique}-missing"
    group = managed.apply(tenant, role_arn=missing, subnets=["subnet-0123456789abcdef0"])
    stalled = group.wait_condition("Stalled", reason="NotFound")
    assert "spec.eks-managed.configuration.nodeRole" in stalled["message"]
    assert "spec.eks-managed.configuration.subnets `subnet-0123456789abcdef0`" in stalled["message"]
    assert group.calls("CreateNodegroup", after=mark) == []
    managed.give_role(tenant, managed.role(tenant))
    group.change(subnets=tenant.cloud["subnets"])
    group.wait_ready(nodes=2)
    assert {n["metadata"]["labels"][LABEL] for n in group.managed_nodes()} == set(group.names)


def test_a_role_without_the_node_policies_is_reported(tenant):
    """Nodes that may not join say nothing themselves: the group says what its role lacks."""
    arn = tenant.cloud.make_role(f"{tenant.unique}-bare", policies=())
    group = managed.apply(tenant, size=(1, 2), role_arn=arn)
    stalled = group.wait_condition("Stalled", timeout=ROTATION)
    assert "NodeCreationFailure" in stalled["message"]
    assert "spec.eks-managed.configuration.nodeRole lacks AmazonEKSWorkerNodePolicy" in stalled["message"]
    group.delete()
    group.wait_gone(ROTATION)


NO_ELECTION = ("--enable-leader-election=false", "--resync-period", "10s")


def crash(cloud, controller, start, operation, change):
    """Kills the controller when a call was performed and its answer has not come; another one continues."""
    cloud.control("POST", "faults", action="hold", operation=operation, caller="controller", match="", count=1)
    change()
    support.eventually(lambda: cloud.control("GET", "held"), ROTATION, f"the call {operation}")
    controller.kill()
    cloud.control("DELETE", "faults")
    cloud.control("POST", "release", lose=True)
    return start(cloud, *NO_ELECTION)


@pytest.mark.private
def test_denied_tags_are_reported_and_other_changes_continue(own_cloud, start_controller):
    """The controller reports missing permissions to tag and still applies labels. It does not call EKS for tags in every reconcile."""
    cloud, rarely = own_cloud(), ("--enable-leader-election=false", "--resync-period", "1h")
    controller = start_controller(cloud, *rarely)
    group = managed.apply(harness.Tenant(cloud, controller), size=(1, 2), tags=[{"key": "owner", "value": "web"}]).wait_ready(nodes=1)
    asked = lambda: [e["operation"] for e in cloud.aws_events(mark) if logs.is_controller_call(e) and "agResource" in e["operation"]]
    mark = cloud.log_position()
    with cloud.fault(action="deny", service="eks", operation="TagResource", count=-1):
        cloud.control("POST", "faults", caller="controller", action="deny", service="eks", operation="UntagResource", count=-1)
        group.change(tags=[{"key": "tier", "value": "gold"}])
        message = group.wait_condition("Stalled", reason="MissingPermission")["message"]
        assert "eks:TagResource and eks:UntagResource" in message
        group.change(nodeLabels={"team": "web"})
        group.wait(lambda g: g.nodegroup()["labels"] == {"team": "web"} and g.nodegroup()["status"] == "ACTIVE", what="the label")
        group.wait(lambda g: g.status()["observedGeneration"] == g.get()["metadata"]["generation"], what="the last pass")
        assert group.wait_condition("Stalled", reason="MissingPermission")["message"] == message
        assert sorted(asked()) == ["TagResource", "UntagResource"]
        assert group.has_no_event("NodegroupUpdated", "changed the tags"), "nothing was changed"
    controller.kill()
    start_controller(cloud, *rarely)
    group.wait_ready(nodes=1)
    assert group.nodegroup()["tags"]["tier"] == "gold" and "owner" not in group.nodegroup()["tags"]


@pytest.mark.private
def test_a_crash_during_an_update_starts_no_second_update(own_cloud, start_controller):
    """A restart must not replace nodes twice or lose track of an update."""
    cloud = own_cloud()
    controller = start_controller(cloud, *NO_ELECTION)
    tenant = harness.Tenant(cloud, controller)
    group = managed.apply(tenant, releaseVersion=RELEASES[0]).wait_ready(nodes=2)
    tenant.controller = crash(cloud, controller, start_controller, "UpdateNodegroupVersion", lambda: group.change(releaseVersion=RELEASES[2]))
    group.wait(lambda g: g.nodegroup()["releaseVersion"] == RELEASES[2], ROTATION, "the new release")
    group.wait_ready(nodes=2, timeout=ROTATION)
    listed = cloud.boto("eks").list_updates(name=cloud["cluster_name"], nodegroupName=group.names[-1])["updateIds"]
    assert len(listed) == 1


@pytest.mark.private
def test_a_crash_during_a_replacement_ends_in_the_same_state(own_cloud, start_controller):
    """At the creation of the second group, at the first cordon and at the deletion of the old one: one of everything."""
    cloud = own_cloud()
    controller = start_controller(cloud, *NO_ELECTION)
    tenant = harness.Tenant(cloud, controller)
    label = {"pool": tenant.unique}
    group = managed.apply(tenant, nodeLabels=label).wait_ready(nodes=2)
    # No drain ends before the next call is held.
    tenant.deployment("app", 2, label, {"maxUnavailable": 0})
    tenant.wait_pods_running(2)
    (old,), mark = group.names, cloud.log_position()
    controller = crash(cloud, controller, start_controller, "CreateNodegroup", lambda: group.change(instanceType="c5.large"))
    group.wait(lambda g: any(n["spec"].get("unschedulable") for n in g.managed_nodes(old)), ROTATION, "a drain")
    controller.kill()
    controller = start_controller(cloud, *NO_ELECTION)
    tenant.controller = crash(cloud, controller, start_controller, "DeleteNodegroup", lambda: rotation.allow_disruptions(tenant))
    group.wait(lambda g: g.nodegroup(old) is None, ROTATION, "the end of the old node group")
    group.wait_ready(nodes=2, timeout=ROTATION)
    tenant.wait_pods_running(2)
    assert managed.names_in_eks(cloud) == group.names and group.names != [old]
    assert len([e for e in cloud.aws_events(mark) if e.get("operation") == "CreateNodegroup"]) == 1
