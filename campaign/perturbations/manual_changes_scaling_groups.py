"""Changes that users make by hand to scaling groups and launch templates: edited, deleted, tags taken off, made again.

What the spec sets comes back by itself. What a user adds stays, so the user takes it away again.
"""

import json

from campaign import foreign_resources
from campaign.perturbations import perturbation
from campaign.perturbations.manual_changes_instances import on_one
from campaign.scenario import is_wide
from campaign.user import User, owned

PROCESSES = ["Launch", "Terminate", "AZRebalance", "ReplaceUnhealthy", "HealthCheck"]
LATER = [3, 10, None]
"""When a user undoes it: after so many seconds, or before the end."""
KEPT = ("MinSize", "MaxSize", "DesiredCapacity", "VPCZoneIdentifier", "DefaultCooldown", "HealthCheckType", "HealthCheckGracePeriod", "TerminationPolicies",
        "NewInstancesProtectedFromScaleIn", "CapacityRebalance")  # fmt: skip
"""What a user copies who creates a scaling group again, beside what it launches and its tags."""


@perturbation("sizes edited", needs="eks", sizes=[{"MinSize": 0}, {"MinSize": 0, "MaxSize": 0}, {"MaxSize": 9}, {"MinSize": 3, "MaxSize": 4}])
def sizes_edited(runner, group, sizes):
    """A user changes the desired capacity. AWS follows at once; then the spec's sizes are back."""
    edit(runner, group, **sizes)


@perturbation("desired capacity set", needs="eks", up=[True, False])
def desired_capacity_set(runner, group, up):
    """As an autoscaler does: it is never set back."""
    user = User(runner, group)
    if found := user.scaling_group():
        user.do("autoscaling", "set_desired_capacity", AutoScalingGroupName=found["AutoScalingGroupName"], DesiredCapacity=found["MaxSize" if up else "MinSize"])


@perturbation("pinned version edited", needs="eks", version=["1", "$Latest", "$Default"])
def pinned_version_edited(runner, group, version):
    """A user pins the group to another version of its template."""
    edit_template(runner, group, lambda now: {**now, "Version": version})


@perturbation("another's template launched", needs="eks")
def anothers_template_launched(runner, group):
    """Nodes of it never join, and are replaced when the right one is back."""
    edit_template(runner, group, lambda now: {"LaunchTemplateName": foreign_resources.NAME, "Version": "1"})


@perturbation("purchase options edited", needs="eks", options=[{"OnDemandPercentageAboveBaseCapacity": 100}, {"OnDemandBaseCapacity": 2}, {"SpotAllocationStrategy": "lowest-price"}])
def purchase_options_edited(runner, group, options):
    """Of a group with a mixed instances policy."""
    edit_template(runner, group, lambda now: now, options)


@perturbation("subnets edited", needs="eks", allows=("needless_rotation",), count=[1, 2, 3])
def subnets_edited(runner, group, count):
    """AWS moves nodes without a drain; then the spec's subnets are back."""
    edit(runner, group, VPCZoneIdentifier=",".join(runner.cloud["subnets"][:count]))


@perturbation("settings of others edited", needs="eks", later=LATER, settings=[
    {"NewInstancesProtectedFromScaleIn": True}, {"DefaultCooldown": 60}, {"CapacityRebalance": True}, {"TerminationPolicies": ["NewestInstance"]},
    {"HealthCheckType": "ELB", "HealthCheckGracePeriod": 60},
])  # fmt: skip
def foreign_settings_edited(runner, group, later, settings):
    """The spec says nothing of them, so they stay as they are set."""
    if before := User(runner, group).scaling_group():
        edit(runner, group, **settings)
        runner.undo(lambda: edit(runner, group, **{key: before[key] or False if key == "CapacityRebalance" else before[key] for key in settings}), after=later)


@perturbation("scaling group deleted", needs="eks")
def scaling_group_deleted(runner, group):
    """With its instances; it is made again."""
    user = User(runner, group)
    for name, _ in user.each("groups"):
        user.do("autoscaling", "delete_auto_scaling_group", AutoScalingGroupName=name, ForceDelete=True)


@perturbation("scaling group made again by hand", needs="eks", when=is_wide, tagged=[True, False], later=LATER)
def scaling_group_recreated_by_hand(runner, group, tagged, later):
    """With its tags it is the group's, and gets its hooks, metrics and warm pool back. A user deletes one without tags."""
    if runner.is_being_deleted(group):
        return
    user = User(runner, group)
    found = user.scaling_group() or {}
    if not found.get("MixedInstancesPolicy") and not found.get("LaunchTemplate"):
        return
    name = found["AutoScalingGroupName"]
    user.do("autoscaling", "delete_auto_scaling_group", AutoScalingGroupName=name, ForceDelete=True)
    if not runner.wait_until(lambda: runner.cloud.snapshot()["groups"].get(name, {}).get("CreatedTime") != found["CreatedTime"], 30):
        return
    request = {"AutoScalingGroupName": name, **{key: found[key] for key in KEPT if found.get(key) is not None}, **launched(found)}
    # The controller may have been first.
    if user.do("autoscaling", "create_auto_scaling_group", **request, Tags=found["Tags"] if tagged else []) and not tagged:
        runner.undo(lambda: delete_untagged(runner, user, name), after=later, group=group)


