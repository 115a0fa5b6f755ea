"""Perturbations of AWS resources do what they say: AWS takes their calls, and takes back what is undone."""

import json
import os
import random
import subprocess
import sys
import time

import pytest
import requests

from campaign import foreign_resources, perturbations
from campaign.runner import Runner
from campaign.user import User
from e2e import harness
from localcloud.tests.support import REPOSITORY, eventually

REGISTRY = perturbations.load()
TRUST = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}]})
PODS = TRUST.replace("ec2", "eks-fargate-pods")
POLICIES = ["AmazonEKSWorkerNodePolicy", "AmazonEKS_CNI_Policy", "AmazonEC2ContainerRegistryReadOnly"]
TAGS = {"instancegroups.keikoproj.io/Namespace": "camp", "instancegroups.keikoproj.io/ClusterName": "demo", "team": "search"}
KUBERNETES = ("kubelet", "node", "silent", "broken", "late")
"""Words in the names of perturbations of `nodes` that need Nodes."""
EKS_MODULES = (
    "manual_changes_scaling_groups",
    "manual_changes_instances",
    "manual_changes_iam",
    "manual_changes_eks",
    "nodes",
)


def names(provisioner):
    """The perturbations that act on groups of that provisioner in AWS."""
    found = []
    for name, each in REGISTRY.items():
        if each._act.__module__.rpartition(".")[2] in EKS_MODULES and not any(word in name for word in KUBERNETES if each._act.__module__.endswith("nodes")):
            if "group" in each._names and (each.needs is None or provisioner in ((each.needs,) if isinstance(each.needs, str) else each.needs)):
                found.append(name)
    return found


class FakeRunner:
    """What a perturbation asks of a runner, on an AWS without Kubernetes."""

    def __init__(self, cloud):
        self.cloud, self.undone, self.refused, self.present = cloud, [], [], {}

    def undo(self, function, after=None, group=None):
        """Keeps it for the end."""
        self.undone.append(function)

    def note(self, what, **more):
        """Keeps what AWS refused."""
        if what == "refused":
            self.refused.append(more)

    def is_being_deleted(self, group):
        """No group is, without Kubernetes."""
        return False

    def wait(self, seconds):
        """Not here."""

    def wait_until(self, predicate, seconds):
        """Whether it came true in time. What a controller would do never does."""
        end = time.monotonic() + min(seconds, 2)
        while not (found := predicate()) and time.monotonic() < end:
            time.sleep(0.1)
        return found


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """A simulated AWS with what belongs to others."""
    state = tmp_path_factory.mktemp("aws")
    delays = "short,propagation=0,pending=0.1,terminate=0.1,move=0.1,nodegroup=0.1,profile=0.1,profile_gone=0.1"
    command = [sys.executable, "-m", "localcloud.aws.server", "--state", str(state), "--authentication-mode", "API_AND_CONFIG_MAP", "--delays", delays]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}) as process:
        try:
            eventually(lambda: (state / "aws.json").exists())
            made = harness.Cloud(json.loads((state / "aws.json").read_text()), process)
            make_profile(made, foreign_resources.NAME)
            data = {"ImageId": "ami-02100000000000001", "InstanceType": "m5.large"}
            made.boto("ec2").create_launch_template(LaunchTemplateName=foreign_resources.NAME, LaunchTemplateData=data)
            yield made
        finally:
            process.kill()


def make_profile(cloud, name):
    """A role and an instance profile of that name."""
    iam = cloud.boto("iam")
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=TRUST, Tags=as_tags(TAGS))
    for policy in POLICIES:
        iam.attach_role_policy(RoleName=name, PolicyArn=f"arn:aws:iam::aws:policy/{policy}")
    iam.create_instance_profile(InstanceProfileName=name, Tags=as_tags(TAGS))
    iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)


def as_tags(tags, **more):
    """Tags as a list."""
    return [{"Key": key, "Value": value, **more} for key, value in tags.items()]


