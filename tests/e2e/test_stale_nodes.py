"""A node that the cache does not show, or shows as it was, is never taken for one without pods."""

import contextlib
import time

import pytest

from e2e import harness, logs, rotation
from e2e.proxy import Proxy
from localcloud.tests.support import eventually

pytestmark = pytest.mark.private

NODES = "/api/v1/nodes"
TWO_POLLS = 7
"""Seconds in which the controller looks at a group at least twice: enough for it to do what it must not."""


@pytest.fixture
def frozen(own_cloud, start_controller):
    """A tenant, and a context in which the controller learns nothing about nodes from its watch."""
    cloud = own_cloud()
    proxy = Proxy(cloud)
    controller = start_controller(cloud, "--resync-period", "5s", kubeconfig=proxy.kubeconfig)

    @contextlib.contextmanager
    def freeze():
        proxy.freeze(NODES)
        try:
            yield
        finally:
            proxy.thaw()

    yield harness.Tenant(cloud, controller), freeze
    proxy.stop()


def set_join_timeout(group, timeout):
    """Changes only `joinTimeout`."""
    group.patch({"spec": {"strategy": {"rollingUpdate": {"joinTimeout": timeout}}}})


@pytest.mark.parametrize("removal", ["rotation", "deletion"])
def test_a_node_that_the_watch_does_not_show_is_drained(frozen, removal):
    """Without this, a watch that lags would terminate a node that just joined, with its pods and past every budget."""
    tenant, freeze = frozen
    group = rotation.start_group(tenant, 1, joinTimeout="1s")
    new_image = rotation.images(tenant.cloud)[1]
    (known,), scaling = group.instances(), tenant.cloud.boto("autoscaling")
    with freeze():
        scaling.set_desired_capacity(AutoScalingGroupName=group.scaling_group, DesiredCapacity=2)
        group.wait(lambda g: len(g.ready_nodes()) == 2, what="the node that the controller does not see")
        rotation.block_drains(tenant, 2)
        old, (unseen,) = group.instances(), set(group.instances()) - {known}
        if removal == "deletion":
            group.delete()
        else:
            tenant.set_defaults(image=new_image)
        blocked = {p["metadata"]["name"] for p in tenant.pods()}
        group.wait_condition("DrainBlocked")
        time.sleep(TWO_POLLS)
        assert rotation.terminated(group) == [] and unseen in group.instances()
        assert {p["metadata"]["name"] for p in tenant.pods()} == blocked
    if removal == "rotation":
        set_join_timeout(group, "15m")
    rotation.allow_disruptions(tenant, 2)
    if removal == "deletion":
        group.wait_gone()
    else:
        rotation.wait_rotated(group, old, 2, new_image)
    assert group.undrained() == {}


@pytest.mark.long
def test_an_instance_without_its_node_is_kept_while_pods_are_bound_to_it(frozen):
    """Without this, deleting a Node object by hand would let its running pods be killed."""
    tenant, _ = frozen
    group = rotation.start_group(tenant, 1, joinTimeout="1s")
    rotation.block_drains(tenant, 1)
    (pod,), (node,), (old,) = tenant.pods(), group.nodes(), group.instances()
    tenant.cloud.kubectl("delete", "node", node["metadata"]["name"], "--wait=false")
    tenant.set_defaults(image=rotation.images(tenant.cloud)[1])
    group.wait(lambda g: rotation.terminated(g) == [old], rotation.ROTATION, "the end of the instance")
    ended = next(logs.timestamp(e) for e in rotation.calls(group, "TerminateInstanceInAutoScalingGroup"))
    gone = [end for (_, name, _), (_, _, end) in logs.placements(tenant.cloud.audit()).items() if name == pod["metadata"]["name"]]
    assert gone[0] and gone[0] < ended, "the pod is gone before its instance"


def test_nodes_that_the_watch_shows_as_available_are_counted_at_the_source(frozen):
    """Without this, a watch that lags would let a rotation take a node while another one is already unavailable."""
    tenant, freeze = frozen
    group = rotation.start_group(tenant, 3)
    rotation.block_drains(tenant, 3)
    old, new_image = group.instances(), rotation.images(tenant.cloud)[1]
    age = {n["spec"]["providerID"].rsplit("/", 1)[1]: (n["metadata"]["creationTimestamp"], n["metadata"]["name"]) for n in group.nodes()}
    last = max(old, key=lambda instance: (age[instance][0], instance))
    with freeze():
        tenant.cloud.kubectl("cordon", age[last][1])
        tenant.set_defaults(image=new_image)
        group.wait_condition("DrainBlocked")
        time.sleep(TWO_POLLS)
        assert [n["metadata"]["name"] for n in rotation.draining_nodes(group)] == [age[last][1]], "who is unavailable already costs nothing more"
        assert [n["metadata"]["name"] for n in group.nodes() if n["spec"].get("unschedulable")] == [age[last][1]]
    rotation.allow_disruptions(tenant)
    rotation.wait_rotated(group, old, 3, new_image)
    assert group.undrained() == {} and group.max_unavailable_seen() == 1