def delete_untagged(runner, user, name):
    """Deletes the scaling group of that name, if it is not tagged as a group's."""
    found = runner.cloud.snapshot()["groups"].get(name)
    if found and not any(owned({tag["Key"]: ""}) for tag in found["Tags"]):
        user.do("autoscaling", "delete_auto_scaling_group", AutoScalingGroupName=name, ForceDelete=True)


@perturbation("tags of a scaling group edited", needs="eks", value=["edited", None])
def tags_of_a_scaling_group_edited(runner, group, value):
    """Those that do not say whose it is come back, but one that a user adds."""
    user = User(runner, group)
    found = user.scaling_group() or {"Tags": []}
    tags = [tag for tag in found["Tags"] if not owned({tag["Key"]: ""})]
    if tags and value:
        user.do("autoscaling", "create_or_update_tags", Tags=[{**tag, "Value": value} for tag in tags])
    elif tags:
        user.do("autoscaling", "delete_tags", Tags=tags)


@perturbation("scaling group disowned", needs="eks", count=[1, 3], later=LATER)
def scaling_group_disowned(runner, group, count, later):
    """Without its ownership tags the controller does not change it, until a user restores them."""
    user = User(runner, group)
    found = user.scaling_group() or {"Tags": []}
    tags = [tag for tag in found["Tags"] if owned({tag["Key"]: ""})][:count]
    if tags:
        user.do("autoscaling", "delete_tags", Tags=tags)
        user.undo("autoscaling", "create_or_update_tags", Tags=tags, after=later)


@perturbation("processes suspended", needs="eks", chosen=[*([process] for process in PROCESSES), PROCESSES], later=LATER)
def processes_suspended(runner, group, chosen, later):
    """What a user suspends stays suspended until a user resumes it."""
    user = User(runner, group)
    if found := user.scaling_group():
        before = [process["ProcessName"] for process in found["SuspendedProcesses"]]
        which = {"AutoScalingGroupName": found["AutoScalingGroupName"], "ScalingProcesses": [process for process in chosen if process not in before]}
        if which["ScalingProcesses"]:
            user.do("autoscaling", "suspend_processes", **which)
            user.undo("autoscaling", "resume_processes", after=later, **which)


@perturbation("processes resumed", needs="eks")
def processes_resumed(runner, group):
    """All of them: those that the spec suspends are suspended again."""
    on_scaling_group(runner, group, "resume_processes")


@perturbation("hooks edited", needs="eks", change=[{"HeartbeatTimeout": 77}, {"DefaultResult": "ABANDON"}, None])
def hooks_edited(runner, group, change):
    """Changed or deleted: the spec's hooks come back."""
    user = User(runner, group)
    for hook in (user.scaling_group() or {"LifecycleHooks": []})["LifecycleHooks"]:
        which = {"AutoScalingGroupName": hook["AutoScalingGroupName"], "LifecycleHookName": hook["LifecycleHookName"]}
        if change:
            user.do("autoscaling", "put_lifecycle_hook", **which, LifecycleTransition=hook["LifecycleTransition"], **change)
        else:
            user.do("autoscaling", "delete_lifecycle_hook", **which)


@perturbation("hook of others", needs="eks", transition=["LAUNCHING", "TERMINATING"], later=LATER)
def foreign_hook(runner, group, transition, later):
    """It holds every instance up for a while, and is not the controller's to delete."""
    hook = {"LifecycleHookName": "theirs"}
    on_scaling_group(runner, group, "put_lifecycle_hook", **hook, LifecycleTransition=f"autoscaling:EC2_INSTANCE_{transition}", HeartbeatTimeout=100, DefaultResult="CONTINUE")
    runner.undo(lambda: on_scaling_group(runner, group, "delete_lifecycle_hook", **hook), after=later)


@perturbation("metrics disabled", needs="eks")
def metrics_disabled(runner, group):
    """Those of the spec are enabled again."""
    on_scaling_group(runner, group, "disable_metrics_collection")


@perturbation("warm pool edited", needs="eks", sizes=[{"MinSize": 2}, {"MinSize": 0, "MaxGroupPreparedCapacity": 1}, {"MinSize": 1, "MaxGroupPreparedCapacity": 5}, None])
def warm_pool_edited(runner, group, sizes):
    """Changed or deleted: the spec's pool comes back. The spec does not say in which state its instances wait."""
    if (User(runner, group).scaling_group() or {}).get("WarmPoolConfiguration"):
        on_scaling_group(runner, group, "put_warm_pool", **sizes) if sizes else on_scaling_group(runner, group, "delete_warm_pool", ForceDelete=True)


@perturbation("warm pool of others", needs="eks", later=LATER)
def foreign_warm_pool(runner, group, later):
    """A group that has none gets one, which stays until a user deletes it."""
    found = User(runner, group).scaling_group()
    if found and not found.get("WarmPoolConfiguration"):
        on_scaling_group(runner, group, "put_warm_pool", MinSize=1, MaxGroupPreparedCapacity=found["MaxSize"] + 1)
        runner.undo(lambda: on_scaling_group(runner, group, "delete_warm_pool", ForceDelete=True), after=later)


