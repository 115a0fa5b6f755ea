"""The oracles: what must be true of every run, told from the simulator's log, the audit log and snapshots alone.

Each is a function of a run (see `Stage.play`) that yields `(group, what, lines)` for each thing that is wrong; `lines` of
the logs prove it. The controller's own log, metrics and status are never asked, but for `currentState`, which the original
controller has too.
"""

import json
import math
import re

from campaign import scenario as scenarios
from campaign import state, strangers
from e2e import logs

GRACE = 20
"""Seconds in which a controller need not have seen that a node was lost by somebody else, or that more were asked for."""
REPEATED = (8, 10)
"""How often an identical write may succeed, in how many seconds."""


class Run:
    """A run with what several oracles need of it."""

    def __init__(self, run):
        self.run = run
        self.aws, self.audit, self.journal = [logs.Line(line) for line in run["aws"]], run["audit"], run["journal"]
        self.user = run["settings"]["user"]
        self.names = scenarios.names(run["scenario"])
        self.templates = _templates(self.aws)
        longest = sorted(self.names, key=len, reverse=True)
        self._named = re.compile(rf"\b{state.NAMESPACE}-({'|'.join(longest)})\b")

    def group_in(self, text):
        """The group that a text names, or None."""
        found = self._named.search(text)
        return found and found[1]

    def moment(self, what):
        """When the stage first noted something."""
        return next((entry["time"] for entry in self.journal if entry["what"] == what), "9")

    def note(self, what):
        """The stage's last note of that kind."""
        return next((entry for entry in reversed(self.journal) if entry["what"] == what), {})

    def is_ours(self, line):
        """Whether a line of the simulator's log is a call of a controller under test."""
        return line["kind"] == "call" and line["caller"]["key"].startswith("controller")

    def calls(self, done=True):
        """The controllers' calls that wrote; those that AWS accepted unless `done` is false."""
        return [e for e in self.aws if self.is_ours(e) and (not done or (e.get("status") or 500) < 300)]

    def writes(self):
        """The controllers' accepted writes to the API server, without leases and events."""
        audited = [e for e in self.audit if e["user"]["username"] == self.user and e["responseStatus"].get("code", 500) < 300]
        return [e for e in audited if e.get("objectRef", {}).get("resource") not in ("leases", "events")]

    def specs(self, group):
        """(moment, spec) of a group's specs, oldest first; a spec of None when it was deleted."""
        found = [(e["time"], e["to"]["spec"] if e["what"] == "apply" else None) for e in self.journal if e["what"] in ("apply", "delete") and e["group"] == group]
        return found

    def deleted_at(self, group):
        """When the group was first deleted."""
        return next((when for when, spec in self.specs(group) if spec is None), "9")

    def provisioner(self, group):
        """The provisioner of a group."""
        return next(spec["provisioner"] for _, spec in self.specs(group) if spec)


def _templates(aws):
    """The content of launch template versions by the template's name and by its id: {(name or id, version): data}."""
    found, latest = {}, {}
    for line in aws:
        if line["kind"] != "call" or (line.get("status") or 500) >= 300 or line["operation"] not in ("CreateLaunchTemplate", "CreateLaunchTemplateVersion"):
            continue
        params = line["params"]
        name = params.get("LaunchTemplateName") or params.get("LaunchTemplateId")
        latest[name] = 1 if line["operation"] == "CreateLaunchTemplate" else latest.get(name, 1) + 1
        found[name, str(latest[name])] = params.get("LaunchTemplateData")
    return found


def judge(run, reference=None):
    """Everything that is wrong with a run: a list of {oracle, group, what, lines}. `reference` is a run to be equal to."""
    told = Run(run)
    excused = excuses(told)
    found = []
    for oracle in ORACLES:
        for group, what, lines in oracle(told):
            if not excused(oracle.__name__, group):
                found.append({"oracle": oracle.__name__, "group": group, "what": what, "lines": [_short(line) for line in lines[:12]]})
    if reference is not None:
        for group, what, lines in end_state(told, reference):
            if not excused("end_state", group):
                found.append({"oracle": "end_state", "group": group, "what": what, "lines": lines})
    return found


def excuses(told):
    """Which oracle does not judge which group: a perturbation did by itself what it looks for."""
    from campaign import perturbations

    registry = perturbations.load()
    allowed = [(registry[e["name"]].allows, e["arguments"].get("group")) for e in told.run["scenario"]["events"] if e["kind"] == "perturbation"]
    return lambda oracle, group: any(oracle in names and name in (None, group) for names, name in allowed)