def make_eks(cloud, group):
    """What the controller makes for an eks group, with a hook, a metric, a suspended process and a tag."""
    name, tags = f"demo-camp-{group}", {**TAGS, "instancegroups.keikoproj.io/InstanceGroup": group}
    make_profile(cloud, name)
    data = {"ImageId": "ami-02100000000000001", "InstanceType": "m5.large", "IamInstanceProfile": {"Name": name}}
    template = {"LaunchTemplateName": name, "LaunchTemplateData": data}
    ec2, autoscaling = cloud.boto("ec2"), cloud.boto("autoscaling")
    ec2.create_launch_template(**template, TagSpecifications=[{"ResourceType": "launch-template", "Tags": as_tags(tags)}])
    ec2.create_launch_template_version(**template)
    where = {"AutoScalingGroupName": name}
    launch = {"LaunchTemplateName": name, "Version": "2"}
    mixed = "purchase" in group
    policy = {"LaunchTemplate": {"LaunchTemplateSpecification": launch, "Overrides": [{"InstanceType": "m5.large"}, {"InstanceType": "m5a.large"}]}}
    autoscaling.create_auto_scaling_group(
        **where, MinSize=1, DesiredCapacity=2, MaxSize=4, VPCZoneIdentifier=",".join(cloud["subnets"]),
        **({"MixedInstancesPolicy": policy} if mixed else {"LaunchTemplate": launch}),
        Tags=as_tags(tags, PropagateAtLaunch=True, ResourceId=name, ResourceType="auto-scaling-group"),
    )  # fmt: skip
    hook = {"LifecycleHookName": "ours", "LifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING", "HeartbeatTimeout": 30, "DefaultResult": "CONTINUE"}
    autoscaling.put_lifecycle_hook(**where, **hook)
    autoscaling.suspend_processes(**where, ScalingProcesses=["ScheduledActions"])
    autoscaling.enable_metrics_collection(**where, Granularity="1Minute", Metrics=["GroupMinSize"])
    if "warm" in group and "others" not in group:
        autoscaling.put_warm_pool(**where, MinSize=1)
    arn = f"arn:aws:iam::123456789012:role/{name}"
    cloud.boto("eks").create_access_entry(clusterName="demo", principalArn=arn, type="EC2_LINUX", tags={**tags, "instancegroups.keikoproj.io/RoleId": "AROAEXAMPLE"})


def make_managed(cloud, group):
    """A managed node group."""
    make_profile(cloud, f"people-{group}")
    tags = {**TAGS, "instancegroups.keikoproj.io/InstanceGroup": group}
    sizes = {"minSize": 1, "maxSize": 3, "desiredSize": 2}
    arn = f"arn:aws:iam::123456789012:role/people-{group}"
    given = {"clusterName": "demo", "nodegroupName": f"camp-{group}", "subnets": cloud["subnets"], "nodeRole": arn, "labels": {"pool": group}}
    cloud.boto("eks").create_nodegroup(**given, scalingConfig=sizes, tags=tags)
    eventually(lambda: cloud.boto("eks").describe_nodegroup(clusterName="demo", nodegroupName=f"camp-{group}")["nodegroup"]["status"] == "ACTIVE")


def make_fargate(cloud, group):
    """A Fargate profile with its role."""
    name, tags = f"camp-{group}", {**TAGS, "instancegroups.keikoproj.io/InstanceGroup": group}
    arn = cloud.boto("iam").create_role(RoleName=f"{name}-role", AssumeRolePolicyDocument=PODS, Tags=as_tags(tags))["Role"]["Arn"]
    cloud.boto("iam").attach_role_policy(RoleName=f"{name}-role", PolicyArn="arn:aws:iam::aws:policy/AmazonEKSFargatePodExecutionRolePolicy")
    eks = cloud.boto("eks")
    eventually(lambda: role_is_accepted(eks, name, arn, tags))
    eventually(lambda: eks.describe_fargate_profile(clusterName="demo", fargateProfileName=name)["fargateProfile"]["status"] == "ACTIVE")


