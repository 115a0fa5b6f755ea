"""What others set on the same things stays as they set it."""

import collections
import itertools
import re
import textwrap
import time

import pytest

from e2e.harness import AWS_AUTH, OWNERSHIP, tags_of

FOREIGN_ROLES = """\
# The platform team's own roles; ask before you change anything here.
- rolearn:   arn:aws:iam::123456789012:role/admins   # keep the spaces
  groups: ["system:masters"]
  username: admin
  # a key that only our tooling knows
  x-owner: platform
"""
FOREIGN_USERS = "- userarn: arn:aws:iam::123456789012:user/ops\n  username: ops\n  groups: [system:masters]\n"


def tag(group, key, value):
    """A tag of a scaling group."""
    return {"ResourceId": group.scaling_group, "ResourceType": "auto-scaling-group", "Key": key, "Value": value, "PropagateAtLaunch": False}


def hooks(group):
    """The names of its lifecycle hooks."""
    found = group.cloud.boto("autoscaling").describe_lifecycle_hooks(AutoScalingGroupName=group.scaling_group)["LifecycleHooks"]
    return {hook["LifecycleHookName"]: hook["HeartbeatTimeout"] for hook in found}


def processes(group):
    """The names of its suspended processes."""
    return {p["ProcessName"] for p in group.asg()["SuspendedProcesses"]}


def metrics(group):
    """The names of its enabled metrics."""
    return {m["Metric"] for m in group.asg()["EnabledMetrics"]}


def test_foreign_settings_of_the_scaling_group_are_kept(tenant):
    """Cost tools, on-call people and agents set things there; a controller that resets them is switched off."""
    hook = {"name": "ours", "lifecycle": "launch", "defaultResult": "continue", "heartbeatTimeout": 50}
    group = tenant.group(
        size=(1, 2),
        tags=[{"key": "team", "value": "search"}, {"key": "stage", "value": "test"}],
        lifecycleHooks=[hook], suspendProcesses=["AlarmNotification"], metricsCollection=["GroupMinSize"],
    ).wait_ready(nodes=1)
    asg, name = tenant.cloud.boto("autoscaling"), {"AutoScalingGroupName": group.scaling_group}
    asg.create_or_update_tags(Tags=[tag(group, "cost-tool", "seen")])
    asg.put_lifecycle_hook(**name, LifecycleHookName="theirs", LifecycleTransition="autoscaling:EC2_INSTANCE_TERMINATING", HeartbeatTimeout=77, DefaultResult="CONTINUE")
    asg.suspend_processes(**name, ScalingProcesses=["AZRebalance"])
    asg.enable_metrics_collection(**name, Granularity="1Minute", Metrics=["GroupMaxSize"])
    group.patch_spec(tags=[{"key": "team", "value": "search"}, {"key": "new", "value": "1"}], lifecycleHooks=[], suspendProcesses=["HealthCheck"], metricsCollection=["GroupDesiredCapacity"])
    group.wait(lambda g: hooks(g) == {"theirs": 77}, what="our hook gone and theirs there")
    group.wait_ready(nodes=1)
    tags = tags_of(group.asg())
    assert tags["cost-tool"] == "seen" and tags["new"] == "1" and tags["team"] == "search" and "stage" not in tags
    assert processes(group) == {"AZRebalance", "HealthCheck"}
    assert metrics(group) == {"GroupMaxSize", "GroupDesiredCapacity"}


def test_writes_that_another_tool_undoes_slow_down_and_are_reported(tenant):
    """Two writers that undo each other at full pace would use up the API quota of the whole account."""
    hook = {"name": "ours", "lifecycle": "launch", "defaultResult": "continue", "heartbeatTimeout": 50}
    group = tenant.group(
        size=(1, 2), tags=[{"key": "team", "value": "search"}], lifecycleHooks=[hook],
        suspendProcesses=["AZRebalance"], metricsCollection=["GroupMinSize"],
    ).wait_ready(nodes=1)  # fmt: skip
    cloud, asg, name = tenant.cloud, tenant.cloud.boto("autoscaling"), {"AutoScalingGroupName": group.scaling_group}
    role = group.status()["nodesInstanceRoleArn"]
    fields = ["tags[team]", "lifecycleHooks[ours]", "suspendProcesses", "metricsCollection", role]
    mark, turns, start = cloud.log_position(), itertools.count(1), time.monotonic()

    def allowed():
        # The first write, and one after 1 s, 2 s, 4 s and so on, at most the resync period of 10 s.
        elapsed, due = time.monotonic() - start, itertools.accumulate(min(2**n, 10) for n in range(100))
        return 1 + sum(1 for _ in itertools.takewhile(lambda at: at <= elapsed, due))

    def without_role(text):
        entries = re.split(r"^(?=- )", text, flags=re.MULTILINE)
        return "".join(entry for entry in entries if f"rolearn: {role}\n" not in entry)

    def undone(g):
        asg.create_or_update_tags(Tags=[tag(g, "team", "theirs")])
        if "ours" in hooks(g):
            asg.delete_lifecycle_hook(**name, LifecycleHookName="ours")
        asg.resume_processes(**name, ScalingProcesses=["AZRebalance"])
        asg.disable_metrics_collection(**name, Metrics=["GroupMinSize"])
        cloud.edit_map_roles(without_role)
        turn = next(turns)
        g.annotate(turn=str(turn))
        message = (g.condition("WritesIneffective") or {}).get("message", "")
        # A controller that does not slow down has written more often than it may, however long a turn takes.
        return all(field in message for field in fields) and turn > allowed()

    group.wait(undone, what="a condition that names each field")
    counts = collections.Counter(w["operation"] for w in group.writes(after=mark))
    kinds = {"CreateOrUpdateTags", "PutLifecycleHook", "SuspendProcesses", "EnableMetricsCollection"}
    assert kinds <= set(counts) and max(counts[kind] for kind in kinds) <= allowed(), counts
    assert group.wait_event("WritesIneffective", "tags[team]")


