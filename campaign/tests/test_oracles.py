"""Each oracle finds what is planted for it, and nothing in a run where all is well."""

import copy

import pytest

from campaign import controller, foreign_resources, oracles, state

USER = controller.settings()["user"]
GROUP = "demo-camp-alpha"


class Story:
    """A run that is written line by line: one group, whose three nodes joined."""

    def __init__(self, **rolling):
        self.seconds, self.aws, self.audit, self.journal = 0, [], [], []
        spec = {"provisioner": "eks", "strategy": {"rollingUpdate": {"maxUnavailable": 1, **rolling}}, "eks": {"configuration": {}}}
        self.group = {"annotations": {}, "spec": spec}
        self.note("begin", foreign_resources=foreign_resources.snapshot(picture()["aws"]))
        self.note("apply", group="alpha", to=self.group, bad=False)
        self.call("CreateLaunchTemplate", LaunchTemplateName="alpha", LaunchTemplateData={"ImageId": "ami-1"})
        self.call("CreateAutoScalingGroup", AutoScalingGroupName=GROUP, LaunchTemplate={"LaunchTemplateName": "alpha", "Version": "1"})
        for number in range(3):
            self.node(number, "joined")
            self.instance(number, "InService")
            self.node(number, "ready")
        self.wait(60)
        self.end, self.left = picture(), picture()

    def moment(self):
        """The present time, which advances."""
        self.seconds += 0.001
        return f"2026-01-01T{int(self.seconds) // 3600:02}:{int(self.seconds) // 60 % 60:02}:{self.seconds % 60:09.6f}"[:26]

    def wait(self, seconds):
        self.seconds += seconds

    def note(self, what, **more):
        self.journal.append({"time": self.moment(), "what": what, **more})

    def call(self, operation, key="controller", **params):
        self.aws.append({"seq": len(self.aws), "time": self.moment(), "kind": "call", "service": "x", "operation": operation, "params": params, "status": 200, "caller": {"key": key}})

    def state(self, **fields):
        self.aws.append({"seq": len(self.aws), "time": self.moment(), "kind": "state", **fields})

    def instance(self, number, what):
        self.state(object="instance", id=f"i-{number}", group=GROUP, state=what, desired=3, version="1", template="alpha")

    def node(self, number, what):
        self.state(object="node", id=f"node-{number}", instance=f"i-{number}", group=GROUP, state=what)

    def write(self, verb, resource, name, body, subresource="", user=USER, code=200):
        ref = {"resource": resource, "name": name, "namespace": "camp", "subresource": subresource}
        self.audit.append({"auditID": "x", "verb": verb, "objectRef": ref, "user": {"username": user}, "requestObject": body,
                           "responseStatus": {"code": code}, "stageTimestamp": self.moment()})  # fmt: skip

    def cordon(self, number):
        self.write("patch", "nodes", f"node-{number}", {"spec": {"unschedulable": True}})

    def terminate(self, number, decrement="false"):
        self.instance(number, "Terminating")
        self.call("TerminateInstanceInAutoScalingGroup", InstanceId=f"i-{number}", ShouldDecrementDesiredCapacity=decrement)

    def run(self):
        """The run that was written."""
        self.note("end", unsettled={})
        self.wait(5)
        self.note("quiet")
        self.note("left", unsettled={})
        scenario = {"groups": {"alpha": self.group}, "events": []}
        world = {"subnets": [], "security_group": "sg-1", "foreign_resources": {"names": [foreign_resources.NAME]}}
        return {"settings": controller.settings(), "scenario": scenario, "journal": self.journal, "end": self.end, "left": self.left,
                "world": world, "aws": self.aws, "audit": self.audit}  # fmt: skip


def picture():
    """An account with nothing of ours."""
    kinds = ("groups", "templates", "configurations", "roles", "nodegroups", "profiles", "access", "fargate")
    account = {kind: {} for kind in kinds} | {"roles": {foreign_resources.NAME: {"arn": "arn", "policies": ["a"]}}}
    return {"aws": account, "kubernetes": {"groups": [], "nodes": [], "pods": [], "map_roles": foreign_resources.AUTH}}


def found(run, reference=None):
    """The oracles that something was wrong for."""
    return {failure["oracle"] for failure in oracles.judge(run, reference)}


def replaced(story, number):
    """One node is replaced as it should be."""
    story.call("CreateLaunchTemplateVersion", LaunchTemplateName="alpha", LaunchTemplateData={"ImageId": "ami-2"})
    story.call("UpdateAutoScalingGroup", AutoScalingGroupName=GROUP, LaunchTemplate={"LaunchTemplateName": "alpha", "Version": "2"})
    story.cordon(number)
    story.terminate(number)


