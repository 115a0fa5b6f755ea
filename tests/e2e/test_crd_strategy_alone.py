"""The crd strategy where the cluster lacks something, and where the controller dies in the middle."""

import json

import pytest

from e2e import harness, judge, strategies
from e2e.proxy import Proxy
from e2e.strategies import ROLLING_UPGRADE, WORKFLOW, StandIn

pytestmark = pytest.mark.private

ALONE = ("--enable-leader-election=false", "--resync-period", "10s")
AGGREGATED = "instancemgr.keikoproj.io/aggregate-to-strategies"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
DEFAULT_ROLE = f"{ROLES}/instance-manager-strategies-default"


class Stage:
    """One cloud, whose controller may be killed and replaced."""

    def __init__(self, cloud):
        self.cloud, self.proxy, self.controller = cloud, Proxy(cloud), None

    def start(self):
        """A new controller."""
        self.controller = harness.Controller(self.cloud, ALONE, kubeconfig=self.proxy.kubeconfig).start()
        return self.controller

    def tenant(self):
        """A fresh tenant."""
        return harness.Tenant(self.cloud, self.controller)

    def crash(self, held):
        """Kills the controller while a write of it is held, whose answer is lost, and starts another."""
        harness.support.eventually(held.reached.is_set, harness.WAIT, "the point of the crash")
        self.controller.kill()
        self.proxy.clear()
        self.start()

    def end(self):
        """Everything goes."""
        self.controller.kill()
        self.proxy.stop()


@pytest.fixture(scope="module")
def stage(start_cloud):
    cloud = harness.Cloud.of(start_cloud())
    cloud.install()
    made = Stage(cloud)
    made.start()
    yield made
    made.end()


def test_a_kind_that_is_not_installed_is_named_and_waited_for_without_hurry(stage):
    """Who forgot to install upgrade-manager must be told so, and need not touch the group afterwards."""
    tenant = stage.tenant()
    group = strategies.start(tenant, strategies.rolling_upgrade())
    stand_in = StandIn(group, ROLLING_UPGRADE)
    strategies.change(tenant)
    stalled = group.wait_condition("Stalled", reason="StrategyKindNotFound")
    assert "RollingUpgrade of upgrademgr.keikoproj.io/v1alpha1" in stalled["message"] and "install" in stalled["message"]
    assert group.state() == "Error" and group.event("StrategyKindNotFound")
    strategies.install(stage.cloud)
    name = stand_in.submitted()
    stand_in.replace_nodes()
    stand_in.says(name, "completed")
    group.wait_ready(nodes=1)


def test_a_missing_right_is_named_and_comes_through_the_label(stage):
    """An admin who lists a kind of their own must learn which right is missing, and give it without editing our roles."""
    strategies.install(stage.cloud)
    tenant = stage.tenant()
    group = strategies.start(tenant, strategies.workflow())
    stand_in = StandIn(group, WORKFLOW)
    stage.cloud.patch(DEFAULT_ROLE, {"metadata": {"labels": {AGGREGATED: None}}})
    rights = f"{ROLES}/instance-manager-strategies"
    harness.support.eventually(lambda: not stage.cloud.get(rights).get("rules"), harness.WAIT, "the end of the rights")
    strategies.change(tenant)
    stalled = group.wait_condition("Stalled", reason="MissingPermission")
    assert "not allowed to get workflows.argoproj.io" in stalled["message"] and AGGREGATED in stalled["message"]
    assert stand_in.resources() == []
    rules = [{"apiGroups": ["argoproj.io"], "resources": ["workflows"], "verbs": ["get", "list"]}]
    role = {"metadata": {"name": "of-our-own", "labels": {AGGREGATED: "true"}}, "rules": rules}
    stage.cloud.create(ROLES, role)
    stalled = group.wait(lambda g: "create workflows.argoproj.io" in (g.is_("Stalled", reason="MissingPermission") or {}).get("message", ""), what="the right to create")
    rules[0]["verbs"] = ["get", "list", "create", "delete"]
    stage.cloud.patch(f"{ROLES}/of-our-own", {"rules": rules})
    stand_in.submitted()
    stage.cloud.patch(DEFAULT_ROLE, {"metadata": {"labels": {AGGREGATED: "true"}}})
    wanted = lambda: any("upgrademgr.keikoproj.io" in rule["apiGroups"] for rule in stage.cloud.get(rights).get("rules") or [])  # noqa: E731
    harness.support.eventually(wanted, harness.WAIT, "the rights again")


def test_a_kind_of_the_whole_cluster_is_refused_even_when_it_is_listed(stage):
    """A listed kind whose resources are in no namespace would be everyone's."""
    kind = ("example.com", "FleetUpgrade", "fleetupgrades")
    stage.cloud.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(strategies.definition(kind, scope="Cluster")))
    harness.support.eventually(lambda: stage.cloud.api("GET", f"/apis/example.com/v1alpha1/{kind[2]}").ok, harness.WAIT, "the kind")
    before = stage.cloud.get(harness.CONFIG)["data"].get("policy", "")
    stage.cloud.edit_config_map(lambda data: data.update(policy="strategyKinds: [FleetUpgrade.example.com, RollingUpgrade.upgrademgr.keikoproj.io]\n"))
    stage.controller.seen_config()
    tenant = stage.tenant()
    text = "apiVersion: example.com/v1alpha1\nkind: FleetUpgrade\nmetadata:\n  name: all\n  namespace: {{ .InstanceGroup.GetNamespace }}\n"
    group = strategies.start(tenant, strategies.rolling_upgrade(spec=text, crdName="fleetupgrades"))
    strategies.change(tenant)
    stalled = group.wait_condition("Stalled", reason="PolicyViolation")
    assert "FleetUpgrade.example.com" in stalled["message"] and "cluster-scoped" in stalled["message"]
    assert judge.audit_of(stage.cloud.audit(), "fleetupgrades") == []
    stage.cloud.edit_config_map(lambda data: data.update(policy=before))


@pytest.mark.parametrize("answer", ["not-performed", "lost"])
@pytest.mark.parametrize("point", ["submission", "deletion", "second-submission"])
def test_a_controller_that_dies_makes_no_second_resource_and_counts_no_retry_twice(stage, point, answer):
    """Two upgrades at once would take twice the nodes that may be unavailable."""
    strategies.install(stage.cloud)
    tenant = stage.tenant()
    group = strategies.start(tenant, strategies.rolling_upgrade(maxRetries=1))
    stand_in = StandIn(group, ROLLING_UPGRADE)

    def hold(method):
        return stage.proxy.hold(method, rf"/namespaces/{tenant.namespace}/rollingupgrades", before=answer == "not-performed")

    held = hold("POST") if point == "submission" else None
    strategies.change(tenant)
    if held:
        stage.crash(held)
    name = stand_in.submitted()
    held = {"deletion": "DELETE", "second-submission": "POST"}.get(point)
    held = held and hold(held)
    stand_in.says(name, "error")
    if held:
        stage.crash(held)
    assert stand_in.submitted() == name
    group.wait(lambda g: g.status()["strategyRetryCount"] == 1, what="the count")
    stand_in.replace_nodes()
    stand_in.says(name, "completed")
    group.wait_ready(nodes=1)
    assert (stand_in.created(), stand_in.deleted()) == ([name] * 2, [name])
    assert group.status()["strategyRetryCount"] == 1
    tenant.end()
