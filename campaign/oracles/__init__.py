"""The oracles: what must be true of every run, judged from the simulator's log, the audit log and snapshots alone.

Each is a function of a run (see `Runner.play`) that yields `(group, what, lines)` for each thing that is wrong; `lines` of
the logs prove it. The controller's own log, metrics and status are never asked, but for `currentState`, which the Keiko
controller has too.
"""

import json

from campaign.oracles.final_state import doubled, end_state, leaks, quiet, repetition, stuck
from campaign.oracles.nodes import availability, drained, evicted, needless_rotation, scaled_in
from campaign.oracles.rollouts import revisions, rollout_budget, waves
from campaign.oracles.run import Run
from campaign.oracles.single_writes import finalizer, foreign_resources_kept, invalid_requests
from e2e import logs

ORACLES = (
    stuck, quiet, repetition, leaks, doubled, foreign_resources_kept, invalid_requests, finalizer, drained, evicted, scaled_in, availability,
    needless_rotation, waves, rollout_budget, revisions,
)  # fmt: skip


def judge(run, reference=None):
    """Everything that is wrong with a run: a list of {oracle, group, what, lines}. `reference` is a run to be equal to."""
    run = Run(run)
    excused = excuses(run)
    found = []
    for oracle in ORACLES:
        for group, what, lines in oracle(run):
            if not excused(oracle.__name__, group):
                found.append({"oracle": oracle.__name__, "group": group, "what": what, "lines": [_short(line) for line in lines[:12]]})
    if reference is not None:
        for group, what, lines in end_state(run, reference):
            if not excused("end_state", group):
                found.append({"oracle": "end_state", "group": group, "what": what, "lines": lines})
    return found


def excuses(run):
    """Which oracle does not judge which group: a perturbation did by itself what it looks for."""
    from campaign import perturbations

    registry = perturbations.load()
    allowed = [(registry[e["name"]].allows, e["arguments"].get("group")) for e in run.raw["scenario"]["events"] if e["kind"] == "perturbation"]
    # What the object before carried is on record nowhere. Without one pass with the same spec, nothing says whose it was.
    allowed += [({"stuck", "leaks", "end_state"}, group) for group in run.names if run.was_replaced_unseen(group)]
    return lambda oracle, group: any(oracle in names and name in (None, group) for names, name in allowed)


def _short(line):
    """What a reader needs of a log line."""
    if "auditID" in line:
        ref = line.get("objectRef", {})
        body = json.dumps(line.get("requestObject"))[:300]
        return f"{logs.timestamp(line)} {line['user']['username']} {line['verb']} {ref.get('resource')}/{ref.get('subresource', '')} {ref.get('name')} {body}"
    return json.dumps({key: value for key, value in line.items() if key not in ("time", "kind")})[:400] if "seq" in line else json.dumps(line)[:400]
