"""A drain asks, waits, says what it waits for, and does only what its timeout allows."""

import json
import time

import pytest

from e2e import harness, logs, rotation
from localcloud.tests import support

TWO_POLLS = 7
"""Seconds in which the controller looks at a group at least twice: enough for it to do what it must not."""


def test_a_blocking_budget_is_reported_and_blocks_no_other_group(tenant):
    """Without this, one tenant's budget would stop the cluster's rotation, or be ignored, without a message."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 2)
    other = rotation.add_group(tenant, 2, "other", maxUnavailable=2)
    rotation.block_drains(tenant, 2)
    old, others = group.instances(), other.instances()
    tenant.set_defaults(image=new_image)
    found = group.wait(lambda g: g.has_condition("DrainBlocked", reason="EvictionBlocked"), what="the blocked drain")
    (node,) = rotation.wait_draining(group)
    pods = [p["metadata"]["name"] for p in tenant.pods() if p["spec"].get("nodeName") == node["metadata"]["name"]]
    assert len(pods) == 1 and f"{tenant.namespace}/{pods[0]}" in found["message"] and "PodDisruptionBudget app" in found["message"]
    rotation.wait_rotated(other, others, 2, new_image)
    assert group.has_condition("DrainBlocked") and group.wait_event("DrainBlocked", pods[0])
    assert rotation.terminated(group) == [] and len(rotation.cordons(group)) == 1
    rotation.allow_disruptions(tenant)
    rotation.wait_rotated(group, old, 2, new_image)
    assert group.undrained() == {} and group.max_unavailable_seen() == 1
    assert not group.has_condition("DrainBlocked") and rotation.deleted_pods(tenant) == []
    assert not other.has_condition("DrainBlocked")


def test_a_pod_of_two_budgets_is_reported_with_both(tenant):
    """The API server evicts no such pod and gives no reason. Without this, the drain would fail forever as an error of the API server."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 1)
    tenant.deployment("app", 1, rotation.pool(tenant), {"maxUnavailable": 1})
    tenant.wait_pods_running(1)
    # Of several budgets, Kubernetes counts a change of their pod for one (pkg/controller/disruption, getPdbForPod).
    budget = f"/apis/policy/v1/namespaces/{tenant.namespace}/poddisruptionbudgets/app"
    support.eventually(lambda: tenant.cloud.get(budget).get("status", {}).get("currentHealthy") == 1, harness.WAIT, "a budget that counts the pod")
    tenant.apply({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "second"}, "spec": {"maxUnavailable": 1, "selector": {}}})
    old = group.instances()
    tenant.set_defaults(image=new_image)
    found = group.wait_condition("DrainBlocked", reason="EvictionBlocked")
    assert "PodDisruptionBudgets app, second" in found["message"]
    tenant.cloud.api("DELETE", f"/apis/policy/v1/namespaces/{tenant.namespace}/poddisruptionbudgets/second")
    rotation.wait_rotated(group, old, 1, new_image)
    assert not group.has_condition("DrainBlocked") and rotation.deleted_pods(tenant) == []


def test_a_drain_past_its_timeout_deletes_pods_when_drain_force_is_set(tenant):
    """Without this, a budget that never allows anything would keep an old node although the tenant agreed to force."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 1, drainTimeout="20s", drainForce=True)
    tenant.deployment("app", 1, rotation.pool(tenant), {"maxUnavailable": 0}, terminationGracePeriodSeconds=1)
    tenant.wait_pods_running(1)
    old, (pod,) = group.instances(), tenant.pods()
    tenant.set_defaults(image=new_image)
    rotation.wait_rotated(group, old, 1, new_image)
    # The drain is blocked for twenty seconds at most.
    written = logs.audited_writes(tenant.cloud.audit(), "instancegroups", group.name, tenant.namespace, "status", logs.CONTROLLER)
    conditions = [c for e in written for c in (e.get("requestObject") or {}).get("status", {}).get("conditions") or []]
    assert any(c["type"] == "DrainBlocked" and c["status"] == "True" for c in conditions), "the blocked drain"
    deleted = rotation.deleted_pods(tenant)
    assert [e["objectRef"]["name"] for e in deleted] == [pod["metadata"]["name"]]
    assert (deleted[0].get("requestObject") or {}).get("gracePeriodSeconds") is None, "the pod's own grace counts"
    assert rotation.evictions(tenant) == [] and group.undrained() == {}
    assert group.wait_event("PodDeleted", pod["metadata"]["name"])


@pytest.mark.long
def test_a_drain_past_its_timeout_uncordons_the_node_without_drain_force(tenant):
    """Without this, a node that cannot be drained would stay cordoned and empty."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 1, drainTimeout="4s")
    tenant.deployment("app", 1, rotation.pool(tenant), {"maxUnavailable": 0})
    tenant.wait_pods_running(1)
    old, (pod,) = group.instances(), tenant.pods()
    tenant.set_defaults(image=new_image)
    found = group.wait(lambda g: g.has_condition("DrainBlocked", reason="DrainTimeout"), what="the timeout")
    assert pod["metadata"]["name"] in found["message"] and "drainTimeout" in found["message"]
    group.wait(lambda g: not rotation.draining_nodes(g) and len(g.ready_nodes()) == 1, what="the node's return")
    assert group.wait_event("NodeUncordoned", "drainTimeout") and group.instances() == old
    assert rotation.terminated(group) == [] and rotation.evictions(tenant) == [] and rotation.deleted_pods(tenant) == []
    group.wait(lambda g: g.has_condition("Stalled", reason="DrainBlocked"), what="a state that says so")
    rotation.allow_disruptions(tenant)
    rotation.wait_rotated(group, old, 1, new_image)
    assert not group.has_condition("DrainBlocked")