def role_is_accepted(eks, name, arn, tags):
    """Creates the profile; whether EKS took it, which does not know a role at once and makes one profile at a time."""
    try:
        return eks.create_fargate_profile(clusterName="demo", fargateProfileName=name, podExecutionRoleArn=arn, selectors=[{"namespace": "camp"}], tags=tags)
    except eks.exceptions.ClientError:
        return None


def disturb(cloud, name, group, provisioner):
    """Does it with arguments by chance, undoes it, and gives what AWS refused."""
    runner, chance = FakeRunner(cloud), random.Random(name)
    world = {"groups": {group: {"annotations": {}, "spec": {"provisioner": provisioner}}}, "mode": "API_AND_CONFIG_MAP", "events": []}
    REGISTRY[name](runner, **REGISTRY[name].arguments(chance, world))
    done = runner.refused[:]
    for function in reversed(runner.undone):
        function()
    return done, runner


@pytest.mark.parametrize("name", names("eks"))
def test_aws_accepts_each_manual_change_to_an_eks_group(cloud, name):
    """A call that AWS refuses disturbs nothing."""
    group = f"g{name.replace(' ', '').replace(chr(39), '').lower()}"[:30]
    make_eks(cloud, group)
    user = lambda: User(FakeRunner(cloud), group)  # noqa: E731
    eventually(lambda: len(user().members()) == 2)
    if "warm" in name and "others" not in name:
        eventually(lambda: user().scaling_group()["WarmPool"])
    mark = cloud.log_position()
    refused, runner = disturb(cloud, name, group, "eks")
    assert refused == []
    assert runner.refused == []
    called = [e for e in cloud.aws_events(mark) if e["kind"] == "call" and e["caller"]["key"] == "person" and (e.get("status") or 500) < 300]
    assert called or "Fargate" in name or "lifecycle action" in name or "Spot" in name or "EKS resources" in name


MAKERS = {"eks-managed": make_managed, "eks-fargate": make_fargate}
"""How the groups of the other provisioners are made."""


@pytest.mark.parametrize(("provisioner", "name"), [(provisioner, name) for provisioner in MAKERS for name in names(provisioner)])
def test_aws_accepts_each_manual_change_to_a_node_group_or_fargate_profile(cloud, provisioner, name):
    """The same for the other provisioners."""
    group = f"{provisioner[4]}{name.replace(' ', '').lower()}"[:30]
    MAKERS[provisioner](cloud, group)
    refused, _ = disturb(cloud, name, group, provisioner)
    assert refused == []


@pytest.mark.parametrize("name", ["scaling group made again by hand", "access entry edited", "role of a Fargate profile made again by hand"])
def test_what_is_made_again_or_edited_is_another_one_and_comes_back(cloud, name):
    """One that finds nothing of the group, or leaves it as it was, disturbs nothing."""
    provisioner, kind = {"scaling": ("eks", "groups"), "access": ("eks", "access"), "role": ("eks-fargate", "roles")}[name.split()[0]]
    group = f"h{name.replace(' ', '').lower()}"[:20]
    (make_eks if provisioner == "eks" else make_fargate)(cloud, group)
    known = dict(User(FakeRunner(cloud), group).each(kind))
    runner = FakeRunner(cloud)
    # The simulated AWS takes a while to end the instances of a group.
    runner.wait_until = lambda predicate, seconds: eventually(predicate) or True
    chosen = {key: {"tagged": True, "tag": "InstanceGroup", "policies": True, "later": None}[key] for key in REGISTRY[name]._names if key != "group"}
    REGISTRY[name](runner, group=group, **chosen)
    picture = {each: cloud.snapshot()[kind].get(each) for each in known}
    assert runner.refused == [] and known and all(picture.values())
    assert all(picture[each] != thing for each, thing in known.items())
    for function in reversed(runner.undone):
        function()
    assert all(tags_of(cloud.snapshot()[kind][each]) == tags_of(thing) for each, thing in known.items())