def test_settings_that_existed_before_are_not_removed(tenant):
    """A person suspended AZRebalance; later the spec names it, and later no more: the record distinguishes the two."""
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    asg = tenant.cloud.boto("autoscaling")
    asg.create_or_update_tags(Tags=[tag(group, "owner-id", "42")])
    asg.suspend_processes(AutoScalingGroupName=group.scaling_group, ScalingProcesses=["AZRebalance"])
    mark = tenant.cloud.log_position()
    group.patch_spec(suspendProcesses=["AlarmNotification"])
    group.wait(lambda g: processes(g) == {"AZRebalance", "AlarmNotification"}, what="both processes")
    group.patch_spec(suspendProcesses=[])
    group.wait(lambda g: processes(g) == {"AZRebalance"}, what="the person's process alone")
    group.wait_ready()
    assert tags_of(group.asg())["owner-id"] == "42"
    touched = {p for w in group.writes(after=mark) for p in w["params"].get("ScalingProcesses", [])}
    assert touched == {"AlarmNotification"}


def test_foreign_text_in_aws_auth_is_kept_byte_for_byte(tenant):
    """It decides who gets into the cluster: a lost comment is a nuisance, a lost entry locks people out."""
    cloud = tenant.cloud
    marker = tenant.unique
    theirs = FOREIGN_ROLES.replace("admins", f"admins-{marker}")

    cloud.edit_map_roles(lambda text: theirs + text)
    cloud.edit_config_map(lambda data: data.update({"mapUsers": FOREIGN_USERS, f"x-{marker}": "  a foreign key\n"}), AWS_AUTH)
    group = tenant.group(size=(1, 1)).wait_ready(nodes=1)
    arn = group.status()["nodesInstanceRoleArn"]
    data = cloud.get(AWS_AUTH)["data"]
    assert theirs in data["mapRoles"] and arn in data["mapRoles"]
    assert data["mapUsers"] == FOREIGN_USERS and data[f"x-{marker}"] == "  a foreign key\n"
    group.delete()
    group.wait_gone()
    data = cloud.get(AWS_AUTH)["data"]
    assert theirs in data["mapRoles"] and arn not in data["mapRoles"]
    assert data["mapUsers"] == FOREIGN_USERS and data[f"x-{marker}"] == "  a foreign key\n"


def test_a_conflicting_aws_auth_entry_is_reported_and_not_changed(tenant, unique):
    """Two writers with two opinions: overwriting could lock someone out, silence would keep nodes away."""
    cloud = tenant.cloud
    arn = cloud.make_role(unique)
    entry = textwrap.dedent(f"""\
        - rolearn: {arn}
          username: someone
          groups: [viewers]
        """)
    cloud.edit_map_roles(lambda text: entry + text)
    tenant.set_defaults(roleName=unique, instanceProfileName=unique)
    group = tenant.group(size=(1, 1))
    stalled = group.wait_condition("Stalled", reason="AuthConflict")
    assert unique in stalled["message"] and "someone" in stalled["message"]
    assert entry in cloud.map_roles()
    cloud.edit_map_roles(lambda text: text.replace(entry, ""))
    group.wait_ready(nodes=1)
    assert arn in cloud.map_roles()


def test_hooks_processes_and_metrics_are_set_before_the_first_instance(tenant):
    """A hook that comes after the first instance has missed it."""
    hook = {"name": "prepare", "lifecycle": "LAUNCH", "defaultResult": "Continue", "heartbeatTimeout": 60, "metadata": "first"}
    group = tenant.group(size=(1, 1), lifecycleHooks=[hook], suspendProcesses=["AZRebalance"], metricsCollection=["all"]).wait_ready(nodes=1)
    states = [e for e in group.events_in_aws() if e["kind"] == "state" and e["object"] == "instance"]
    first = [e["state"] for e in states if e["id"] == states[0]["id"]]
    assert first[:2] == ["Pending", "Pending:Wait"] and states[1]["hook"] == "prepare"
    assert processes(group) == {"AZRebalance"}
    assert len(metrics(group)) >= 8 and {"GroupMinSize", "GroupTotalInstances"} <= metrics(group)
    mark = tenant.cloud.log_position()
    tenant.cloud.boto("autoscaling").set_desired_capacity(AutoScalingGroupName=group.scaling_group, DesiredCapacity=1)
    group.annotate(reconcile_now="1")
    group.wait(lambda g: g.status().get("lastReconcileNow") == "1", what="a look at the group")
    group.wait_ready()
    assert group.writes(after=mark) == [], "`all` and hooks of any case must not look like drift"


