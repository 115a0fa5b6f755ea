"""Nodes are replaced by resources of other controllers, which the tests fake."""

import pytest

from localcloud.tests import support
from e2e import strategies
from e2e.strategies import ROLLING_UPGRADE, WORKFLOW, StrategyController

SCOPE = "instancemgr.keikoproj.io/upgrade-scope"


@pytest.fixture(autouse=True)
def kinds(request):
    """The kinds of both controllers are there."""
    if "private" not in request.keywords:
        strategies.install(request.getfixturevalue("shared"))


@pytest.mark.parametrize(("strategy", "kind", "words"), [
    (strategies.rolling_upgrade, ROLLING_UPGRADE, ("running", "completed")),
    (strategies.workflow, WORKFLOW, ("Running", "Succeeded")),
], ids=["RollingUpgrade", "Workflow"])
def test_a_group_is_ready_when_its_strategy_has_replaced_the_nodes(tenant, strategy, kind, words):
    """Without this, groups that upgrade-manager or Argo rotates would keep old nodes, or wait for a word that never comes."""
    group = strategies.start(tenant, strategy(), nodes=2)
    fake = StrategyController(group, kind)
    assert fake.resources() == [] and group.status()["strategy"] == "crd"
    strategies.change(tenant)
    name = fake.wait_submitted()
    made = fake.resources()[0]
    assert made["metadata"]["annotations"][SCOPE] == group.scaling_group
    assert made["metadata"]["annotations"]["app.kubernetes.io/managed-by"] == "instance-manager"
    assert group.scaling_group in str(made["spec"])
    suffix = group.status()["activeLaunchTemplateName"].rsplit("-", 1)[-1]
    assert name.endswith(f"{suffix}-2")
    fake.set_phase(name, words[0])
    group.wait(lambda g: f"says `{words[0]}`" in (g.has_condition("Reconciling") or {}).get("message", ""), what="the word of the strategy")
    assert group.state() == "InitUpgrade" and len(group.status()["strategyResourceName"]) > 3
    fake.replace_nodes()
    group.wait_ready(nodes=2)
    assert group.status()["nodes"]["outdated"] == 0 and group.status()["strategyProgress"]["state"] == "Submitted"
    fake.set_phase(name, words[1])
    # Any change of the group starts a pass.
    group.patch({"metadata": {"annotations": {"example.com/touched": "1"}}})
    group.wait(lambda g: g.status()["strategyProgress"] == {}, what="the end of the resource")
    status = group.status()
    assert (status["strategyResourceName"], status["strategyResourceNamespace"]) == (name, tenant.namespace)
    assert status["strategyRetryCount"] == 0
    assert fake.created() == [name] and group.wait_event("StrategyResourceCreated", name) and group.wait_event("RotationCompleted")
    assert [w["operation"] for w in group.writes() if "Terminate" in w["operation"]] == [], "the nodes are the strategy's"


def test_a_failed_upgrade_is_retried_up_to_max_retries(tenant):
    """Without the count, a broken upgrade would be retried endlessly, or stop at its first failure."""
    group = strategies.start(tenant, strategies.rolling_upgrade(maxRetries=2))
    fake = StrategyController(group, ROLLING_UPGRADE)
    strategies.change(tenant)
    for retries in range(3):
        name = fake.wait_submitted()
        assert group.status().get("strategyRetryCount", 0) == retries
        fake.set_phase(name, "Error")
    stalled = group.wait_condition("Stalled", reason="StrategyFailed")
    assert name in stalled["message"] and "after 2 retries" in stalled["message"] and "delete it" in stalled["message"]
    assert group.state() == "Error" and group.wait_event("InstanceGroupUpgradeFailed", name)
    assert fake.created() == [name] * 3 and len(fake.resources()) == 1, "the last one is left to be looked at"
    fake.delete(name)
    assert fake.wait_submitted() == name
    assert group.status()["strategyRetryCount"] == 0, "a deletion requests a new attempt"
    fake.replace_nodes()
    fake.set_phase(name, "completed")
    group.wait_ready(nodes=1)