def _short(line):
    """What a reader needs of a log line."""
    if "auditID" in line:
        ref = line.get("objectRef", {})
        body = json.dumps(line.get("requestObject"))[:300]
        return f"{logs.timestamp(line)} {line['user']['username']} {line['verb']} {ref.get('resource')}/{ref.get('subresource', '')} {ref.get('name')} {body}"
    return json.dumps({key: value for key, value in line.items() if key not in ("time", "kind")})[:400] if "seq" in line else json.dumps(line)[:400]


# --- the end --------------------------------------------------------------------------------------


def end_state(told, reference):
    """The end equals that of the reference run."""
    for group in sorted({name for name in told.names if told.specs(name)}):
        one, other = state.group_state(reference, group), state.group_state(told.run, group)
        for path, wanted, found in state.differences(one, other):
            yield group, f"{path} is {_text(found)}, and {_text(wanted)} in the reference", []


def _text(value):
    return json.dumps(value, sort_keys=True)[:300]


def stuck(told):
    """Every group is done in the end, and gone after its deletion."""
    for moment in ("end", "left"):
        for group, why in told.note(moment).get("unsettled", {}).items():
            yield group, f"{moment}: {_text(why)[:1200]}", []


def quiet(told):
    """Nothing is written when nothing changes."""
    begin, end = told.moment("end"), told.moment("quiet")
    calls = [e for e in told.calls(done=False) if begin < logs.timestamp(e) < end]
    writes = [e for e in told.audit if e["user"]["username"] == told.user and begin < logs.timestamp(e) < end and e.get("objectRef", {}).get("resource") != "leases"]
    if calls or writes:
        yield None, f"{len(calls)} calls and {len(writes)} writes when nothing changed", [*calls, *writes]


def repetition(told):
    """No write is repeated fast."""
    count, seconds = REPEATED
    made = {}
    for line in told.calls():
        made.setdefault((line["operation"], line.params_text), []).append(line)
    for line in told.writes():
        ref = line["objectRef"]
        if ref.get("subresource") != "eviction":
            made.setdefault((line["verb"], json.dumps(ref, sort_keys=True), json.dumps(line.get("requestObject"), sort_keys=True)), []).append(line)
    for lines in made.values():
        for first, last in zip(lines, lines[count:]):
            if _seconds(first, last) < seconds:
                yield _group_of(told, first), f"an identical write succeeded {count + 1} times within {seconds} s", lines
                break


def leaks(told):
    """Nothing of a group is left after its deletion."""
    left = told.run["left"]
    for group in told.names:
        for kind, things in state.resources(left, group).items():
            yield group, f"left after the deletion: {kind} {', '.join(things)}", []
        arns = [line for line in (left["kubernetes"]["map_roles"] or "").splitlines() if re.search(rf"{state.NAMESPACE}-{group}\b", line)]
        if arns:
            yield group, f"left in aws-auth: {arns}", []
    for kind in ("fargate", "nodegroups"):
        for name in left["aws"][kind]:
            yield None, f"left after all deletions: {kind} {name}", []


def doubled(told):
    """One scaling group, template, role and profile for each group."""
    for group in told.names:
        for kind, things in state.resources(told.run["end"], group).items():
            if len(things) > 1 and kind != "access":
                yield group, f"{len(things)} {kind}: {', '.join(things)}", []


# --- others ---------------------------------------------------------------------------------------


def strangers_kept(told):
    """What belongs to others is as it was, and nobody tried to change it."""
    before = told.note("begin")["strangers"]
    for picture in ("end", "left"):
        now = strangers.snapshot(told.run[picture]["aws"])
        for path, wanted, found in state.differences(before, now):
            yield None, f"{picture}: of others, {path} is {_text(found)} and was {_text(wanted)}", []
        if strangers.AUTH not in told.run[picture]["kubernetes"]["map_roles"]:
            yield None, f"{picture}: an entry of others in aws-auth is not what it was", []
    names = told.run["world"]["strangers"]["names"]
    touched = [e for e in told.calls(done=False) if any(f'"{name}"' in e.params_text for name in names)]
    touched += [e for e in told.writes() if e["objectRef"].get("name") in names]
    if touched:
        yield None, "writes on what belongs to others", touched


def invalid_requests(told):
    """Every request fits the model of its AWS service."""
    broken = [e for e in told.aws if e["kind"] == "invalid" and e["caller"]["key"].startswith("controller")]
    if broken:
        yield None, f"{len(broken)} requests that break the model of AWS", broken