def test_a_run_in_which_all_is_well():
    """An oracle that cries wolf is not read."""
    story = Story()
    replaced(story, 0)
    run = story.run()
    assert oracles.judge(run, copy.deepcopy(run)) == []


def two_at_once(story):
    replaced(story, 0)
    story.cordon(1)


def beyond_what_died(story):
    story.node(2, "silent")
    story.wait(60)
    replaced(story, 0)


def not_cordoned(story):
    replaced(story, 0)
    story.node(0, "joined")
    story.node(0, "ready")
    story.wait(60)
    story.terminate(1)


def with_a_pod(story):
    story.write("create", "pods", "app", {"target": {"name": "node-0"}}, "binding", user="scheduler")
    replaced(story, 0)


def with_its_scaling_group(story):
    story.note("delete", group="alpha")
    story.state(object="instance", id="i-0", group=GROUP, state="Terminating", desired=3, why="the group was deleted with force")
    story.call("DeleteAutoScalingGroup", AutoScalingGroupName=GROUP, ForceDelete="true")


def deleted_pod(story):
    story.write("create", "pods", "app", {"target": {"name": "node-0"}}, "binding", user="scheduler")
    story.write("delete", "pods", "app", {"gracePeriodSeconds": 1})


def evicted_again_and_again(story):
    story.cordon(0)
    for number in range(12):
        story.write("create", "pods", f"app-{number}", {"target": {"name": "node-0"}}, "binding", user="scheduler")
        story.write("create", "pods", f"app-{number}", {}, "eviction")


def smaller_group(story):
    story.call("UpdateAutoScalingGroup", AutoScalingGroupName=GROUP, MaxSize="2")
    story.state(object="instance", id="i-0", group=GROUP, state="Terminating", desired=2, why="shrinking the capacity from 3 to 2")


def repeated_decrement(story):
    story.terminate(0, decrement="true")
    story.terminate(0, decrement="true")
    story.state(object="instance", id="i-1", group=GROUP, state="Terminating", desired=1, why="shrinking the capacity from 2 to 1")


def second_role(story):
    story.call("CreateRole", RoleName=GROUP)
    story.call("CreateRole", RoleName=f"{GROUP}-12345678")
    story.call("DeleteRole", RoleName=GROUP)


def the_same_again(story):
    story.cordon(0)
    story.terminate(0)


def late_write(story):
    story.note("delete", group="alpha")
    story.write("patch", "instancegroups", "alpha", {"metadata": {"finalizers": None}})
    story.call("DeleteRole", RoleName=GROUP)


def again_and_again(story):
    for _ in range(12):
        story.call("PutLifecycleHook", AutoScalingGroupName=GROUP, LifecycleHookName="x")


def not_gone(story):
    story.left["aws"]["roles"][GROUP] = {"arn": "arn", "tags": {}}


def entry_of_a_role_that_is_gone(story):
    story.left["aws"]["access"]["arn:aws:iam::123456789012:role/fargate-demo-1-role"] = {"type": "FARGATE_LINUX", "tags": {}}


def two_templates(story):
    story.end["aws"]["templates"] = {f"{GROUP}-{number}": {"tags": {}} for number in (1, 2)}


def changed_foreign_resource(story):
    story.end["aws"]["roles"][foreign_resources.NAME]["policies"] = []


def entry_of_others(story):
    story.end["kubernetes"]["map_roles"] = foreign_resources.AUTH.replace("# The", "#The")


def named_foreign_resource(story):
    story.call("DeleteRole", RoleName=foreign_resources.NAME)


def role_of_users(story):
    story.call("DetachRolePolicy", RoleName="people-alpha", PolicyArn="arn:aws:iam::aws:policy/a")


def profile_of_users(story):
    story.call("RemoveRoleFromInstanceProfile", InstanceProfileName="people-shared", RoleName="other")


def pod_role_of_users(story):
    story.call("TagRole", RoleName="pods-1", Tags=[])


def foreign_access_entry(story):
    story.call("DeleteAccessEntry", path="/clusters/demo/access-entries/arn:aws:iam::123456789012:role/people-zulu")


def tags_of_a_foreign_access_entry(story):
    story.call("TagResource", path=f"/tags/arn:aws:eks:us-west-2:123456789012:access-entry/demo/role/123456789012/{foreign_resources.NAME}/0a1b", tags={})


