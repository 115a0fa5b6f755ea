"""What the controller did, from the simulator's log and the API server's audit log."""

import functools
import json
import os
import threading

CONTROLLER = "system:serviceaccount:instance-manager:instance-manager"
LONGEST_LINE = 2**21
"""More bytes than a line of a log has: an object in Kubernetes has at most 1.5 MiB."""
ENDED = ("Terminating", "Terminating:Wait", "Terminating:Proceed", "gone")


class Line(dict):
    """One line of a log."""

    @functools.cached_property
    def params_text(self):
        """The parameters of an AWS call as JSON, for a search for names."""
        return json.dumps(self.get("params", {}))


class Log:
    """A log file whose lines are JSON objects. It grows, and each of its lines is read once."""

    def __init__(self, path):
        self._path = path
        self._position = 0
        self._lines = []
        self._lock = threading.Lock()

    def skip(self):
        """Leaves out what has been written so far, without reading it."""
        with self._lock, open(self._path, "rb") as file:
            begin = file.seek(max(0, os.path.getsize(self._path) - LONGEST_LINE))
            self._position = begin + file.read().rfind(b"\n") + 1

    def lines(self):
        """All complete lines. A line that is still being written is left for later."""
        with self._lock, open(self._path, "rb") as file:
            file.seek(self._position)
            complete = file.read().rpartition(b"\n")[0]
            if complete:
                self._position += len(complete) + 1
                self._lines += [Line(json.loads(line)) for line in complete.split(b"\n")]
            return self._lines[:]


class NewLines:
    """The lines that a log gets from now on, as bytes: they are searched, not parsed."""

    def __init__(self, path):
        self._path = path
        self._position = os.path.getsize(path)

    def read(self):
        """The complete lines since the last time."""
        if os.path.getsize(self._path) == self._position:
            return []
        with open(self._path, "rb") as file:
            file.seek(self._position)
            complete = file.read().rpartition(b"\n")[0]
        if not complete:
            return []
        self._position += len(complete) + 1
        return complete.split(b"\n")


log = functools.cache(Log)
"""The log at a path, one for this process."""


def read(path):
    """The complete lines of the log at `path`."""
    return log(path).lines()


def events_of_group(events, group):
    """The lines about a scaling group: states of its members and nodes, and calls that name what it is made of."""
    mine, parts = [], set()
    for event in events:
        if event["kind"] == "state":
            if group in (event.get("group"), event.get("id")):
                mine.append(event)
                parts.add(event["id"])
        elif event["kind"] == "call":
            params, text = event.get("params", {}), event.params_text
            # A launch template is named after its group and a year; instances and templates have ids.
            named = f'"{group}"' in text or f'"{group}-2' in text
            if named or any(f'"{part}"' in text for part in parts):
                mine.append(event)
            if named and isinstance(template := params.get("LaunchTemplate"), dict) and "LaunchTemplateId" in template:
                parts.add(template["LaunchTemplateId"])
    return mine


def is_controller_call(event):
    """Whether a call was the controller's own."""
    return event["kind"] == "call" and event["caller"]["key"] == "controller"


def writes(events, group, after=0):
    """The controller's calls that wrote something of a group, from the line after `after` on."""
    return [e for e in events_of_group(events, group) if is_controller_call(e) and e["seq"] > after]


def audited_writes(audit, resource, name=None, namespace=None, subresource=None, user=None):
    """Accepted writes of one kind of object, in order."""
    found = []
    for event in audit:
        ref = event.get("objectRef", {})
        fits = ref.get("resource") == resource and (subresource is None or ref.get("subresource", "") == subresource)
        fits = fits and name in (None, ref.get("name")) and namespace in (None, ref.get("namespace"))
        if fits and user in (None, event["user"]["username"]) and event["responseStatus"].get("code", 500) < 300:
            found.append(event)
    return found


def timestamp(event):
    """When it took effect, as text that sorts: the simulator's line, or the audited answer."""
    return event["time"][:26] if "time" in event else event["stageTimestamp"][:26]


def cordons(audit):
    """Every change of a node's `unschedulable`: (moment, node, cordoned, user)."""
    found = []
    for event in audited_writes(audit, "nodes", subresource=""):
        spec = changed_spec(event.get("requestObject"))
        if "unschedulable" in spec:
            found.append((timestamp(event), event["objectRef"]["name"], bool(spec["unschedulable"]), event["user"]["username"]))
    return found


def changed_spec(body):
    """What a write says about an object's spec, whether it is an object, a merge patch or a JSON patch."""
    if isinstance(body, list):
        return {op["path"].rsplit("/", 1)[-1]: op.get("value") for op in body if op["path"].startswith("/spec/") and op["op"] != "test"}
    spec = (body or {}).get("spec") or {}
    return spec if "kind" not in (body or {}) else {"unschedulable": False, **spec}