def finalizer(told):
    """The finalizer goes last: from then on the group's resources are not written."""
    removed = {}
    for line in told.writes():
        ref, body = line["objectRef"], line.get("requestObject")
        if ref["resource"] == "instancegroups" and ref.get("namespace") == state.NAMESPACE and not ref.get("subresource") and _removes_finalizer(body, told):
            removed[ref["name"]] = line
    for group, line in removed.items():
        again = [when for when, spec in told.specs(group) if spec and when > logs.timestamp(line)]
        late = [e for e in told.calls() if logs.timestamp(line) < logs.timestamp(e) < (again or ["9"])[0] and _group_of(told, e) == group]
        if late:
            yield group, "its resources were written after its finalizer was gone", [line, *late]


def _removes_finalizer(body, told):
    name = told.run["settings"]["finalizer"]
    if isinstance(body, list):
        return any(op["op"] in ("remove", "replace") and op["path"].startswith("/metadata/finalizers") and name not in json.dumps(op.get("value")) for op in body)
    metadata = (body or {}).get("metadata") or {}
    return "finalizers" in metadata and name not in (metadata["finalizers"] or [])


# --- nodes ----------------------------------------------------------------------------------------


def drained(told):
    """No instance is terminated before its node is cordoned and its pods are gone."""
    placed, cordons = logs.placements(told.audit), logs.cordons(told.audit)
    node_of, silent = {}, {}
    for line in told.aws:
        if line["kind"] == "state" and line["object"] == "node":
            node_of[line["instance"]] = line["id"]
            if line["state"] == "ready":
                silent.pop(line["id"], None)
            else:
                silent[line["id"]] = line
        if not (told.is_ours(line) and line["operation"] == "TerminateInstanceInAutoScalingGroup" and line["status"] == 200):
            continue
        node, when = node_of.get(line["params"]["InstanceId"]), logs.timestamp(line)
        group = _group_of_node(told, line["params"]["InstanceId"])
        if node is None or group is None or _forced(told, group, when) or node in silent:
            continue
        past = [on for at, name, on, _ in cordons if name == node and at < when]
        if not past or not past[-1]:
            yield group, f"{node} was terminated and not cordoned", [line]
        left = [key[1] for key, (where, bound, gone) in placed.items() if where == node and bound < when and not (gone and gone < when)]
        if left:
            yield group, f"{node} was terminated with {', '.join(left)} on it", [line]


def _forced(told, group, when):
    """Whether the spec in force lets a drain end by force, or the group is being deleted."""
    spec = _in_force(told.specs(group), when)
    return spec is None or "drainTimeout" in ((spec.get("strategy") or {}).get("rollingUpdate") or {})


def _in_force(specs, when):
    return ([None] + [spec for at, spec in specs if at <= when])[-1]


def _group_of_node(told, instance):
    line = next((e for e in told.aws if e["kind"] == "state" and e.get("id") == instance and "group" in e), None)
    return line and told.group_in(line["group"])


def availability(told):
    """The controller takes no node away while more than maxUnavailable of its group are unavailable."""
    for group in told.names:
        if told.provisioner(group) == "eks" and not any("weight" in json.dumps(spec) for _, spec in told.specs(group)):
            yield from _availability(told, group)


def _availability(told, group):
    name = f"demo-{state.NAMESPACE}-{group}"
    timeline = [(logs.timestamp(e), 0, e) for e in told.aws if e["kind"] == "state" and e.get("group") == name]
    timeline += [(when, 1, (node, on, user)) for when, node, on, user in logs.cordons(told.audit)]
    terminated = {e["params"]["InstanceId"] for e in told.calls() if e["operation"] == "TerminateInstanceInAutoScalingGroup"}
    instances, node_of, ready, cordoned, lost, desired = {}, {}, set(), set(), {}, []

    def available():
        return {i for i, s in instances.items() if s == "InService" and node_of.get(i) in ready and node_of.get(i) not in cordoned}

    for when, kind, event in sorted(timeline, key=lambda entry: entry[:2]):
        before, act = available(), False
        if kind == 1:
            node, on, user = event
            cordoned.add(node) if on else cordoned.discard(node)
            act = on and user == told.user
        elif event["object"] == "instance":
            if "desired" in event:
                desired.append((when, event["desired"]))
            instances[event["id"]] = event["state"]
            act = event["state"] == "Terminating" and event["id"] in terminated
        elif event["object"] == "node":
            node_of[event["instance"]] = event["id"]
            ready.add(event["id"]) if event["state"] == "ready" else ready.discard(event["id"])
            if event["state"] == "gone":
                cordoned.discard(event["id"])
        gone = before - available()
        if not act:
            lost |= {instance: when for instance in gone}
        if act and gone and when < told.deleted_at(group):
            recently = [instance for instance, at in lost.items() if instance not in available() and _between(at, when) < GRACE]
            wanted = min([count for at, count in desired if _between(at, when) < GRACE] + [desired[-1][1]])
            unavailable = wanted - len(available()) - len(recently)
            allowed = _allowed(told.specs(group), when, wanted)
            if unavailable > allowed:
                yield group, f"{unavailable} of {wanted} nodes were unavailable after it took {', '.join(gone)}, and {allowed} may be", [e for at, k, e in timeline if k == 0 and abs(_between(at, when)) < 8]


