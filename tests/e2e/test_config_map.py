"""Edits of the admin's ConfigMap, and quiet: which groups are written and which are not."""

import time

import pytest

from e2e import harness, logs

REVISIONS = f"{harness.GROUPS}/namespaces/instance-manager/boundariesrevisions"


def written_groups(cloud, after):
    """InstanceGroups that the controller wrote since then, as namespace/name."""
    found = logs.audited_writes(cloud.audit(after), "instancegroups", user=logs.CONTROLLER)
    return {f"{e['objectRef']['namespace']}/{e['objectRef']['name']}" for e in found}


def reconciles(controller):
    """How many reconciles have ended."""
    lines = controller.metrics().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("controller_runtime_reconcile_total{"))


def wait_reconciles(controller, count):
    """Waits until that many more reconciles have ended."""
    before, deadline = reconciles(controller), time.monotonic() + 120
    while reconciles(controller) < before + count:
        assert time.monotonic() < deadline, f"{reconciles(controller) - before} of {count} reconciles"
        time.sleep(0.2)


@pytest.fixture
def quiet(own_cloud, start_controller, make_tenant):
    """A cloud of its own with a controller that looks again often, and three Ready groups."""
    cloud = own_cloud()
    controller = start_controller(cloud, "--resync-period", "3s")
    tenant = make_tenant(cloud=cloud, controller=controller)
    tenant.set_defaults(tags=[{"key": "stage", "value": "one"}])
    groups = [tenant.group("a", size=(1, 2)), tenant.group("b", size=(1, 2), instanceType="m5.xlarge")]
    other = make_tenant(cloud=cloud, controller=controller)
    groups.append(other.group("c", size=(1, 2)))
    for group in groups:
        group.wait_ready(nodes=1)
    wait_reconciles(controller, 6)
    return cloud, controller, tenant, groups


@pytest.mark.private
def test_an_edit_writes_only_the_groups_that_it_changes(quiet):
    """In a cluster with hundreds of groups, each edit would otherwise be a storm of writes, and hide what matters."""
    cloud, controller, tenant, (a, b, c) = quiet
    audit, mark = len(cloud.audit()), cloud.log_position()
    tenant.set_defaults(tags=[{"key": "stage", "value": "two"}])
    for group in (a, b):
        group.wait(lambda g: {"Key": "stage", "Value": "two"}.items() <= next(t for t in g.asg()["Tags"] if t["Key"] == "stage").items(), what="the new tag")
        group.wait_ready(nodes=1)
    wait_reconciles(controller, 6)
    assert written_groups(cloud, audit) == {a.key, b.key}
    assert [w["operation"] for w in a.writes(mark)] == [w["operation"] for w in b.writes(mark)]
    assert c.writes(mark) == []


@pytest.mark.private
def test_an_edit_without_effect_writes_nothing(quiet):
    """Comments, order and unused defaults cause no writes."""
    cloud, controller, tenant, groups = quiet
    audit, mark = len(cloud.audit()), cloud.log_position()

    def comment(data):
        data["boundaries"] = "# Only a comment.\n" + data["boundaries"]
        data["defaults"] += "# Another one.\n"

    cloud.edit_config_map(comment)
    wait_reconciles(controller, 9)

    def change(data):
        data["defaults"] = data["defaults"].replace("instanceType: m5.large", "instanceType: m5.2xlarge")

    # `b` alone says its own type.
    groups[0].patch_spec(instanceType="m5.large")
    groups[2].patch_spec(instanceType="m5.large")
    for group in groups:
        group.wait_ready(nodes=1)
    wait_reconciles(controller, 6)
    audit_before = len(cloud.audit())
    cloud.edit_config_map(change)
    wait_reconciles(controller, 9)
    assert written_groups(cloud, audit_before) == set()
    assert [w for g in groups for w in g.writes(mark)] == []
    assert written_groups(cloud, audit) == {groups[0].key, groups[2].key}


@pytest.mark.private
def test_a_quiet_period_writes_nothing(quiet):
    """A controller that writes without a reason costs calls, hides drift and wakes every watcher."""
    cloud, controller, _, groups = quiet
    audit, mark = len(cloud.audit()), cloud.log_position()
    wait_reconciles(controller, 15)
    assert [e for e in cloud.aws_events(mark) if e["kind"] == "call"] == []
    assert written_groups(cloud, audit) == set()
    leases = [e for e in cloud.audit(audit) if e["user"]["username"] == logs.CONTROLLER and e["objectRef"]["resource"] != "leases"]
    assert leases == []
    assert all(group.state() == "Ready" for group in groups)
    # Without the key `rollout`, nothing of a rollout is written.
    for group in groups:
        assert "rollout" not in group.status() and group.condition("RolloutPending") is None, group.status()
    revisions = cloud.get(REVISIONS)["items"]
    assert revisions and not any(revision.get("status") for revision in revisions), revisions


def test_the_status_names_the_active_boundaries(tenant):
    """A person who asks which rules apply finds the revision in the status."""
    group = tenant.group(size=(1, 1)).wait_ready(nodes=1)
    assert group.status()["boundariesRevision"] and group.has_condition("BoundariesApplied", reason="Applied")


@pytest.mark.long
@pytest.mark.private
def test_a_revision_that_rejects_groups_is_reported_once_across_restarts(own_cloud, start_controller, make_tenant):
    """An admin who sees no event believes that the edit was valid. An admin who sees the event at each restart ignores it."""
    cloud = own_cloud()
    flags = ("--enable-leader-election=false", "--resync-period", "3s")
    # This one polls so rarely that it ends before the summary.
    controller = start_controller(cloud, *flags, "--time-scale", "1")
    tenant = make_tenant(cloud=cloud, controller=controller)
    groups = [tenant.group(f"g{number}", size=(0, 1)) for number in range(3)]
    for group in groups:
        group.wait_ready()
    tenant.set_defaults(tags=[{"key": "k" * 200, "value": "too long"}])
    groups[0].wait(lambda _: any(group.status().get("rejectedByRevision") for group in groups), what="the first rejection")
    # The summary waits until no further group is rejected.
    assert not cloud.config_events("groups (InvalidSpec)")
    controller.kill()
    # This one polls so rarely that it has reconciled all groups before the summary.
    tenant.controller = controller = start_controller(cloud, *flags, "--time-scale", "1")
    groups[0].wait(lambda _: cloud.config_events("groups (InvalidSpec)"), what="the summary")
    controller.kill()
    tenant.controller = controller = start_controller(cloud, *flags)
    wait_reconciles(controller, 9)
    time.sleep(15)
    (event,) = cloud.config_events("groups (InvalidSpec)")
    assert "3 of 3 groups" in event["note"], event["note"]
    tenant.set_defaults(tags=[{"key": "stage", "value": "one"}])
    for group in groups:
        group.wait_ready()
        assert "rejectedByRevision" not in group.status()