def broken_request(story):
    story.aws.append({"seq": 0, "time": story.moment(), "kind": "invalid", "caller": {"key": "controller"}, "violations": ["x"]})


PLANTED = [
    (two_at_once, "availability"),
    (beyond_what_died, "availability"),
    (not_cordoned, "drained"),
    (with_a_pod, "drained"),
    (with_its_scaling_group, "drained"),
    (deleted_pod, "evicted"),
    (evicted_again_and_again, "evicted"),
    (smaller_group, "scaled_in"),
    (repeated_decrement, "scaled_in"),
    (second_role, "doubled"),
    (the_same_again, "needless_rotation"),
    (late_write, "finalizer"),
    (again_and_again, "repetition"),
    (not_gone, "leaks"),
    (entry_of_a_role_that_is_gone, "leaks"),
    (two_templates, "doubled"),
    (changed_foreign_resource, "foreign_resources_kept"),
    (entry_of_others, "foreign_resources_kept"),
    (named_foreign_resource, "foreign_resources_kept"),
    (role_of_users, "foreign_resources_kept"),
    (profile_of_users, "foreign_resources_kept"),
    (pod_role_of_users, "foreign_resources_kept"),
    (foreign_access_entry, "foreign_resources_kept"),
    (tags_of_a_foreign_access_entry, "foreign_resources_kept"),
    (broken_request, "invalid_requests"),
]


