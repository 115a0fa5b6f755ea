"""Oracles about nodes: how many are taken at once, and what happens to their pods before."""

import collections
import json
import math
import re

from campaign import state
from campaign.oracles.run import GRACE, between, spec_at
from e2e import logs


WITH_FORCE = "the group was deleted with force"
"""Why an instance terminates whose scaling group was deleted while it had instances."""


def drained(run):
    """No instance is terminated before its node is cordoned and its pods are gone: by itself, or with its scaling group.

    Nor is a node group deleted that has pods on its nodes, unless its InstanceGroup is deleted: then EKS drains it.
    """
    placed, cordons = logs.placements(run.audit), logs.cordons(run.audit)
    node_of, silent, instances = {}, set(), {}
    forced = {e["params"]["AutoScalingGroupName"] for e in run.calls() if e["operation"] == "DeleteAutoScalingGroup" and e["params"].get("ForceDelete") == "true"}
    for line in run.aws:
        if line["kind"] == "state" and line["object"] == "node":
            node_of[line["instance"]] = line["id"]
            silent.discard(line["id"]) if line["state"] == "ready" else silent.add(line["id"])
        elif line["kind"] == "state" and line["object"] == "instance":
            instances[line["id"]] = line
        for instance in _taken(run, line, instances, forced):
            node, when, group = node_of.get(instance), logs.timestamp(line), _group_of_node(run, instance)
            if node is None or group is None or _forced(run, group, when) or node in silent:
                continue
            of_eks = line.get("operation") == "DeleteNodegroup"
            if of_eks and run.is_deleted(group, when):
                continue
            past = [(at, on) for at, name, on, _ in cordons if name == node and at < when]
            # EKS cordons the nodes of a node group that it deletes.
            if not of_eks and (not past or not past[-1][1]):
                yield group, f"{node} was terminated and not cordoned", [line]
            # A pod that tolerates the cordon comes back to the node, and ends with it.
            since = past[-1][0] if past else when
            left = [key[1] for key, (where, bound, gone) in placed.items() if where == node and bound < since and not (gone and gone < when)]
            if left:
                yield group, f"{node} was terminated with {', '.join(left)} on it", [line]


def _taken(run, line, instances, forced):
    """The instances that a line of the simulator's log takes away, if the controller asked for it."""
    if line["kind"] == "state":
        return [line["id"]] if line.get("why") == WITH_FORCE and line["group"] in forced else []
    if not run.is_ours(line) or (line.get("status") or 500) >= 300:
        return []
    if line["operation"] == "DeleteNodegroup":
        deleted = line["params"]["path"].rpartition("/")[2]
        # So EKS names the scaling group of a node group.
        name = re.compile(rf"eks-{re.escape(deleted)}-[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}")
        return [i for i, last in instances.items() if name.fullmatch(last["group"]) and last["state"] not in (*logs.ENDED, "detached")]
    return [line["params"]["InstanceId"]] if line["operation"] == "TerminateInstanceInAutoScalingGroup" else []


def _forced(run, group, when):
    """Whether the active spec lets a drain end by force, or the group has been deleted for longer than the controller waits."""
    specs = run.specs(group)
    rolling, deletions = _rolling_update(spec_at(specs, when) or {}), [at for at, found in specs if found is None and at <= when]
    if "drainTimeout" in rolling and rolling.get("drainForce"):
        return True
    # A group that is applied again meanwhile is still being deleted.
    if not deletions or not run.is_deleted(group, when):
        return False
    deleted = deletions[-1]
    # The last spec may be one that the controller rejected, and the one before counts.
    recent = [found for at, found in specs if found and at <= deleted][-2:]
    own = [_seconds_of(_rolling_update(found)["drainTimeout"]) - TRUNCATED for found in recent if "drainTimeout" in _rolling_update(found)]
    return between(deleted, when) + run.clock_ahead(when) > min([*own, run.raw["settings"].get("deletion drain", 0)])


TRUNCATED = 1
"""By how many seconds a deletion may seem to be older than it is: its moment in Kubernetes is a whole second."""


