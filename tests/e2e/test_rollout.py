"""Rollouts of an admin's change in waves: order, soak, halt, return, orders, restarts."""

import calendar
import random
import re
import time

import pytest
import yaml

from localcloud.tests import support
from e2e import harness, logs, rotation, test_plan

REVISIONS = f"{harness.GROUPS}/namespaces/instance-manager/boundariesrevisions"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boundariesrevisions.instancemgr.keikoproj.io"
ROLLOUT = 400
"""How long a test waits for a step of a rollout, in seconds."""


def policy(soak="6s", **more):
    """A canary wave and the rest."""
    waves = [{"name": "canary", "namespaces": "rollout/wave = canary", "soak": soak}, {"name": "rest"}]
    return yaml.safe_dump({"waves": waves, **more})


LONG_SOAK = "10m"
"""A soak during which a test does all that it has to, however slow the machine is. `end_soak` ends it."""


def end_soak(cloud, **more):
    """The admin shortens the soak of the canary wave, after which the rollout continues."""
    cloud.edit_config_map(lambda data: data.update(rollout=policy(soak="1s", **more)))


def set_image(cloud, image, **more):
    """The admin's one line: all groups of the test have this image. `more` are other keys that the same edit changes."""
    default = {"annotationSelector": "e2e", "defaults": {"spec": {"eks": {"configuration": {"image": image}}}}}
    return cloud.edit_config_map(lambda data: data.update(conditionals=yaml.safe_dump([default]), **more))


def revisions(cloud):
    """The stored revisions by name."""
    return {item["metadata"]["name"]: item for item in cloud.get(REVISIONS)["items"]}


def newest(cloud):
    """The newest revision."""
    return max(revisions(cloud).values(), key=lambda item: item["spec"]["number"])


def phase(revision):
    """The state of its rollout."""
    return revision.get("status", {}).get("phase")


def waves(revision):
    """The state of each wave."""
    return {wave["name"]: wave.get("state") for wave in revision.get("status", {}).get("waves", [])}


def wait_revision(cloud, predicate, what, timeout=ROLLOUT):
    """Waits for a state of the newest revision, and returns it."""
    cloud.eventually(lambda: revisions(cloud) and predicate(newest(cloud)), timeout, what)
    return newest(cloud)


def order(cloud, name, **orders):
    """What `instance-manager rollout` and `kubectl patch` do."""
    cloud.patch(f"{REVISIONS}/{name}", {"spec": {"orders": orders}})


def launched_images(group):
    """The images of the group's running instances."""
    versions = {str(number + 1): version for number, version in enumerate(group.template_versions())}
    return {versions[i["LaunchTemplate"]["Version"]]["LaunchTemplateData"]["ImageId"] for i in group.asg()["Instances"]}


class RolloutGroups:
    """A canary and two other tenants, each with one group, in a cloud of their own."""

    def __init__(self, cloud, start_controller, make_tenant, rollout, flags=(), **rolling):
        self.cloud = cloud
        self.old, self.new = rotation.images(cloud)[:2]
        cloud.edit_config_map(lambda data: data.update(rollout=rollout))
        set_image(cloud, self.old)
        # Without a Lease, which a killed leader would hold for a while.
        self.controller = start_controller(cloud, "--enable-leader-election=false", "--resync-period", "10s", *flags)
        self.tenants = [make_tenant(cloud=cloud, controller=self.controller) for _ in range(3)]
        cloud.patch(f"/api/v1/namespaces/{self.tenants[0].namespace}", {"metadata": {"labels": {"rollout/wave": "canary"}}})
        strategy = {"type": "rollingUpdate", "rollingUpdate": {"maxUnavailable": 1, **rolling}}
        self.groups = [tenant.group(spec={"strategy": strategy}, size=(2, 6), labels=rotation.pool(tenant)) for tenant in self.tenants]
        for group in self.groups:
            group.wait_ready(nodes=2)
        self.canary, *self.others = self.groups

    def settled(self, image):
        """Whether every group is Ready on this image alone."""
        return all(group.state() == "Ready" and launched_images(group) == {image} for group in self.groups)


@pytest.fixture
def make_rollout_groups(own_cloud, start_controller, make_tenant):
    """Starts the groups: `make_rollout_groups(policy, joinTimeout="30s")`."""
    return lambda rollout, **rolling: RolloutGroups(own_cloud(), start_controller, make_tenant, rollout, **rolling)


def first_change(group, after):
    """The second in which the group's launch template got its next version, in AWS's log."""
    made = [e for e in group.writes(after) if e["operation"] == "CreateLaunchTemplateVersion"]
    assert made, f"{group.scaling_group} got no version"
    return min(logs.timestamp(e) for e in made)[:19]


def check_record_comes_first(group, revision, after):
    """Asserts that the group's status named the revision before AWS got the first thing that is made from it."""
    statuses = logs.audited_writes(group.cloud.audit(), "instancegroups", group.name, group.tenant.namespace, "status", logs.CONTROLLER)
    named = [e for e in statuses if e["requestObject"].get("status", {}).get("boundariesRevision") == revision["spec"]["hash"]]
    made = [e for e in group.writes(after) if e["operation"] == "CreateLaunchTemplateVersion"]
    assert named and made and logs.timestamp(named[0]) <= logs.timestamp(made[0]), (named, made)