def max_unavailable_seen(events, audit, *groups):
    """The most nodes of these groups together that were unavailable right after the controller took away an available one.

    available = InService, its Node Ready and not cordoned; unavailable = desired - available. What died by itself, or
    what an autoscaler asked for, counts as unavailable, but raises the figure only when the controller takes more.
    """
    seen, desired = 0, dict.fromkeys(groups, 0)
    state, node_of, ready, cordoned = {}, {}, set(), set()

    def available():
        return {i for i, s in state.items() if s == "InService" and node_of.get(i) in ready and node_of.get(i) not in cordoned}

    timeline = [(timestamp(e), 0, e, group) for group in groups for e in events_of_group(events, group)]
    timeline += [(when, 1, (node, on, user), None) for when, node, on, user in cordons(audit)]
    for _, kind, event, group in sorted(timeline, key=lambda entry: entry[:2]):
        before, is_disruption = available(), False
        if kind == 1:
            node, on, user = event
            cordoned.add(node) if on else cordoned.discard(node)
            is_disruption = on and user == CONTROLLER
        elif event["kind"] == "call":
            params = event.get("params", {})
            desired[group] = int(params.get("DesiredCapacity", desired[group]))
        elif event["object"] == "instance":
            desired[group] = event.get("desired", desired[group])
            state[event["id"]] = event["state"]
            is_disruption = event["state"] == "Terminating"
        elif event["object"] == "node":
            node_of[event["instance"]] = event["id"]
            ready.add(event["id"]) if event["state"] == "ready" else ready.discard(event["id"])
            if event["state"] == "gone":
                cordoned.discard(event["id"])
        if is_disruption and len(available()) < len(before):
            seen = max(seen, sum(desired.values()) - len(available()))
    return seen


def min_serving_nodes(events, audit, group, size):
    """The fewest Ready and uncordoned nodes right after an act of the controller, from when there first were `size`.

    Whether their instances are InService or stand by does not matter: their pods run.
    """
    ready, cordoned, node_of, least = set(), set(), {}, None
    timeline = [(timestamp(e), 0, e) for e in events_of_group(events, group) if e["kind"] == "state"]
    timeline += [(when, 1, (node, on, user)) for when, node, on, user in cordons(audit)]
    for _, kind, event in sorted(timeline, key=lambda entry: entry[:2]):
        is_disruption = False
        if kind == 1:
            node, on, user = event
            cordoned.add(node) if on else cordoned.discard(node)
            is_disruption = on and user == CONTROLLER and node in node_of.values()
        elif event["object"] == "node":
            node_of[event["instance"]] = event["id"]
            ready.add(event["id"]) if event["state"] == "ready" else ready.discard(event["id"])
        elif event["object"] == "instance" and event["state"] in ENDED:
            is_disruption = node_of.get(event["id"]) in ready - cordoned
            ready.discard(node_of.get(event["id"]))
        serving = len(ready - cordoned)
        if least is None and serving >= size:
            least = serving
        if is_disruption and least is not None:
            least = min(least, serving)
    return least


def undrained(events, audit, group, stays=()):
    """Instances of a group that the controller terminated undrained: {node: what was wrong}.

    Drained means: cordoned before, and every pod bound to the node gone before, but those whose name begins with one
    of `stays` (a DaemonSet's). Nodes that never joined need no drain.
    """
    wrong = {}
    nodes = {e["instance"]: e["id"] for e in events_of_group(events, group) if e["kind"] == "state" and e["object"] == "node" and e["state"] == "joined"}
    changes = cordons(audit)
    placed = placements(audit)
    for event in events_of_group(events, group):
        if not is_controller_call(event) or event["operation"] != "TerminateInstanceInAutoScalingGroup" or event["status"] >= 300:
            continue
        node, when = nodes.get(event["params"]["InstanceId"]), timestamp(event)
        if node is None:
            continue
        past = [on for at, name, on, _ in changes if name == node and at < when]
        if not past or not past[-1]:
            wrong[node] = "was not cordoned"
        left = [pod for pod, (where, bound, gone) in placed.items() if where == node and bound < when and not (gone and gone < when)]
        left = [pod for pod in left if not pod[1].startswith(tuple(stays) or ("\0",))]
        if left:
            wrong[node] = f"still had {left}"
    return wrong


def placements(audit):
    """Where each pod was bound and when it was gone: {(namespace, name, ordinal): (node, bound, gone or None)}."""
    found, present = {}, {}
    for event in audit:
        ref = event.get("objectRef", {})
        if ref.get("resource") != "pods" or event["responseStatus"].get("code", 500) >= 300:
            continue
        name = (ref.get("namespace"), ref.get("name"))
        body = event.get("requestObject") or {}
        if ref.get("subresource") == "binding":
            key = (*name, len(found))
            present[name] = key
            found[key] = (body.get("target", {}).get("name"), timestamp(event), None)
        elif event["verb"] == "delete" and name in present and (body.get("gracePeriodSeconds") == 0 or "kwok" in event.get("userAgent", "")):
            node, bound, _ = found[present[name]]
            found[present.pop(name)] = (node, bound, timestamp(event))
    return found


def ordered(value):
    """A JSON value with its lists as sets, for a comparison: their order is chance."""
    if isinstance(value, dict):
        return {key: ordered(item) for key, item in value.items()}
    if isinstance(value, list):
        return sorted((ordered(item) for item in value), key=lambda item: json.dumps(item, sort_keys=True))
    return value
