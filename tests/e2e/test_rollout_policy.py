"""Fields of the key `rollout`: approvals and windows of tenants, the return after a failure, and the budget of a zone and of nodes in standby."""

import pytest
import yaml

from e2e import harness, logs, rotation
from e2e.test_rollout import ROLLOUT, launched_images, make_rollout_groups, next_minute, phase, policy, set_image, wait_revision  # noqa: F401


def runs(image):
    """Whether a group is Ready on this image alone."""
    return lambda group: launched_images(group) == {image} and group.state() == "Ready"


@pytest.mark.private
@pytest.mark.long
def test_a_group_waits_for_the_approval_of_its_tenant_and_delays_no_other(make_rollout_groups):  # noqa: F811
    """A regulated tenant decides itself when its nodes are replaced. The other tenants must not wait for its signature."""
    waves = [{"name": "regulated", "namespaces": "rollout/wave = canary", "approval": "tenants"}, {"name": "rest"}]
    rollout_groups = make_rollout_groups(policy(waves=waves, deferral=[{"namespaces": "*", "max": "1h"}]))
    cloud, (regulated, *_) = rollout_groups.cloud, rollout_groups.groups
    mark = cloud.log_position()
    set_image(cloud, rollout_groups.new)
    regulated.wait_condition("RolloutPending", reason="ApprovalNeeded", text="approve-revision: 2", timeout=ROLLOUT)
    found = wait_revision(cloud, lambda r: r["metadata"]["name"] == "r2" and phase(r) == "Complete", "the end, which waits for no tenant")
    assert [launched_images(group) for group in rollout_groups.others] == [{rollout_groups.new}] * 2
    assert [(b["group"], b["reason"]) for b in found["status"]["behind"]] == [(regulated.key, "ApprovalNeeded")]
    # What its tenant approved for the last change does not count for this one.
    regulated.annotate(approve_revision="1")
    regulated.wait_condition("RolloutPending", reason="ApprovalNeeded", text="approve-revision: 1 does not approve r2", timeout=ROLLOUT)
    assert regulated.writes(mark) == [] and regulated.has_condition("Ready") and launched_images(regulated) == {rollout_groups.old}
    regulated.annotate(approve_revision=None)
    cloud.patch(f"/api/v1/namespaces/{regulated.tenant.namespace}", {"metadata": {"annotations": {harness.PREFIX + "approve-revision": "r2"}}})
    regulated.wait(runs(rollout_groups.new), ROLLOUT, "the new image, once the tenant approved it for its Namespace")


@pytest.mark.private
@pytest.mark.long
def test_the_window_of_a_tenant_counts_in_place_of_the_admins(make_rollout_groups):  # noqa: F811
    """A tenant knows at which hours its service may lose a node. Those of the admin may be the worst."""
    rollout_groups = make_rollout_groups(policy(soak="1s"))
    cloud, (early, other, late) = rollout_groups.cloud, rollout_groups.groups
    admins, own = next_minute(2 * 3600), next_minute(3600)
    windows = [{"from": admins, "to": next_minute(3 * 3600), "zone": "UTC"}]
    rollout = yaml.safe_dump({"windows": windows, "deferral": [{"namespaces": "*", "max": "10h"}]})
    cloud.edit_config_map(lambda data: data.update(rollout=rollout))
    all_day = "00:00-00:00 UTC"
    early.annotate(window=all_day)
    late.annotate(window=f"{own}-{next_minute(5400)} UTC")
    mark = cloud.log_position()
    set_image(cloud, rollout_groups.new)
    early.wait(runs(rollout_groups.new), ROLLOUT, "the new image in its own window")
    for group, opens in ((other, admins), (late, own)):
        group.wait_condition("RolloutPending", reason="WindowClosed", text=f"T{opens}:00Z", timeout=ROLLOUT)
        assert group.writes(mark) == [] and group.has_condition("Ready")
    other.annotate(window=all_day)
    other.wait(runs(rollout_groups.new), ROLLOUT, "the new image in the window that its tenant has just opened")
    assert late.writes(mark) == []