@perturbation("instance refresh started", needs="eks", allows=("needless_rotation",), later=[3, 10])
def instance_refresh_started(runner, group, later):
    """AWS replaces the nodes itself for a while."""
    on_scaling_group(runner, group, "start_instance_refresh")
    runner.undo(lambda: on_scaling_group(runner, group, "cancel_instance_refresh"), after=later)


# --- launch templates -----------------------------------------------------------------------------


@perturbation("launch template deleted", needs="eks")
def launch_template_deleted(runner, group):
    """Nothing can be launched until it is made again."""
    user = User(runner, group)
    for name, _ in user.each("templates"):
        user.do("ec2", "delete_launch_template", LaunchTemplateName=name)


@perturbation("launch template made again by hand", needs="eks")
def launch_template_recreated_by_hand(runner, group):
    """With other content and without its tags. The scaling group refers to its name, so it is the group's all the same.

    If the group were deleted before the controller has tagged it, it would be the user's.
    """
    if runner.is_being_deleted(group):
        return
    user = User(runner, group)
    for name, _ in user.each("templates"):
        user.do("ec2", "delete_launch_template", LaunchTemplateName=name)
        user.do("ec2", "create_launch_template", LaunchTemplateName=name, LaunchTemplateData={"InstanceType": "m5.large"})
    runner.wait_until(lambda: all(template["tags"] for _, template in User(runner, group).each("templates")), 20)


@perturbation("template version deleted", needs="eks", number=["1", "latest"])
def template_version_deleted(runner, group, number):
    """Perhaps the one that is launched, which shows at the next launch. AWS refuses to delete the default one."""
    user = User(runner, group)
    for name, template in user.each("templates"):
        user.do("ec2", "modify_launch_template", LaunchTemplateName=name, DefaultVersion=str(template["latest"] if number == "1" else min(map(int, template["versions"]))))
        user.do("ec2", "delete_launch_template_versions", LaunchTemplateName=name, Versions=[str(template["latest"]) if number == "latest" else number])
    on_one(runner, group, 0, "autoscaling", "terminate_instance_in_auto_scaling_group", "InstanceId", ShouldDecrementDesiredCapacity=False)


@perturbation("template version made by hand", needs="eks", data=[{"InstanceType": "c5.large"}, {"KeyName": "nobodys"}], default=[True, False])
def template_version_made_by_hand(runner, group, data, default):
    """Nothing launches it, because the group is pinned to a number."""
    user = User(runner, group)
    for name, template in user.each("templates"):
        made = user.do("ec2", "create_launch_template_version", LaunchTemplateName=name, SourceVersion=str(template["latest"]), LaunchTemplateData=data)
        if made and default:
            user.do("ec2", "modify_launch_template", LaunchTemplateName=name, DefaultVersion=str(made["LaunchTemplateVersion"]["VersionNumber"]))


@perturbation("tags of a launch template taken off", needs="eks")
def tags_removed_from_a_launch_template(runner, group):
    """The scaling group still says whose it is, so they come back."""
    user = User(runner, group)
    for _, template in user.each("templates"):
        user.do("ec2", "delete_tags", Resources=[template["id"]], Tags=[{"Key": key} for key in template["tags"]])


# --- helpers ----------------------------------------------------------------------------------------


def on_scaling_group(runner, group, operation, **parameters):
    """One call on the group's scaling group, if there is one."""
    user = User(runner, group)
    if found := user.scaling_group():
        user.do("autoscaling", operation, AutoScalingGroupName=found["AutoScalingGroupName"], **parameters)


def edit(runner, group, **fields):
    """Changes attributes of the group's scaling group."""
    on_scaling_group(runner, group, "update_auto_scaling_group", **fields)


def edit_template(runner, group, change, options=None):
    """Changes which template and version the scaling group launches, in its policy or beside it; in a policy also `options`."""
    changed = launched(User(runner, group).scaling_group() or {}, change)
    if policy := changed.get("MixedInstancesPolicy"):
        policy["InstancesDistribution"] |= options or {}
        edit(runner, group, MixedInstancesPolicy=policy)
    elif changed and not options:
        edit(runner, group, **changed)


def launched(found, change=lambda now: now):
    """What a scaling group launches, with a changed reference to its template, as calls take it."""
    if policy := json.loads(json.dumps(found.get("MixedInstancesPolicy"))):
        policy["LaunchTemplate"]["LaunchTemplateSpecification"] = reference(change, policy["LaunchTemplate"]["LaunchTemplateSpecification"])
        return {"MixedInstancesPolicy": policy}
    return {"LaunchTemplate": reference(change, found["LaunchTemplate"])} if found.get("LaunchTemplate") else {}


def reference(change, now):
    """A changed reference to a template, by its id or by its name: AWS takes one of both."""
    return change({key: value for key, value in now.items() if key != "LaunchTemplateName" or "LaunchTemplateId" not in now})
