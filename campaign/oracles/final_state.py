"""Oracles about where a run comes to: its end, the quiet after it, and what deletions leave."""

import json
import re

from campaign import state
from campaign.oracles.run import seconds, text
from campaign.spec_generator import PEOPLE
from e2e import logs

REPEATED = (8, 10)
"""How often an identical write may succeed, in how many seconds."""


def end_state(run, reference):
    """The end equals that of the reference run."""
    has_new_mode = reference["scenario"].get("mode") != run.raw["scenario"].get("mode")
    for group in sorted({name for name in run.names if run.specs(name)}):
        one, other = state.group_state(reference, group), state.group_state(run.raw, group, run.content_of)
        if has_new_mode or group in run.raw["scenario"].get("taken over", ()):
            one, other = _any_access(one, reference, group), _any_access(other, run.raw, group)
        if any("windows" in json.dumps(entry["to"]) for entry in run.journal if entry["what"] == "apply" and entry["group"] == group):
            one, other = _any_family(one), _any_family(other)
        for path, wanted, found in state.differences(one, other):
            yield group, f"{path} is {text(found)}, and {text(wanted)} in the reference", []

    for role in sorted(state.given_roles(reference) ^ state.given_roles(run.raw)):
        if not run.raw["scenario"].get("taken over") and not is_of_node_group(run, role) and not run.lost_the_record_of(role):
            yield None, f"{role} may join in one of the run and the reference", []
    for role in sorted(state.pod_roles_that_join(reference) ^ state.pod_roles_that_join(run.raw)):
        yield None, f"{role} may join in one of the run and the reference", []


def _any_access(found, run, group):
    """A role that could join before a takeover, or before the cluster read access entries, keeps its entry in aws-auth.

    The entry of a role of users is the group's if its spec names the role.
    """
    specs = [item["spec"] for item in run["end"]["kubernetes"]["groups"] if item["metadata"]["name"] == group]
    named = {((spec.get("eks") or {}).get("configuration") or {}).get("roleName") for spec in specs}
    joins = bool(found["access entries"] or found["aws-auth"] or any(arn.rpartition("/")[2] in named for arn in state.given_roles(run)))
    return {**found, "access entries": [], "aws-auth": [], "joins": joins}


def _any_family(found):
    """An entry that lets Windows nodes join lets Linux nodes join too, and stays when the group has no Windows nodes any more."""
    entries = [{**entry, "groups": [g for g in entry["groups"] if g != "eks:kube-proxy-windows"]} for entry in found["aws-auth"]]
    access = [
        {**entry, "type": entry["type"].replace("EC2_WINDOWS", "EC2_LINUX"), "kubernetesGroups": [g for g in entry["kubernetesGroups"] if "windows" not in g]}
        for entry in found["access entries"]
    ]
    return {**found, "aws-auth": entries, "access entries": access}


def stuck(run):
    """Every group is done in the end, and gone after its deletion."""
    for moment in ("end", "left"):
        for group, why in run.note(moment).get("unsettled", {}).items():
            yield group, f"{moment}: {text(why)[:1200]}", []


def quiet(run):
    """Nothing is written when nothing changes, for longer than the controller leaves a group alone; and late writes end.

    A kubelet that a starved machine keeps from its heartbeat is a change: Kubernetes calls its node NotReady.
    """
    settled, begin, end = run.moment("settled"), run.moment("end"), run.moment("quiet")
    found = _writes_between(run, begin, end)
    if found and not _has_node_change(run, begin, end):
        yield None, f"{len(found)} calls and writes when nothing changed", found
    if not run.note("end").get("late writes ended", True) and not _has_node_change(run, settled, begin):
        yield None, "the controller did not stop writing when every group was done", _writes_between(run, settled, begin)[-12:]


def _writes_between(run, begin, end):
    """What the controllers asked AWS and the API server to write between two moments, whatever came of it."""
    calls = [e for e in run.calls(done=False) if begin < logs.timestamp(e) < end]
    writes = [e for e in run.audit if e["user"]["username"] == run.user and begin < logs.timestamp(e) < end]
    return [*calls, *(e for e in writes if e.get("objectRef", {}).get("resource") != "leases")]