@pytest.mark.private
@pytest.mark.long
def test_a_change_reaches_the_canary_first_and_the_rest_after_the_soak(make_rollout_groups):
    """Without waves, one line of the admin's replaces every node of the cluster at once."""
    rollout_groups = make_rollout_groups(policy(soak=LONG_SOAK))
    cloud, (canary, other, _) = rollout_groups.cloud, rollout_groups.groups
    mark = cloud.log_position()
    set_image(cloud, rollout_groups.new)
    wait_revision(cloud, lambda r: waves(r).get("canary") == "Soaking", "the soak of the canary")
    assert launched_images(canary) == {rollout_groups.new} and canary.state() == "Ready"
    # A group that waits is Ready, says why it waits, and scales with what it has.
    pending = other.wait_condition("RolloutPending", reason="WaveNotOpen", text="wave canary soaks; the group switches at 20")
    assert "r2 reaches the group in wave rest (2 of 2)" in pending["message"] and other.has_condition("Ready") and other.writes(mark) == []
    assert other.wait_event("RevisionAnnounced", "r2")
    other.patch_spec(eks={"minSize": 3})
    other.wait_ready(nodes=3)
    assert launched_images(other) == {rollout_groups.old}
    assert waves(newest(cloud))["canary"] == "Soaking", "the soak was too short for this test"
    end_soak(cloud)
    other.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the new image everywhere")
    found = wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    assert found["status"]["groups"]["done"] == 3 and found["status"]["stable"] == "r1"
    soak = found["status"]["waves"][0]
    rest = min(first_change(group, mark) for group in rollout_groups.others)
    assert first_change(canary, mark) < soak["settled"][:19] <= soak["passed"][:19] <= rest
    for group in rollout_groups.groups:
        check_record_comes_first(group, found, mark)
    assert other.has_condition("RolloutPending", "False") and canary.wait_event("RevisionTaken", "wave canary")
    assert max(group.max_unavailable_seen() for group in rollout_groups.groups) == 1


@pytest.mark.private
@pytest.mark.long
def test_a_bad_image_halts_in_the_canary_and_the_canary_returns(make_rollout_groups):
    """An admin who wakes up must find one group that returned, and no other group that changed."""
    rollout_groups = make_rollout_groups(policy(), joinTimeout="30s")
    cloud, canary = rollout_groups.cloud, rollout_groups.canary
    mark, broken = cloud.log_position(), cloud["amis"]["broken_never_joins"]
    set_image(cloud, broken)
    found = wait_revision(cloud, lambda r: phase(r) == "Halted", "the halt")
    halted = next(c for c in found["status"]["conditions"] if c["type"] == "Halted")
    assert f"{rollout_groups.tenants[0].namespace}/web" in halted["message"] and "rollout resume" in halted["message"]
    canary.wait(lambda _: rollout_groups.settled(rollout_groups.old), ROLLOUT, "the return")
    assert [group.writes(mark) for group in rollout_groups.others] == [[], []]
    (behind,) = newest(cloud)["status"]["behind"]
    assert (behind["group"], behind["revision"], behind["reason"]) == (canary.key, "r1", "Failed") and waves(newest(cloud))["canary"] == "Open"
    assert canary.wait_event("RevisionReturned", "ReplacementsNotReady") and cloud.config_events("is halted")
    assert canary.status()["rollout"]["refused"] == found["metadata"]["name"]
    set_image(cloud, rollout_groups.new)
    wait_revision(cloud, lambda r: phase(r) == "Complete", "the corrected change")
    canary.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the corrected image everywhere")
    assert phase(revisions(cloud)[found["metadata"]["name"]]) == "Superseded"


def check_commands(rollout_groups, path):
    """`plan` and `explain` show what a group that waits has, and `plan --config` in which order a change reaches the groups."""
    cloud, other = rollout_groups.cloud, rollout_groups.others[0]
    code, found = test_plan.planned(cloud, other.key)
    (answer,), place = found["groups"], found["groups"][0]["rollout"]
    assert (code, answer["change"], place["revision"], place["reason"]) == (test_plan.NOTHING, "unchanged", "r1", "Paused")
    assert place["effect"] == {"kind": "rotate", "nodes": 2}
    _, text, _ = test_plan.plan(cloud, other.key)
    assert "the rollout of r2 is paused" in text and "r2 replaces 2 nodes" in text, text
    explained = test_plan.run(cloud, "explain", other.key)
    assert rollout_groups.old in explained.stdout and rollout_groups.new not in explained.stdout and "the group has r1" in explained.stderr + explained.stdout
    third = rotation.images(cloud)[2]
    change = {"annotationSelector": "e2e", "defaults": {"spec": {"eks": {"configuration": {"image": third}}}}}
    file = test_plan.new_config(cloud, path, lambda data: data.update(conditionals=yaml.safe_dump([change])))
    code, found = test_plan.planned(cloud, "--config", file, "-A")
    wave = {wave["name"]: (wave["groups"], wave["nodes"]) for wave in found["rollout"]["waves"]}
    assert code == test_plan.SOMETHING and wave == {"canary": (1, 2), "rest": (2, 4)}
    assert (found["rollout"]["revision"], found["rollout"]["supersedes"]) == ("r3", "r2")
    _, text, _ = test_plan.plan(cloud, "--config", file, "-A")
    assert re.search(r"canary  1 group, 2 nodes, about \d+m, then 1s of soak", text) and "rest    2 groups, 4 nodes" in text, text
    assert re.search(r"ends about 20\S+Z, if nothing fails", text), text