def test_a_deleted_resource_is_submitted_again_and_counts_as_a_retry(tenant):
    """A deletion by mistake must not stop the upgrade, and repeated deletions must not keep it running endlessly."""
    group = strategies.start(tenant, strategies.workflow(maxRetries=1))
    fake = StrategyController(group, WORKFLOW)
    strategies.change(tenant)
    for _ in range(2):
        name = fake.wait_submitted()
        (resource,) = fake.resources()
        fake.set_phase(name, "Running")
        group.wait(lambda g: g.status()["strategyProgress"].get("uid") == resource["metadata"]["uid"], what="the record of this resource")
        group.wait(lambda g: "says `Running`" in (g.has_condition("Reconciling") or {}).get("message", ""), what="the word of the strategy")
        fake.delete(name)
    stalled = group.wait_condition("Stalled", reason="StrategyFailed")
    assert "deleted by another client" in stalled["message"] and "maxRetries" in stalled["message"]
    assert fake.created() == [name] * 2
    group.patch({"spec": {"strategy": {"crd": {"maxRetries": 2}}}})
    fake.set_phase(fake.wait_submitted(), "Running")


def test_success_is_not_accepted_while_old_nodes_remain(tenant):
    """A strategy that did nothing would otherwise leave a Ready group of old nodes."""
    group = strategies.start(tenant, strategies.rolling_upgrade(maxRetries=1))
    fake = StrategyController(group, ROLLING_UPGRADE)
    strategies.change(tenant)
    for _ in range(2):
        name = fake.wait_submitted()
        fake.set_phase(name, "completed")
    stalled = group.wait_condition("Stalled", reason="StrategyFailed")
    assert name in stalled["message"] and "1 node is outdated" in stalled["message"]
    fake.delete(name)
    assert fake.wait_submitted() == name
    fake.replace_nodes()
    fake.set_phase(name, "completed")
    group.wait_ready(nodes=1)


@pytest.mark.parametrize("policy", ["forbid", "replace", "allow", "whatever"])
def test_the_concurrency_policy_decides_about_a_running_upgrade(tenant, policy):
    """Two upgrades of one group at once are harmless for some strategies only."""
    group = strategies.start(tenant, strategies.rolling_upgrade(concurrencyPolicy=policy))
    fake = StrategyController(group, ROLLING_UPGRADE)
    strategies.change(tenant, 1)
    first = fake.wait_submitted()
    fake.set_phase(first, "running")
    strategies.change(tenant, 2)
    group.wait(lambda g: g.pinned() == "3", what="the next version")
    if policy in ("forbid", "whatever"):
        group.wait(lambda g: "concurrencyPolicy forbid" in (g.has_condition("Reconciling") or {}).get("message", ""), what="the policy's word")
        assert len(fake.resources()) == 1
        fake.set_phase(first, "error")
    second = fake.wait_submitted()
    assert second != first and second.endswith("-3")
    names = [r["metadata"]["name"] for r in fake.resources()]
    assert names == ([second] if policy == "replace" else [first, second])
    assert fake.deleted() == ([first] if policy == "replace" else [])
    fake.replace_nodes()
    fake.set_phase(second, "completed")
    group.wait_ready(nodes=1)


def test_a_lock_blocks_the_submission(tenant):
    """The lock must stop the rotation before the first node is replaced, whichever controller replaces it."""
    group = strategies.start(tenant, strategies.rolling_upgrade())
    fake = StrategyController(group, ROLLING_UPGRADE)
    group.annotate(lock_upgrades="true")
    strategies.change(tenant)
    group.wait_state("Locked")
    assert fake.resources() == [] and "1 node is outdated" in group.has_condition("Locked")["message"]
    group.annotate(lock_upgrades=None)
    fake.wait_submitted()


def test_a_reverted_change_does_not_wait_for_the_upgrade_that_it_started(tenant):
    """Nothing is outdated, so nothing has to be waited for; the resource may never report its end."""
    group = strategies.start(tenant, strategies.rolling_upgrade())
    fake = StrategyController(group, ROLLING_UPGRADE)
    strategies.change(tenant, 1)
    name = fake.wait_submitted()
    fake.set_phase(name, "running")
    group.wait(lambda g: "says `running`" in (g.has_condition("Reconciling") or {}).get("message", ""), what="the word of the strategy")
    strategies.change(tenant, 0)
    group.wait(lambda g: g.pinned() == "1", what="the old version's pin")
    group.wait_ready(nodes=1)
    assert len(fake.created()) == 1 and fake.deleted() == []


