"""A deletion removes everything that the group owns, and nothing else."""

import contextlib
import json
import time

import pytest

from e2e import rotation
from e2e.harness import PREFIX, WAIT
from localcloud.tests.support import eventually

TWO_POLLS = 7
"""Seconds in which the controller looks at a group at least twice: enough for it to do what it must not."""
READ_ONLY = "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"


def traces(cloud, text):
    """What in the account carries `text` in its name: kind and name."""
    return {(kind, name) for kind, things in cloud.snapshot().items() for name in things if text in name}


def test_a_deletion_drains_and_leaves_nothing(tenant):
    """A leaked role or template uses up quotas and names; a node that is terminated without a drain loses requests."""
    tenant.set_defaults(tags=[{"key": "team", "value": "a"}])
    group = tenant.group(size=(3, 3), managedPolicies=["AmazonSSMManagedInstanceCore"]).wait_ready(nodes=3)
    tenant.deployment("app", 5, {"node.kubernetes.io/role": "web", PREFIX + "image": "ami-02100000000000001"})
    tenant.wait_pods_running(5)
    arn = group.status()["nodesInstanceRoleArn"]
    assert {kind for kind, _ in traces(tenant.cloud, tenant.unique)} == {"groups", "templates", "roles", "profiles"}
    group.annotate(protect_deletion="true")
    mark = tenant.cloud.log_position()
    group.delete()
    stalled = group.wait_condition("Stalled", reason="DeletionProtected")
    assert "confirm-deletion=web" in stalled["message"] and group.writes(mark) == [] and len(group.ready_nodes()) == 3
    group.annotate(confirm_deletion="yes")
    ignored = group.wait_condition("AnnotationsIgnored")
    assert '"yes"' in ignored["message"] and '"web"' in ignored["message"], "what was written, and what is expected"
    group.annotate(confirm_deletion="web")
    group.wait_gone()
    assert traces(tenant.cloud, tenant.unique) == set() and arn not in tenant.cloud.map_roles()
    assert group.undrained() == {}
    assert not any(w["params"].get("ForceDelete") == "true" for w in group.writes())


def test_a_deletion_continues_when_a_user_removes_the_status(tenant):
    """Only the status names the group's resources. If the controller did not search AWS, all of them would stay forever."""
    tenant.set_defaults(managedPolicies=["AmazonSSMManagedInstanceCore"])
    group = rotation.start_group(tenant, 2)
    arn = group.status()["nodesInstanceRoleArn"]
    rotation.block_drains(tenant, 2)
    group.delete()
    group.wait(lambda g: all(node["spec"].get("unschedulable") for node in g.nodes()), what="the drains")
    tenant.cloud.set_status(group.path, dict.fromkeys(group.status()))
    rotation.allow_disruptions(tenant, 2)
    group.wait_gone()
    assert traces(tenant.cloud, tenant.unique) == set() and arn not in tenant.cloud.map_roles()
    assert group.undrained() == {}


@pytest.mark.parametrize("standby_by", ["controller", "user"])
def test_a_deletion_includes_standby_instances_and_drains_all_nodes(tenant, standby_by):
    """Instances in standby are not part of the desired capacity: counted, one would run on, or cost a node that is still being drained."""
    group = rotation.start_group(tenant, 2, maxSurge=1)
    rotation.block_drains(tenant, 2)
    (aside, _), asg = group.instances(), tenant.cloud.boto("autoscaling")
    if standby_by == "controller":
        tenant.set_defaults(image=rotation.images(tenant.cloud)[1])
        rotation.wait_draining(group)
        (aside,) = rotation.in_standby(group)
    else:
        asg.enter_standby(AutoScalingGroupName=group.scaling_group, InstanceIds=[aside], ShouldDecrementDesiredCapacity=False)
        group.wait(lambda g: len(g.nodes()) == 3, what="the node in its place")
    group.delete()
    for allowed, left in [(0, 2), (1, 1), (2, 0)]:
        rotation.allow_disruptions(tenant, allowed)
        group.wait(lambda g, left=left: len(g.instances(None)) == left, what=f"{left} instances left")
    group.wait_gone()
    assert traces(tenant.cloud, tenant.unique) == set() and group.undrained() == {}
    ended = {e["id"] for e in group.events_in_aws() if e["kind"] == "state" and e["object"] == "instance" and e["state"] == "Terminating"}
    assert aside in ended and ended == set(rotation.terminated(group)), "Auto Scaling has taken none by itself"