def scaling_groups(tenant):
    """The names of all scaling groups of the tenant's."""
    return [name for name in tenant.cloud.snapshot()["groups"] if tenant.unique in name]


def test_a_scaling_group_with_edited_tags_is_not_replaced_by_a_second_one(tenant):
    """Its nodes would run on beside those of the new one, and no controller would manage or delete them."""
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    autoscaling, arn = tenant.cloud.boto("autoscaling"), group.status()["nodesInstanceRoleArn"]
    tag = {"ResourceId": group.scaling_group, "ResourceType": "auto-scaling-group", "Key": OWNERSHIP + "InstanceGroup"}
    autoscaling.create_or_update_tags(Tags=[{**tag, "Value": "edited", "PropagateAtLaunch": True}])
    group.patch_spec(eks={"maxSize": 3})
    stalled = group.wait_condition("Stalled", reason="OwnershipConflict")
    assert tag["Key"] + " has the value edited instead of web" in stalled["message"] and "restore its tags" in stalled["message"]
    assert group.status()["activeScalingGroupName"] == group.scaling_group and scaling_groups(tenant) == [group.scaling_group]
    autoscaling.delete_tags(Tags=[tag])
    group.delete()
    group.wait(lambda g: tag["Key"] + "=web is missing" in (g.has_condition("Stalled", reason="OwnershipConflict") or {}).get("message", ""), what="why it stays")
    assert len(group.ready_nodes()) == 1 and arn in tenant.cloud.map_roles()
    assert group.scaling_group in tenant.cloud.snapshot()["roles"]
    autoscaling.create_or_update_tags(Tags=[{**tag, "Value": "web", "PropagateAtLaunch": True}])
    group.wait_gone()
    assert scaling_groups(tenant) == [] and group.undrained() == {} and arn not in tenant.cloud.map_roles()


def test_a_change_of_cluster_does_not_move_the_group(tenant, unique):
    """One edit of the defaults would create every group again elsewhere, and leave all nodes behind."""
    cloud = tenant.cloud
    group = tenant.group(size=(1, 1)).wait_ready(nodes=1)
    before, eks = cloud.snapshot()["groups"][group.scaling_group], cloud.boto("eks")
    network = {"subnetIds": cloud["subnets"], "securityGroupIds": [cloud["security_group"]]}
    eks.create_cluster(name=unique, roleArn=cloud.make_role(unique), resourcesVpcConfig=network)
    try:
        tenant.set_defaults(clusterName=unique)
        stalled = group.wait_condition("Stalled", reason="InvalidSpec")
        for word in ("spec.eks.configuration.clusterName", unique, "restore demo"):
            assert word in stalled["message"]
        assert scaling_groups(tenant) == [group.scaling_group]
        assert cloud.snapshot()["groups"][group.scaling_group] == before
        tenant.set_conditional_defaults(None)
        group.wait_ready(nodes=1)
    finally:
        eks.delete_cluster(name=unique)


@pytest.mark.private
def test_a_node_that_an_autoscaler_adds_is_noticed_when_it_joins(own_cloud, start_controller, make_tenant):
    """cluster-autoscaler calls SetDesiredCapacity, and AWS sends no event. Without a read of the group, the node would lack the labels of its group, and no condition would count it."""
    cloud = own_cloud()
    controller = start_controller(cloud, "--resync-period", "1h")
    tenant = make_tenant(cloud=cloud, controller=controller)
    group, other = (tenant.group(name, size=(1, 3)).wait_ready(nodes=1) for name in ("web", "other"))

    def labeled():
        return [node["metadata"]["labels"].get(OWNERSHIP + "InstanceGroup") for node in group.nodes()]

    group.wait(lambda _: labeled() == ["web"], what="the label of the first node")
    mark = cloud.log_position()
    cloud.boto("autoscaling").set_desired_capacity(AutoScalingGroupName=group.scaling_group, DesiredCapacity=3)
    group.wait(lambda _: labeled() == ["web"] * 3, what="the labels of the nodes that an autoscaler added")
    group.wait(lambda g: g.status()["nodes"]["ready"] == 3, what="a status that counts them")
    reads = [e for e in cloud.aws_events(mark) if e["kind"] == "call" and e["operation"] == "DescribeInstances"]
    assert len(reads) <= 2, "one call asks for all nodes that join together"
    assert other.writes(mark) == []
