"""The controller that ours replaces has no Lease: it is seen by what it writes, and ours only reads meanwhile."""

import contextlib
import itertools
import threading
import time

import pytest

from e2e import harness, logs
from localcloud.tests.support import eventually


def write_status(group, **status):
    """Writes a group's status as the other controller does."""
    path = f"{group.path}/status?fieldManager=manager"
    group.cloud.patch(path, {"status": status})


@contextlib.contextmanager
def other_controller(group):
    """The other controller works until the end of the block: it writes the group's status once a second."""
    ended = threading.Event()

    def work():
        # Times of managed fields are in whole seconds: two writes of one second look like one.
        for count in itertools.count():
            write_status(group, strategyRetryCount=count)
            if ended.wait(1):
                return

    writer = threading.Thread(target=work, daemon=True)
    writer.start()
    try:
        yield
    finally:
        ended.set()
        writer.join()


def reports_conflict(controller):
    """Whether the controller reports that another one is running."""
    return "instance_manager_conflicting_controller 1" in controller.metrics().splitlines()


def controller_writes(cloud, group, seen, audited):
    """What the controller wrote of a group in AWS and in Kubernetes."""
    to_kubernetes = logs.audited_writes(cloud.audit(audited), "instancegroups", name=group.name, user=logs.CONTROLLER)
    return [*group.writes(after=seen), *to_kubernetes]


def config_map_events(cloud, reason):
    """The events of a reason on the admin's ConfigMap."""
    events = cloud.get("/apis/events.k8s.io/v1/namespaces/instance-manager/events")["items"]
    return [e for e in events if e["reason"] == reason and e["regarding"]["name"] == "instance-manager"]


@pytest.mark.private
def test_while_another_controller_writes_this_one_only_reads_and_reports_it(own_cloud, start_controller, make_tenant):
    """Two controllers that undo each other's work would create template versions and replace nodes endlessly."""
    cloud = own_cloud()
    controller = start_controller(cloud, "--resync-period", "6s")
    tenant = make_tenant(cloud=cloud, controller=controller)
    group, other = tenant.group("web", size=(1, 3)), tenant.group("api", size=(1, 3))
    group.wait_ready(nodes=1), other.wait_ready(nodes=1)
    with other_controller(group):
        eventually(lambda: reports_conflict(controller), harness.WAIT, "the other controller")
        seen, audited = cloud.log_position(), len(cloud.audit())
        group.patch_spec(eks={"minSize": 2})
        other.patch_spec(eks={"maxSize": 4})
        assert other.wait_event("ConflictingController", group.key), "its tenant would find no reason for the wait"
        # More than two resync periods.
        time.sleep(13)
        assert controller_writes(cloud, group, seen, audited) == []
        # A Deployment that starts this one before it stops the other would wait endlessly.
        eventually(controller.ready, harness.WAIT, "the answer of a controller that is ready")
        assert len(config_map_events(cloud, "ConflictingController")) == 1 and "manager" in config_map_events(cloud, "ConflictingController")[0]["note"]
        assert group.wait_event("ConflictingController", group.key)
    group.wait(lambda g: g.asg()["MinSize"] == 2, what="the size that was asked for, once the other is quiet")
    group.wait_ready(nodes=2)
    assert config_map_events(cloud, "ConflictResolved") and not reports_conflict(controller)


@pytest.mark.private
def test_nothing_is_written_at_startup_while_the_other_controller_may_be_running(own_cloud, start_controller, make_tenant):
    """An image that is exchanged in a Deployment brings the new pod up before the old one goes."""
    cloud = own_cloud()
    tenant = make_tenant(cloud=cloud, controller=harness.Controller(cloud))
    group = tenant.group("web", size=(1, 3))
    write_status(group, currentState="Init")
    slow = start_controller(cloud, "-time-scale", "20")
    eventually(lambda: "pausing writes" in slow.tail(), harness.WAIT, "the wait at the start")
    # Two writes of one second look like one.
    time.sleep(1)
    write_status(group, currentState="InitCreate")
    eventually(lambda: reports_conflict(slow), harness.WAIT, "the other controller")
    slow.stop()
    assert controller_writes(cloud, group, 0, 0) == []
    tenant.controller = start_controller(cloud)
    group.wait_ready(nodes=1)
