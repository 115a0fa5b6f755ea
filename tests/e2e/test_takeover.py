"""This controller replaces keikoproj/instance-manager: no node is replaced, and docs/takeover.md lists what changes.

All groups of a fleet are taken over at once, as in a cluster. Their states are described in keiko_loader.py and keiko_groups.py.
"""

import base64
import contextlib

import pytest
import yaml

from localcloud.tests import support
from e2e import harness, keiko_groups, keiko_loader, test_plan

pytestmark = pytest.mark.private

REPAIRS = {"UpdateAutoScalingGroup", "CreateTags", "TagRole", "TagInstanceProfile", "EnableMetricsCollection", "SuspendProcesses", "PutLifecycleHook"}
"""The calls to AWS that docs/takeover.md lists; of the first, only the pin of a template version."""
CHANGED = (
    "instanceGroup.status", "scalingGroup.LaunchTemplate.Version", "scalingGroup.EnabledMetrics", "scalingGroup.SuspendedProcesses",
    "scalingGroup.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification.Version",
    "scalingGroup.MixedInstancesPolicy.LaunchTemplate.Overrides", "scalingGroup.LifecycleHooks",
    "template.tags", "role.tags", "profile.tags",
)  # fmt: skip
"""What these repairs may change in a snapshot."""


def taken_over(group):
    """Whether the controller has said that a group is its own, and has nothing more to do."""
    return group.has_condition("Adopted") and group.state() == "Ready"


def without_startup_taints(group):
    """Whether Kubernetes has taken its own taints away, which it does a moment after a node is Ready."""
    return not any(t["key"].startswith("node.kubernetes.io/") for node in group.nodes() for t in node["spec"].get("taints", []))


def forbidden_changes(group, before, mark):
    """What a takeover did that it may not do, in words."""
    wrong = [f"call {e['operation']} {e['params']}" for e in group.writes_since(mark) if not repair(e)]
    wrong += [f"write {w}" for w in group.kube_writes_since(mark) if w[:2] != ("patch", "instancegroups/status")]
    changes = keiko_loader.differences(before, group.snapshot())
    return wrong + [f"{path}: {change}" for path, change in changes.items() if not path.startswith(CHANGED)]


def repair(event):
    """Whether a call is one of the listed repairs."""
    only = {"AutoScalingGroupName", "LaunchTemplate", "MixedInstancesPolicy"}
    return event["operation"] in REPAIRS and (event["operation"] != "UpdateAutoScalingGroup" or set(event["params"]) <= only)


def all_reconciled(controller, groups):
    """Whether the controller has reconciled each of the groups."""
    text = controller.metrics()
    return all(f'reconcile_success_total{{instancegroup="{g.key}"}}' in text or f'reconcile_fail_total{{instancegroup="{g.key}"' in text for g in groups)


def take_over(cloud, start_controller, fleet):
    """Takes a fleet over, restarts the controller, then changes each group."""
    groups = list(fleet.values())
    for group in groups:
        group.wait(without_startup_taints, what="nodes without startup taints")
    before, mark = {name: group.snapshot() for name, group in fleet.items()}, groups[0].mark()
    first = start_controller(cloud)
    for group in groups:
        group.tenant.controller = first
        group.wait(taken_over, what="its takeover")
    first.stop()
    wrong = {name: forbidden_changes(group, before[name], mark) for name, group in fleet.items()}

    again = groups[0].mark()
    second = start_controller(cloud)
    support.eventually(lambda: all_reconciled(second, groups), harness.WAIT, "a look at every group")
    second.stop()
    for name, group in fleet.items():
        wrong[name] += [f"second start: {e['operation']}" for e in group.writes_since(again)]
        wrong[name] += [f"second start: {w}" for w in group.kube_writes_since(again)]
    assert_nothing_wrong({name: found for name, found in wrong.items() if found})

    third = start_controller(cloud)
    with contextlib.ExitStack() as answering:
        for group in groups:
            group.tenant.controller = third
            answering.enter_context(group.hooks_answered())
        rotate(fleet)


def assert_nothing_wrong(wrong):
    """Shows everything that is wrong, of every group."""
    assert wrong == {}, yaml.safe_dump(wrong, width=400)


def rotate(fleet):
    """Changes the instance type of each group and checks the rotations."""
    old = {name: set(group.instances(None)) for name, group in fleet.items()}
    marks = {name: group.mark() for name, group in fleet.items()}
    for group in fleet.values():
        group.patch_spec(instanceType="m5.2xlarge", **changed_types(group))
    for name, group in fleet.items():
        group.wait(lambda g, name=name: not old[name] & set(g.instances(None)), 2 * harness.WAIT, "new nodes")
        group.wait_ready(nodes=group.desired)
    wrong = {}
    for name, group in fleet.items():
        ended = [e["params"]["InstanceId"] for e in group.events_in_aws() if e.get("operation") == "TerminateInstanceInAutoScalingGroup" and e["status"] < 300]
        found = {
            "versions made but one": made(group, marks[name]) - 1,
            "not terminated once each": [instance for instance in old[name] if ended.count(instance) != 1],
            "unavailable beyond one": max(0, group.max_unavailable_seen() - 1),
            "undrained": group.undrained(),
        }
        wrong |= {name: found} if any(found.values()) else {}
    assert_nothing_wrong(wrong)


