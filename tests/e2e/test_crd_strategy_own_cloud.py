"""The crd strategy where the cluster lacks something, and where the controller dies in the middle."""

import json

import pytest

from e2e import harness, logs, strategies
from e2e.proxy import Proxy
from e2e.strategies import ROLLING_UPGRADE, WORKFLOW, StrategyController

pytestmark = pytest.mark.private

NO_ELECTION = ("--enable-leader-election=false", "--resync-period", "10s")
AGGREGATED = "instancemgr.keikoproj.io/aggregate-to-strategies"
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
DEFAULT_ROLE = f"{ROLES}/instance-manager-strategies-default"


class Stage:
    """One cloud, whose controller may be killed and replaced."""

    def __init__(self, cloud):
        self.cloud, self.proxy, self.controller = cloud, Proxy(cloud), None

    def start(self):
        """A new controller."""
        self.controller = harness.Controller(self.cloud, NO_ELECTION, kubeconfig=self.proxy.kubeconfig).start()
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
        """Ends the controller and the proxy."""
        self.controller.kill()
        self.proxy.stop()


@pytest.fixture(scope="module")
def stage(pooled_cloud):
    with pooled_cloud() as cloud:
        cloud.install()
        made = Stage(cloud)
        made.start()
        yield made
        made.end()


def test_a_kind_that_is_not_installed_is_reported_and_retried_slowly(stage):
    """An admin who forgot to install upgrade-manager must see it. The group must recover without a restart afterwards."""
    tenant = stage.tenant()
    group = strategies.start(tenant, strategies.rolling_upgrade())
    fake = StrategyController(group, ROLLING_UPGRADE)
    strategies.change(tenant)
    stalled = group.wait_condition("Stalled", reason="StrategyKindNotFound")
    assert "RollingUpgrade of upgrademgr.keikoproj.io/v1alpha1" in stalled["message"] and "install" in stalled["message"]
    assert group.state() == "Error" and group.wait_event("StrategyKindNotFound")
    strategies.install(stage.cloud)
    name = fake.wait_submitted()
    fake.replace_nodes()
    fake.set_phase(name, "completed")
    group.wait_ready(nodes=1)


def test_a_missing_permission_is_reported_and_granted_by_the_label(stage):
    """An admin who lists a kind of their own must learn which right is missing, and give it without editing our roles."""
    strategies.install(stage.cloud)
    tenant = stage.tenant()
    group = strategies.start(tenant, strategies.workflow())
    fake = StrategyController(group, WORKFLOW)
    stage.cloud.patch(DEFAULT_ROLE, {"metadata": {"labels": {AGGREGATED: None}}})
    permissions = f"{ROLES}/instance-manager-strategies"
    harness.support.eventually(lambda: not stage.cloud.get(permissions).get("rules"), harness.WAIT, "the end of the permissions")
    stage.cloud.wait_permission(logs.CONTROLLER, False, group="argoproj.io", resource="workflows", verb="get")
    strategies.change(tenant)
    stalled = group.wait_condition("Stalled", reason="MissingPermission")
    assert "not allowed to get workflows.argoproj.io" in stalled["message"] and AGGREGATED in stalled["message"]
    assert fake.resources() == []
    rules = [{"apiGroups": ["argoproj.io"], "resources": ["workflows"], "verbs": ["get", "list"]}]
    role = {"metadata": {"name": "of-our-own", "labels": {AGGREGATED: "true"}}, "rules": rules}
    stage.cloud.create(ROLES, role)
    stalled = group.wait(lambda g: "create workflows.argoproj.io" in (g.has_condition("Stalled", reason="MissingPermission") or {}).get("message", ""), what="permission to create")
    rules[0]["verbs"] = ["get", "list", "create", "delete"]
    stage.cloud.patch(f"{ROLES}/of-our-own", {"rules": rules})
    fake.wait_submitted()
    stage.cloud.patch(DEFAULT_ROLE, {"metadata": {"labels": {AGGREGATED: "true"}}})
    wanted = lambda: any("upgrademgr.keikoproj.io" in rule["apiGroups"] for rule in stage.cloud.get(permissions).get("rules") or [])  # noqa: E731
    harness.support.eventually(wanted, harness.WAIT, "the permissions again")


def test_a_cluster_scoped_kind_is_rejected_even_when_it_is_allowed(stage):
    """Resources of a cluster-scoped kind would belong to every tenant."""
    kind = ("example.com", "FleetUpgrade", "fleetupgrades")
    stage.cloud.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(strategies.definition(kind, scope="Cluster")))
    harness.support.eventually(lambda: stage.cloud.api("GET", f"/apis/example.com/v1alpha1/{kind[2]}").ok, harness.WAIT, "the kind")
    before = stage.cloud.get(harness.CONFIG)["data"].get("policy", "")
    stage.cloud.edit_config_map(lambda data: data.update(policy="strategyKinds: [FleetUpgrade.example.com, RollingUpgrade.upgrademgr.keikoproj.io]\n"))
    stage.controller.wait_config_loaded()
    tenant = stage.tenant()
    text = "apiVersion: example.com/v1alpha1\nkind: FleetUpgrade\nmetadata:\n  name: all\n  namespace: {{ .InstanceGroup.GetNamespace }}\n"
    group = strategies.start(tenant, strategies.rolling_upgrade(spec=text, crdName="fleetupgrades"))
    strategies.change(tenant)
    stalled = group.wait_condition("Stalled", reason="PolicyViolation")
    assert "FleetUpgrade.example.com" in stalled["message"] and "cluster-scoped" in stalled["message"]
    assert logs.audited_writes(stage.cloud.audit(), "fleetupgrades") == []
    stage.cloud.edit_config_map(lambda data: data.update(policy=before))


@pytest.mark.parametrize("answer", ["not-performed", "lost"])
@pytest.mark.parametrize("point", ["submission", "deletion", "second-submission"])
def test_a_crash_creates_no_second_resource_and_counts_no_retry_twice(stage, point, answer):
    """Two upgrades at once would take twice the nodes that may be unavailable."""
    strategies.install(stage.cloud)
    tenant = stage.tenant()
    group = strategies.start(tenant, strategies.rolling_upgrade(maxRetries=1))
    fake = StrategyController(group, ROLLING_UPGRADE)

    def hold(method):
        return stage.proxy.hold(method, rf"/namespaces/{tenant.namespace}/rollingupgrades", before=answer == "not-performed")

    held = hold("POST") if point == "submission" else None
    strategies.change(tenant)
    if held:
        stage.crash(held)
    name = fake.wait_submitted()
    held = {"deletion": "DELETE", "second-submission": "POST"}.get(point)
    held = held and hold(held)
    fake.set_phase(name, "error")
    if held:
        stage.crash(held)
    assert fake.wait_submitted() == name
    group.wait(lambda g: g.status()["strategyRetryCount"] == 1, what="the count")
    fake.replace_nodes()
    fake.set_phase(name, "completed")
    group.wait_ready(nodes=1)
    assert (fake.created(), fake.deleted()) == ([name] * 2, [name])
    group.wait(lambda g: g.status()["strategyRetryCount"] == 0, what="the end of the upgrade")
    tenant.end()