@pytest.mark.parametrize(("plant", "oracle"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_an_oracle_finds_what_is_planted(plant, oracle):
    """A judge that never says no proves nothing."""
    story = Story()
    plant(story)
    assert oracle in found(story.run())


def test_a_group_may_use_what_its_spec_names():
    """It gives the role of users an access entry, and launches with their profile; the rest of both stays theirs."""
    story = Story()
    named = {**story.group["spec"], "eks": {"configuration": {"roleName": "people-alpha", "instanceProfileName": "people-alpha"}}}
    story.note("apply", group="alpha", to={**story.group, "spec": named}, bad=False)
    for role in ("people-alpha", GROUP, "fargate-demo-1-0a1b2c3d-role"):
        arn = f"arn:aws:iam::123456789012:role/{role}"
        story.call("CreateAccessEntry", path="/clusters/demo/access-entries", principalArn=arn)
        story.call("DeleteAccessEntry", path=f"/clusters/demo/access-entries/{arn}")
    story.call("CreateLaunchTemplateVersion", LaunchTemplateName="alpha", LaunchTemplateData={"IamInstanceProfile": {"Name": "people-alpha"}})
    assert "foreign_resources_kept" not in found(story.run())


def test_a_drain_that_may_be_forced_is_not_judged():
    """The spec says that pods are not waited for longer than this."""
    story = Story(drainTimeout="10s", drainForce=True)
    with_a_pod(story)
    deleted_pod(story)
    assert not {"drained", "evicted"} & found(story.run())


def test_a_drain_that_may_not_be_forced_is_judged():
    """drainTimeout alone gives the node back."""
    story = Story(drainTimeout="10s")
    with_a_pod(story)
    assert "drained" in found(story.run())


def deleted_with_a_pod(seconds, by=0, **rolling):
    """A group is deleted, and so many seconds later a node is terminated with a pod on it."""
    story = Story(**rolling)
    story.write("create", "pods", "app", {"target": {"name": "node-0"}}, "binding", user="scheduler")
    if by:
        story.note("perturbation", name="clock jumps", arguments={"by": by, "seconds": 10})
    story.note("delete", group="alpha")
    story.wait(seconds)
    story.cordon(0)
    story.terminate(0)
    return "drained" in found(story.run())


def test_the_drain_of_a_deletion_has_its_time():
    """A group that is deleted drains as long as its spec says, or as long as the controller waits by itself."""
    assert deleted_with_a_pod(50) and not deleted_with_a_pod(90)
    assert deleted_with_a_pod(2, drainTimeout="1m") and not deleted_with_a_pod(70, drainTimeout="1m")
    assert not deleted_with_a_pod(50, by=45, drainTimeout="1m"), "the controller's clock says that the time is over"
    assert deleted_with_a_pod(50, by=-45, drainTimeout="1m")


def with_node_group(story, drains):
    """The group's node group is replaced: one node with a pod, drained or not, and the node group is deleted."""
    scaling_group = f"eks-{GROUP}-0a1b-00000000-1111-2222-3333-444444444444"
    story.state(object="node", id="node-9", instance="i-9", group=scaling_group, state="ready")
    story.state(object="instance", id="i-9", group=scaling_group, state="InService", desired=1)
    story.write("create", "pods", "app", {"target": {"name": "node-9"}}, "binding", user="scheduler")
    if drains:
        story.cordon(9)
        story.write("delete", "pods", "app", {"gracePeriodSeconds": 0}, user="kwok")
    story.call("DeleteNodegroup", path=f"/clusters/demo/node-groups/{GROUP}-0a1b")


def test_a_node_group_is_drained_before_it_is_replaced():
    """EKS gives up on a pod after some minutes, so the controller moves the pods before. A deletion leaves it to EKS."""
    story = Story()
    with_node_group(story, drains=True)
    assert "drained" not in found(story.run())
    story = Story()
    with_node_group(story, drains=False)
    assert "drained" in found(story.run())
    story = Story()
    story.note("delete", group="alpha")
    with_node_group(story, drains=False)
    assert "drained" not in found(story.run())


def test_scale_in_that_another_client_requested_is_not_judged():
    """An autoscaler or a user may lower the desired capacity."""
    story = Story()
    story.call("SetDesiredCapacity", key="person", AutoScalingGroupName=GROUP, DesiredCapacity="2")
    story.state(object="instance", id="i-0", group=GROUP, state="Terminating", desired=2, why="shrinking the capacity from 3 to 2")
    assert "scaled_in" not in found(story.run())


def test_terminations_by_an_autoscaler_are_not_judged():
    """The Cluster Autoscaler may terminate an instance again after the controller has made the group smaller."""
    story = Story()
    story.call("UpdateAutoScalingGroup", AutoScalingGroupName=GROUP, MaxSize="2")
    story.call("TerminateInstanceInAutoScalingGroup", key="cluster-autoscaler", InstanceId="i-1", ShouldDecrementDesiredCapacity="true")
    story.state(object="instance", id="i-0", group=GROUP, state="Terminating", desired=1, why="shrinking the capacity from 2 to 1")
    assert "scaled_in" not in found(story.run())


def test_a_node_that_the_controller_removes_itself_is_not_a_loss():
    """Its own decrement takes the instance that it names."""
    story = Story()
    story.terminate(0, decrement="true")
    story.state(object="instance", id="i-1", group=GROUP, state="Terminating", desired=1, why="shrinking the capacity from 2 to 1")
    assert "scaled_in" not in found(story.run())


@pytest.mark.parametrize(("why", "is_judged"), [("shrinking the capacity from 4 to 3", False), ("in response to a user request", True)])
def test_a_node_that_auto_scaling_takes_by_itself_is_not_taken_by_the_controller(why, is_judged):
    """It may rebalance zones in the same moment, and the controller may ask for the end of a node that ends already."""
    story = Story()
    story.cordon(0)
    story.state(object="instance", id="i-1", group=GROUP, state="Terminating", desired=3, version="1", template="alpha", why=why)
    story.call("TerminateInstanceInAutoScalingGroup", InstanceId="i-1", ShouldDecrementDesiredCapacity="false")
    assert ("availability" in found(story.run())) == is_judged


def test_a_standby_node_may_be_terminated_after_its_change_was_reverted():
    """The replacement of the node runs already."""
    story = Story()
    story.instance(0, "Standby")
    the_same_again(story)
    assert "needless_rotation" not in found(story.run())


def test_a_template_that_is_made_again_counts_its_versions_again():
    """Version 1 is then another one, and nodes of the old one are replaced."""
    story = Story()
    story.call("DeleteLaunchTemplate", key="person", LaunchTemplateName="alpha")
    story.call("CreateLaunchTemplate", LaunchTemplateName="alpha", LaunchTemplateData={"ImageId": "ami-2"})
    story.call("UpdateAutoScalingGroup", AutoScalingGroupName=GROUP, LaunchTemplate={"LaunchTemplateName": "alpha", "Version": "1"})
    story.cordon(0)
    story.terminate(0)
    assert "needless_rotation" not in found(story.run())


def relabeled(story, image="ami-1", **configuration):
    """The group's labels change, and the controller replaces a node."""
    spec = story.group["spec"]
    story.note("apply", group="alpha", to={**story.group, "spec": {**spec, "eks": {"configuration": configuration}}}, bad=False)
    story.call("CreateLaunchTemplateVersion", LaunchTemplateName="alpha", LaunchTemplateData={"ImageId": image, "UserData": "labels"})
    story.call("UpdateAutoScalingGroup", AutoScalingGroupName=GROUP, LaunchTemplate={"LaunchTemplateName": "alpha", "Version": "2"})
    story.cordon(0)
    story.terminate(0)
    return found(story.run())


def test_what_changes_in_place_replaces_no_node():
    """Where the group asks for that, and nothing else changed with it."""
    fields, labels = ["labels", "taints"], {"team": "a"}
    evicting = [{"key": "k", "value": "v", "effect": "NoExecute"}]
    assert "needless_rotation" in relabeled(Story(inPlace=fields), labels=labels)
    assert "needless_rotation" not in relabeled(Story(inPlace=["tags"]), labels=labels)
    assert "needless_rotation" not in relabeled(Story(inPlace=fields), labels=labels, taints=evicting)
    assert "needless_rotation" not in relabeled(Story(inPlace=fields), labels=labels, bootstrapArguments="--v=3")
    assert "needless_rotation" not in relabeled(Story(inPlace=fields), image="ami-2", labels=labels)


def changed_in_place(story):
    record = {"instancemgr.keikoproj.io/in-place": "{}"}
    story.write("patch", "nodes", "node-0", {"metadata": {"annotations": record, "labels": {"team": None}}})
    the_same_again(story)
    return found(story.run())


def test_a_node_that_was_changed_in_place_is_not_what_it_was_launched_as():
    """Its spec wants the label of the launch again, and no longer changes running nodes."""
    assert "needless_rotation" not in changed_in_place(Story())
    assert "needless_rotation" in changed_in_place(Story(inPlace=["labels", "taints"]))


def test_what_a_user_launches_from_is_not_what_the_controller_wants():
    """Version 1 of another's template is not version 1 of the group's."""
    story = Story()
    story.call("CreateLaunchTemplateVersion", LaunchTemplateName="alpha", LaunchTemplateData={"ImageId": "ami-2"})
    story.call("UpdateAutoScalingGroup", AutoScalingGroupName=GROUP, LaunchTemplate={"LaunchTemplateName": "alpha", "Version": "2"})
    story.call("UpdateAutoScalingGroup", key="person", AutoScalingGroupName=GROUP, LaunchTemplate={"LaunchTemplateName": "others", "Version": "1"})
    the_same_again(story)
    assert "needless_rotation" not in found(story.run())


def test_writes_in_the_quiet_window():
    """The window is between the runner's notes."""
    run = Story().run()
    when = next(entry["time"] for entry in run["journal"] if entry["what"] == "end")
    run["aws"].append({"seq": 99, "time": when[:-3] + "999", "kind": "call", "operation": "TagRole", "params": {}, "status": 500, "caller": {"key": "controller2"}})
    assert "quiet" in found(run)
    audited = {"auditID": "x", "verb": "update", "objectRef": {"resource": "nodes", "name": "node-0", "subresource": "status"}, "responseStatus": {"code": 200}}
    run["audit"].append({**audited, "user": {"username": "system:kube-controller-manager"}, "stageTimestamp": when[:-3] + "998"})
    assert found(run) == set(), "Kubernetes called a node NotReady"


def test_a_write_with_each_resync():
    """It comes more rarely than a group is settled, and never ends."""
    story = Story()
    story.note("settled")
    story.call("TagRole", RoleName=GROUP)
    run = story.run()
    (end,) = [entry for entry in run["journal"] if entry["what"] == "end"]
    assert found(run) == set(), "a late write came, and ended"
    end["late writes ended"] = False
    assert found(run) == {"quiet"}
    audited = {"auditID": "x", "verb": "update", "objectRef": {"resource": "nodes", "name": "node-0", "subresource": "status"}, "responseStatus": {"code": 200}}
    run["audit"].append({**audited, "user": {"username": "system:kube-controller-manager"}, "stageTimestamp": run["aws"][-1]["time"]})
    assert found(run) == set(), "Kubernetes called a node NotReady"


def test_the_quiet_window_is_longer_than_a_resync():
    """A write with each resync of one group would be missed by a shorter one."""
    settings = controller.settings()
    (period,) = [int(part.removeprefix("--resync-period=").removesuffix("s")) for part in settings["command"] if part.startswith("--resync-period")]
    assert settings["resync"] > period


def test_groups_that_are_not_done():
    """Ready in the end, gone after the deletion."""
    run = Story().run()
    run["journal"][-1]["unsettled"] = {"alpha": {"state": "Deleting"}}
    assert "stuck" in found(run)


def test_another_end_state():
    """The path in the difference leads a reader to the cause."""
    one, other = Story().run(), Story().run()
    role = {"arn": "arn:1", "policies": ["a", "b"], "tags": {}, "inline": {}, "trust": "{}"}
    one["end"]["aws"]["roles"][GROUP], other["end"]["aws"]["roles"][GROUP] = role, {**role, "arn": "arn:2", "policies": ["b", "a"]}
    assert oracles.judge(one, other) == []
    other["end"]["aws"]["roles"][GROUP]["policies"] = ["a"]
    (failure,) = oracles.judge(one, other)
    assert (failure["oracle"], failure["group"]) == ("end_state", "alpha") and "roles[0].policies" in failure["what"]


def test_a_role_that_joined_by_aws_auth_before_a_takeover():
    """Its entry stays, where a new role gets an access entry; but it has one of both."""
    one, other = Story().run(), Story().run()
    arn = f"arn:aws:iam::123456789012:role/{GROUP}"
    role = {"arn": arn, "policies": [], "tags": {}, "inline": {}, "trust": "{}"}
    for run in (one, other):
        run["scenario"]["taken over"] = {"alpha": "plain"}
        run["end"]["aws"]["roles"][GROUP] = role
    other["end"]["aws"]["access"][arn] = {"principalArn": arn, "type": "EC2_LINUX"}
    assert "end_state" in found(one, other)
    one["end"]["kubernetes"]["map_roles"] += f"- rolearn: {arn}\n"
    assert "end_state" not in found(one, other)


def test_the_access_entry_of_a_role_that_groups_share():
    """Whichever group comes first makes it; that it is there counts."""
    one, other = Story().run(), Story().run()
    arn = "arn:aws:iam::123456789012:role/people-shared"
    tags = {"instancegroups.keikoproj.io/Namespace": "camp", "instancegroups.keikoproj.io/InstanceGroup": "alpha"}
    for run, group in ((one, "alpha"), (other, "bravo")):
        entry = {"principalArn": arn, "type": "EC2_LINUX", "tags": {**tags, "instancegroups.keikoproj.io/InstanceGroup": group}}
        run["end"]["aws"]["access"][arn] = entry
    assert "end_state" not in found(one, other)
    other["end"]["aws"]["access"].clear()
    assert "end_state" in found(one, other)


def test_the_access_entry_of_a_pod_execution_role_that_groups_share():
    """The same with the role of users for the pods of Fargate profiles. Without the entry, no pod of theirs starts."""
    one, other = Story().run(), Story().run()
    arn = "arn:aws:iam::123456789012:role/pods-1"
    for run, group in ((one, "alpha"), (other, "bravo")):
        tags = {"instancegroups.keikoproj.io/Namespace": "camp", "instancegroups.keikoproj.io/InstanceGroup": group}
        run["end"]["aws"]["access"][arn] = {"principalArn": arn, "type": "FARGATE_LINUX", "tags": tags}
        spec = {"provisioner": "eks-fargate", "eks-fargate": {"podExecutionRoleArn": arn}}
        run["end"]["kubernetes"]["groups"].append({"metadata": {"name": "other", "namespace": "camp"}, "spec": spec})
    assert "end_state" not in found(one, other)
    other["end"]["aws"]["access"].clear()
    assert "end_state" in found(one, other)


def test_the_entry_of_a_role_whose_record_was_wiped():
    """A user wipes the status just after the spec left the role; nothing says any more who made the entry."""

    def left(role, **wiped):
        story, spec = Story(), {"provisioner": "eks", "eks": {"configuration": {"roleName": "people-alpha"}}}
        story.note("apply", group="alpha", to={**story.group, "spec": spec}, bad=False)
        story.note("apply", group="alpha", to=story.group, bad=False)
        if wiped:
            story.note("perturbation", name="status wiped", arguments={"group": "alpha", **wiped})
        run, reference = story.run(), Story().run()
        run["end"]["kubernetes"]["map_roles"] += f"- rolearn: arn:aws:iam::123456789012:role/{role}\n"
        return "end_state" in found(run, reference)

    assert not left("people-alpha", part="all") and not left("people-alpha", part="managed")
    assert left("people-alpha") and left("people-alpha", part="conditions") and left("people-other", part="all")


def test_a_name_does_not_match_resources_of_a_longer_name():
    """A group owns the resources of its own name, and not those of a group with a longer name."""
    assert state.owns("alpha", "demo-camp-alpha-20260101000000", {}) and not state.owns("alpha", "demo-camp-alphabet", {})


def all_nodes_go(story):
    """A deletion drains and terminates the nodes without lowering the capacity; nothing replaces them."""
    for number in range(3):
        story.cordon(number)
        story.terminate(number)


def test_a_deletion_is_not_a_rotation():
    """The nodes of a deleted group go although they run the desired content."""
    story = Story()
    story.note("delete", group="alpha")
    all_nodes_go(story)
    assert found(story.run()) == set()
    story = Story()
    story.write("delete", "instancegroups", "alpha", None, user="admin")
    all_nodes_go(story)
    assert found(story.run()) == set(), "a person deleted it"
    story = Story()
    story.write("delete", "instancegroups", "alpha", None, user="admin")
    story.wait(60)
    all_nodes_go(story)
    assert found(story.run()) == set(), "AWS kept it in deletion for longer, and a person has applied it again"
    story = Story()
    story.write("delete", "instancegroups", "alpha", None, user="admin")
    story.write("patch", "instancegroups", "alpha", None, user="admin", code=201)
    story.wait(60)
    all_nodes_go(story)
    assert {"needless_rotation", "availability"} <= found(story.run()), "a person created it again long ago"


def created_again(story):
    """The group is deleted with its nodes, and created again with three others."""
    story.note("delete", group="alpha")
    story.write("delete", "instancegroups", "alpha", None, user="admin")
    all_nodes_go(story)
    for number in range(3):
        story.instance(number, "gone")
        story.node(number, "gone")
    story.note("apply", group="alpha", to=story.group, bad=False)
    story.write("patch", "instancegroups", "alpha", {}, user="admin", code=201)
    for number in range(3, 6):
        story.node(number, "joined")
        story.instance(number, "InService")
        story.node(number, "ready")
    story.wait(60)


def test_a_group_that_was_created_again_is_judged():
    """Half of the worlds delete a group and create it again: its nodes serve as those of any other group."""
    story = Story()
    created_again(story)
    story.cordon(3)
    assert found(story.run()) == set()
    story = Story()
    created_again(story)
    story.cordon(3)
    story.cordon(4)
    assert "availability" in found(story.run())


def test_a_group_that_was_replaced_before_it_was_seen():
    """No log says what the controller attached for the spec of the previous object."""
    def replaced(seconds, released=False):
        story = Story()
        story.left = copy.deepcopy(story.left)
        story.left["aws"]["roles"][GROUP] = {"arn": "arn"}
        story.write("patch", "instancegroups", "alpha", {}, user="admin")
        story.write("delete", "instancegroups", "alpha", None, user="admin")
        if released:
            story.write("patch", "instancegroups", "alpha", {"metadata": {"finalizers": None}})
        story.write("patch", "instancegroups", "alpha", {}, user="admin", code=201)
        story.wait(seconds)
        story.note("apply", group="alpha", to={**story.group, "spec": {**story.group["spec"], "other": True}}, bad=False)
        return "leaks" in found(story.run())

    assert not replaced(5) and replaced(60) and replaced(5, released=True)


def test_a_node_of_a_deleted_launch_template_is_outdated():
    """It is outdated unless the log says that it was launched with what the group launches now."""
    def end(image):
        story = Story()
        story.call("CreateLaunchTemplate", key="person", LaunchTemplateName="again", LaunchTemplateData={"ImageId": image})
        launches = {"LaunchTemplateName": "again", "Version": "1"}
        instance = {"InstanceId": "i-0", "LifecycleState": "InService", "LaunchTemplate": {"LaunchTemplateName": "alpha", "Version": "1"}}
        story.end["aws"]["templates"]["again"] = {"id": "lt-2", "latest": 1, "default": 1, "tags": {}, "versions": {"1": {"data": {"image": image}}}}
        story.end["aws"]["groups"][GROUP] = {
            "AutoScalingGroupName": GROUP, "LaunchTemplate": launches, "Instances": [instance], "WarmPool": [], "SuspendedProcesses": [],
            "VPCZoneIdentifier": "a", "MinSize": 1, "MaxSize": 1, "DesiredCapacity": 1, "LifecycleHooks": [],
        }  # fmt: skip
        return story.run()

    def reference(image):
        run = end(image)
        run["end"]["aws"]["groups"][GROUP]["Instances"][0]["LaunchTemplate"] = {"LaunchTemplateName": "again", "Version": "1"}
        return run

    assert "end_state" not in found(end("ami-1"), reference("ami-1"))
    assert "end_state" in found(end("ami-2"), reference("ami-2"))


def test_another_name_while_another_owner_has_the_first_one():
    """A user's scaling group of that name, without its tags, is left alone, and its deletion does not bring the name back."""
    def end(name, *events):
        run = Story().run()
        run["scenario"]["events"] = list(events)
        run["end"]["aws"]["profiles"]["camp-alpha"] = {"arn": "arn:1", "role": name, "tags": {}}
        return run

    plain, hashed = "demo-camp-alpha", "demo-camp-alpha-7b06ecd4"
    by_hand = {"kind": "perturbation", "name": "scaling group made again by hand", "arguments": {"group": "alpha", "tagged": False, "later": 3}}
    tagged = {**by_hand, "arguments": {**by_hand["arguments"], "tagged": True}}
    assert "end_state" not in found(end(hashed, by_hand), end(plain))
    assert "end_state" in found(end(hashed, tagged), end(plain)) and "end_state" in found(end(hashed), end(plain))


def test_a_warm_pool_is_as_large_as_the_desired_capacity_lets_it():
    """AWS keeps it empty while an autoscaler wants as many nodes as may be prepared, and the reference has no autoscaler."""
    def end(desired, *states, least=0, limit=3):
        run = Story().run()
        pool = {"MinSize": least, "MaxGroupPreparedCapacity": limit, "PoolState": "Stopped", "Status": None, "InstanceReusePolicy": None}
        launches = {"LaunchTemplateName": "alpha", "Version": "1"}
        run["end"]["aws"]["templates"]["alpha"] = {"id": "lt-1", "latest": 1, "default": 1, "tags": {}, "versions": {"1": {"data": {"image": "ami-1"}}}}
        run["end"]["aws"]["groups"][GROUP] = {
            "AutoScalingGroupName": GROUP, "LaunchTemplate": launches, "SuspendedProcesses": [], "VPCZoneIdentifier": "a", "MinSize": 2, "MaxSize": 4,
            "DesiredCapacity": desired, "WarmPoolConfiguration": pool, "LifecycleHooks": [],
            "Instances": [{"InstanceId": f"i-{n}", "LifecycleState": "InService", "LaunchTemplate": launches} for n in range(desired)],
            "WarmPool": [{"InstanceId": f"i-1{n}", "LifecycleState": each, "LaunchTemplate": launches} for n, each in enumerate(states)],
        }  # fmt: skip
        return run

    def differs(one, other):
        return "end_state" in found(one, other)

    stopped = "Warmed:Stopped"
    assert not differs(end(4), end(2, stopped)) and not differs(end(3), end(2, stopped)) and not differs(end(2, stopped), end(4))
    assert differs(end(2), end(2, stopped)) and differs(end(4, stopped), end(2, stopped)) and differs(end(2, "Warmed:Pending"), end(2, stopped))
    unlimited = {"least": 1, "limit": None}
    assert not differs(end(4, stopped, **unlimited), end(2, stopped, stopped, **unlimited))
    assert differs(end(4, **unlimited), end(2, stopped, stopped, **unlimited)) and differs(end(2, stopped, **unlimited), end(2, stopped, stopped, **unlimited))


def test_an_entry_of_a_group_that_had_windows_nodes():
    """It lets Linux nodes join too, and stays as it is."""
    story = Story()
    arn = f"arn:aws:iam::123456789012:role/{GROUP}"
    one, other = Story().run(), story.run()
    for run, more in ((one, ""), (other, "eks:kube-proxy-windows, ")):
        run["end"]["aws"]["roles"][GROUP] = {"arn": arn, "policies": [], "tags": {}, "inline": {}, "trust": "{}"}
        run["end"]["kubernetes"]["map_roles"] += f"- rolearn: {arn}\n  groups: [{more}system:nodes]\n"
    assert "end_state" in found(other, one)
    story.journal.insert(1, {"time": "2026", "what": "apply", "group": "alpha", "to": {**story.group, "annotations": {"os-family": "windows"}}})
    assert "end_state" not in found(other, one)


def test_auto_repair_that_was_turned_off_equals_none():
    """Otherwise the order of two transitions, which decides whether a node group is replaced or updated, would be a difference."""
    one = {"nodegroupName": "alpha", "scalingConfig": {"minSize": 1, "maxSize": 2, "desiredSize": 1}}
    node_group = state.node_group
    assert node_group({**one, "nodeRepairConfig": {"enabled": False}}) == node_group(one) != node_group({**one, "nodeRepairConfig": {"enabled": True}})