def test_a_spec_that_becomes_invalid_leaves_no_node_cordoned_or_in_standby(tenant):
    """Without this, a mistake in mid-rotation would keep nodes out of service until a person notices."""
    drained = rotation.start_group(tenant, 1)
    aside = rotation.add_group(tenant, 1, "aside", maxSurge=1)
    for name in ("web", "aside"):
        rotation.block_drains(tenant, 1, name, name)
    old = aside.instances()
    tenant.set_defaults(image=rotation.images(tenant.cloud)[1])
    for group in (drained, aside):
        rotation.wait_draining(group)
    tenant.set_defaults(clusterName="no-cluster")
    drained.wait_condition("Stalled", reason="InvalidSpec", text="no-cluster")
    drained.wait(lambda g: not rotation.draining_nodes(g) and len(g.ready_nodes()) == 1, what="the node's return")
    assert drained.wait_event("NodeUncordoned", "rejected") and rotation.terminated(drained) == []
    assert rotation.in_standby(aside) == old, "its replacement serves, so the rotation of this node continues"
    rotation.allow_disruptions(tenant, app="aside")
    aside.wait(lambda g: not set(g.instances(None)) & set(old), what="the end of the instance in standby")
    assert aside.undrained() == {} and aside.wait_condition("Stalled", reason="InvalidSpec")


@pytest.mark.long
def test_a_node_that_a_user_uncordons_is_released(tenant):
    """The controller would evict pods that the scheduler places back again and again, and terminate the node under new pods."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 1)
    rotation.block_drains(tenant, 1)
    old, pods = group.instances(), [p["metadata"]["uid"] for p in tenant.pods()]
    tenant.set_defaults(image=new_image)
    (node,) = rotation.wait_draining(group)
    tenant.cloud.kubectl("uncordon", node["metadata"]["name"])
    assert group.wait_event("NodeUncordoned", "another client uncordoned it")
    group.wait(lambda g: not rotation.draining_nodes(g), what="the end of the record")
    rotation.allow_disruptions(tenant)
    group.wait_condition("Stalled", reason="DrainBlocked")
    time.sleep(TWO_POLLS)
    assert len(rotation.cordons(group)) == 1 and rotation.terminated(group) == [] and len(group.ready_nodes()) == 1
    assert [p["metadata"]["uid"] for p in tenant.pods()] == pods and group.has_condition("Stalled", reason="DrainBlocked")
    rotation.wait_rotated(group, old, 1, new_image)
    assert group.undrained() == {}


def test_a_deletion_cordons_a_node_again_that_someone_else_uncordons(tenant):
    """Without this, pods would be scheduled to a node on its way out."""
    group = rotation.start_group(tenant, 1)
    rotation.block_drains(tenant, 1)
    group.delete()
    (node,) = rotation.wait_draining(group)
    tenant.cloud.kubectl("uncordon", node["metadata"]["name"])
    group.wait(lambda g: len(rotation.cordons(g)) == 2, what="the second cordon")
    rotation.allow_disruptions(tenant)
    group.wait_gone()
    assert group.undrained() == {}


def test_unschedulable_pods_are_reported_with_the_remedy(tenant):
    """Without this, a drain that waits for its own evicted pods would look like a wrong budget."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 1)
    tenant.deployment("app", 2, rotation.pool(tenant), {"maxUnavailable": 1})
    tenant.wait_pods_running(2)
    old = group.instances()
    tenant.set_defaults(image=new_image)
    found = group.wait(lambda g: g.has_condition("DrainBlocked", reason="UnschedulablePods"), what="the want of room")
    (unschedulable,) = [p["metadata"]["name"] for p in tenant.pods() if p["status"]["phase"] == "Pending"]
    assert f"{tenant.namespace}/{unschedulable}" in found["message"] and "add capacity" in found["message"]
    assert rotation.terminated(group) == []
    group.patch_spec(eks={"minSize": 2})
    rotation.wait_rotated(group, old, 2, new_image)
    assert group.undrained() == {} and not group.has_condition("DrainBlocked")
    tenant.wait_pods_running(2)


def test_a_duplicate_provider_id_is_reported_and_does_not_affect_the_real_node(tenant):
    """Without this, a kubelet flag of one tenant would terminate another tenant's node together with its pods."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start_group(tenant, 1)
    tenant.deployment("app", 1, rotation.pool(tenant), {"maxUnavailable": 1})
    tenant.wait_pods_running(1)
    old, (real,), liar = group.instances(), group.nodes(), f"{tenant.unique}-liar"
    spec = {"providerID": real["spec"]["providerID"], "unschedulable": True}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": liar}, "spec": spec}
    tenant.cloud.kubectl("apply", "-f", "-", text=json.dumps(node))
    try:
        tenant.set_defaults(image=new_image)
        found = group.wait_condition("DrainBlocked", reason="DuplicateProviderID")
        assert liar in found["message"] and real["metadata"]["name"] in found["message"]
        assert rotation.terminated(group) == [] and rotation.evictions(tenant) == [] and rotation.draining_nodes(group) == []
    finally:
        tenant.cloud.kubectl("delete", "node", liar)
    rotation.wait_rotated(group, old, 1, new_image)
    assert group.undrained() == {} and rotation.terminated(group) == old
