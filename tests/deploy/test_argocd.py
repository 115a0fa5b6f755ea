"""The scripts deploy/argocd-health*.lua, run by a Lua interpreter of the version that Argo CD has (5.1)."""

import pathlib

import pytest
from lupa import lua51

DEPLOY = pathlib.Path(__file__).resolve().parents[2] / "deploy"


def health_of(found, script="argocd-health.lua"):
    """What a script returns for an object."""
    lua = lua51.LuaRuntime()
    lua.globals()["obj"] = lua.table_from(found, recursive=True)
    return dict(lua.execute((DEPLOY / script).read_text()))


def conditions(reason, message, **true):
    """The three standard conditions and the lock, as the controller writes them."""
    def one(kind):
        is_true = true.get(kind, False)
        return {"type": kind, "status": str(is_true), "reason": reason, "message": message if is_true or kind == "Ready" else ""}
    return [one(kind) for kind in ("Ready", "Reconciling", "Stalled", "Locked")]


def group(state, listed, observed=2, **metadata):
    """An InstanceGroup of generation 2."""
    return {"metadata": {"generation": 2, **metadata}, "status": {"currentState": state, "observedGeneration": observed, "conditions": listed}}


DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
CASES = {
    "new": ({"metadata": {"generation": 1}, "status": {"observedGeneration": -1}}, "Progressing", "not seen"),
    "without a status": ({"metadata": {"generation": 1}}, "Progressing", "not seen"),
    "changed a moment ago": (group("Ready", conditions("Ready", "2 of 2 nodes are ready", Ready=True), observed=1), "Progressing", "not seen"),
    "creating": (group("InitCreate", conditions("Creating", "creating the scaling group", Reconciling=True)), "Progressing", "creating the scaling group"),
    "rotating": (group("InitUpgrade", conditions("Rotating", "1 of 4 nodes", Reconciling=True)), "Progressing", "1 of 4 nodes"),
    "ready": (group("Ready", conditions("Ready", "2 of 2 nodes are ready", Ready=True)), "Healthy", "2 of 2 nodes are ready"),
    "ready, and AWS does not answer": (group("Ready", conditions("AWSUnavailable", "AWS has not answered", Ready=True, Reconciling=True)), "Progressing", "not answered"),
    "invalid": (group("Error", conditions("InvalidSpec", "spec.eks.maxSize is required", Stalled=True)), "Degraded", "InvalidSpec: spec.eks.maxSize is required"),
    "locked": (group("Locked", conditions("Locked", "locked by the group", Ready=True, Locked=True)), "Suspended", "locked by the group"),
    "locked with a missing node": (group("Locked", conditions("Locked", "1 of 2 nodes are ready", Reconciling=True, Locked=True)), "Progressing", "1 of 2"),
    "locked with a failed launch": (group("Locked", conditions("LaunchFailed", "no key pair", Stalled=True, Locked=True)), "Degraded", "LaunchFailed: no key pair"),
    "deleting": (group("Deleting", conditions("Deleting", "draining", Reconciling=True), **DELETED), "Progressing", "drained"),
    "deletion that waits": (group("Deleting", conditions("DeletionProtected", "confirm it", Stalled=True), **DELETED), "Degraded", "confirm it"),
}


@pytest.mark.parametrize(("found", "status", "message"), CASES.values(), ids=CASES)
def test_argo_cd_shows_the_state_of_a_group(found, status, message):
    """A wave of a sync waits for Healthy, and people look at what is Degraded."""
    health = health_of(found)
    assert health["status"] == status and message in health["message"]


def revision(phase, data=("image", "rollout"), waves=(), halt=None, **orders):
    """A BoundariesRevision as the controller stores it; without a phase, it has no status."""
    found = {"spec": {"number": 14, "data": dict.fromkeys(data, "text"), "orders": orders}}
    if phase:
        listed = [{"type": "Progressing", "status": "True"}, {"type": "Halted", "status": str(halt is not None), "message": halt or ""}]
        found["status"] = {"phase": phase, "waves": list(waves), "conditions": listed}
    return found



def without_waves(found):
    """The same revision when it is a return."""
    found["status"]["withoutWaves"] = True
    return found


CANARY = {"name": "canary", "state": "Passed", "groups": 1, "done": 1}
EARLY = {"name": "early", "state": "Open", "groups": 3, "done": 2}
LATE = {"name": "late", "state": "Waiting", "groups": 3, "done": 0, "why": "it waits for an approval"}
REVISIONS = {
    "without a rollout": (revision(None, data=["image"]), "Healthy", "at once"),
    "stored a moment ago": (revision(None), "Progressing", "not begun"),
    "assessing": (revision("Assessing"), "Progressing", "Assessing"),
    "rolling": (revision("Rolling", waves=[CANARY, EARLY, LATE]), "Progressing", "wave early is Open: 2 of 3 groups are done"),
    "rolling without waves": (without_waves(revision("Rolling", waves=[LATE])), "Progressing", "without waves"),
    "waiting for an approval": (revision("Rolling", waves=[CANARY, LATE]), "Progressing", "wave late is Waiting: it waits for an approval"),
    "paused": (revision("Rolling", waves=[EARLY], paused=True), "Suspended", "paused"),
    "halted": (revision("Halted", waves=[EARLY], halt="team-a/web: LaunchFailed"), "Degraded", "team-a/web: LaunchFailed"),
    "halted while it is paused": (revision("Halted", halt="team-a/web: LaunchFailed", paused=True), "Degraded", "LaunchFailed"),
    "returning": (revision("Returning", halt="r14 was aborted"), "Degraded", "r14 was aborted"),
    "aborted": (revision("Aborted", halt="r14 was aborted; revert it in Git"), "Suspended", "revert it in Git"),
    "complete": (revision("Complete", waves=[CANARY]), "Healthy", "Complete"),
    "superseded": (revision("Superseded", waves=[EARLY]), "Healthy", "Superseded"),
}


@pytest.mark.parametrize(("found", "status", "message"), REVISIONS.values(), ids=REVISIONS)
def test_argo_cd_shows_the_state_of_a_rollout(found, status, message):
    """An admin who looks at the cluster in Argo CD alone must see that a change halted."""
    health = health_of(found, "argocd-health-revision.lua")
    assert health["status"] == status and message in health["message"]