def _has_node_change(run, begin, end):
    """Whether Kubernetes' own node controller wrote between two moments whether a node is Ready."""
    return any(_is_node_change(e) and begin < logs.timestamp(e) < end for e in run.audit)


def _is_node_change(event):
    """Whether Kubernetes' own node controller writes whether a node is Ready."""
    ref = event.get("objectRef") or {}
    return (ref.get("resource"), ref.get("subresource")) == ("nodes", "status") and event["user"]["username"] == "system:kube-controller-manager"


def repetition(run):
    """No write is repeated fast."""
    count, limit = REPEATED
    made = {}
    for line in run.calls():
        made.setdefault((line["operation"], line.params_text), []).append(line)
    for line in run.writes():
        ref = line["objectRef"]
        if ref.get("subresource") != "eviction":
            made.setdefault((line["verb"], json.dumps(ref, sort_keys=True), json.dumps(line.get("requestObject"), sort_keys=True)), []).append(line)
    for lines in made.values():
        for first, last in zip(lines, lines[count:]):
            if seconds(first, last) < limit:
                yield run.group_of(first), f"an identical write succeeded {count + 1} times within {limit} s", lines
                break


def leaks(run):
    """Nothing of a group is left after its deletion."""
    left = run.raw["left"]
    for group in run.names:
        for kind, things in state.resources(left, group).items():
            yield group, f"left after the deletion: {kind} {', '.join(things)}", []
        arns = [line for line in (left["kubernetes"]["map_roles"] or "").splitlines() if re.search(rf"{state.NAMESPACE}-{group}\b", line)]
        if arns:
            yield group, f"left in aws-auth: {arns}", []
    for arn in left["aws"]["access"]:
        if arn.rpartition("/")[2] not in left["aws"]["roles"]:
            yield None, f"left after all deletions: the access entry of the role {arn}, which is gone", []
    if not run.has_manual_changes() and not run.raw["scenario"].get("taken over"):
        for role in state.given_roles({"end": left}):
            if not is_of_node_group(run, role):
                yield None, f"left after all deletions: the entry of {role}", []
    for kind in ("fargate", "nodegroups"):
        for name in left["aws"][kind]:
            yield None, f"left after all deletions: {kind} {name}", []


def is_of_node_group(run, role):
    """Whether a given role is that of a managed node group: EKS lets it join, and leaves its access entry."""
    return any(role.endswith(f"/{PEOPLE}{name}") and run.provisioner(name) == "eks-managed" for name in run.names)


MADE_ONCE = {
    "CreateAutoScalingGroup": ("DeleteAutoScalingGroup", "AutoScalingGroupName"),
    "CreateRole": ("DeleteRole", "RoleName"),
    "CreateInstanceProfile": ("DeleteInstanceProfile", "InstanceProfileName"),
}
"""What a group has one of: the calls that make it and take it away, and its name in both. Templates are deleted by an id,
which the log does not give a name."""


def doubled(run):
    """At no moment a group has two scaling groups, roles or profiles, and in the end it has one of everything."""
    alive = {}
    for line in run.aws:
        if line["kind"] != "call" or (line.get("status") or 500) >= 300:
            continue
        for create, (delete, key) in MADE_ONCE.items():
            name = line["params"].get(key)
            if line["operation"] == delete:
                for names in alive.values():
                    names.pop(name, None)
            group = line["operation"] == create and run.group_in(name)
            # A Fargate profile that replaces another one has a role of its own, and users's are not the group's.
            if group and run.provisioner(group) == "eks":
                names = alive.setdefault((group, key), {})
                names[name] = line
                if len(names) > 1 and run.is_ours(line):
                    yield group, f"{' and '.join(names)} existed at once", list(names.values())
    for group in run.names:
        for kind, things in state.resources(run.raw["end"], group).items():
            if len(things) > 1 and kind != "access":
                yield group, f"{len(things)} {kind}: {', '.join(things)}", []