def _allowed(specs, when, desired):
    """maxUnavailable of the specs in force lately, the largest."""
    current = _in_force(specs, when)
    recent = [spec for at, spec in specs if spec and at <= when and _between(at, when) < GRACE] + ([current] if current else [])
    before = [spec for at, spec in specs if spec and at <= when and _between(at, when) >= GRACE][-1:]
    values = [((spec.get("strategy") or {}).get("rollingUpdate") or {}).get("maxUnavailable", 1) for spec in recent + before]
    return max(math.ceil(desired * int(v[:-1]) / 100) if isinstance(v, str) else v for v in values)


def needless_rotation(told):
    """A node is not replaced by one that is the same."""
    pinned = {}
    joined = {e["instance"] for e in told.aws if e["kind"] == "state" and e["object"] == "node" and e["state"] == "ready"}
    state_of = {}
    for line in told.aws:
        if line["kind"] == "state" and line["object"] == "instance":
            state_of[line["id"]] = line
        if line["kind"] == "state" and line["object"] == "node":
            state_of[line["instance"], "node"] = line["state"]
        if line["kind"] != "call" or (line.get("status") or 500) >= 300:
            continue
        params = line["params"]
        if line["operation"] in ("CreateAutoScalingGroup", "UpdateAutoScalingGroup"):
            given = params.get("LaunchTemplate") or (params.get("MixedInstancesPolicy") or {}).get("LaunchTemplate", {}).get("LaunchTemplateSpecification")
            if given:
                pinned[params["AutoScalingGroupName"]] = (given.get("LaunchTemplateId") or given.get("LaunchTemplateName"), str(given.get("Version")))
        elif told.is_ours(line) and line["operation"] == "TerminateInstanceInAutoScalingGroup" and params.get("ShouldDecrementDesiredCapacity") == "false":
            was = state_of.get(params["InstanceId"])
            if was is None or params["InstanceId"] not in joined or state_of.get((params["InstanceId"], "node")) != "ready":
                continue
            template, version = pinned.get(was["group"], (None, None))
            launched = [data for (name, number), data in told.templates.items() if number == str(was["version"]) and name in (was.get("template"), template)]
            wanted = told.templates.get((template, version)) or told.templates.get((was.get("template"), version))
            group = _group_of_node(told, params["InstanceId"])
            if wanted and launched and launched[0] == wanted and group and not _moves(told, group, logs.timestamp(line)):
                yield group, f"{params['InstanceId']} was replaced, and what it was launched from (version {was['version']}) is what is wanted (version {version})", [was, line]


def _moves(told, group, when):
    """Whether the group's subnets changed before: nodes in those that it lost are replaced, whatever they run."""
    lists = [json.dumps((spec.get("eks", {}).get("configuration") or {}).get("subnets")) for at, spec in told.specs(group) if spec and at <= when]
    return len(set(lists)) > 1


# --- helpers --------------------------------------------------------------------------------------


def _group_of(told, line):
    """The group that a line names, or None."""
    if "objectRef" in line:
        return line["objectRef"].get("name") if line["objectRef"].get("resource") == "instancegroups" else None
    return told.group_in(line.params_text)


def _between(one, other):
    """Seconds from one moment to another, as the logs write them."""
    from datetime import datetime

    return (datetime.fromisoformat(other) - datetime.fromisoformat(one)).total_seconds()


def _seconds(one, other):
    return _between(logs.timestamp(one), logs.timestamp(other))


ORACLES = (
    stuck, quiet, repetition, leaks, doubled, strangers_kept, invalid_requests, finalizer, drained, availability, needless_rotation,
)  # fmt: skip
