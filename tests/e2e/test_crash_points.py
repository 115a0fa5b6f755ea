"""The controller is killed at exact points of a group's life, and a new one ends where an undisturbed one does.

A write is held, either right after it was performed, so that its answer is lost, or its answer is delivered and the
very next write is held instead. The process is then killed, and another one continues.
"""

import difflib
import json
import re

import pytest

from e2e import harness, logs, rotation
from e2e.proxy import Proxy

pytestmark = pytest.mark.private

NODES = 2
NO_ELECTION = ("--enable-leader-election=false",)
"""Without a lease to wait for: what is tested is what the new process makes of what the old one left."""


class AwsPoint:
    """After the first call of an operation for the group under test."""

    def __init__(self, operation, until=None):
        self.operation, self.until = operation, until

    def arm(self, stage):
        stage.cloud.control("POST", "faults", action="hold", operation=self.operation, caller="controller", match=stage.tenant.namespace if self.until is None else "", count=1)

    def reached(self, stage):
        return bool(stage.cloud.control("GET", "held"))


class KubePoint:
    """After the first write to the API server that fits."""

    def __init__(self, method, path):
        self.method, self.path, self.until = method, path, None

    def arm(self, stage):
        stage.held = stage.proxy.hold(self.method, self.path)

    def reached(self, stage):
        return stage.held.reached.is_set()


POINTS = {
    "role": AwsPoint("CreateRole", until="CreateInstanceProfile"),
    "version": AwsPoint("CreateLaunchTemplateVersion", until="UpdateAutoScalingGroup"),
    "mark": KubePoint("PATCH", r"^/api/v1/nodes/"),
    "eviction": KubePoint("POST", r"/eviction"),
    "terminate": AwsPoint("TerminateInstanceInAutoScalingGroup", until=""),
}
SURGE_POINTS = {
    "record": KubePoint("PATCH", r"^/api/v1/nodes/"),
    "standby": AwsPoint("EnterStandby", until=""),
    "terminate": POINTS["terminate"],
}


class CrashStage:
    """One cloud whose controller is killed and replaced, and one tenant after the other."""

    def __init__(self, cloud):
        self.cloud, self.proxy = cloud, Proxy(cloud)
        self.tenant = self.controller = self.held = None

    def begin(self):
        """A controller and a fresh tenant."""
        self.start()
        self.tenant = harness.Tenant(self.cloud, self.controller)
        return self.tenant

    def start(self):
        """A new controller."""
        self.controller = harness.Controller(self.cloud, NO_ELECTION, kubeconfig=self.proxy.kubeconfig).start()
        if self.tenant:
            self.tenant.controller = self.controller

    def crash(self, point, answer):
        """Kills the controller at an armed point, its last answer delivered or lost, and starts another."""
        harness.support.eventually(lambda: point.reached(self), harness.WAIT, "the point of the crash")
        if answer == "delivered":
            self.deliver(point)
        self.controller.kill()
        self.proxy.clear()
        self.cloud.control("DELETE", "faults")
        self.cloud.control("POST", "release", lose=True)
        self.start()

    def deliver(self, point):
        """Lets the answer through, and waits for the next write, which is not performed."""
        hold = {"action": "hold", "kind": "write", "caller": "controller", "before": True}
        operation = {"operation": point.until} if point.until else {}
        self.cloud.control("POST", "faults", **hold, **operation)
        next_kube = None if point.until else self.proxy.hold(".*", r"^(?!.*(/leases|/events))", before=True)
        before = set(self.cloud.control("GET", "held"))
        if before:
            for number in before:
                self.cloud.control("POST", "release", id=int(number), lose=False)
        else:
            self.held.release(lose=False)

        def reached():
            return bool(set(self.cloud.control("GET", "held")) - before) or (next_kube and next_kube.reached.is_set())

        harness.support.eventually(reached, harness.WAIT, "the write after it")

    def end(self):
        """Ends the controller and the proxy."""
        if self.controller:
            self.controller.kill()
        self.proxy.stop()


@pytest.fixture(scope="module")
def stage(pooled_cloud):
    with pooled_cloud() as cloud:
        cloud.install()
        made = CrashStage(cloud)
        yield made
        made.end()


@pytest.fixture(scope="module")
def reference(stage):
    """What an undisturbed life of a group leaves and calls."""
    return run_lifecycle(stage)


@pytest.fixture(scope="module")
def surge_reference(stage):
    """The same for a group with a surge, whose old nodes are in standby."""
    return run_lifecycle(stage, surge=1)