def test_a_deletion_drains_the_other_nodes_while_a_hook_holds_a_launch(tenant):
    """AWS does not terminate an instance that waits in a launch hook, for up to two days. The other nodes would run, and cost, as long."""
    hook = {"name": "prepare", "lifecycle": "launch", "defaultResult": "abandon", "heartbeatTimeout": 7200}
    group, asg = tenant.group(size=(2, 2), lifecycleHooks=[hook]), tenant.cloud.boto("autoscaling")
    held, other = group.wait(lambda g: len(found := g.instances("Pending:Wait")) == 2 and found, what="both launches to wait")

    def proceed(instance):
        name = {"AutoScalingGroupName": group.scaling_group, "LifecycleHookName": "prepare", "InstanceId": instance}
        asg.complete_lifecycle_action(**name, LifecycleActionResult="CONTINUE")

    def wait_on():
        """The hook's time begins again: it must not end before the test does."""
        name = {"AutoScalingGroupName": group.scaling_group, "LifecycleHookName": "prepare", "InstanceId": held}
        asg.record_lifecycle_action_heartbeat(**name)

    proceed(other)
    wait_on()
    group.wait(lambda g: g.instances() == [other] and len(g.ready_nodes()) == 2, what="both nodes: one joins while its instance waits")
    wait_on()
    group.delete()
    group.wait(lambda g: g.instances(None) == [held], what="the end of the other node")
    wait_on()
    assert group.instances("Pending:Wait") == [held] and group.undrained() == {}
    reason = "to be launched, before which AWS does not terminate it"
    group.wait(lambda g: f"{held} (" in (said := str(g.status())) and reason in said, what="the reason of the wait")
    time.sleep(TWO_POLLS)
    refused = [e for e in rotation.calls(group, "TerminateInstanceInAutoScalingGroup") if e["status"] >= 400]
    assert 1 <= len(refused) <= 3, "AWS is asked now and then only"
    proceed(held)
    group.wait_gone()
    assert traces(tenant.cloud, tenant.unique) == set()


def test_a_deletion_gives_a_drain_in_progress_its_whole_time(tenant):
    """A drain that a budget has blocked for a while would evict every replica at once, if its time counted from the rotation's record."""
    group = rotation.start_group(tenant, 2, maxUnavailable=2)
    rotation.block_drains(tenant, 2)
    tenant.set_defaults(image=rotation.images(tenant.cloud)[1])
    group.wait_condition("DrainBlocked", reason="EvictionBlocked")
    for node in rotation.wait_draining(group, 2):
        # As if the rotation had waited for hours.
        record = {**json.loads(node["metadata"]["annotations"][rotation.DISRUPTION]), "since": "2026-01-01T00:00:00Z"}
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        tenant.cloud.patch(path, {"metadata": {"annotations": {rotation.DISRUPTION: json.dumps(record)}}})
    pods = {p["metadata"]["uid"] for p in tenant.pods()}
    group.delete()
    blocked = group.wait_condition("DrainBlocked", reason="EvictionBlockedDuringDeletion")
    assert "PodDisruptionBudget app" in blocked["message"] and "its instances are terminated" in blocked["message"]
    assert group.wait_event("DrainBlocked", "its instances are terminated")
    time.sleep(TWO_POLLS)
    assert rotation.terminated(group) == [] and {p["metadata"]["uid"] for p in tenant.pods()} == pods
    rotation.allow_disruptions(tenant, 2)
    group.wait_gone()
    assert group.undrained() == {}


def test_a_reapplied_group_adopts_the_nodes_that_its_deletion_cordoned(tenant):
    """The new object has another UID. Its nodes would stay cordoned, no node would launch, and no deletion would end."""
    group = rotation.start_group(tenant, 2)
    rotation.block_drains(tenant, 2)
    group.delete()
    rotation.wait_draining(group, 2)
    deleted = group.get()
    group.patch({"metadata": {"finalizers": None}})
    group.wait_gone()
    metadata = {key: deleted["metadata"][key] for key in ("name", "namespace", "annotations")}
    group = tenant.apply({**deleted, "metadata": metadata, "status": None}).wait_ready(nodes=2)
    assert rotation.draining_nodes(group) == [] and rotation.terminated(group) == []
    assert not any(n["spec"].get("unschedulable") for n in group.nodes())
    asg = group.asg()
    assert asg["SuspendedProcesses"] == [] and "SuspendedByDeletion" not in str(asg["Tags"])
    group.delete()
    rotation.wait_draining(group, 2)
    rotation.allow_disruptions(tenant, 2)
    group.wait_gone()
    assert traces(tenant.cloud, tenant.unique) == set() and group.undrained() == {}