def changed_types(group):
    """What a mixed group has to change as well: every type of its policy."""
    policy = group.get()["spec"]["eks"]["configuration"].get("mixedInstancesPolicy")
    types = [{"type": kind, "weight": 1} for kind in ("m5.2xlarge", "m5a.2xlarge")]
    return {"mixedInstancesPolicy": policy | {"instanceTypes": types}} if policy else {}


def made(group, mark):
    """How many template versions were made; the name of one group may be that of another's template, so ids count."""
    calls = group.writes_since(mark)
    versions = [e for e in calls if e["operation"] == "CreateLaunchTemplateVersion" and e["params"]["LaunchTemplateId"] == group.template_id]
    return len(versions) + (group.template is None and len(group.template_versions()))


@pytest.mark.skipif(not keiko_loader.recordings(), reason="there are no recordings")
def test_recorded_groups_of_the_keiko_controller_are_adopted_without_a_rotation(own_cloud, start_controller):
    """A takeover must not cost a node."""
    cloud = own_cloud(config=None)
    named = {name: keiko_loader.recording(cloud, name) for name in keiko_loader.recordings()}
    take_over(cloud, start_controller, keiko_loader.load_all(cloud, named))


@pytest.mark.long
def test_constructed_groups_of_the_keiko_controller_are_adopted_without_a_rotation(own_cloud, start_controller, unique):
    """The same for states that no recording contains."""
    cloud = own_cloud(config=None)
    site = keiko_loader.Site.of(cloud, unique)
    named = {f"{name}/{number}": state for name, make in keiko_groups.STATES.items() for number, state in enumerate(make(site))}
    named["restored"] = keiko_groups.GroupBuilder(site, "restored").build()
    fleet = keiko_loader.load_all(cloud, named)
    # A backup brings the resource back without its status.
    cloud.patch(f"{fleet['restored'].path}/status", {"status": None})
    take_over(cloud, start_controller, fleet)


def test_resources_are_tagged_once_the_permission_is_granted(own_cloud, start_controller, unique):
    """Without its tags nothing but the controller's own record says which group owns a template."""
    cloud = own_cloud(config=None)
    (group,) = keiko_loader.load_all(cloud, {"plain": keiko_groups.plain(keiko_loader.Site.of(cloud, unique))[0]}).values()
    with cloud.fault(action="deny", operation="CreateTags", count=-1):
        group.tenant.controller = start_controller(cloud, "--resync-period", "5s")
        group.wait(lambda g: g.has_condition("Adopted", reason="TaggingDenied"), what="the missing permission")
        assert "ec2:CreateTags" in group.condition("Adopted")["message"]
        assert "keikoproj.io" not in str(group.snapshot()["template"]["tags"])
    group.wait(lambda g: g.has_condition("Adopted", reason="ResourcesAdopted"), what="another try")
    assert "instancegroups.keikoproj.io/InstanceGroup" in str(group.snapshot()["template"]["tags"])
    assert "not tagged" not in group.condition("Adopted")["message"]


def test_untagged_resources_are_deleted_with_their_group(own_cloud, start_controller, unique):
    """A role and a template of each adopted group would be left in AWS."""
    cloud = own_cloud(config=None)
    (group,) = keiko_loader.load_all(cloud, {"plain": keiko_groups.plain(keiko_loader.Site.of(cloud, unique))[0]}).values()
    with contextlib.ExitStack() as faults:
        for operation in ("CreateTags", "TagRole", "TagInstanceProfile"):
            faults.enter_context(cloud.fault(action="deny", operation=operation, count=-1))
        group.tenant.controller = start_controller(cloud)
        group.wait(lambda g: g.has_condition("Adopted", reason="TaggingDenied"), what="the missing permission")
        there = group.snapshot()
        assert there["template"] and there["role"] and there["profile"]
        group.delete()
        group.wait_gone(2 * harness.WAIT)
    left = group.snapshot()
    assert [left[kind] for kind in ("scalingGroup", "template", "role", "profile")] == [None] * 4


