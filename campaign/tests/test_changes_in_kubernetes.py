"""Manual changes in Kubernetes do what they say, and the user takes back what the controller leaves to a user."""

import copy
import json
import random

import pytest

from campaign import perturbations
from campaign.perturbations.manual_changes_kubernetes import BUDGETS, ROLLING_UPGRADES
from e2e.harness import CONFIG

REGISTRY = perturbations.load()
GROUP, SCALING_GROUP = "alpha", "demo-camp-alpha"
INSTANCE_GROUP = f"/groups/{GROUP}"
LAST_GOOD = CONFIG + "-last-good"
NODE, UPGRADE = "/api/v1/nodes/node-1", f"{ROLLING_UPGRADES}/alpha-7"
BUDGET, POD = f"{BUDGETS}/on-{GROUP}", "/api/v1/namespaces/camp/pods/one"
LEASE = "/leases/instance-manager"
DATA = {"boundaries": "restricted: []\n", "defaults": "spec: {}\n", "policy": "roles: ['*']\n"}
TAINT = {"key": "soft", "value": "1", "effect": "PreferNoSchedule"}
OF_OTHERS = {"key": "theirs", "value": "1", "effect": "NoSchedule"}


class FakeAnswer:
    """An answer of the API server."""

    def __init__(self, ok):
        self.ok, self.text = ok, "not found"


class FakeCloud:
    """An API server with some objects, and a scaling group in AWS."""

    def __init__(self):
        self.asked = []
        self.objects = {
            INSTANCE_GROUP: {
                "metadata": {"annotations": {}, "finalizers": ["finalizer.instancegroups.keikoproj.io"]},
                "status": {"currentState": "InitUpgrade", "observedGeneration": 3},
            },
            BUDGET: {"spec": {"maxUnavailable": 1}},
            POD: {"metadata": {"name": "one", "labels": {"app": f"on-{GROUP}"}}},
            NODE: {
                "metadata": {"name": "node-1", "resourceVersion": "1", "labels": {"pool": GROUP, "team": "1", "tier": "0"}},
                "spec": {"taints": [OF_OTHERS, TAINT]},
            },
            UPGRADE: {"metadata": {"name": "alpha-7"}, "spec": {"asgName": SCALING_GROUP}, "status": {"currentStatus": "running"}},
            CONFIG: {"data": dict(DATA)},
            LAST_GOOD: {"data": dict(DATA)},
            LEASE: {"spec": {"holderIdentity": "controller"}},
        }

    def snapshot(self):
        """The account."""
        return {"groups": {SCALING_GROUP: {"AutoScalingGroupName": SCALING_GROUP, "Tags": []}}, "roles": {}, "access": {}}

    def get(self, path):
        """An object, or all objects of a collection."""
        items = [found for known, found in self.objects.items() if known.rpartition("/")[0] == path]
        return copy.deepcopy(self.objects.get(path) or ({"items": items} if items else None))

    def api(self, method, path, body=None, content_type=None):
        """Deletes an object, or merges a patch into it."""
        self.asked.append(path)
        path = path.removesuffix("/status")
        if path not in self.objects:
            return FakeAnswer(False)
        if method == "DELETE":
            del self.objects[path]
        else:
            merge(self.objects[path], body)
        return FakeAnswer(True)


