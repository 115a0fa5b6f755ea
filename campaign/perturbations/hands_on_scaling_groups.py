"""People's hands on scaling groups and launch templates: edited, deleted, tags taken off, made again.

What the spec sets comes back by itself. What a person adds stays, so the person takes it away again.
"""

import json

from campaign import foreign_resources
from campaign.person import Person, owned
from campaign.perturbations import perturbation
from campaign.perturbations.hands_on_instances import on_one

PROCESSES = ["Launch", "Terminate", "AZRebalance", "ReplaceUnhealthy", "HealthCheck"]
LATER = [3, 10, None]
"""When somebody undoes it: after so many seconds, or before the end."""


@perturbation("sizes edited", needs="eks", sizes=[{"MinSize": 0}, {"MinSize": 0, "MaxSize": 0}, {"MaxSize": 9}, {"MinSize": 3, "MaxSize": 4}])
def sizes_edited(stage, group, sizes):
    """A person changes the desired capacity. AWS follows at once; then the spec's sizes are back."""
    edit(stage, group, **sizes)


@perturbation("desired capacity set", needs="eks", up=[True, False])
def desired_capacity_set(stage, group, up):
    """As an autoscaler does: it is never set back."""
    person = Person(stage, group)
    if found := person.scaling_group():
        person.do("autoscaling", "set_desired_capacity", AutoScalingGroupName=found["AutoScalingGroupName"], DesiredCapacity=found["MaxSize" if up else "MinSize"])


@perturbation("pinned version edited", needs="eks", version=["1", "$Latest", "$Default"])
def pinned_version_edited(stage, group, version):
    """A person pins the group to another version of its template."""
    edit_template(stage, group, lambda now: {**now, "Version": version})


@perturbation("another's template launched", needs="eks")
def anothers_template_launched(stage, group):
    """Nodes of it never join, and are replaced when the right one is back."""
    edit_template(stage, group, lambda now: {"LaunchTemplateName": foreign_resources.NAME, "Version": "1"})


@perturbation("purchase options edited", needs="eks", options=[{"OnDemandPercentageAboveBaseCapacity": 100}, {"OnDemandBaseCapacity": 2}, {"SpotAllocationStrategy": "lowest-price"}])
def purchase_options_edited(stage, group, options):
    """Of a group with a mixed instances policy."""
    edit_template(stage, group, lambda now: now, options)


@perturbation("subnets edited", needs="eks", allows=("needless_rotation",), count=[1, 2, 3])
def subnets_edited(stage, group, count):
    """AWS moves nodes without a drain; then the spec's subnets are back."""
    edit(stage, group, VPCZoneIdentifier=",".join(stage.cloud["subnets"][:count]))


@perturbation("settings of others edited", needs="eks", later=LATER, settings=[
    {"NewInstancesProtectedFromScaleIn": True}, {"DefaultCooldown": 60}, {"CapacityRebalance": True}, {"TerminationPolicies": ["NewestInstance"]},
    {"HealthCheckType": "ELB", "HealthCheckGracePeriod": 60},
])  # fmt: skip
def settings_of_others_edited(stage, group, later, settings):
    """The spec says nothing of them, so they stay as they are set."""
    if before := Person(stage, group).scaling_group():
        edit(stage, group, **settings)
        stage.undo(lambda: edit(stage, group, **{key: before[key] or False if key == "CapacityRebalance" else before[key] for key in settings}), after=later)


@perturbation("scaling group deleted", needs="eks")
def scaling_group_deleted(stage, group):
    """With its instances; it is made again."""
    person = Person(stage, group)
    for name, _ in person.each("groups"):
        person.do("autoscaling", "delete_auto_scaling_group", AutoScalingGroupName=name, ForceDelete=True)


@perturbation("tags of a scaling group edited", needs="eks", value=["edited", None])
def tags_of_a_scaling_group_edited(stage, group, value):
    """Those that do not say whose it is come back, but one that a person adds."""
    person = Person(stage, group)
    found = person.scaling_group() or {"Tags": []}
    tags = [tag for tag in found["Tags"] if not owned({tag["Key"]: ""})]
    if tags and value:
        person.do("autoscaling", "create_or_update_tags", Tags=[{**tag, "Value": value} for tag in tags])
    elif tags:
        person.do("autoscaling", "delete_tags", Tags=tags)


