"""The orders of `instance-manager rollout`, given to a controller; and who may not give any."""

import pytest

from e2e import harness, test_plan
from e2e.test_rollout import REVISIONS, ROLLOUT, launched_images, make_rollout_groups, newest, phase, policy, revisions, set_image, wait_revision, waves  # noqa: F401
from e2e.test_tenant_commands import Person
from localcloud.tests import support


class Admin:
    """An admin at a terminal."""

    def __init__(self, cloud):
        self.cloud = cloud

    def orders(self, name="r2"):
        """What is ordered about a revision, and how often the orders were changed."""
        found = revisions(self.cloud)[name]
        return found["spec"].get("orders", {}), found["metadata"]["generation"]

    def gives(self, *arguments):
        """Gives an order, which is written; returns what the command says, and the orders."""
        before, done = self.orders()[1], test_plan.run(self.cloud, "rollout", *arguments)
        assert done.returncode == 0, done
        orders, generation = self.orders()
        assert generation > before, f"{arguments} wrote nothing: {done.stdout}"
        return done.stdout, orders

    def reads(self, *arguments, code=0):
        """Runs a command that must write nothing; returns what it says."""
        before, done = {name: self.orders(name) for name in revisions(self.cloud)}, test_plan.run(self.cloud, "rollout", *arguments)
        assert done.returncode == code, done
        assert {name: self.orders(name) for name in revisions(self.cloud)} == before, f"{arguments} wrote something"
        return done.stdout + done.stderr


@pytest.mark.private
@pytest.mark.long
def test_admins_steer_a_rollout_by_commands(make_rollout_groups):  # noqa: F811
    """A person on call at night has these commands and their texts, and no time to find out that one of them does something else."""
    waves_of = [{"name": "canary", "namespaces": "rollout/wave = canary", "soak": "1s"}, {"name": "rest", "approval": "admin"}]
    rollout_groups = make_rollout_groups(policy(waves=waves_of))
    cloud, (canary, other, left) = rollout_groups.cloud, rollout_groups.groups
    admin = Admin(cloud)
    set_image(cloud, rollout_groups.new)
    wait_revision(cloud, lambda r: r["metadata"]["name"] == "r2" and waves(r).get("canary") == "Open", "the canary wave")

    said, orders = admin.gives("pause", "2")
    assert "r2 is paused" in said and orders["paused"] is True
    other.wait(lambda group: group.has_condition("RolloutPending", reason="Paused"), ROLLOUT, "the pause")
    assert "already" in admin.reads("pause", "2")
    assert "is not the newest revision" in admin.reads("pause", "1", code=1)
    said, orders = admin.gives("resume", "r2")
    assert "r2 continues" in said and orders["paused"] is False and not orders.get("retries"), "nothing had failed"
    assert "neither paused nor halted" in admin.reads("resume", "2")

    wait_revision(cloud, lambda r: waves(r).get("canary") == "Passed", "the end of the canary wave")
    assert "has no wave none" in admin.reads("approve", "2", "--wave", "none", code=1)
    assert "has no wave none" in admin.reads("skip", "2", "--wave", "none", code=1)
    assert "has r2 already" in admin.reads("skip", "2", "--group", canary.key, code=1)
    said, orders = admin.gives("skip", "2", "--group", left.key)
    assert f"{left.key} does not take r2" in said and orders["without"] == [left.key]
    left.wait(lambda group: group.has_condition("RolloutPending", reason="LeftOut"), ROLLOUT, "the order about one group")
    assert launched_images(other) == {rollout_groups.old}, "no admin approved its wave"
    _, orders = admin.gives("skip", "2", "--wave", "rest")
    assert orders["skipped"] == ["rest"] and orders["without"] == [left.key]
    other.wait(lambda group: launched_images(group) == {rollout_groups.new} and group.state() == "Ready", ROLLOUT, "the wave without its approval")
    wait_revision(cloud, lambda r: phase(r) == "Complete", "the end, which does not wait for the group that was left out")
    assert launched_images(left) == {rollout_groups.old} and left.has_condition("Ready")

    said = admin.reads("undo")
    assert "2 groups (4 nodes) whose nodes r2 replaced" in said and "return to r1, in about " in said, said
    assert "instance-manager rollout undo r2 --yes" in said
    assert "name the revision" in admin.reads("undo", "--yes", code=1)
    assert phase(newest(cloud)) == "Complete" and launched_images(canary) == {rollout_groups.new}
    said, orders = admin.gives("undo", "2", "--yes")
    assert "return to r1" in said and orders["aborted"] is True
    wait_revision(cloud, lambda r: phase(r) == "Aborted", "the return")
    canary.wait(lambda _: rollout_groups.settled(rollout_groups.old), ROLLOUT, "the old image everywhere")
    assert "aborted already" in admin.reads("undo", "2", "--yes")

    said, orders = admin.gives("resume", "2")
    assert "begins again at the first wave" in said and (orders["aborted"], orders["retries"]) == (False, 1)
    wait_revision(cloud, lambda r: phase(r) == "Rolling" and waves(r)["canary"] == "Open", "the first wave once more")
    said, orders = admin.gives("abort", "2")
    assert "r2 is aborted" in said and orders["aborted"] is True
    wait_revision(cloud, lambda r: phase(r) == "Aborted", "the second return")
    canary.wait(lambda _: rollout_groups.settled(rollout_groups.old), ROLLOUT, "the old image everywhere")


@pytest.mark.private
def test_neither_the_controller_nor_a_tenant_may_change_orders(own_cloud, start_controller, make_tenant, tmp_path):
    """Orders are people's: no defect of the controller may approve a wave. A tenant must not read an admin's user data, and must not stop a fix for all."""
    cloud = own_cloud()
    controller = start_controller(cloud)
    tenant = Person(make_tenant(cloud=cloud, controller=controller), tmp_path)
    support.eventually(lambda: revisions(cloud), harness.WAIT, "the first revision")
    before, path = revisions(cloud), f"{REVISIONS}/r1"
    order = {"spec": {"orders": {"paused": True}}}
    merge = "application/merge-patch+json"
    for token, requests in (
        (cloud.controller_token, [("PATCH", path, order)]),
        (tenant.token, [("GET", REVISIONS, None), ("GET", path, None), ("PATCH", path, order), ("PATCH", f"{path}/status", {"status": {}}), ("DELETE", path, None)]),
    ):
        for method, asked, body in requests:
            answer = cloud.api(method, asked, body, token=token, content_type=merge if method == "PATCH" else "application/json")
            assert answer.status_code == 403, f"{method} {asked}: {answer.status_code} {answer.text}"
    assert cloud.api("GET", REVISIONS, token=cloud.controller_token).ok, "the token is the controller's"
    assert revisions(cloud) == before
