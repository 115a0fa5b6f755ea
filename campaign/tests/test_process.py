"""Kills of the controller: at a write, once it comes, and without a second controller beside the first."""

from campaign import perturbations, sweep
from campaign.runner import Runner
from e2e.proxy import Held

REGISTRY = perturbations.load()


class FakeRunner:
    """What a kill asks of a runner, of which every call is kept."""

    def __init__(self, comes):
        self.did, self.awaited, self._comes = [], [], comes
        self.proxy = self

    def __getattr__(self, name):
        return lambda *arguments, **more: self.did.append(name)

    def fault(self, **fields):
        """The id of the fault that holds a write."""
        return 7

    def held_calls(self, fault):
        """The write, if it comes."""
        return [1] if self._comes and fault == 7 else []

    def hold(self, method, path, before=False, skip=0):
        """The hold of a write to the API server."""
        held = Held(method, path, before, skip)
        if self._comes:
            held.reached.set()
        return held

    def wait_until(self, predicate, seconds):
        """Does not wait."""
        return predicate()

    def once(self, predicate, function):
        """Keeps it for the test."""
        self.awaited.append((predicate, function))


def test_a_kill_ends_the_controller_also_without_the_write():
    """Otherwise a second controller would run beside the first, and later pauses would meet the one that does nothing."""
    for name, arguments, end in [("killed at an AWS write", {"lose": True}, "end_fault"), ("killed at an API write", {}, "end_hold")]:
        for comes in (True, False):
            runner = FakeRunner(comes)
            REGISTRY[name](runner, number=3, before=False, **arguments)
            expected = ["kill", "note", end, "start"]
            assert runner.did == (expected if comes else ["note", *expected])


def test_the_answer_of_the_last_write_comes_or_is_lost():
    """A controller that knows what it did ends in another state than one that does not."""
    runner = FakeRunner(comes=True)
    REGISTRY["killed at an AWS write"](runner, number=0, before=False, lose=False)
    assert runner.did[:2] == ["release", "kill"]


def test_a_later_write_kills_when_it_comes():
    """The events of the scenario continue until then."""
    for system in sweep.SYSTEMS:
        runner = FakeRunner(comes=True)
        REGISTRY[sweep.KILL](runner, system=system, number=40)
        assert "kill" not in runner.did
        ((is_held, kill),) = runner.awaited
        assert is_held()
        kill()
        assert runner.did[0] == "kill" and runner.did[-1] == "start"


def test_what_is_awaited_is_called_once_while_the_runner_waits():
    """The kill would come again and again, or not at all."""
    done, comes = [], []
    played = Runner.__new__(Runner)
    played._undo, played._awaited, played.controllers = [], [], []
    played.once(lambda: comes, lambda: done.append("killed"))
    played.wait_until(lambda: comes.append("write") or len(comes) > 3, 60)
    assert done == ["killed"]


def test_a_sweep_kills_at_each_write_of_each_provisioner():
    """A write that is left out may be the one after which the controller does not continue."""
    user = "controller"
    aws = [{"kind": "call", "caller": {"key": key}, "time": time} for key, time in [("controller", "2"), ("person", "3"), ("controller2", "4"), ("controller", "9")]]
    audit = [{"user": {"username": user}, "objectRef": {"resource": kind}, "stageTimestamp": "3"} for kind in ("nodes", "leases", "instancegroups", "instancegroups")]
    journal = [{"what": "made", "time": "1"}, {"what": "final", "time": "8"}]
    run = {"settings": {"user": user}, "journal": journal, "aws": aws, "audit": audit}
    found = dict(sweep.work(lambda name, scenario: run))
    assert len(found) == 3 * 2 * (2 + 3)
    provisioners = {event["to"]["spec"]["provisioner"] for one in found.values() for event in one["events"] if event["kind"] == "transition"}
    assert provisioners == {"eks", "eks-managed", "eks-fargate"}
    for name, one in found.items():
        assert one["events"][0]["name"] == sweep.KILL and name.endswith(f"-{one['events'][0]['arguments']['number']}")