@perturbation("scaling group disowned", needs="eks", count=[1, 3], later=LATER)
def scaling_group_disowned(stage, group, count, later):
    """Without its ownership tags the controller does not change it, until a person restores them."""
    person = Person(stage, group)
    found = person.scaling_group() or {"Tags": []}
    tags = [tag for tag in found["Tags"] if owned({tag["Key"]: ""})][:count]
    if tags:
        person.do("autoscaling", "delete_tags", Tags=tags)
        person.undo("autoscaling", "create_or_update_tags", Tags=tags, after=later)


@perturbation("processes suspended", needs="eks", chosen=[*([process] for process in PROCESSES), PROCESSES], later=LATER)
def processes_suspended(stage, group, chosen, later):
    """What a person suspends stays suspended until a person resumes it."""
    person = Person(stage, group)
    if found := person.scaling_group():
        before = [process["ProcessName"] for process in found["SuspendedProcesses"]]
        which = {"AutoScalingGroupName": found["AutoScalingGroupName"], "ScalingProcesses": [process for process in chosen if process not in before]}
        if which["ScalingProcesses"]:
            person.do("autoscaling", "suspend_processes", **which)
            person.undo("autoscaling", "resume_processes", after=later, **which)


@perturbation("processes resumed", needs="eks")
def processes_resumed(stage, group):
    """All of them: those that the spec suspends are suspended again."""
    on_scaling_group(stage, group, "resume_processes")


@perturbation("hooks edited", needs="eks", change=[{"HeartbeatTimeout": 77}, {"DefaultResult": "ABANDON"}, None])
def hooks_edited(stage, group, change):
    """Changed or deleted: the spec's hooks come back."""
    person = Person(stage, group)
    for hook in (person.scaling_group() or {"LifecycleHooks": []})["LifecycleHooks"]:
        which = {"AutoScalingGroupName": hook["AutoScalingGroupName"], "LifecycleHookName": hook["LifecycleHookName"]}
        if change:
            person.do("autoscaling", "put_lifecycle_hook", **which, LifecycleTransition=hook["LifecycleTransition"], **change)
        else:
            person.do("autoscaling", "delete_lifecycle_hook", **which)


@perturbation("hook of others", needs="eks", transition=["LAUNCHING", "TERMINATING"], later=LATER)
def hook_of_others(stage, group, transition, later):
    """It holds every instance up for a while, and is not the controller's to delete."""
    hook = {"LifecycleHookName": "theirs"}
    on_scaling_group(stage, group, "put_lifecycle_hook", **hook, LifecycleTransition=f"autoscaling:EC2_INSTANCE_{transition}", HeartbeatTimeout=100, DefaultResult="CONTINUE")
    stage.undo(lambda: on_scaling_group(stage, group, "delete_lifecycle_hook", **hook), after=later)


@perturbation("metrics disabled", needs="eks")
def metrics_disabled(stage, group):
    """Those of the spec are enabled again."""
    on_scaling_group(stage, group, "disable_metrics_collection")


@perturbation("warm pool edited", needs="eks", sizes=[{"MinSize": 2}, {"MinSize": 0, "MaxGroupPreparedCapacity": 1}, {"PoolState": "Running"}, None])
def warm_pool_edited(stage, group, sizes):
    """Changed or deleted: the spec's pool comes back."""
    if (Person(stage, group).scaling_group() or {}).get("WarmPoolConfiguration"):
        on_scaling_group(stage, group, "put_warm_pool", **sizes) if sizes else on_scaling_group(stage, group, "delete_warm_pool", ForceDelete=True)


@perturbation("warm pool of others", needs="eks", later=LATER)
def warm_pool_of_others(stage, group, later):
    """A group that has none gets one, which stays until a person deletes it."""
    found = Person(stage, group).scaling_group()
    if found and not found.get("WarmPoolConfiguration"):
        on_scaling_group(stage, group, "put_warm_pool", MinSize=1, MaxGroupPreparedCapacity=found["MaxSize"] + 1)
        stage.undo(lambda: on_scaling_group(stage, group, "delete_warm_pool", ForceDelete=True), after=later)


@perturbation("instance refresh started", needs="eks", allows=("needless_rotation",), later=[3, 10])
def instance_refresh_started(stage, group, later):
    """AWS replaces the nodes itself for a while."""
    on_scaling_group(stage, group, "start_instance_refresh")
    stage.undo(lambda: on_scaling_group(stage, group, "cancel_instance_refresh"), after=later)


