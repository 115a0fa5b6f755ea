"""A drain asks, waits, says what it waits for, and does only what its timeout allows."""

import json

from e2e import rotation


def test_a_budget_that_blocks_is_named_and_holds_nobody_else(tenant):
    """Without this, one tenant's budget would stop the cluster's rotation, or be run over, and nobody would know why."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start(tenant, 2)
    other = rotation.add(tenant, 2, "other", maxUnavailable=2)
    rotation.hold(tenant, 2)
    old, others = group.instances(), other.instances()
    tenant.defaults(image=new_image)
    found = group.wait(lambda g: g.is_("DrainBlocked", reason="EvictionBlocked"), what="the blocked drain")
    (node,) = rotation.wait_marked(group)
    pods = [p["metadata"]["name"] for p in tenant.pods() if p["spec"].get("nodeName") == node["metadata"]["name"]]
    assert len(pods) == 1 and f"{tenant.namespace}/{pods[0]}" in found["message"] and "the budget app" in found["message"]
    rotation.wait_rotated(other, others, 2, new_image)
    assert group.is_("DrainBlocked") and group.event("DrainBlocked", pods[0])
    assert rotation.terminated(group) == [] and len(rotation.cordons(group)) == 1
    rotation.loosen(tenant)
    rotation.wait_rotated(group, old, 2, new_image)
    assert group.undrained() == {} and group.max_unavailable_seen() == 1
    assert not group.is_("DrainBlocked") and rotation.pod_deletes(tenant) == []
    assert not other.is_("DrainBlocked")


def test_a_drain_past_its_timeout_deletes_with_grace_when_it_may(tenant):
    """Without this, a budget that never allows anything would keep an old node for ever although the tenant agreed to force."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start(tenant, 1, drainTimeout="4s", drainForce=True)
    tenant.deployment("app", 1, rotation.pool(tenant), {"maxUnavailable": 0}, terminationGracePeriodSeconds=1)
    tenant.running(1)
    old, (pod,) = group.instances(), tenant.pods()
    tenant.defaults(image=new_image)
    group.wait(lambda g: g.is_("DrainBlocked"), what="the blocked drain")
    rotation.wait_rotated(group, old, 1, new_image)
    deleted = rotation.pod_deletes(tenant)
    assert [e["objectRef"]["name"] for e in deleted] == [pod["metadata"]["name"]]
    assert (deleted[0].get("requestObject") or {}).get("gracePeriodSeconds") is None, "the pod's own grace counts"
    assert rotation.evictions(tenant) == [] and group.undrained() == {}
    assert group.event("PodDeleted", pod["metadata"]["name"])


def test_a_drain_past_its_timeout_gives_the_node_back_when_nothing_may_be_forced(tenant):
    """Without this, a node that cannot be drained would stay cordoned and empty for ever."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start(tenant, 1, drainTimeout="4s")
    tenant.deployment("app", 1, rotation.pool(tenant), {"maxUnavailable": 0})
    tenant.running(1)
    old, (pod,) = group.instances(), tenant.pods()
    tenant.defaults(image=new_image)
    found = group.wait(lambda g: g.is_("DrainBlocked", reason="DrainTimeout"), what="the timeout")
    assert pod["metadata"]["name"] in found["message"] and "drainTimeout" in found["message"]
    group.wait(lambda g: not rotation.marked(g) and len(g.ready_nodes()) == 1, what="the node's return")
    assert group.event("NodeUncordoned", "drainTimeout") and group.instances() == old
    assert rotation.terminated(group) == [] and rotation.evictions(tenant) == [] and rotation.pod_deletes(tenant) == []
    group.wait(lambda g: g.is_("Stalled", reason="DrainBlocked"), what="a state that says so")
    rotation.loosen(tenant)
    rotation.wait_rotated(group, old, 1, new_image)
    assert not group.is_("DrainBlocked")


def test_pods_that_find_no_room_are_named_with_the_remedy(tenant):
    """Without this, a drain that waits for its own evicted pods would look like a budget that somebody set wrong."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start(tenant, 1)
    tenant.deployment("app", 2, rotation.pool(tenant), {"maxUnavailable": 1})
    tenant.running(2)
    old = group.instances()
    tenant.defaults(image=new_image)
    found = group.wait(lambda g: g.is_("DrainBlocked", reason="UnschedulablePods"), what="the want of room")
    (homeless,) = [p["metadata"]["name"] for p in tenant.pods() if p["status"]["phase"] == "Pending"]
    assert f"{tenant.namespace}/{homeless}" in found["message"] and "add capacity" in found["message"]
    assert rotation.terminated(group) == []
    group.patch_spec(eks={"minSize": 2})
    rotation.wait_rotated(group, old, 2, new_image)
    assert group.undrained() == {} and not group.is_("DrainBlocked")
    tenant.running(2)


def test_a_node_that_claims_another_ones_instance_is_told_and_costs_that_one_nothing(tenant):
    """Without this, what one tenant tells its kubelet would let another tenant's node go with its pods on it."""
    new_image = rotation.images(tenant.cloud)[1]
    group = rotation.start(tenant, 1)
    tenant.deployment("app", 1, rotation.pool(tenant), {"maxUnavailable": 1})
    tenant.running(1)
    old, (real,), liar = group.instances(), group.nodes(), f"{tenant.unique}-liar"
    spec = {"providerID": real["spec"]["providerID"], "unschedulable": True}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": liar}, "spec": spec}
    tenant.cloud.kubectl("apply", "-f", "-", text=json.dumps(node))
    try:
        tenant.defaults(image=new_image)
        found = group.wait_condition("DrainBlocked", reason="DuplicateProviderID")
        assert liar in found["message"] and real["metadata"]["name"] in found["message"]
        assert rotation.terminated(group) == [] and rotation.evictions(tenant) == [] and rotation.marked(group) == []
    finally:
        tenant.cloud.kubectl("delete", "node", liar)
    rotation.wait_rotated(group, old, 1, new_image)
    assert group.undrained() == {} and rotation.terminated(group) == old