def test_a_users_untagged_scaling_group_goes_although_a_late_write_tagged_it(cloud):
    """The controller, which had read the one before, noted on it what it suspended. The group would wait for ever for the user."""
    make_eks(cloud, "late")
    runner = FakeRunner(cloud)
    runner.wait_until = lambda predicate, seconds: eventually(predicate) or True
    REGISTRY["scaling group made again by hand"](runner, group="late", tagged=False, later=None)
    name = "demo-camp-late"
    note = as_tags({"instancegroups.keikoproj.io/SuspendedForSubnets": "AZRebalance"}, PropagateAtLaunch=False, ResourceId=name, ResourceType="auto-scaling-group")
    cloud.boto("autoscaling").create_or_update_tags(Tags=note)
    for function in runner.undone:
        function()
    eventually(lambda: name not in cloud.snapshot()["groups"])


def test_a_user_puts_back_only_the_tags_that_say_whose_a_resource_is(cloud):
    """The spec may have dropped the others meanwhile. They would stay, and the run would fail with the controller being right."""
    make_fargate(cloud, "retagged")
    runner = FakeRunner(cloud)
    REGISTRY["tags of EKS resources taken off"](runner, group="retagged", kinds=["fargate"], later=None)
    profile = cloud.snapshot()["fargate"]["camp-retagged"]
    assert profile["tags"] == {}
    for function in runner.undone:
        function()
    tags = {key: value for key, value in TAGS.items() if key != "team"}
    assert cloud.snapshot()["fargate"]["camp-retagged"]["tags"] == {**tags, "instancegroups.keikoproj.io/InstanceGroup": "retagged"}


def tags_of(thing):
    """The tags of a resource in a snapshot."""
    tags = thing.get("tags") or thing.get("Tags")
    return tags if isinstance(tags, dict) else {tag["Key"]: tag["Value"] for tag in tags}


def test_a_change_is_undone_when_the_api_server_is_back():
    """A user whose request fails tries again. The run would end without a judgment otherwise."""
    done = []
    played = Runner.__new__(Runner)
    played._undo = []
    played.undo(lambda: done.append("API server"))

    def undo_edit():
        if not done:
            raise requests.ConnectionError
        done.append("edit")

    played.undo(undo_edit)
    played._undo_all()
    assert done == ["API server", "edit"]


def test_what_was_done_to_a_group_ends_before_it_is_created_again(cloud):
    """The next group would take a profile that a user left without tags for another owner's, and the run would fail with the controller being right."""
    done = []
    played = Runner.__new__(Runner)
    played.cloud, played._undo, played.present = cloud, [], {"web": {"spec": {"provisioner": "eks", "eks": {}}}}
    played.undo(lambda: done.append("web"), group="web")
    played.undo(lambda: done.append("db"), group="db")
    played._undo_of("web")
    assert done == ["web"]
    played._undo_all()
    assert done == ["web", "db"]


@pytest.mark.parametrize(
    ("configuration", "tagged", "kept"),
    [({}, False, True), ({"roleName": "people-shared"}, False, False), ({"roleName": "people-shared"}, True, True)],
)
def test_a_user_deletes_what_a_deletion_kept_if_the_next_group_has_another_role(cloud, configuration, tagged, kept):
    """It would be there in the end, but not in the reference run, and the run would fail with the controller being right. What has its tags was leaked."""
    group = f"kept-{'named' if configuration else 'own'}-{'tagged' if tagged else 'untagged'}"
    name = f"demo-camp-{group}"
    make_profile(cloud, name)
    if not tagged:
        cloud.boto("iam").untag_instance_profile(InstanceProfileName=name, TagKeys=list(TAGS))
    played = Runner.__new__(Runner)
    played.cloud, played._undo, played.journal = cloud, [], []
    played.present = {group: {"spec": {"provisioner": "eks", "eks": {"configuration": configuration}}}}
    played._undo_of(group)
    found = cloud.snapshot()
    assert (name in found["roles"], name in found["profiles"]) == (kept, kept)
