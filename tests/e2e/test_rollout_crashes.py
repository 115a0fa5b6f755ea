"""Each write of a rollout is the last one of the process that makes it, and the rollout ends as without."""

import pytest
import yaml

from e2e import harness, logs, rotation
from e2e.proxy import Proxy
from e2e.test_rollout import ROLLOUT, first_change, launched_images, newest, order, phase, revisions, set_image
from localcloud.tests import support

WRITES = r"/boundariesrevisions|/instancegroups/|/nodes/|/eviction"
"""What a rollout writes in Kubernetes. Events and leases decide nothing."""
LIMIT = 150
"""More writes than a rollout of two nodes needs, there and back."""


class Crashes:
    """A controller that is killed right after each of its writes, whose answers are lost."""

    def __init__(self, cloud, start_controller):
        self.cloud, self.proxy, self._start = cloud, Proxy(cloud), start_controller
        self.count, self._held = 0, None
        self.controller = self._new()

    def _new(self):
        return self._start(self.cloud, "--enable-leader-election=false", "--resync-period", "10s", kubeconfig=self.proxy.kubeconfig)

    def until(self, ended, what, begin=lambda: None):
        """Kills one process after the other from `begin()` until `ended()`; what they write until then is at most LIMIT."""
        before = self.count
        self._arm()
        begin()
        while not ended():
            support.eventually(lambda: self._reached() or ended(), ROLLOUT, what)
            if self._reached():
                assert self.count - before < LIMIT, f"{what}: the controller writes without end"
                self._crash()
        self._disarm()

    def _arm(self):
        self._held = self.proxy.hold("POST|PUT|PATCH|DELETE", WRITES)
        self.cloud.control("POST", "faults", action="hold", kind="write", caller="controller", count=1)

    def _reached(self):
        return self._held.reached.is_set() or bool(self.cloud.control("GET", "held"))

    def _crash(self):
        self.count += 1
        self.controller.kill()
        self._disarm()
        self._arm()
        self.controller = self._new()

    def _disarm(self):
        self.proxy.clear()
        self.cloud.control("DELETE", "faults")
        self.cloud.control("POST", "release", lose=True)

    def stop(self):
        """Ends the proxy."""
        self.proxy.stop()


@pytest.mark.private
@pytest.mark.long
def test_every_write_may_be_the_last_one_of_its_process(own_cloud, start_controller, make_tenant):
    """A rollout takes days. Whichever write a process dies after, its successor must not begin again, nor take one node more."""
    cloud = own_cloud()
    old, new = rotation.images(cloud)[:2]
    # The controller records the bound of the percentage before the wave opens. Half of one group is that group.
    canary_wave = {"name": "canary", "namespaces": "rollout/wave = canary", "percent": 50, "soak": "3s"}
    rollout = yaml.safe_dump({"waves": [canary_wave, {"name": "rest"}], "budget": {"nodes": 1}})
    cloud.edit_config_map(lambda data: data.update(rollout=rollout))
    set_image(cloud, old)
    crashes = Crashes(cloud, start_controller)
    tenants = [make_tenant(cloud=cloud, controller=crashes.controller) for _ in range(2)]
    cloud.patch(f"/api/v1/namespaces/{tenants[0].namespace}", {"metadata": {"labels": {"rollout/wave": "canary"}}})
    canary, rest = groups = [tenant.group(size=(1, 3)) for tenant in tenants]
    for group in groups:
        group.wait_ready(nodes=1)
    mark = cloud.log_position()
    settled = lambda image: all(group.state() == "Ready" and launched_images(group) == {image} for group in groups)  # noqa: E731
    terminated = lambda: [len(rotation.terminated(group, mark)) for group in groups]  # noqa: E731

    complete = lambda: phase(newest(cloud)) == "Complete" and settled(new)  # noqa: E731
    crashes.until(complete, "the end of the rollout", lambda: set_image(cloud, new))
    assert set(revisions(cloud)) == {"r1", "r2"} and terminated() == [1, 1]
    first = newest(cloud)["status"]["waves"][0]
    assert (first["percent"], first["groups"]) == (50, 1) and first["passed"][:19] <= first_change(rest, mark)

    aborted = lambda: phase(newest(cloud)) == "Aborted" and settled(old)  # noqa: E731
    crashes.until(aborted, "the return", lambda: order(cloud, "r2", aborted=True))
    assert set(revisions(cloud)) == {"r1", "r2"} and terminated() == [2, 2]
    assert crashes.count > 20, "the writes were not held"
    for group in groups:
        assert group.max_unavailable_seen() <= 1 and group.undrained() == {}
    assert logs.max_unavailable_seen(cloud.aws_events(), cloud.audit(), *(group.scaling_group for group in groups)) <= 1
    assert not canary.has_condition("Stalled") and canary.get()["metadata"]["finalizers"] == [harness.FINALIZER]
    crashes.stop()