def cordoned(group):
    """The group's cordoned nodes."""
    return [n["metadata"]["name"] for n in group.nodes() if n["spec"].get("unschedulable")]


@pytest.mark.parametrize("end", ["success", "deletion"])
def test_after_a_switch_to_rolling_update_only_one_rotation_runs(tenant, end):
    """A person who gives a strategy up must not have two controllers drain the same group."""
    group = strategies.start(tenant, strategies.rolling_upgrade())
    fake = StrategyController(group, ROLLING_UPGRADE)
    strategies.change(tenant)
    name = fake.wait_submitted()
    fake.set_phase(name, "running")
    group.wait(lambda g: "says `running`" in (g.has_condition("Reconciling") or {}).get("message", ""), what="the word of the strategy")
    (before,) = group.instances()
    group.patch({"spec": {"strategy": {"type": "rollingUpdate", "crd": None}}})
    condition = group.wait(lambda g: "before spec.strategy was changed" in (g.has_condition("Reconciling") or {}).get("message", "") and g.has_condition("Reconciling"), what="the wait")
    assert f"kubectl delete rollingupgrades.upgrademgr.keikoproj.io -n {tenant.namespace} {name}" in condition["message"]
    assert cordoned(group) == [] and group.instances() == [before]
    if end == "success":
        fake.set_phase(name, "Completed")
    else:
        fake.delete(name)
    group.wait_ready(nodes=1)
    assert before not in group.instances() and group.pinned() == "2", "the controller's own rotation went on"
    assert fake.deleted() == [] and group.status()["strategyProgress"] == {}
    assert [e["operation"] for e in group.writes()].count("TerminateInstanceInAutoScalingGroup") == 1


def test_another_kind_in_the_template_waits_for_the_resource_of_the_first(tenant):
    """Its own status ends it, or the second upgrade would wait until a user deletes the first."""
    group = strategies.start(tenant, strategies.rolling_upgrade())
    fake = StrategyController(group, ROLLING_UPGRADE)
    strategies.change(tenant)
    name = fake.wait_submitted()
    fake.set_phase(name, "running")
    group.wait(lambda g: "says `running`" in (g.has_condition("Reconciling") or {}).get("message", ""), what="the word of the strategy")
    group.patch({"spec": {"strategy": strategies.workflow()}})
    group.wait(lambda g: "concurrencyPolicy forbid" in (g.has_condition("Reconciling") or {}).get("message", ""), what="the policy's word")
    second = StrategyController(group, WORKFLOW)
    assert second.resources() == []
    fake.set_phase(name, "completed")
    other = second.wait_submitted()
    second.replace_nodes()
    second.set_phase(other, "Succeeded")
    group.wait_ready(nodes=1)