# --- launch templates -----------------------------------------------------------------------------


@perturbation("launch template deleted", needs="eks")
def launch_template_deleted(stage, group):
    """Nothing can be launched until it is made again."""
    person = Person(stage, group)
    for name, _ in person.each("templates"):
        person.do("ec2", "delete_launch_template", LaunchTemplateName=name)


@perturbation("launch template made again by hand", needs="eks")
def launch_template_made_again_by_hand(stage, group):
    """With other content and without its tags. The scaling group refers to its name, so it is the group's all the same.

    If the group were deleted before the controller has tagged it, it would be the person's.
    """
    if stage.is_being_deleted(group):
        return
    person = Person(stage, group)
    for name, _ in person.each("templates"):
        person.do("ec2", "delete_launch_template", LaunchTemplateName=name)
        person.do("ec2", "create_launch_template", LaunchTemplateName=name, LaunchTemplateData={"InstanceType": "m5.large"})
    stage.wait_until(lambda: all(template["tags"] for _, template in Person(stage, group).each("templates")), 20)


@perturbation("template version deleted", needs="eks", number=["1", "latest"])
def template_version_deleted(stage, group, number):
    """Perhaps the one that is launched, which shows at the next launch. AWS refuses to delete the default one."""
    person = Person(stage, group)
    for name, template in person.each("templates"):
        person.do("ec2", "modify_launch_template", LaunchTemplateName=name, DefaultVersion=str(template["latest"] if number == "1" else min(map(int, template["versions"]))))
        person.do("ec2", "delete_launch_template_versions", LaunchTemplateName=name, Versions=[str(template["latest"]) if number == "latest" else number])
    on_one(stage, group, 0, "autoscaling", "terminate_instance_in_auto_scaling_group", "InstanceId", ShouldDecrementDesiredCapacity=False)


@perturbation("template version made by hand", needs="eks", data=[{"InstanceType": "c5.large"}, {"KeyName": "nobodys"}], default=[True, False])
def template_version_made_by_hand(stage, group, data, default):
    """Nothing launches it, because the group is pinned to a number."""
    person = Person(stage, group)
    for name, template in person.each("templates"):
        made = person.do("ec2", "create_launch_template_version", LaunchTemplateName=name, SourceVersion=str(template["latest"]), LaunchTemplateData=data)
        if made and default:
            person.do("ec2", "modify_launch_template", LaunchTemplateName=name, DefaultVersion=str(made["LaunchTemplateVersion"]["VersionNumber"]))


@perturbation("tags of a launch template taken off", needs="eks")
def tags_of_a_launch_template_taken_off(stage, group):
    """The scaling group still says whose it is, so they come back."""
    person = Person(stage, group)
    for _, template in person.each("templates"):
        person.do("ec2", "delete_tags", Resources=[template["id"]], Tags=[{"Key": key} for key in template["tags"]])


# --- hands ----------------------------------------------------------------------------------------


def on_scaling_group(stage, group, operation, **parameters):
    """One call on the group's scaling group, if there is one."""
    person = Person(stage, group)
    if found := person.scaling_group():
        person.do("autoscaling", operation, AutoScalingGroupName=found["AutoScalingGroupName"], **parameters)


def edit(stage, group, **fields):
    """Changes attributes of the group's scaling group."""
    on_scaling_group(stage, group, "update_auto_scaling_group", **fields)


def edit_template(stage, group, change, options=None):
    """Changes which template and version the scaling group launches, in its policy or beside it; in a policy also `options`."""
    found = json.loads(json.dumps(Person(stage, group).scaling_group() or {}))
    if policy := found.get("MixedInstancesPolicy"):
        policy["LaunchTemplate"]["LaunchTemplateSpecification"] = reference(change, policy["LaunchTemplate"]["LaunchTemplateSpecification"])
        policy["InstancesDistribution"] |= options or {}
        edit(stage, group, MixedInstancesPolicy=policy)
    elif found.get("LaunchTemplate") and not options:
        edit(stage, group, LaunchTemplate=reference(change, found["LaunchTemplate"]))


def reference(change, now):
    """A changed reference to a template, by its id or by its name: AWS takes one of both."""
    return change({key: value for key, value in now.items() if key != "LaunchTemplateName" or "LaunchTemplateId" not in now})