def run_lifecycle(stage, name=None, answer=None, surge=0):
    """A group is made, rotated and deleted; with the crash at one point. Returns what it came to."""
    tenant = stage.begin()
    old, new = rotation.images(stage.cloud)[:2]
    seen = stage.cloud.log_position()
    tenant.set_defaults(image=old)
    point = (SURGE_POINTS if surge else POINTS).get(name)
    if name == "role":
        point.arm(stage)
    strategy = {"type": "rollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": surge}}
    group = tenant.group("web", spec={"strategy": strategy}, size=(NODES, NODES + 2), labels=rotation.pool(tenant))
    if name == "role":
        stage.crash(point, answer)
    group.wait_ready(nodes=NODES)
    tenant.deployment("app", NODES, rotation.pool(tenant), {"maxUnavailable": 1}, affinity=rotation.spread("app"))
    tenant.wait_pods_running(NODES)
    instances = group.instances(None)
    if point and name != "role":
        point.arm(stage)
    tenant.set_defaults(image=new)
    if point and name != "role":
        stage.crash(point, answer)
    rotation.wait_rotated(group, instances, NODES, new)
    tenant.wait_pods_running(NODES)
    end = {"aws": masked(stage, tenant, stage.cloud.snapshot()), "kubernetes": objects(stage, tenant, group)}
    assert group.max_unavailable_seen() <= 1 and group.undrained() == {}
    if surge:
        assert group.min_serving_nodes(NODES) == NODES
        assert not [i for i in group.asg()["Instances"] if i["LifecycleState"] != "InService"]
    # Nothing else would have room for these pods.
    stage.cloud.kubectl("delete", "deployment,pdb", "--all", "-n", tenant.namespace)
    tenant.wait_pods_running(0)
    group.delete()
    group.wait_gone()
    left = [kind for kind, things in stage.cloud.snapshot().items() if any(tenant.namespace in thing for thing in things)]
    assert left == [] and tenant.namespace not in stage.cloud.map_roles()
    made = counts(stage, seen)
    stage.controller.stop()
    tenant.set_conditional_defaults(None)
    return {"end": end, "counts": made}


def counts(stage, seen):
    """How often each thing was made and removed."""
    found = {}
    for event in stage.cloud.aws_events(seen):
        if logs.is_controller_call(event) and event["status"] and event["status"] < 300 and re.match("Create|Delete|Terminate|Attach|Detach|Enter", event["operation"]):
            found[event["operation"]] = found.get(event["operation"], 0) + 1
    return found


def objects(stage, tenant, group):
    """The InstanceGroup's status, its nodes and its entry in aws-auth."""
    status = group.status()
    status["conditions"] = sorted(status["conditions"], key=lambda c: c["type"])
    # Kubernetes takes the taint of a node that was not ready away in its own time.
    settled = lambda: not any(t["key"].startswith("node.kubernetes.io/") for n in group.nodes() for t in n["spec"].get("taints", []))  # noqa: E731
    harness.support.eventually(settled, harness.WAIT, "nodes without Kubernetes' own taints")
    nodes = [{"labels": n["metadata"]["labels"], "spec": n["spec"]} for n in group.nodes()]
    entries = [line for line in stage.cloud.map_roles().splitlines() if tenant.namespace in line]
    finalizers = group.get()["metadata"].get("finalizers")
    return masked(stage, tenant, {"status": status, "nodes": nodes, "entries": entries, "finalizers": finalizers})


CHANCE = [
    (r"\bi-[0-9a-f]+", "i-..."),
    (r"\blt-[0-9a-f]+", "lt-..."),
    (r"\bip-[0-9-]+[.\w-]*", "ip-..."),
    (r"us-west-2[abc]", "zone"),
    (r"\b\d{4}-\d\d-\d\d[T ][0-9:.]+(Z|\+00:00)?", "time"),
    (r"-\d{14}\b", "-stamp"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "uuid"),
    (r"\b[0-9a-f]{16,}\b", "hash"),
    (r":[0-9a-f]{6}\b", ":print"),
    (r"\d+ characters", "characters"),
]


def masked(stage, tenant, value):
    """The tenant's part of it, without what differs from run to run."""
    if isinstance(value, dict) and "groups" in value:
        value = {kind: {name: thing for name, thing in things.items() if tenant.namespace in name} for kind, things in value.items()}
    text = json.dumps(value, sort_keys=True).replace(tenant.namespace, "tenant")
    for pattern, name in CHANCE:
        text = re.sub(pattern, name, text)
    return logs.ordered(json.loads(text))


@pytest.mark.long
@pytest.mark.together
@pytest.mark.parametrize("answer", ["delivered", "lost"])
@pytest.mark.parametrize("name", POINTS)
def test_a_crash_leaves_no_trace(stage, reference, name, answer):
    """Nothing is made twice, nothing is left behind, no node goes undrained."""
    result = run_lifecycle(stage, name, answer)
    assert result["counts"] == reference["counts"]
    assert differences(reference["end"], result["end"]) == []


@pytest.mark.long
@pytest.mark.together
@pytest.mark.parametrize("answer", ["delivered", "lost"])
@pytest.mark.parametrize("name", SURGE_POINTS)
def test_a_crash_leaves_no_instance_in_standby(stage, surge_reference, name, answer):
    """No instance stays in standby, none enters it twice, and none is terminated before its replacement is ready."""
    result = run_lifecycle(stage, name, answer, surge=1)
    assert result["counts"] == surge_reference["counts"]
    assert differences(surge_reference["end"], result["end"]) == []


def differences(one, other):
    """The lines in which two values differ."""
    texts = [json.dumps(value, indent=1, sort_keys=True).splitlines() for value in (one, other)]
    return [line for line in difflib.ndiff(*texts) if line[0] in "+-"]