TEMPLATES = [
    ("a function", "{{ env \"HOME\" }}", "InvalidSpec", "unknown function `env`"),
    ("a loop without end", "{{ range 1000000000 }}x{{ end }}", "InvalidSpec", "iterations"),
    ("a recursion", "{{ define \"r\" }}{{ template \"r\" }}{{ end }}{{ template \"r\" }}", "InvalidSpec", "{{ define }}"),
    ("parentheses", "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "InvalidSpec", "parentheses"),
    ("a field that is not there", "{{ .InstanceGroup.Nmae }}", "InvalidSpec", "unknown field `Nmae`"),
    ("two documents", strategies.ROLLING_UPGRADE_TEMPLATE + "---\n" + strategies.ROLLING_UPGRADE_TEMPLATE, "InvalidSpec", "2 documents"),
    ("another kind", "apiVersion: v1\nkind: Secret\nmetadata: {name: x}", "PolicyViolation", "is not an allowed kind"),
    ("a kind made by the template", "apiVersion: rbac.authorization.k8s.io/v1\nkind: {{ print \"Cluster\" \"RoleBinding\" }}\nmetadata: {name: x}", "PolicyViolation", "is not an allowed kind"),
    ("another namespace", strategies.ROLLING_UPGRADE_TEMPLATE.replace("{{ .InstanceGroup.GetNamespace }}", "kube-system"), "PolicyViolation", "`kube-system`"),
    ("another's nodes", strategies.ROLLING_UPGRADE_TEMPLATE.replace("{{ .InstanceGroup.Status.ActiveScalingGroupName }}", "demo-other-db"), "PolicyViolation", "`demo-other-db`"),
    ("an owner", strategies.ROLLING_UPGRADE_TEMPLATE.replace("spec:", "  finalizers: [a/b]\nspec:"), "PolicyViolation", "metadata.finalizers"),
    ("another's CRD", None, "InvalidSpec", "rollingupgrades.upgrademgr.keikoproj.io"),
    ("a status that is an object", None, "InvalidSpec", "an object"),
]


def test_a_forbidden_template_is_reported_and_affects_no_other_group(make_tenant):
    """A tenant's template runs in the controller: what is wrong or hostile must stop that group alone."""
    tenant, neighbor = make_tenant(), make_tenant()
    group = strategies.start(tenant, strategies.rolling_upgrade())
    fake = StrategyController(group, ROLLING_UPGRADE)
    strategies.change(tenant)
    fake.set_phase(fake.wait_submitted(), "running")
    for case, text, reason, words in TEMPLATES:
        if case == "another's CRD":
            patch = {"crdName": "workflows", "spec": strategies.ROLLING_UPGRADE_TEMPLATE}
        elif case == "a status that is an object":
            patch = {"crdName": "rollingupgrades", "statusJSONPath": ".status"}
        else:
            patch = {"spec": text}
        group.patch({"spec": {"strategy": {"crd": patch}}})

        def reported(g):
            """The condition about it. What has been submitted runs on, so the group need not be stalled yet."""
            found = (g.has_condition(kind, reason=reason) or {} for kind in ("FieldsRejected", "Stalled"))
            return next((condition for condition in found if words in condition.get("message", "")), None)

        assert "spec.strategy.crd." in group.wait(reported, what=f"{case}: {words}")["message"], case
        assert len(fake.created()) == 1, case
    other = strategies.start(neighbor, strategies.rolling_upgrade())
    strategies.change(neighbor)
    StrategyController(other, ROLLING_UPGRADE).wait_submitted()


def test_a_resource_of_the_same_name_of_another_group_is_not_changed(tenant):
    """Two groups whose resources have the same name must not track or delete each other's."""
    group = strategies.start(tenant, strategies.rolling_upgrade())
    fake = StrategyController(group, ROLLING_UPGRADE)
    suffix = group.status()["activeLaunchTemplateName"].rsplit("-", 1)[-1]
    body = {"apiVersion": "upgrademgr.keikoproj.io/v1alpha1", "kind": "RollingUpgrade", "metadata": {"name": f"web-{suffix}-2", "annotations": {SCOPE: "demo-other-db"}}, "spec": {"asgName": "demo-other-db"}}
    theirs = tenant.cloud.create(fake.collection, body)
    strategies.change(tenant)
    stalled = group.wait_condition("Stalled", reason="OwnershipConflict")
    assert f"web-{suffix}-2" in stalled["message"] and "metadata.name" in stalled["message"]
    assert [r["metadata"]["uid"] for r in fake.resources()] == [theirs["metadata"]["uid"]]
    assert fake.deleted() == []


@pytest.mark.parametrize(("name", "kind"), [("crd-rolling-upgrade", ROLLING_UPGRADE), ("crd-workflow", WORKFLOW)])
def test_the_examples_submit_valid_resources(make_tenant, name, kind):
    """A user who copies an example must get what it shows."""
    tenant = make_tenant(annotations={"instancemgr.keikoproj.io/config-excluded": "true"})
    group = tenant.apply((support.REPOSITORY / "examples" / f"{name}.yaml").read_text()).wait_ready(nodes=1)
    fake = StrategyController(group, kind)
    group.patch_spec(image=tenant.cloud["amis"]["amazonlinux2023"][1])
    submitted = fake.wait_submitted()
    assert submitted.startswith(f"{name}-") and group.scaling_group in str(fake.resources()[0]["spec"])
    fake.replace_nodes()
    fake.set_phase(submitted, "Completed" if kind == ROLLING_UPGRADE else "succeeded")
    group.wait_ready(nodes=1)