def set_images(rollout_groups, *images):
    """The admin's change, with an image for each tenant."""
    selected = [(f"e2e = {tenant.unique}", {"image": image}) for tenant, image in zip(rollout_groups.tenants, images, strict=True)]
    found = [{"annotationSelector": selector, "defaults": {"spec": {"eks": {"configuration": values}}}} for selector, values in selected]
    rollout_groups.cloud.edit_config_map(lambda data: data.update(conditionals=yaml.safe_dump(found)))


@pytest.mark.private
@pytest.mark.long
def test_a_wave_that_fails_returns_all_its_groups_by_itself(make_rollout_groups):  # noqa: F811
    """With `onFailure: return`, nobody has to wake up. Groups on which the bad revision works must not keep it either."""
    rollout_groups = make_rollout_groups(policy(onFailure="return"), joinTimeout="30s")
    cloud, (good, bad, rest) = rollout_groups.cloud, rollout_groups.groups
    cloud.patch(f"/api/v1/namespaces/{bad.tenant.namespace}", {"metadata": {"labels": {"rollout/wave": "canary"}}})
    mark = cloud.log_position()
    set_images(rollout_groups, rollout_groups.new, cloud["amis"]["broken_never_joins"], rollout_groups.new)
    found = wait_revision(cloud, lambda r: r["metadata"]["name"] == "r2" and phase(r) == "Aborted", "the return without an order")
    assert not found["spec"].get("orders")
    good.wait(lambda _: rollout_groups.settled(rollout_groups.old), ROLLOUT, "the old image everywhere")
    halted = next(c for c in found["status"]["conditions"] if c["type"] == "Halted")
    assert bad.key in halted["message"] and "its groups returned to r1; revert the ConfigMap" in halted["message"], halted
    written = logs.audited_writes(cloud.audit(), "boundariesrevisions", "r2", subresource="status", user=logs.CONTROLLER)
    phases = [event["requestObject"].get("status", {}).get("phase") for event in written]
    assert "Returning" in phases and "Halted" not in phases, phases
    assert good.wait_event("RevisionReturned", "r2 was aborted") and bad.wait_event("RevisionReturned")
    assert rest.writes(mark) == [] and rest.wait_condition("RolloutPending", reason="Aborted") and rest.has_condition("Ready")
    assert cloud.config_events("all groups return from r2 to the revision that they had before")