def check_quota(rollout_groups, path):
    """The quotas of a change count in its plan, and not those that the group has until then."""
    cloud, tenant = rollout_groups.cloud, rollout_groups.tenants[1]
    rollout_groups.controller.kill()
    second = tenant.group("second", size=(1, 1))
    quotas = yaml.safe_dump({"quotas": {tenant.namespace: {"maxGroups": 1}}})
    file = test_plan.new_config(cloud, path, lambda data: data.update(policy=quotas))
    _, text, _ = test_plan.plan(cloud, "--config", file, second.key)
    assert f"policy.quotas[{tenant.namespace}]" in text, text
    second.delete()
    rollout_groups.controller.start()
    second.wait_gone()


@pytest.mark.private
@pytest.mark.long
def test_a_wave_with_a_percentage_delays_all_other_groups(make_rollout_groups):
    """A percentage of the groups switches early. All other groups wait for them, although no selector separates them."""
    waves_of = lambda soak: yaml.safe_dump({"waves": [{"name": "early", "percent": 30, "soak": soak}, {"name": "rest"}]})  # noqa: E731
    rollout_groups = make_rollout_groups(waves_of(LONG_SOAK))
    cloud, mark = rollout_groups.cloud, rollout_groups.cloud.log_position()
    set_image(cloud, rollout_groups.new)
    wait_revision(cloud, lambda r: waves(r).get("early") == "Soaking", "the soak of the early wave")
    (early,) = [group for group in rollout_groups.groups if group.writes(mark)]
    assert launched_images(early) == {rollout_groups.new}
    cloud.edit_config_map(lambda data: data.update(rollout=waves_of("1s")))
    found = wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    early.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the new image everywhere")
    rest = min(first_change(group, mark) for group in rollout_groups.groups if group is not early)
    assert found["status"]["waves"][0]["groups"] == 1 and found["status"]["waves"][0]["passed"][:19] <= rest


@pytest.mark.private
@pytest.mark.long
def test_people_pause_abort_and_undo(make_rollout_groups, tmp_path):
    """A person who has doubts must be able to stop a change in the middle, and to take it back."""
    rollout_groups = make_rollout_groups(policy(soak="1s"))
    cloud = rollout_groups.cloud
    set_image(cloud, rollout_groups.new)
    name = wait_revision(cloud, lambda r: waves(r).get("canary") == "Open", "the canary wave")["metadata"]["name"]
    order(cloud, name, paused=True)
    rollout_groups.others[0].wait_condition("RolloutPending", reason="Paused")
    time.sleep(8)
    mark = cloud.log_position()
    time.sleep(8)
    assert [e for e in cloud.aws_events(mark) if e["kind"] == "call" and "Terminate" in e["operation"]] == []
    assert rollout_groups.others[0].has_condition("RolloutPending", reason="Paused")
    check_commands(rollout_groups, tmp_path / "new.yaml")
    check_quota(rollout_groups, tmp_path / "quota.yaml")
    order(cloud, name, paused=False)
    wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    rollout_groups.canary.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the new image everywhere")
    order(cloud, name, aborted=True)
    wait_revision(cloud, lambda r: phase(r) == "Aborted", "the return")
    rollout_groups.canary.wait(lambda _: rollout_groups.settled(rollout_groups.old), ROLLOUT, "the old image everywhere")
    assert cloud.config_events("revert the ConfigMap")
    set_image(cloud, rollout_groups.old)
    wait_revision(cloud, lambda r: r["metadata"]["name"] != name and phase(r) == "Complete", "the revert")


@pytest.mark.private
@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_a_killed_controller_ends_where_an_undisturbed_one_does(make_rollout_groups, seed):
    """A rollout takes days, in which every controller is replaced several times."""
    rollout_groups, chance = make_rollout_groups(policy(soak="3s")), random.Random(seed)
    cloud, mark = rollout_groups.cloud, rollout_groups.cloud.log_position()
    set_image(cloud, rollout_groups.new)
    for _ in range(6):
        time.sleep(chance.uniform(0.3, 5))
        rollout_groups.controller.kill()
        rollout_groups.controller.start()
    found = wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    rollout_groups.canary.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the new image everywhere")
    assert set(revisions(cloud)) == {"r1", "r2"}, "one content has one revision"
    rest = min(first_change(group, mark) for group in rollout_groups.others)
    assert found["status"]["waves"][0]["passed"][:19] <= rest
    assert max(group.max_unavailable_seen() for group in rollout_groups.groups) == 1