def test_groups_are_adopted_and_released_during_a_rollout(own_cloud, start_controller, unique):
    """An adopted group has no wave yet. keikoproj/instance-manager knows no waves, so a waiting change must not be released to it."""
    cloud = own_cloud(config=None)
    (group,) = keiko_loader.load_all(cloud, {"plain": keiko_groups.plain(keiko_loader.Site.of(cloud, unique))[0]}).values()
    image = group.get()["spec"]["eks"]["configuration"]["image"]
    data = {"boundaries": "restricted: [spec.eks.configuration.image]", "rollout": "waves: [{name: all, approval: admin}]"}
    with_image = lambda image: {**data, "defaults": yaml.safe_dump({"spec": {"eks": {"configuration": {"image": image}}}})}  # noqa: E731
    cloud.create(harness.CONFIG.rpartition("/")[0], {"metadata": {"name": "instance-manager"}, "data": with_image(image)})
    group.wait(without_startup_taints, what="nodes without startup taints")
    before, mark, nodes = group.snapshot(), group.mark(), sorted(group.instances())
    controller = group.tenant.controller = start_controller(cloud)
    group.wait(taken_over, what="its takeover")
    assert forbidden_changes(group, before, mark) == []

    new = next(each for each in keiko_loader.Site.of(cloud, unique).images["amazonlinux2"] if each != image)
    cloud.edit_config_map(lambda live: live.update(with_image(new)))
    group.wait(lambda g: g.has_condition("RolloutPending", reason="WaveNotOpen"), what="the change that waits")
    controller.stop()
    written = group.mark()
    refused = test_plan.run(cloud, "release")
    assert refused.returncode == 1 and "has r1, and the ConfigMap has r2" in refused.stdout, refused
    assert group.writes_since(written) == []

    cloud.edit_config_map(lambda live: live.update(with_image(image)))
    controller = group.tenant.controller = start_controller(cloud)
    group.wait(lambda g: g.has_condition("RolloutPending", "False") and g.state() == "Ready", what="the revert")
    controller.stop()
    released = test_plan.run(cloud, "release")
    assert released.returncode == 0, released
    assert sorted(group.instances()) == nodes


def change_as_keiko(group, site):
    """What keikoproj/instance-manager does when its generated user data changes: another version, or another configuration, and its name in the status."""
    if group.template:
        ec2 = group.cloud.boto("ec2")
        made = ec2.create_launch_template_version(LaunchTemplateName=group.template, SourceVersion="1", LaunchTemplateData={"EbsOptimized": True})
        return {"latestTemplateVersion": str(made["LaunchTemplateVersion"]["VersionNumber"])}, {"LaunchTemplate": {"LaunchTemplateName": group.template, "Version": "$Latest"}}
    asg = group.cloud.boto("autoscaling")
    group.cloud.control("POST", "allow-launch-configurations", allowed=True)
    (old,) = asg.describe_launch_configurations(LaunchConfigurationNames=[group.launch_configuration])["LaunchConfigurations"]
    name = f"{group.scaling_group}-20300101000000"
    same = {key: old[key] for key in ("ImageId", "InstanceType", "KeyName", "SecurityGroups", "IamInstanceProfile") if old.get(key)}
    asg.create_launch_configuration(LaunchConfigurationName=name, **same, UserData=base64.b64decode(old["UserData"]).decode())
    return {"activeLaunchConfigurationName": name}, {"LaunchConfigurationName": name}


def test_changes_by_the_keiko_controller_after_a_return_are_adopted_again(own_cloud, start_controller, unique):
    """After a return to keikoproj/instance-manager, the second takeover must not cost a node either."""
    cloud = own_cloud(config=None)
    site = keiko_loader.Site.of(cloud, unique)
    groups = keiko_loader.load_all(cloud, {"plain": keiko_groups.plain(site)[0], "old": keiko_groups.launch_configuration(site)[0]}).values()
    controller = start_controller(cloud)
    for group in groups:
        group.tenant.controller = controller
        group.wait(taken_over, what="its takeover")
    controller.stop()
    nodes, left = {group.key: group.instances() for group in groups}, {}
    for group in groups:
        status, launches = change_as_keiko(group, site)
        cloud.boto("autoscaling").update_auto_scaling_group(AutoScalingGroupName=group.scaling_group, **launches)
        cloud.patch(f"{group.path}/status", {"status": status})
        (left[group.key],) = status.values()
    mark = cloud.log_position()
    controller = start_controller(cloud)
    for group in groups:
        group.tenant.controller = controller
        group.wait(lambda g: taken_over(g) and left[g.key] in g.condition("Adopted")["message"], 2 * harness.WAIT, "its second takeover")
        group.wait_ready(nodes=len(nodes[group.key]))
        assert group.instances() == nodes[group.key]
        done = {w["operation"] for w in group.writes(after=mark)}
        assert done <= {"UpdateAutoScalingGroup", "TagRole", "TagInstanceProfile"}, done
        assert group.asg().get("LaunchConfigurationName", left[group.key]) == left[group.key]