class PlacedGroups:
    """Two groups in one zone, and one in another zone. The pods on their nodes block each drain."""

    def __init__(self, cloud, start_controller, make_tenant, rollout):
        self.cloud, (self.old, self.new) = cloud, rotation.images(cloud)[:2]
        cloud.edit_config_map(lambda data: data.update(rollout=rollout))
        self.set_image(self.old)
        self.controller = start_controller(cloud, "--enable-leader-election=false", "--resync-period", "10s")
        self.tenants = [make_tenant(cloud=cloud, controller=self.controller) for _ in range(3)]
        strategy = {"type": "rollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
        self.groups = [
            tenant.group(spec={"strategy": strategy}, annotations={"e2e-zone": zone}, size=(2, 6), labels=rotation.pool(tenant))
            for tenant, zone in zip(self.tenants, "aab", strict=True)
        ]
        for group in self.groups:
            group.wait_ready(nodes=2)

    def set_image(self, image):
        """The admin's values: the image, and the subnets of each zone."""
        values = {zone: {"image": image, "subnets": [f"demo-private-{zone}"]} for zone in "ab"}
        found = [{"annotationSelector": f"e2e-zone = {zone}", "defaults": {"spec": {"eks": {"configuration": each}}}} for zone, each in values.items()]
        self.cloud.edit_config_map(lambda data: data.update(conditionals=yaml.safe_dump(found)))


def used_and_limit(controller, of):
    """The usage of a limit of the budget, and the limit, from the metrics."""
    found = dict(line.rsplit(" ", 1) for line in controller.metrics().splitlines() if line.startswith("instance_manager_rollout_budget_nodes{"))
    return [found.get(f'instance_manager_rollout_budget_nodes{{kind="{kind}",of="{of}"}}') for kind in ("used", "limit")]


def is_held_by(limit):
    """Whether a group is Ready, and says that this limit of the budget holds it."""
    return lambda group: f"the budget of the rollout ({limit})" in str(group.status()["conditions"]) and group.has_condition("Ready")


@pytest.mark.private
@pytest.mark.long
def test_the_budget_of_a_zone_holds_the_groups_of_that_zone_alone(own_cloud, start_controller, make_tenant):
    """A service that spreads over zones survives the loss of nodes in one zone at a time, and not of its nodes in all of them."""
    placed = PlacedGroups(own_cloud(), start_controller, make_tenant, yaml.safe_dump({"budget": {"zone": 1}}))
    cloud, (*same, other) = placed.cloud, placed.groups
    for group in same:
        rotation.block_drains(group.tenant, 2)
    mark = cloud.log_position()
    placed.set_image(placed.new)
    other.wait(runs(placed.new), ROLLOUT, "the new image in the other zone")
    cloud.eventually(lambda: any(map(rotation.draining_nodes, same)), ROLLOUT, "the first drain of the zone")
    (held,) = [group for group in same if not rotation.draining_nodes(group)]
    held.wait(is_held_by("zone 1"), ROLLOUT, "the limit that holds the second group of the zone")
    assert rotation.draining_nodes(held) == rotation.terminated(held, mark) == []
    zone = f"zone {cloud['region']}a"
    cloud.eventually(lambda: used_and_limit(placed.controller, zone) == ["1", "1"], ROLLOUT, "the used budget in the metrics")
    for group in same:
        rotation.allow_disruptions(group.tenant)
    held.wait(lambda g: rotation.terminated(g, mark), ROLLOUT, "its turn, when the zone has room")
    assert logs.max_unavailable_seen(cloud.aws_events(), cloud.audit(), *(group.scaling_group for group in same)) == 1


@pytest.mark.private
@pytest.mark.long
def test_the_budget_limits_the_nodes_in_standby_of_all_groups(make_rollout_groups):  # noqa: F811
    """Each node in standby is paid for beside its replacement. A hundred tenants with maxSurge would double the bill for a night."""
    rollout_groups = make_rollout_groups(yaml.safe_dump({"budget": {"surge": 1}}), maxSurge=1)
    cloud, groups = rollout_groups.cloud, rollout_groups.groups
    for tenant in rollout_groups.tenants:
        rotation.block_drains(tenant, 2)
    set_image(cloud, rollout_groups.new)
    (first,) = cloud.eventually(lambda: [group for group in groups if rotation.in_standby(group)], ROLLOUT, "the first node in standby")
    others = [group for group in groups if group is not first]
    for group in others:
        group.wait(is_held_by("surge 1"), ROLLOUT, "the limit that holds another group")
    rotation.wait_draining(first)
    cloud.eventually(lambda: used_and_limit(rollout_groups.controller, "surge") == ["1", "1"], ROLLOUT, "the used budget in the metrics")
    assert [rotation.in_standby(group) for group in others] == [[], []]
    # More money counts at once.
    cloud.edit_config_map(lambda data: data.update(rollout=yaml.safe_dump({"budget": {"surge": 2}})))
    cloud.eventually(lambda: sum(len(rotation.in_standby(group)) for group in groups) == 2, ROLLOUT, "the second node in standby")
    (held,) = [group for group in groups if not rotation.in_standby(group)]
    held.wait(is_held_by("surge 2"), ROLLOUT, "the limit that still holds the third group")
