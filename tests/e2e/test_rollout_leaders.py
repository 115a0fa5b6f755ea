"""Rollouts while caches are late and leaders change: nothing is decided from what is not known, or by who does not lead."""

import re
import time

import pytest

from e2e import harness, rotation
from e2e.proxy import Proxy
from e2e.test_recovery import answer
from e2e.test_rollout import LONG_SOAK, ROLLOUT, end_soak, first_change, launched_images, make_rollout_groups, newest, phase, policy, revisions, set_image, wait_revision, waves  # noqa: F401
from localcloud.tests import support

DECIDES = re.compile(r"/instancegroups/|/boundariesrevisions|/nodes/|/eviction")
"""What a decision about a rollout writes in Kubernetes."""


def decisions(proxy, after=0):
    """The writes through a proxy that carry out decisions."""
    return [written for written in proxy.written[after:] if DECIDES.search(written[1])]


@pytest.mark.private
@pytest.mark.long
def test_no_group_is_put_into_a_wave_before_the_namespaces_are_known(make_rollout_groups, start_controller):  # noqa: F811
    """The labels of a Namespace say in which wave its groups are. Without them, each group would be in the last wave."""
    rollout_groups = make_rollout_groups(policy(soak=LONG_SOAK))
    cloud, canary = rollout_groups.cloud, rollout_groups.canary
    rollout_groups.controller.stop()
    set_image(cloud, rollout_groups.new)
    mark, proxy = cloud.log_position(), Proxy(cloud)
    late = proxy.fault(method="GET", path=r"/api/v1/namespaces(\?|$)", seconds=600, count=-1)
    second = start_controller(cloud, "--enable-leader-election=false", "--resync-period", "10s", kubeconfig=proxy.kubeconfig, wait=False)
    support.eventually(lambda: late.hits, harness.WAIT, "the list of Namespaces")
    time.sleep(15)
    assert [written for written in decisions(proxy) if "/instancegroups/" in written[1]] == []
    assert phase(newest(cloud)) in (None, "Complete", "Assessing") and set(waves(newest(cloud)).values()) <= {"Waiting", "Passed"}
    assert [group.writes(mark) for group in rollout_groups.groups] == [[], [], []]
    proxy.end_fault(late)
    for tenant in rollout_groups.tenants:
        tenant.controller = second
    wait_revision(cloud, lambda r: r["metadata"]["name"] == "r2" and waves(r).get("canary") == "Soaking", "the soak of the canary")
    assert launched_images(canary) == {rollout_groups.new} and [group.writes(mark) for group in rollout_groups.others] == [[], []]
    end_soak(cloud)
    found = wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    canary.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the new image everywhere")
    rest = min(first_change(group, mark) for group in rollout_groups.others)
    assert found["status"]["waves"][0]["passed"][:19] <= rest
    proxy.stop()


@pytest.mark.private
@pytest.mark.long
def test_a_leader_that_loses_its_lease_in_mid_decision_leaves_it_to_the_next(make_rollout_groups, start_controller):  # noqa: F811
    """A forecast reads AWS for long. Two leaders that both give out a revision would take twice as many nodes."""
    rollout_groups = make_rollout_groups(policy(soak="3s"))
    cloud, canary = rollout_groups.cloud, rollout_groups.canary
    rollout_groups.controller.stop()
    proxy = Proxy(cloud)
    start_controller(cloud, "--resync-period", "10s", kubeconfig=proxy.kubeconfig, env={"AWS_ACCESS_KEY_ID": "first"})
    second = start_controller(cloud, "--resync-period", "10s", wait=False)
    support.eventually(lambda: answer(second) == (200, "standby: another process is the leader"), harness.WAIT, "a second controller that waits")
    mark = cloud.log_position()
    cloud.control("POST", "faults", action="hold", kind="read", caller="first", count=-1)
    set_image(cloud, rollout_groups.new)
    wait_revision(cloud, lambda r: r["metadata"]["name"] == "r2", "the revision")
    support.eventually(lambda: cloud.control("GET", "held"), harness.WAIT, "the reads of a forecast")
    proxy.fault(path="/leases/", lose="request", count=-1)
    support.eventually(second.ready, harness.WAIT, "a new leader")
    after = len(proxy.written)
    for tenant in rollout_groups.tenants:
        tenant.controller = second
    cloud.control("DELETE", "faults")
    cloud.control("POST", "release", lose=False)
    found = wait_revision(cloud, lambda r: phase(r) == "Complete", "the end of the rollout")
    canary.wait(lambda _: rollout_groups.settled(rollout_groups.new), ROLLOUT, "the new image everywhere")
    assert decisions(proxy, after) == [] and set(revisions(cloud)) == {"r1", "r2"}
    assert [len(rotation.terminated(group, mark)) for group in rollout_groups.groups] == [2, 2, 2]
    assert found["status"]["waves"][0]["passed"][:19] <= min(first_change(group, mark) for group in rollout_groups.others)
    proxy.stop()
