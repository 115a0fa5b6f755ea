"""What someone changes behind the controller's back is put right; nothing else is touched."""

import re

import pytest

from e2e.harness import OWNERSHIP, tags_of

POLICY = "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"


def update(group, **changes):
    """What a user changes in a scaling group in the console."""
    group.cloud.boto("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group.scaling_group, **changes)


def settled(group, mark, *operations):
    """Waits until it is Ready again; the controller has then done exactly these calls and replaced no node."""
    group.wait_ready()
    assert [w["operation"] for w in group.writes(after=mark)] == list(operations)


def test_changed_sizes_are_restored(tenant):
    """Else the group silently keeps a value that a user tried out."""
    group = tenant.group(size=(1, 3)).wait_ready(nodes=1)
    mark = tenant.cloud.log_position()
    update(group, MinSize=0, MaxSize=9)
    group.wait(lambda g: (g.asg()["MinSize"], g.asg()["MaxSize"]) == (1, 3), what="the sizes")
    settled(group, mark, "UpdateAutoScalingGroup")
    assert group.wait_event("ScalingGroupUpdated", "maxSize: 9 -> 3")


def test_a_changed_template_version_is_restored(tenant):
    """With `$Latest` or an old version pinned, new nodes would not be what the group asks for."""
    group = tenant.group(size=(1, 3)).wait_ready(nodes=1)
    (first,) = group.instances()
    template, mark = group.asg()["LaunchTemplate"], tenant.cloud.log_position()
    floating = {"LaunchTemplateId": template["LaunchTemplateId"], "Version": "$Latest"}
    update(group, LaunchTemplate=floating)
    group.wait(lambda g: g.pinned() == template["Version"], what="the pin")
    settled(group, mark, "UpdateAutoScalingGroup")
    data = {"ImageId": tenant.cloud["amis"]["amazonlinux2023"][2], "InstanceType": "m5.large"}
    made = tenant.cloud.boto("ec2").create_launch_template_version(LaunchTemplateId=template["LaunchTemplateId"], LaunchTemplateData=data)
    other = str(made["LaunchTemplateVersion"]["VersionNumber"])
    mark = tenant.cloud.log_position()
    update(group, LaunchTemplate={**floating, "Version": other})
    group.wait(lambda g: g.pinned() == template["Version"], what="the pin")
    settled(group, mark, "UpdateAutoScalingGroup")
    assert group.instances() == [first]


def test_a_deleted_version_is_created_again_and_its_node_stays(tenant):
    """Without this, Auto Scaling could launch nothing, and the first sign would be a missing node."""
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    ec2, template, node = tenant.cloud.boto("ec2"), group.asg()["LaunchTemplate"]["LaunchTemplateId"], group.instances()
    ec2.create_launch_template_version(LaunchTemplateId=template, SourceVersion="1", LaunchTemplateData={"InstanceType": "c5.large"})
    ec2.modify_launch_template(LaunchTemplateId=template, DefaultVersion="2")
    ec2.delete_launch_template_versions(LaunchTemplateId=template, Versions=["1"])
    assert group.wait_event("ResourceRecreated", "version 1 of the launch template ")
    group.wait(lambda g: g.pinned() == "3", what="the scaling group on a new version")
    group.wait(lambda g: g.status()["template"].get("deleted", {}).get("version") == "1", what="the record of the deleted version")
    assert group.wait_ready(nodes=1).instances() == node and group.status()["nodes"]["outdated"] == 0, "it runs the desired content"


def test_a_deleted_template_is_created_again(tenant):
    """EC2 answers a client token that it knows with the first result, even when that is deleted: no node could launch."""
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    ec2, old, node = tenant.cloud.boto("ec2"), group.asg()["LaunchTemplate"]["LaunchTemplateId"], group.instances()
    ec2.delete_launch_template(LaunchTemplateId=old)
    group.wait(lambda g: g.asg()["LaunchTemplate"]["LaunchTemplateId"] != old, what="another template")
    new = group.wait_ready(nodes=1).asg()["LaunchTemplate"]["LaunchTemplateId"]
    assert [t["LaunchTemplateId"] for t in ec2.describe_launch_templates(LaunchTemplateIds=[new])["LaunchTemplates"]] == [new]
    # Its node runs the desired content, and is replaced only with the next change.
    group.wait(lambda g: g.status()["template"].get("deleted", {}).get("id") == old, what="the record of the deleted template")
    assert group.instances() == node and group.status()["nodes"]["outdated"] == 0
    group.patch_spec(labels={"step": "b"})
    group.wait(lambda g: g.instances() and g.instances() != node and len(g.ready_nodes()) == 1, what="another node")
    group.wait(lambda g: "deleted" not in g.status()["template"], what="the end of the record")
    assert group.undrained() == {}


@pytest.mark.private
def test_a_template_that_is_deleted_before_its_scaling_group_exists_is_created_again(own_cloud, start_controller, make_tenant):
    """No status names it yet. With the token of the first creation, EC2 would name the deleted one forever."""
    cloud = own_cloud()
    controller = start_controller(cloud, "--enable-leader-election=false", "--resync-period", "10s")
    tenant = make_tenant(cloud=cloud, controller=controller)
    with cloud.fault(action="deny", service="autoscaling", operation="CreateAutoScalingGroup", count=-1):
        group = tenant.group(size=(1, 2))
        group.wait(lambda g: g.has_condition("Stalled"), what="the denied scaling group")
        ec2 = cloud.boto("ec2")
        (old,) = [t["LaunchTemplateId"] for t in ec2.describe_launch_templates()["LaunchTemplates"] if tenant.namespace in t["LaunchTemplateName"]]
        ec2.delete_launch_template(LaunchTemplateId=old)
        # The next process remembers nothing of it.
        controller.kill()
        controller.start()
    assert group.wait_ready(nodes=1).asg()["LaunchTemplate"]["LaunchTemplateId"] != old


def test_content_whose_version_is_deleted_gets_another_version(tenant):
    """EC2 answers a client token that it knows with the first result, even when that is deleted: the group would stall."""
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    group.annotate(lock_upgrades="true")
    first = group.pinned()

    def pin(step):
        before = group.pinned()
        group.patch_spec(labels=step and {"step": step})
        return group.wait(lambda g: g.pinned() != before and g.pinned(), what=f"the version for {step}")

    made = []
    for step in ("b", "c", "d", "e", "f"):
        made.append(pin(step))
        assert pin(None) == first
    group.wait(lambda g: made[0] not in [str(v["VersionNumber"]) for v in g.template_versions()], what="the end of the oldest version")
    again = pin("b")
    assert again not in made and again in [str(v["VersionNumber"]) for v in group.template_versions()]


def test_a_detached_policy_is_restored(tenant):
    """Without it, nodes lose their network while everything else looks fine."""
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    role, mark = group.scaling_group, tenant.cloud.log_position()
    tenant.cloud.boto("iam").detach_role_policy(RoleName=role, PolicyArn=POLICY)
    group.wait(lambda g: POLICY in g.cloud.snapshot()["roles"][role]["policies"], what="the policy")
    settled(group, mark, "AttachRolePolicy")


def test_a_removed_aws_auth_entry_is_restored(tenant):
    """Without it, running nodes go silent and new ones never join."""
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    arn, mark = group.status()["nodesInstanceRoleArn"], tenant.cloud.log_position()

    def without(text):
        return "".join(entry for entry in re.split(r"(?m)^(?=- )", text) if arn not in entry)

    assert arn in tenant.cloud.map_roles()
    tenant.cloud.edit_map_roles(without)
    group.wait(lambda g: arn in g.cloud.map_roles(), what="the entry")
    group.wait_ready(nodes=1)
    settled(group, mark)


def test_a_removed_or_changed_tag_is_restored(tenant):
    """The tags pay the bills and lead other tools to the group."""
    tenant.set_defaults(tags=[{"key": "team", "value": "search"}])
    group = tenant.group(size=(1, 2), tags=[{"key": "cost", "value": "1"}]).wait_ready(nodes=1)
    asg, mark = tenant.cloud.boto("autoscaling"), tenant.cloud.log_position()
    wanted = tags_of(group.asg())

    def tag(key, value, propagate=True):
        return {"ResourceId": group.scaling_group, "ResourceType": "auto-scaling-group", "Key": key, "Value": value, "PropagateAtLaunch": propagate}

    asg.delete_tags(Tags=[tag("cost", "1")])
    group.wait(lambda g: tags_of(g.asg()) == wanted, what="the tag that was removed")
    asg.create_or_update_tags(Tags=[tag("team", "other")])
    group.wait(lambda g: tags_of(g.asg()) == wanted, what="the tag that was changed")
    asg.create_or_update_tags(Tags=[tag("team", "search", propagate=False)])
    group.wait(lambda g: all(t["PropagateAtLaunch"] for t in g.asg()["Tags"]), what="the tag that instances would lack")
    settled(group, mark, "CreateOrUpdateTags", "CreateOrUpdateTags", "CreateOrUpdateTags")
    assert wanted[OWNERSHIP + "InstanceGroup"] == "web"


def test_a_resumed_process_is_suspended_again(tenant):
    """Users suspend AZRebalance because it terminates nodes undrained."""
    group = tenant.group(size=(1, 2), suspendProcesses=["AZRebalance"]).wait_ready(nodes=1)
    mark = tenant.cloud.log_position()
    tenant.cloud.boto("autoscaling").resume_processes(AutoScalingGroupName=group.scaling_group, ScalingProcesses=["AZRebalance"])
    group.wait(lambda g: [p["ProcessName"] for p in g.asg()["SuspendedProcesses"]] == ["AZRebalance"], what="the suspended process")
    settled(group, mark, "SuspendProcesses")


def test_a_changed_lifecycle_hook_is_restored(tenant):
    """A hook with another timeout puts instances in service before they are prepared, or delays them too long."""
    hook = {"name": "prepare", "lifecycle": "launch", "defaultResult": "continue", "heartbeatTimeout": 100}
    group = tenant.group(size=(1, 2), lifecycleHooks=[hook]).wait_ready(nodes=1)
    asg, mark = tenant.cloud.boto("autoscaling"), tenant.cloud.log_position()

    def timeouts(g):
        return [h["HeartbeatTimeout"] for h in asg.describe_lifecycle_hooks(AutoScalingGroupName=g.scaling_group)["LifecycleHooks"]]

    asg.put_lifecycle_hook(AutoScalingGroupName=group.scaling_group, LifecycleHookName="prepare", HeartbeatTimeout=200)
    group.wait(lambda g: timeouts(g) == [100], what="the hook's timeout")
    asg.delete_lifecycle_hook(AutoScalingGroupName=group.scaling_group, LifecycleHookName="prepare")
    group.wait(lambda g: timeouts(g) == [100], what="the hook")
    settled(group, mark, "PutLifecycleHook", "PutLifecycleHook")