def test_a_group_without_resources_is_deleted_at_once(tenant):
    """A wrong group must not be stuck behind a finalizer."""
    tenant.set_defaults(image="no-image")
    group = tenant.group()
    group.wait_condition("Stalled")
    mark = tenant.cloud.log_position()
    group.delete()
    group.wait_gone()
    assert group.writes(after=mark) == []


def test_deleting_during_the_creation_leaves_nothing(tenant):
    """People change their mind within seconds."""
    group = tenant.group(size=(2, 2))
    group.wait(lambda g: any(w["operation"] == "CreateRole" for w in g.writes()), what="the first write")
    group.delete()
    group.wait_gone()
    assert traces(tenant.cloud, tenant.unique) == set()


def test_a_foreign_policy_on_the_role_blocks_its_deletion_and_is_named(tenant):
    """Detaching a foreign policy could break its owner; continuing silently would leave the role behind."""
    group = tenant.group(size=(1, 1)).wait_ready(nodes=1)
    iam, role = tenant.cloud.boto("iam"), group.scaling_group
    iam.attach_role_policy(RoleName=role, PolicyArn=READ_ONLY)
    group.delete()
    blocked = group.wait_condition("Stalled")
    assert "AmazonS3ReadOnlyAccess" in blocked["message"] and role in blocked["message"]
    assert group.state() == "Deleting"
    assert READ_ONLY in tenant.cloud.snapshot()["roles"][role]["policies"]
    iam.detach_role_policy(RoleName=role, PolicyArn=READ_ONLY)
    group.wait_gone()
    assert traces(tenant.cloud, tenant.unique) == set()


def test_an_existing_aws_auth_entry_is_kept(tenant, unique):
    """An admin who mapped the role by hand did so for more than this group."""
    cloud = tenant.cloud
    arn = cloud.make_role(unique)
    entry = (
        f"- rolearn: {arn}\n  username: system:node:{{{{EC2PrivateDNSName}}}}\n  groups:\n  - system:bootstrappers\n  - system:nodes\n"
    )
    cloud.edit_map_roles(lambda text: text + entry)
    tenant.set_defaults(roleName=unique, instanceProfileName=unique)
    group = tenant.group(size=(1, 1)).wait_ready(nodes=1)
    group.delete()
    group.wait_gone()
    assert entry in cloud.map_roles()
    assert traces(cloud, unique) == {("roles", unique), ("profiles", unique)}


def test_an_instance_profile_that_a_user_recreated_is_kept(tenant):
    """A scaling group refers to its profile by name. The group must not delete a profile that a user created later under that name."""
    cloud, group = tenant.cloud, tenant.group(size=(1, 1)).wait_ready(nodes=1)
    iam, name = cloud.boto("iam"), group.scaling_group
    refused = (iam.exceptions.DeleteConflictException, iam.exceptions.NoSuchEntityException, iam.exceptions.EntityAlreadyExistsException)

    def recreated():
        # The controller may add the role again, or create the profile, in between.
        with contextlib.suppress(*refused):
            for role in iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]:
                iam.remove_role_from_instance_profile(InstanceProfileName=name, RoleName=role["RoleName"])
            iam.delete_instance_profile(InstanceProfileName=name)
            return iam.create_instance_profile(InstanceProfileName=name)

    eventually(recreated, WAIT, "a user's profile of that name")
    group.annotate(reconcile_now="1")
    conflict = group.wait_condition("Stalled")
    assert name in conflict["message"], conflict
    mark = cloud.log_position()
    group.delete()
    group.wait_gone()
    assert traces(cloud, name) == {("profiles", name)}
    assert not [write for write in group.writes(mark) if "InstanceProfile" in write["operation"]]