def merge(target, patch):
    """Merges a patch into an object, as RFC 7386 has it."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


class FakeRunner:
    """What a manual change asks of a runner."""

    def __init__(self, lease=LEASE):
        self.cloud, self.undone, self.refused, self.settings = FakeCloud(), [], [], {"lease": lease}
        self.config, configuration = DATA, {"labels": {"pool": GROUP, "team": "1", "tier": "0"}, "taints": [TAINT]}
        self.present = {GROUP: {"spec": {"provisioner": "eks", "eks": {"configuration": configuration}}}}

    def path(self, group):
        """The path of the InstanceGroup."""
        return INSTANCE_GROUP

    def undo(self, function, after=None, group=None):
        """Keeps it for the end."""
        self.undone.append(function)

    def note(self, what, **more):
        """Keeps what the API server refused."""
        self.refused.append(what)

    def wait_until(self, predicate, seconds):
        """Does not wait."""
        return predicate()

    def wait(self, seconds):
        """Does not wait."""

    def configure(self, data):
        """Writes the ConfigMap."""
        self.cloud.objects[CONFIG] = {"data": dict(data)}


CHANGES = [
    ("labels of nodes edited", {"key": "team", "value": "edited"}, NODE),
    ("labels of nodes edited", {"key": "tier", "value": None}, NODE),
    ("taints of nodes removed", {"key": "soft"}, NODE),
    ("node cordoned", {"index": 0, "later": None}, NODE),
    ("last good copy edited", {"data": {"defaults": None}, "later": None}, CONFIG),
    ("ConfigMap broken", {"data": {"defaults": None}, "later": None}, CONFIG),
    ("ConfigMap deleted", {"copy": True, "later": None}, CONFIG),
    ("lock", {"where": "group", "later": None}, INSTANCE_GROUP),
    ("budget that blocks", {"later": None}, BUDGET),
    ("pods that stay", {"later": None}, POD),
]
"""Changes of what the controller leaves to a user, their arguments, and the object that they change."""
REPAIRED = [
    ("status wiped", {"part": "currentState"}, INSTANCE_GROUP),
    ("finalizer taken off", {}, INSTANCE_GROUP),
    ("status forged", {"forged": {"currentState": "Ready"}}, INSTANCE_GROUP),
    ("status forged", {"forged": {"observedGeneration": 0}}, INSTANCE_GROUP),
    ("RollingUpgrade deleted", {}, UPGRADE),
    ("RollingUpgrade edited", {"change": {"spec": {"asgName": "nobodys"}}}, UPGRADE),
    ("RollingUpgrade edited", {"change": {"status": {"currentStatus": "completed"}}}, UPGRADE),
    ("last good copy edited", {"data": {"boundaries": "restricted: {"}, "later": 3}, LAST_GOOD),
]
"""Changes of what the controller repairs, or makes again."""


def perform(runner, name, arguments):
    """Disturbs the group, or what has no group."""
    found = REGISTRY[name]
    found(runner, **arguments, **({"group": GROUP} if "group" in found._names else {}))


@pytest.mark.parametrize(("name", "arguments", "path"), CHANGES + REPAIRED)
def test_each_change_changes_its_object(name, arguments, path):
    """One that the API server refuses, or that meets nothing, disturbs nothing."""
    runner = FakeRunner()
    before = runner.cloud.get(path)
    perform(runner, name, arguments)
    assert runner.refused == [] and runner.cloud.get(path) != before


@pytest.mark.parametrize(("name", "arguments", "path"), CHANGES)
def test_a_user_takes_back_what_the_controller_leaves(name, arguments, path):
    """The run would end in another state than its reference, with the controller being right."""
    runner = FakeRunner()
    before = runner.cloud.get(path)
    perform(runner, name, arguments)
    for function in runner.undone:
        function()
    after = runner.cloud.get(path)
    assert json.dumps(after, sort_keys=True) == json.dumps(before, sort_keys=True)


def test_a_user_puts_back_what_the_spec_has_in_the_end():
    """The old label would be wrong when the spec has changed meanwhile, and one that the controller set must stay."""
    for wanted, now, expected in [("2", "edited", "2"), (None, "edited", None), ("2", "2", "2")]:
        runner = FakeRunner()
        perform(runner, "labels of nodes edited", {"key": "team", "value": "edited"})
        merge(runner.present[GROUP]["spec"]["eks"]["configuration"]["labels"], {"team": wanted})
        runner.cloud.objects[NODE]["metadata"]["labels"]["team"] = now
        for function in runner.undone:
            function()
        assert runner.cloud.objects[NODE]["metadata"]["labels"].get("team") == expected


def test_a_resource_that_failed_for_good_is_deleted_in_the_end():
    """Its group would wait for a person forever, as documented."""
    runner = FakeRunner()
    perform(runner, "RollingUpgrade edited", {"change": {"status": {"currentStatus": "error"}}})
    for function in runner.undone:
        function()
    assert UPGRADE not in runner.cloud.objects


def test_a_controller_without_a_lease_is_not_disturbed_at_its_lease():
    """A write to an empty path would end the run of a controller that elects no leader."""
    names = [name for name in REGISTRY if "lease" in name.split()]
    assert len(names) == 3
    for name in names:
        for lease, is_disturbed in ((LEASE, True), ("", False)):
            runner, did = FakeRunner(lease), []
            runner.proxy = type("FakeProxy", (), {"fault": lambda self, **fields: did.append(fields)})()
            REGISTRY[name](runner, **REGISTRY[name].arguments(random.Random(1), {"groups": {}}))
            assert bool(did or runner.cloud.asked) is is_disturbed


@pytest.mark.parametrize(("name", "arguments"), [(name, arguments) for name, arguments, path in CHANGES if path == NODE])
def test_a_change_of_a_node_that_is_gone_is_not_taken_back(name, arguments):
    """The node was replaced meanwhile. The run would end without a judgment."""
    runner = FakeRunner()
    perform(runner, name, arguments)
    del runner.cloud.objects[NODE]
    for function in runner.undone:
        function()
    assert NODE not in runner.cloud.objects