def _rolling_update(spec):
    return (spec.get("strategy") or {}).get("rollingUpdate") or {}


def _seconds_of(duration):
    """The seconds of a duration as specs write it, for example `1m30s`."""
    return sum(int(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in re.findall(r"(\d+)([hms])", duration))


# One eviction for each replica that comes back, and one more for each start of the controller.
COME_BACKS = 10


def evicted(run):
    """Pods are evicted, so that their budgets hold, and deleted only where the spec lets a drain end by force.

    A pod that tolerates the cordon and comes back to its node is not evicted again and again.
    """
    placed, cordoned, came_back, again = {}, set(), set(), collections.Counter()
    for event in run.audit:
        ref = event.get("objectRef", {})
        for _, node, on, _ in logs.cordons([event]):
            again.pop(node, None)
            cordoned.add(node) if on else cordoned.discard(node)
        if ref.get("resource") != "pods" or event["responseStatus"].get("code", 500) >= 300:
            continue
        if ref.get("subresource") == "binding":
            placed[ref["name"]] = node = (event.get("requestObject") or {}).get("target", {}).get("name")
            came_back.add(ref["name"]) if node in cordoned else came_back.discard(ref["name"])
        elif ref.get("subresource") == "eviction" and event["user"]["username"] == run.user and ref["name"] in came_back:
            node = placed[ref["name"]]
            again[node] += 1
            if again[node] == COME_BACKS:
                yield _group_of_node_named(run, node), f"pods that came back to {node} are evicted again and again", [event]
        elif event["verb"] == "delete" and event["user"]["username"] == run.user:
            group = _group_of_node_named(run, placed.get(ref["name"]))
            if group is None or not _forced(run, group, logs.timestamp(event)):
                yield group, f"the pod {ref['name']} was deleted and not evicted", [event]


def scaled_in(run):
    """The controller does not make a group so small that AWS takes nodes that it chooses, and does not drain."""
    desired, shrunk, ready, group_of, decremented = {}, {}, {}, {}, set()
    for line in run.aws:
        if _decrements(run, line):
            # The first call takes the instance itself; each other one takes one more.
            instance = line["params"]["InstanceId"]
            if instance in decremented:
                shrunk[group_of.get(instance)] = line
            decremented.add(instance)
        elif _is_decrement(line) and not run.is_ours(line):
            # It may name an instance that terminates already: AWS takes one more then.
            shrunk[group_of.get(line["params"]["InstanceId"])] = None
        if line["kind"] == "call" and line["operation"] in ("UpdateAutoScalingGroup", "SetDesiredCapacity") and (line.get("status") or 500) < 300:
            params = line["params"]
            name = params["AutoScalingGroupName"]
            limit = min(int(params.get(key, 10**6)) for key in ("MaxSize", "DesiredCapacity"))
            shrunk[name] = line if run.is_ours(line) and limit < desired.get(name, 0) else None
        elif line["kind"] == "state" and line["object"] == "node":
            ready[line["instance"]] = line["state"] == "ready"
        elif line["kind"] == "state" and line["object"] == "instance":
            name = group_of[line["id"]] = line.get("group")
            if line["state"] == "Terminating" and line.get("why", "").startswith("shrinking the capacity") and shrunk.get(name) and ready.get(line["id"]):
                yield run.group_in(name), f"{line['id']} was terminated because the group was made smaller than it was", [shrunk[name], line]
            desired[name] = line.get("desired", desired.get(name, 0))


def _decrements(run, line):
    """Whether the controller terminated an instance and lowered the desired capacity."""
    return run.is_ours(line) and _is_decrement(line)


def _is_decrement(line):
    """Whether another client terminated an instance and lowered the desired capacity."""
    is_done = line["kind"] == "call" and line["operation"] == "TerminateInstanceInAutoScalingGroup" and (line.get("status") or 500) < 300
    return is_done and line["params"].get("ShouldDecrementDesiredCapacity") == "true"


def _group_of_node_named(run, node):
    line = next((e for e in run.aws if e["kind"] == "state" and e.get("object") == "node" and e["id"] == node), None)
    return line and _group_of_node(run, line["instance"])


def _group_of_node(run, instance):
    line = next((e for e in run.aws if e["kind"] == "state" and e.get("id") == instance and "group" in e), None)
    return line and run.group_in(line["group"])


def availability(run):
    """The controller takes no node away while more than maxUnavailable of its group are unavailable."""
    for group in run.names:
        if run.provisioner(group) == "eks" and not any("weight" in json.dumps(spec) for _, spec in run.specs(group)):
            yield from _availability(run, group)


def _availability(run, group):
    name = f"demo-{state.NAMESPACE}-{group}"
    timeline = [(logs.timestamp(e), 0, e) for e in run.aws if e["kind"] == "state" and e.get("group") == name]
    timeline += [(when, 1, (node, on, user)) for when, node, on, user in logs.cordons(run.audit)]
    terminated = {e["params"]["InstanceId"] for e in run.calls() if e["operation"] == "TerminateInstanceInAutoScalingGroup"}
    instances, node_of, ready, cordoned, lost, desired = {}, {}, set(), set(), {}, []

    def available():
        return {i for i, s in instances.items() if s == "InService" and node_of.get(i) in ready and node_of.get(i) not in cordoned}

    for when, kind, event in sorted(timeline, key=lambda entry: entry[:2]):
        before, act = available(), False
        if kind == 1:
            node, on, user = event
            cordoned.add(node) if on else cordoned.discard(node)
            act = on and user == run.user
        elif event["object"] == "instance":
            if "desired" in event:
                desired.append((when, event["desired"]))
            instances[event["id"]] = event["state"]
            # Auto Scaling may take the instance by itself, to rebalance zones for example, before the controller asks.
            act = event["state"] == "Terminating" and event["id"] in terminated and "user request" in event.get("why", "user request")
        elif event["object"] == "node":
            node_of[event["instance"]] = event["id"]
            ready.add(event["id"]) if event["state"] == "ready" else ready.discard(event["id"])
            if event["state"] == "gone":
                cordoned.discard(event["id"])
        gone = before - available()
        if not act:
            lost |= {instance: when for instance in gone}
        if act and gone and not run.is_deleted(group, when):
            recently = [instance for instance, at in lost.items() if instance not in available() and between(at, when) < GRACE]
            wanted = min([count for at, count in desired if between(at, when) < GRACE] + [desired[-1][1]])
            unavailable = wanted - len(available()) - len(recently)
            allowed = _allowed(run.specs(group), when, wanted)
            if unavailable > allowed:
                yield group, f"{unavailable} of {wanted} nodes were unavailable after it took {', '.join(gone)}, and {allowed} may be", [e for at, k, e in timeline if k == 0 and abs(between(at, when)) < 8]


def _allowed(specs, when, desired):
    """The largest maxUnavailable of the recently active specs."""
    current = spec_at(specs, when)
    recent = [spec for at, spec in specs if spec and at <= when and between(at, when) < GRACE] + ([current] if current else [])
    before = [spec for at, spec in specs if spec and at <= when and between(at, when) >= GRACE][-1:]
    values = [((spec.get("strategy") or {}).get("rollingUpdate") or {}).get("maxUnavailable", 1) for spec in recent + before]
    return max(math.ceil(desired * int(v[:-1]) / 100) if isinstance(v, str) else v for v in values)


def needless_rotation(run):
    """A node is not replaced by one that is the same."""
    pinned = {}
    joined = {e["instance"] for e in run.aws if e["kind"] == "state" and e["object"] == "node" and e["state"] == "ready"}
    state_of, launched_at, stood_by = {}, {}, set()
    for line in run.aws:
        if line["kind"] == "state" and line["object"] == "instance":
            state_of[line["id"]] = line
            if line["state"] == "Standby":
                stood_by.add(line["id"])
            launched_at.setdefault(line["id"], logs.timestamp(line))
        if line["kind"] == "state" and line["object"] == "node":
            state_of[line["instance"], "node"] = line["state"]
        if line["kind"] != "call" or (line.get("status") or 500) >= 300:
            continue
        params = line["params"]
        if line["operation"] in ("CreateAutoScalingGroup", "UpdateAutoScalingGroup"):
            given = params.get("LaunchTemplate") or (params.get("MixedInstancesPolicy") or {}).get("LaunchTemplate", {}).get("LaunchTemplateSpecification")
            # What a user launches from meanwhile is not what the controller wants.
            if given and (run.is_ours(line) or params["AutoScalingGroupName"] not in pinned):
                pinned[params["AutoScalingGroupName"]] = (given.get("LaunchTemplateId") or given.get("LaunchTemplateName"), str(given.get("Version")))
        elif run.is_ours(line) and line["operation"] == "TerminateInstanceInAutoScalingGroup" and params.get("ShouldDecrementDesiredCapacity") == "false":
            was = state_of.get(params["InstanceId"])
            if was is None or params["InstanceId"] not in joined or state_of.get((params["InstanceId"], "node")) != "ready":
                continue
            # Its replacement runs already, so it goes even if what it runs is wanted again.
            if params["InstanceId"] in stood_by:
                continue
            template, version = pinned.get(was["group"], (None, None))
            names, when = (template, was.get("template")), logs.timestamp(line)
            launched, wanted = run.template(names, was["version"], launched_at[params["InstanceId"]]), run.template(names, version, when)
            group = _group_of_node(run, params["InstanceId"])
            if _must_relabel(run, params["InstanceId"], group, launched_at[params["InstanceId"]], when):
                continue
            if wanted and launched == wanted and group and not run.is_deleted(group, when) and not _moves(run, group, when):
                yield group, f"{params['InstanceId']} was replaced, and what it was launched from (version {was['version']}) is the desired content (version {version})", [was, line]
            since = launched_at[params["InstanceId"]]
            if group and state.without_user_data(launched) == state.without_user_data(wanted) is not None and _differs_in_place(run, group, since, when):
                yield group, f"{params['InstanceId']} was replaced, and all that changed since its launch is changed in place", [was, line]


# What of a spec is neither in the launch template nor changes where nodes are, or is changed on running nodes.
NOT_LAUNCHED = {"labels", "taints", "tags", "lifecycleHooks", "metricsCollection", "suspendProcesses", "managedPolicies"}


def _differs_in_place(run, group, since, when):
    """Whether all specs from a node's launch on ask for labels and taints to be changed in place, and differ in nothing else.

    A template that a user made again, and one of another controller, prove nothing of what a node was launched with.
    """
    specs = [spec for at, spec in run.specs(group) if at <= when]
    begun = max((number for number, (at, _) in enumerate(run.specs(group)) if between(at, since) >= GRACE), default=0)
    specs = specs[begun:]
    if group in run.raw["scenario"].get("taken over", ()) or run.has_manual_changes_of(group) or None in specs or "NoExecute" in json.dumps(specs):
        return False
    asks = all({"labels", "taints"} <= state.fields_in_place(spec) for spec in specs)
    return asks and len({json.dumps(state.without(spec["eks"]["configuration"], *NOT_LAUNCHED), sort_keys=True) for spec in specs}) == 1


def _must_relabel(run, instance, group, launched, when):
    """Whether labels or taints of the node were changed in place, and its spec no longer asks for that: only a replacement has others."""
    names = {e["id"] for e in run.aws if e["kind"] == "state" and e["object"] == "node" and e["instance"] == instance}
    changed = [e for e in run.audit if e["objectRef"].get("resource") == "nodes" and e["objectRef"].get("name") in names and launched <= logs.timestamp(e) <= when]
    spec = spec_at(run.specs(group), when) if group else None
    if spec is None or {"labels", "taints"} <= state.fields_in_place(spec):
        return False
    return any(state.IN_PLACE in ((e.get("requestObject") or {}).get("metadata", {}).get("annotations") or {}) for e in changed)


def _moves(run, group, when):
    """Whether the group's subnets changed before: nodes in those that it lost are replaced, whatever they run."""
    lists = [json.dumps((spec.get("eks", {}).get("configuration") or {}).get("subnets")) for at, spec in run.specs(group) if spec and at <= when]
    return len(set(lists)) > 1