def test_after_a_change_of_role_only_the_controllers_entry_is_removed(tenant, unique):
    """An admin's default sends groups to a role that everyone's nodes use: its entry must not be removed with a group."""
    cloud, group = tenant.cloud, tenant.group(size=(1, 1)).wait_ready(nodes=1)
    own, shared = group.status()["nodesInstanceRoleArn"], cloud.make_role(unique)
    entry = (
        f"- rolearn: {shared}\n  username: system:node:{{{{EC2PrivateDNSName}}}}\n  groups:\n  - system:bootstrappers\n  - system:nodes\n"
    )
    cloud.edit_map_roles(lambda text: text + entry)
    (first,) = group.instances()
    tenant.set_defaults(roleName=unique, instanceProfileName=unique)
    group.wait(lambda g: g.status()["nodesInstanceRoleArn"] == shared, what="the other role")

    def rotated(g):
        there = first in g.instances(None)
        assert own in cloud.map_roles() or first not in g.instances(), "a node lost its way in"
        return not there and own not in cloud.map_roles()

    group.wait(rotated, what="the end of the former role's entry")
    group.wait_ready(nodes=1)
    assert entry in cloud.map_roles()
    group.delete()
    group.wait_gone()
    assert entry in cloud.map_roles() and own not in cloud.map_roles()
    assert traces(cloud, tenant.unique) == set()


def test_the_entry_of_a_shared_role_stays_while_it_is_used(tenant, unique):
    """Removed with the first group, the nodes of the second would go silent."""
    arn = tenant.cloud.make_role(unique)
    tenant.set_defaults(roleName=unique, instanceProfileName=unique)
    first = tenant.group("first", size=(1, 1))
    second = tenant.group("second", size=(1, 1)).wait_ready(nodes=1)
    first.wait_ready(nodes=1)
    assert tenant.cloud.map_roles().count(arn) == 1
    mark = len(tenant.cloud.audit())
    first.delete()
    first.wait_gone()
    second.wait_ready(nodes=1)
    assert tenant.cloud.map_roles().count(arn) == 1
    lost = [e for e in tenant.cloud.audit(mark) if e["objectRef"].get("name") == "aws-auth" and arn not in str(e.get("requestObject"))]
    assert lost == []
    second.delete()
    second.wait_gone()
    assert arn not in tenant.cloud.map_roles()
    assert unique in tenant.cloud.snapshot()["roles"]


def test_groups_deleted_together_remove_the_entry_of_their_role(tenant, unique):
    """A namespace takes all its groups at once: an entry that stayed would let in any later role of that name."""
    arn = tenant.cloud.make_role(unique)
    tenant.set_defaults(roleName=unique, instanceProfileName=unique)
    groups = [tenant.group(name, size=(0, 1)).wait_ready() for name in ("first", "second", "third")]
    for group in groups:
        group.wait(lambda g: arn in g.status()["managed"].get("authEntries", []), what="the entry on record")
    assert tenant.cloud.map_roles().count(arn) == 1
    for group in groups:
        group.delete()
    for group in groups:
        group.wait_gone()
    assert arn not in tenant.cloud.map_roles()


def test_a_launch_template_stays_for_a_scaling_group_of_others(tenant, unique):
    """EC2 would delete it, and the scaling group of that person would launch nothing any more."""
    cloud = tenant.cloud
    cloud.make_role(unique)
    tenant.set_defaults(roleName=unique, instanceProfileName=unique)
    group = tenant.group(size=(1, 1)).wait_ready(nodes=1)
    asg, found = cloud.boto("autoscaling"), group.asg()
    source = {key: found["LaunchTemplate"][key] for key in ("LaunchTemplateId", "Version")}
    name = {"AutoScalingGroupName": f"of-a-person-{unique}"}
    asg.create_auto_scaling_group(**name, MinSize=1, MaxSize=1, VPCZoneIdentifier=found["VPCZoneIdentifier"], LaunchTemplate=source)

    def launched(_):
        return asg.describe_auto_scaling_groups(AutoScalingGroupNames=[*name.values()])["AutoScalingGroups"][0]["Instances"]

    group.wait(launched, what="an instance of the other scaling group")
    group.delete()
    group.wait_event("ResourcesRetained", name["AutoScalingGroupName"])
    group.wait_gone()
    ec2 = cloud.boto("ec2")
    assert ec2.describe_launch_templates(LaunchTemplateIds=[source["LaunchTemplateId"]])["LaunchTemplates"]
    asg.delete_auto_scaling_group(**name, ForceDelete=True)
    ec2.delete_launch_template(LaunchTemplateId=source["LaunchTemplateId"])