def next_minute(after):
    """The hour and minute that begins at least so many seconds from now."""
    return time.strftime("%H:%M", time.gmtime((time.time() + after) // 60 * 60 + 60))


@pytest.mark.private
@pytest.mark.long
def test_windows_approvals_and_deferrals_decide_when(make_rollout_groups):
    """The controller must respect an admin's windows, an approval and a tenant's deferral, and none of them may delay the change forever."""
    rollout_groups = make_rollout_groups(policy(soak="1s"))
    cloud, (canary, late, other) = rollout_groups.cloud, rollout_groups.groups
    mark, opens = cloud.log_position(), next_minute(60)
    times = {
        "windows": [{"from": opens, "to": next_minute(20 * 60), "zone": "UTC"}],
        "deferral": [{"namespaces": "*", "max": "60s"}],
        "waves": [{"name": "canary", "namespaces": "rollout/wave = canary"}, {"name": "rest", "approval": "admin"}],
    }
    cloud.edit_config_map(lambda data: data.update(rollout=yaml.safe_dump(times)))
    cloud.patch(f"/api/v1/namespaces/{rollout_groups.tenants[1].namespace}", {"metadata": {"annotations": {harness.PREFIX + "defer-until": "2099-01-01T00:00:00Z"}}})
    set_image(cloud, rollout_groups.new)
    pending = canary.wait(lambda _: canary.has_condition("RolloutPending", reason="WindowClosed"), ROLLOUT, "the closed window")
    assert f"T{opens}:00Z" in pending["message"] and canary.has_condition("Ready") and canary.writes(mark) == []
    found = wait_revision(cloud, lambda r: waves(r).get("canary") == "Passed", "the canary wave", 2 * ROLLOUT)
    assert found["status"]["waves"][0]["settled"][11:16] >= opens and launched_images(canary) == {rollout_groups.new}
    status = test_plan.run(cloud, "rollout", "status").stdout
    assert "wave rest (2 of 2) waits for an approval: instance-manager rollout approve r2 --wave rest" in status, status
    assert [late.writes(mark), other.writes(mark)] == [[], []]
    order(cloud, "r2", approved=["rset"])
    status = test_plan.run(cloud, "rollout", "status").stdout
    assert "spec.orders.approved names the wave rset, which the rollout does not have; it has canary, rest" in status, status
    order(cloud, "r1", approved=["rest"])
    late_order = "r1: what was written to spec.orders.approved has no effect, because r1 is not the newest revision"
    cloud.eventually(lambda: cloud.config_events(late_order), ROLLOUT, "the order for a revision that is over")
    approved = test_plan.run(cloud, "rollout", "approve", "2", "--wave", "rest")
    assert approved.returncode == 0 and "wave rest is approved" in approved.stdout, approved
    late.wait(lambda _: late.has_condition("RolloutPending", reason="Deferred"), ROLLOUT, "the deferral")
    other.wait(lambda _: launched_images(other) == {rollout_groups.new}, ROLLOUT, "the new image of the other group")
    wait_revision(cloud, lambda r: phase(r) == "Complete", "the end, which waits for no tenant")
    late.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the end of the deferral")
    seconds = [calendar.timegm(time.strptime(at[:19], "%Y-%m-%dT%H:%M:%S")) for at in (newest(cloud)["status"]["waves"][1]["opened"], first_change(late, mark))]
    assert 59 <= seconds[1] - seconds[0] <= ROLLOUT, "the deadline is counted from the opening of the wave"


@pytest.mark.private
@pytest.mark.long
def test_an_emergency_passes_a_freeze_and_a_delay(own_cloud, start_controller, make_tenant):
    """Nothing may replace a node in a freeze, except a fix that cannot wait. It must not wait for the end of the freeze either."""
    cloud, now = own_cloud(), time.time()
    old, new, third = rotation.images(cloud)[:3]
    day = lambda number: time.strftime("%Y-%m-%d", time.gmtime(now + number * 86400))  # noqa: E731
    frozen = {"freezes": [{"from": day(0), "to": day(1), "zone": "UTC", "why": "stock-taking"}]}
    delayed = {**frozen, "delay": [{"clusters": "*", "by": "1h"}]}
    set_image(cloud, old, rollout=policy())
    tenant = make_tenant(cloud=cloud, controller=start_controller(cloud))
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    wait_revision(cloud, lambda r: phase(r) == "Complete", "the first content")
    runs = lambda image: launched_images(group) == {image} and group.state() == "Ready"  # noqa: E731
    says = lambda r, words: any(words in (wave.get("why") or "") for wave in r.get("status", {}).get("waves", []))  # noqa: E731
    mark = cloud.log_position()
    set_image(cloud, new, rollout=yaml.safe_dump(delayed))
    wait_revision(cloud, lambda r: r["metadata"]["name"] == "r2" and says(r, "the delay of this cluster until"), "the delay")
    group.wait(lambda g: g.has_condition("RolloutPending", reason="WaveNotOpen"), ROLLOUT, "the wave that is not open")
    cloud.edit_config_map(lambda data: data.update(rollout=yaml.safe_dump(frozen)))
    wait_revision(cloud, lambda r: says(r, "a freeze is in effect (stock-taking)"), "the freeze")
    pending = group.wait(lambda g: g.has_condition("RolloutPending", reason="Frozen"), ROLLOUT, "the freeze")
    assert f"a freeze is in effect (stock-taking) until {day(2)}T00:00:00Z" in pending["message"], pending
    assert group.writes(mark) == [] and group.has_condition("Ready") and runs(old)
    skipped = test_plan.run(cloud, "rollout", "skip", "r2", "--all", "--now")
    assert skipped.returncode == 0 and "all groups take it now" in skipped.stdout, skipped
    group.wait(lambda _: runs(new), ROLLOUT, "the image of the order")
    wait_revision(cloud, lambda r: r["metadata"]["name"] == "r2" and phase(r) == "Complete", "the end of the rollout")
    # The order is about one revision. The next one passes by the policy, in the same edit.
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    set_image(cloud, third, rollout=yaml.safe_dump({**delayed, "urgentUntil": until}))
    group.wait(lambda _: runs(third), ROLLOUT, "the urgent image")
    wait_revision(cloud, lambda r: r["metadata"]["name"] == "r3" and phase(r) == "Complete", "the end of the urgent rollout")


@pytest.mark.private
@pytest.mark.long
@pytest.mark.parametrize("surge", [0, 1])
def test_a_window_that_closes_lets_what_has_begun_end(make_rollout_groups, surge):
    """A night's rotation that runs into the day takes no further node, and leaves none half drained or in standby."""
    rollout_groups = make_rollout_groups(policy(soak="1s"), maxSurge=surge)
    cloud, canary, tenant = rollout_groups.cloud, rollout_groups.canary, rollout_groups.tenants[0]
    rotation.block_drains(tenant, 2)
    old, mark = canary.instances(), cloud.log_position()
    set_image(cloud, rollout_groups.new)
    rotation.wait_draining(canary)
    assert len(rotation.in_standby(canary)) == surge
    # The only window is one that opens in an hour.
    windows = [{"from": next_minute(3600), "to": next_minute(2 * 3600), "zone": "UTC"}]
    cloud.edit_config_map(lambda data: data.update(rollout=policy(soak="1s", windows=windows)))
    is_closed = lambda wave: "window is closed" in (wave.get("why") or "")  # noqa: E731
    wait_revision(cloud, lambda r: any(map(is_closed, r["status"]["waves"])), "the closed window")
    rotation.allow_disruptions(tenant)
    canary.wait(lambda g: len(rotation.terminated(g, mark)) == 1 and len(g.ready_nodes()) == 2, ROLLOUT, "the end of what had begun")
    canary.wait(lambda g: any("window is closed" in c.get("message", "") for c in g.status()["conditions"]), ROLLOUT, "the reason of the wait")
    time.sleep(12)
    (ended,) = rotation.terminated(canary, mark)
    assert len(set(old) & set(canary.instances())) == 1 and ended in old and rotation.draining_nodes(canary) == []
    assert rotation.in_standby(canary) == [] and not any(node["spec"].get("unschedulable") for node in canary.nodes())
    assert any("window is closed" in c.get("message", "") for c in canary.status()["conditions"]), canary.status()
    cloud.edit_config_map(lambda data: data.update(rollout=policy(soak="1s")))
    canary.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the rest, without windows")
    assert max(group.max_unavailable_seen() for group in rollout_groups.groups) == 1 - surge


@pytest.mark.private
@pytest.mark.long
def test_the_budget_limits_all_groups_together_and_names_its_users(make_rollout_groups):
    """Each group respects its maxUnavailable, but together they would replace half of the cluster at once."""
    rollout_groups = make_rollout_groups(yaml.safe_dump({"budget": {"nodes": 1}}))
    cloud, (first, *_) = rollout_groups.cloud, rollout_groups.groups
    rotation.block_drains(rollout_groups.tenants[0], 2)
    set_image(cloud, rollout_groups.new)
    # A drain that a PodDisruptionBudget holds uses the budget up: the others wait, and say for what.
    waits = lambda group: group.has_condition("RolloutPending", reason="BudgetUsedUp") or "nodes 1" in str(group.status()["conditions"])  # noqa: E731
    cloud.eventually(lambda: rotation.draining_nodes(first) or any(len(launched_images(g)) == 2 for g in rollout_groups.others), ROLLOUT, "the first node")
    if rotation.draining_nodes(first):
        for group in rollout_groups.others:
            group.wait(lambda g: waits(g) and g.has_condition("Ready"), ROLLOUT, "a group that is Ready and says why it waits")
        # Counts alone are written every half minute.
        used = f"1 of 1 (nodes); unavailable nodes: {first.key} 1"
        support.eventually(lambda: used in test_plan.run(cloud, "rollout", "status").stdout, ROLLOUT, "who uses the budget up")
    rotation.allow_disruptions(rollout_groups.tenants[0])
    first.wait(lambda _: rollout_groups.settled(rollout_groups.new), 2 * ROLLOUT, "the new image everywhere")
    wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    names = [group.scaling_group for group in rollout_groups.groups]
    assert logs.max_unavailable_seen(cloud.aws_events(), cloud.audit(), *names) == 1


@pytest.mark.private
@pytest.mark.long
def test_a_blocked_drain_gives_its_node_of_the_budget_back(make_rollout_groups):
    """One tenant's PodDisruptionBudget must not use up the budget of the cluster, and keep a fix from all others."""
    waves_of = [{"name": "canary", "namespaces": "rollout/wave = canary"}, {"name": "rest"}]
    rollout_groups = make_rollout_groups(yaml.safe_dump({"budget": {"nodes": 1}, "patience": "30s", "waves": waves_of}))
    cloud, canary, tenant = rollout_groups.cloud, rollout_groups.canary, rollout_groups.tenants[0]
    rotation.block_drains(tenant, 2)
    set_image(cloud, rollout_groups.new)
    rotation.wait_draining(canary)
    locked = canary.wait(lambda g: g.has_condition("Locked"), ROLLOUT, "the way that it makes")
    assert "other groups go first" in locked["message"] and "PodDisruptionBudget app" in locked["message"], locked
    assert rotation.draining_nodes(canary) == [] and canary.has_condition("Ready")
    for group in rollout_groups.others:
        group.wait(lambda g: launched_images(g) == {rollout_groups.new} and g.state() == "Ready", ROLLOUT, "the other groups")
    found = wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    assert [(b["group"], b["reason"]) for b in found["status"]["behind"]] == [(canary.key, "Stuck")]
    # No other group waits, so its node is drained again.
    rotation.wait_draining(canary)
    rotation.allow_disruptions(tenant)
    canary.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the new image everywhere")
    names = [group.scaling_group for group in rollout_groups.groups]
    assert logs.max_unavailable_seen(cloud.aws_events(), cloud.audit(), *names) == 1


@pytest.mark.private
@pytest.mark.long
def test_drains_that_will_block_are_reported_during_the_soak(make_rollout_groups, tmp_path):
    """A tenant must learn in time of a budget that allows no eviction, and not from a drain that hangs at night."""
    rollout_groups = make_rollout_groups(policy(soak=LONG_SOAK))
    cloud, canary, other, tenant = rollout_groups.cloud, rollout_groups.canary, rollout_groups.others[0], rollout_groups.tenants[1]
    rotation.block_drains(tenant, 2)
    change = {"annotationSelector": "e2e", "defaults": {"spec": {"eks": {"configuration": {"image": rollout_groups.new}}}}}
    file = test_plan.new_config(cloud, tmp_path / "new.yaml", lambda data: data.update(conditionals=yaml.safe_dump([change])))
    _, found = test_plan.planned(cloud, "--config", file, "-A")
    early, rest = found["rollout"]["waves"]
    assert "wouldBlock" not in early and {(b["group"], b["kind"], b["budget"]) for b in rest["wouldBlock"]} == {(other.key, "never", "app")}
    assert len(rest["wouldBlock"]) == 2 and found["rollout"]["maxUnavailable"] == 2, found["rollout"]
    mark = cloud.log_position()
    set_image(cloud, rollout_groups.new)
    wait_revision(cloud, lambda r: waves(r).get("canary") == "Soaking", "the soak of the canary")
    forecast = other.wait(lambda _: other.has_condition("DrainForecast"), ROLLOUT, "the forecast")
    for words in (f"ReplicaSet {tenant.namespace}/app-", "PodDisruptionBudget app, maxUnavailable 0 of 2 pods", "maxUnavailable: 1"):
        assert words in forecast["message"], forecast
    assert other.has_condition("Ready") and other.writes(mark) == [] and other.wait_event("DrainForecast", "can never allow")
    assert not any(group.condition("DrainForecast") for group in (canary, rollout_groups.others[1])), "their drains will not be held up"
    status = lambda: test_plan.run(cloud, "rollout", "status").stdout  # noqa: E731
    support.eventually(lambda: re.search(rf"{other.key} +drains for r2 \(wave rest\) are expected to block", status()), ROLLOUT, "the line of rollout status")
    # Another look that finds the same writes nothing.
    before = other.get()["metadata"]["resourceVersion"]
    time.sleep(12)
    assert other.get()["metadata"]["resourceVersion"] == before
    rotation.allow_disruptions(tenant)
    other.wait(lambda _: other.has_condition("DrainForecast", "False"), ROLLOUT, "the end of the forecast")
    assert waves(newest(cloud))["canary"] == "Soaking", "the soak was too short for this test"
    end_soak(cloud)
    other.wait(lambda _: rollout_groups.settled(rollout_groups.new), 2 * ROLLOUT, "the new image everywhere")
    assert "DRAIN FORECAST" not in status()


def publish(cloud, image):
    """AWS publishes an image: it is the recommended one of Amazon Linux 2023 from now on."""
    version = cloud.boto("eks").describe_cluster(name=cloud["cluster_name"])["cluster"]["version"]
    path = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/x86_64/standard/recommended/image_id"
    cloud.control("POST", "ssm", name=path, value=image)


@pytest.mark.private
@pytest.mark.long
def test_a_new_image_of_aws_reaches_groups_in_waves(make_rollout_groups):
    """`image: latest` of 9,000 tenants must not replace every node of the cluster on the day on which AWS publishes an image."""
    rollout_groups = make_rollout_groups(policy(soak="1s"))
    cloud, (canary, other, _) = rollout_groups.cloud, rollout_groups.groups
    alias, mark = "amazon-linux-2023/x86_64/standard/recommended", cloud.log_position()
    publish(cloud, rollout_groups.old)
    set_image(cloud, "latest")
    found = wait_revision(cloud, lambda r: phase(r) == "Complete" and r["status"].get("images"), "the images of the revision")
    assert found["status"]["images"] == {alias: rollout_groups.old} and found["metadata"]["name"] == "r2"
    assert rollout_groups.settled(rollout_groups.old), "the same image by another name replaces nothing"
    cloud.edit_config_map(lambda data: data.update(rollout=policy(soak=LONG_SOAK)))
    publish(cloud, rollout_groups.new)
    found = wait_revision(cloud, lambda r: waves(r).get("canary") == "Soaking", "the soak of the canary")
    assert (found["metadata"]["name"], found["spec"]["images"], found["spec"]["from"]["manager"]) == ("r3", {alias: rollout_groups.new}, "AWS")
    assert launched_images(canary) == {rollout_groups.new}
    answer = test_plan.planned(cloud, other.key)[1]["groups"][0]
    assert answer["steps"] == [] and answer["rollout"]["revision"] == "r2" and answer["rollout"]["target"] == "r3", answer
    # A group that waits launches the image that it has, also with a controller that is new.
    rollout_groups.controller.kill()
    rollout_groups.controller.start()
    other.patch_spec(eks={"minSize": 3})
    other.wait_ready(nodes=3)
    assert launched_images(other) == {rollout_groups.old}
    assert waves(newest(cloud))["canary"] == "Soaking", "the soak was too short for this test"
    end_soak(cloud)
    other.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the new image everywhere")
    found = wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    rest = min(first_change(group, mark) for group in rollout_groups.others)
    assert found["status"]["waves"][0]["passed"][:19] <= rest and len(revisions(cloud)) == 3
    shown = test_plan.run(cloud, "rollout", "history", "--revision", "3").stdout
    assert f"image {alias}: {rollout_groups.old} -> {rollout_groups.new}" in shown and "by AWS" in shown, shown


def set_label(cloud, image, team):
    """The admin's label for the nodes of all groups of the test, beside their image."""
    configuration = {"image": image, "labels": {"team": team}}
    default = {"annotationSelector": "e2e", "defaults": {"spec": {"eks": {"configuration": configuration}}}}
    return cloud.edit_config_map(lambda data: data.update(conditionals=yaml.safe_dump([default])))


def teams(group):
    """The label that each node has."""
    return {node["metadata"]["labels"].get("team") for node in group.nodes()}


@pytest.mark.private
@pytest.mark.long
def test_labels_change_on_running_nodes_in_waves_or_at_once(make_rollout_groups):
    """A label that breaks a scheduler must reach the canary first where the admin asks for it, and cost no node in any case."""
    rollout_groups = make_rollout_groups(policy(soak=LONG_SOAK, withoutRotation="waves"), inPlace=["labels"])
    cloud, (canary, other, _) = rollout_groups.cloud, rollout_groups.groups
    old = [sorted(group.instances()) for group in rollout_groups.groups]
    set_label(cloud, rollout_groups.old, "search")
    wait_revision(cloud, lambda r: waves(r).get("canary") == "Soaking", "the soak of the canary")
    assert teams(canary) == {"search"} and [teams(group) for group in rollout_groups.others] == [{None}] * 2
    assert other.wait_condition("RolloutPending", reason="WaveNotOpen") and other.has_condition("Ready")
    # What a group that waits launches has the labels of before.
    cloud.boto("autoscaling").set_desired_capacity(AutoScalingGroupName=other.scaling_group, DesiredCapacity=3)
    other.wait(lambda g: len(g.ready_nodes()) == 3, ROLLOUT, "the new node")
    assert teams(other) == {None} and waves(newest(cloud))["canary"] == "Soaking", "the soak was too short for this test"
    end_soak(cloud, withoutRotation="waves")
    wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    other.wait(lambda _: all(teams(group) == {"search"} for group in rollout_groups.groups), ROLLOUT, "the label everywhere")
    # By default, what replaces no node reaches all groups at once.
    cloud.edit_config_map(lambda data: data.update(rollout=policy(soak="300s")))
    set_label(cloud, rollout_groups.old, "ads")
    other.wait(lambda _: all(teams(group) == {"ads"} for group in rollout_groups.groups), ROLLOUT, "the label everywhere, without a wave")
    wait_revision(cloud, lambda r: phase(r) == "Complete", "the end, without a soak")
    assert all(set(before) <= set(group.instances()) for before, group in zip(old, rollout_groups.groups))
    assert [rotation.terminated(group) for group in rollout_groups.groups] == [[], [], []]


@pytest.mark.private
@pytest.mark.long
def test_plan_names_the_next_revision_of_each_group(make_rollout_groups):
    """A user who runs `plan` during a rollout asks what happens in the next minutes, and not what the ConfigMap contains."""
    rollout_groups = make_rollout_groups(policy(soak=LONG_SOAK))
    cloud, (canary, approved, waiting) = rollout_groups.cloud, rollout_groups.groups
    set_image(cloud, rollout_groups.new)
    wait_revision(cloud, lambda r: waves(r).get("canary") == "Soaking", "the soak of the canary")
    rollout_groups.controller.stop()
    approved.annotate(approve_revision="2")
    _, answer = test_plan.planned(cloud, "--all-namespaces")
    places = {plan["group"]: plan["rollout"] for plan in answer["groups"]}
    found = [(places[group.key]["revision"], places[group.key]["takes"]) for group in rollout_groups.groups]
    assert found == [("r2", False), ("r2", True), ("r1", False)]
    rollout_groups.controller.start()
    hashes = {name: revision["spec"]["hash"] for name, revision in revisions(cloud).items()}
    has = lambda group: group.status().get("boundariesRevision") == hashes[places[group.key]["revision"]]  # noqa: E731
    approved.wait(has, ROLLOUT, "the revision that was planned")
    approved.wait(lambda group: launched_images(group) == {rollout_groups.new}, ROLLOUT, "its nodes")
    assert has(canary) and has(waiting) and launched_images(waiting) == {rollout_groups.old}
    assert waves(newest(cloud))["canary"] == "Soaking", "the soak was too short for this test"


@pytest.mark.private
@pytest.mark.long
def test_a_group_that_a_backup_restored_without_its_status_waits_for_its_turn(make_rollout_groups):
    """Backups leave out statuses. A group that looks new, but has nodes, must not take a change ahead of its wave."""
    rollout_groups = make_rollout_groups(policy(soak=LONG_SOAK))
    cloud, other = rollout_groups.cloud, rollout_groups.others[0]
    set_image(cloud, rollout_groups.new)
    wait_revision(cloud, lambda r: waves(r).get("canary") == "Soaking", "the soak of the canary")
    rollout_groups.controller.stop()
    cloud.patch(f"{other.path}/status", {"status": None})
    mark, rollout_groups.controller = cloud.log_position(), rollout_groups.controller.start()
    pending = other.wait(lambda g: g.has_condition("RolloutPending"), ROLLOUT, "the reason of the wait")
    assert pending["reason"] == "RevisionUnknown" and "its status records no BoundariesRevision" in pending["message"], pending
    assert other.writes(mark) == [] and waves(newest(cloud))["canary"] == "Soaking", "the soak was too short for this test"
    end_soak(cloud)
    other.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the new image everywhere")
    wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    assert max(group.max_unavailable_seen() for group in rollout_groups.groups) == 1


@pytest.mark.private
def test_a_change_that_a_group_cannot_use_is_not_given_to_it(make_rollout_groups):
    """A policy that forbids what tenants have must make the first of them wait with what it has, and halt before the rest."""
    rollout_groups = make_rollout_groups(policy(soak="2s"))
    cloud, wanted = rollout_groups.cloud, "AmazonS3ReadOnlyAccess"
    rollout_groups.canary.patch_spec(managedPolicies=[wanted])
    rollout_groups.canary.wait_ready(nodes=2)
    mark = cloud.log_position()
    before = cloud.get(harness.CONFIG)["data"]
    forbids = yaml.safe_dump({"managedPolicies": ["AmazonSSM*"]})
    cloud.edit_config_map(lambda data: data.update(policy=forbids, conditionals=data["conditionals"].replace(rollout_groups.old, rollout_groups.new)))
    found = wait_revision(cloud, lambda r: r["metadata"]["name"] == "r2" and phase(r) == "Halted", "the halt")
    behind = {found["group"]: found["message"] for found in found["status"]["behind"]}
    assert list(behind) == [rollout_groups.canary.key] and wanted in behind[rollout_groups.canary.key], found["status"]
    assert "other changes" not in behind[rollout_groups.canary.key], "nothing of the new revision is applied"
    own = revisions(cloud)["r1"]["spec"]["hash"]
    for group in rollout_groups.groups:
        assert group.has_condition("Ready") and group.has_condition("Stalled", "False"), group.status()
        assert group.status()["boundariesRevision"] == own and group.writes(mark) == []
    cloud.edit_config_map(lambda data: (data.clear(), data.update(before)))
    wait_revision(cloud, lambda r: r["metadata"]["name"] == "r3" and phase(r) == "Complete", "the revert")


@pytest.mark.private
@pytest.mark.long
def test_a_lock_on_the_config_map_blocks_the_change_across_a_downgrade(make_rollout_groups):
    """Releases without rollouts know no waves. They would replace the nodes of every tenant at once."""
    rollout_groups = make_rollout_groups(policy(soak="300s"))
    cloud = rollout_groups.cloud
    set_image(cloud, rollout_groups.new)
    wait_revision(cloud, lambda r: waves(r).get("canary") == "Soaking", "the soak of the canary")
    lock = "instancemgr.keikoproj.io/lock-upgrades"
    cloud.patch(harness.CONFIG, {"metadata": {"annotations": {lock: "true"}}})
    rollout_groups.controller.kill()
    # An older release reads neither the key nor the revisions.
    cloud.edit_config_map(lambda data: data.pop("rollout"))
    cloud.api("DELETE", DEFINITION)
    support.eventually(lambda: cloud.api("GET", REVISIONS).status_code == 404, harness.WAIT, "no definition")
    rollout_groups.controller.start()
    for group in rollout_groups.others:
        group.wait(lambda g: g.has_condition("Locked", "True"), what="the lock")
        assert launched_images(group) == {rollout_groups.old} and group.has_condition("Ready"), group.status()
    assert [len(group.instances()) for group in rollout_groups.groups] == [2, 2, 2] and launched_images(rollout_groups.canary) == {rollout_groups.new}
    cloud.patch(harness.CONFIG, {"metadata": {"annotations": {lock: None}}})
    rollout_groups.canary.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the new image everywhere")


@pytest.mark.private
def test_a_revision_that_a_user_deletes_is_stored_again(own_cloud, start_controller):
    """No wave would open, and no user could give an order until the next edit of the ConfigMap."""
    cloud = own_cloud()
    old, new = rotation.images(cloud)[:2]
    cloud.edit_config_map(lambda data: data.update(rollout=policy(soak="1s")))
    set_image(cloud, old)
    start_controller(cloud)
    wait_revision(cloud, lambda r: phase(r) == "Complete", "the first content")
    set_image(cloud, new)
    found = wait_revision(cloud, lambda r: r["metadata"]["name"] == "r2" and phase(r) == "Complete", "the rollout")
    cloud.api("DELETE", f"{REVISIONS}/r2")
    again = wait_revision(cloud, lambda r: r["spec"] == found["spec"] and phase(r) == "Complete", "the same revision")
    assert again["metadata"]["uid"] != found["metadata"]["uid"] and set(revisions(cloud)) == {"r1", "r2"}


@pytest.mark.private
def test_a_policy_needs_the_definition(own_cloud, start_controller, make_tenant):
    """An admin who asks for waves must not get all at once."""
    cloud = own_cloud()
    cloud.api("DELETE", DEFINITION)
    support.eventually(lambda: cloud.api("GET", REVISIONS).status_code == 404, harness.WAIT, "no definition")
    old, new = rotation.images(cloud)[:2]
    set_image(cloud, old)
    controller = start_controller(cloud)
    tenant = make_tenant(cloud=cloud, controller=controller)
    group = tenant.group(size=(1, 2)).wait_ready(nodes=1)
    cloud.edit_config_map(lambda data: data.update(rollout=policy()))
    set_image(cloud, new)
    support.eventually(lambda: cloud.config_events("needs the CustomResourceDefinition boundariesrevisions.instancemgr.keikoproj.io"), harness.WAIT, "the event")
    group.wait_condition("BoundariesApplied", "False")
    time.sleep(6)
    assert launched_images(group) == {old} and group.has_condition("BoundariesApplied", "False")
