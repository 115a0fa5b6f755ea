"""Oracles about rollouts: in which order an admin's change reaches the groups, how many nodes it takes, and what is stored."""

import json
import re

import yaml

from campaign import rollouts
from campaign.oracles.run import GRACE, between, spec_at
from e2e import logs

CHOSEN_BY_PEOPLE = ("lock", "group left out of a rollout")
"""Perturbations with which users keep groups from a change. No wave waits for those groups."""
SLACK = 1.5
"""Seconds by which a soak may look shorter: what is recorded of it has whole seconds."""


class Change:
    """The time in which the admin's image is one that it never was before."""

    def __init__(self, image, begin, end, policy):
        self.image, self.begin, self.end, self.policy = image, begin, end, policy


def configs(run):
    """(moment, data of the ConfigMap), oldest first."""
    return [(run.moment("begin"), run.raw["scenario"]["config"])] + [(e["time"], e["config"]) for e in run.journal if e["what"] == "config"]


def image_of(config):
    """The image that the admin's defaults name."""
    return yaml.safe_load(config["defaults"])["spec"]["eks"]["configuration"]["image"]


def changes(run):
    """The admin's images that are new, each with its time; without the first one, which no group had another one before."""
    found, seen = [], set()
    for when, config in configs(run):
        image = image_of(config)
        if found and found[-1].image == image:
            continue
        if found:
            found[-1].end = min(found[-1].end, when)
        if image not in seen:
            found.append(Change(image, when, "9", rollouts.policy_of(config)))
        seen.add(image)
    return [change for change in found[1:] if change.policy]


def uses_the_default_image(spec):
    """Whether a group with this spec has the admin's image."""
    return spec is not None and spec["provisioner"] == "eks" and "image" not in spec["eks"].get("configuration", {})


class Nodes:
    """The instances of all groups: from which image each was launched, when, and when it was no longer in service."""

    def __init__(self, run):
        self.image_of, self.launched, self.ended, self.of_group = {}, {}, {}, {}
        pinned = {}
        for line in run.aws:
            # Later versions are made by the template's id, which only the scaling group contains.
            if line["kind"] == "call" and (found := re.search(r'"LaunchTemplateId": "([^"]+)"', line.params_text)) and run.group_of(line):
                pinned[run.group_of(line)] = found[1]
            if line["kind"] != "state" or line["object"] != "instance" or not (group := run.group_in(line.get("group") or "")):
                continue
            instance, when = line["id"], logs.timestamp(line)
            if instance not in self.launched:
                data = run.template((line.get("template"), pinned.get(group)), line.get("version"), when) or {}
                self.image_of[instance], self.launched[instance] = data.get("ImageId"), when
                self.of_group.setdefault(group, []).append(instance)
            if line["state"] in logs.ENDED:
                self.ended.setdefault(instance, when)

def waves(run):
    """A change reaches no group behind the first wave before all groups of that wave run it, and have run it for the soak."""
    used = {e["name"] for e in run.raw["scenario"]["events"] if e["kind"] == "perturbation"}
    if used & set(CHOSEN_BY_PEOPLE) or not rollouts.has_rollout(run.raw["scenario"]):
        return
    nodes = Nodes(run)
    for change in changes(run):
        first = change.policy["waves"][0]
        # Groups without progress are not waited for, and some may fail.
        if first["name"] != "canary" or "patience" in change.policy or "maxFailures" in first:
            continue
        canaries = [name for name in run.names if is_canary(run, name, change)]
        # A process that began later has only the wall clock.
        soak = 0 if "clock jumps" in used else max(0, int(first["soak"].rstrip("s")) - SLACK)
        for group in set(run.names) - set(canaries):
            begun = first_version(run, group, change)
            if begun is None or not uses_the_default_image(spec_at(run.specs(group), logs.timestamp(begun))):
                continue
            for canary in canaries:
                yield from late(run, nodes, change, canary, begun, soak)


def late(run, nodes, change, canary, begun, soak):
    """A canary that had nodes of another image when another group began, or within the soak before."""
    when = logs.timestamp(begun)
    if not exists_unchanged(run, canary, when):
        return
    old = [i for i in nodes.of_group.get(canary, ()) if nodes.launched[i] < change.begin and nodes.image_of[i] not in (None, change.image)]
    left = [i for i in old if change.begin < nodes.ended.get(i, "9") and (nodes.ended.get(i, "9") > when or between(nodes.ended[i], when) < soak)]
    if left:
        what = f"began with {change.image} while {', '.join(left)} of the first wave ran another image, or less than {soak} s after"
        yield canary, f"{run.group_of(begun)} of a later wave {what}", [begun]


def is_canary(run, name, change):
    """Whether a group of the first wave was there when the change came, and takes its image from it."""
    group = next((e["to"] for e in run.journal if e["what"] == "apply" and e["group"] == name), None)
    is_early = group is not None and group["annotations"].get(rollouts.WAVE) == "canary"
    return is_early and uses_the_default_image(spec_at(run.specs(name), change.begin))


def exists_unchanged(run, name, when):
    """Whether a group was neither deleted nor given a spec that cannot be realized: such groups are not waited for."""
    told_of = [e for e in run.journal if e.get("group") == name and e["time"] <= when]
    return not any(e["what"] == "delete" or e.get("bad") for e in told_of)


def first_version(run, group, change):
    """The call that made the group's first template version with the change, while the change was active; or None."""
    for line in run.calls():
        if line["operation"] in ("CreateLaunchTemplate", "CreateLaunchTemplateVersion") and change.begin < logs.timestamp(line) < change.end:
            if (line["params"].get("LaunchTemplateData") or {}).get("ImageId") == change.image and run.group_of(line) == group:
                return line
    return None


def rollout_budget(run):
    """The controller takes no node for a change while more nodes of all groups are unavailable than the budget allows."""
    if not rollouts.has_rollout(run.raw["scenario"]):
        return
    nodes, known = Nodes(run), changes(run)
    for when, group, instances, unavailable, desired in replaced_nodes(run):
        change = next((c for c in known if c.begin < when < c.end), None)
        if change and all(is_replaced_for(run, nodes, change, group, instance, when) for instance in instances):
            allowed = budget_at(run, when, desired)
            if allowed is not None and unavailable > allowed:
                what = f"were unavailable after it took {', '.join(instances)} for {change.image}, and the budget is {allowed}"
                yield group, f"{unavailable} of {desired} nodes {what}", []


def is_replaced_for(run, nodes, change, group, instance, when):
    """Whether a node was taken because of a change: what a tenant changes waits for no budget, nor does a group that goes back."""
    is_old = nodes.launched[instance] < change.begin and nodes.image_of[instance] not in (None, change.image)
    is_edited = any(change.begin < at <= when for at, _ in run.specs(group))
    begun = is_old and not is_edited and uses_the_default_image(spec_at(run.specs(group), when)) and first_version(run, group, change)
    return bool(begun) and logs.timestamp(begun) < when


def budget_at(run, when, desired):
    """The largest budget of nodes that was active lately; None if there was none at some time."""
    known = configs(run)
    current = [config for at, config in known if at <= when][-1:]
    recent = [config for at, config in known if at <= when and between(at, when) < GRACE] + current
    before = [config for at, config in known if at <= when and between(at, when) >= GRACE][-1:]
    found = [((rollouts.policy_of(config) or {}).get("budget") or {}).get("nodes") for config in recent + before]
    if None in found:
        return None
    return max(max(1, desired * int(v[:-1]) // 100 if isinstance(v, str) else v) for v in found)


class ClusterNodes:
    """The nodes of all scaling groups, read from the log line by line."""

    def __init__(self, run):
        self._run = run
        self._state, self.group_of, self._node_of, self._ready, self._cordoned = {}, {}, {}, set(), set()
        self.desired, self._wanted, self._lost, self.available = {}, [], {}, set()
        self._terminated = {e["params"]["InstanceId"] for e in run.calls() if e["operation"] == "TerminateInstanceInAutoScalingGroup"}

    def follow(self, when, event):
        """Takes the next event; returns the available nodes that the controller took with it."""
        is_ours = self._cordon(*event) if isinstance(event, tuple) else self._change(when, event)
        now = {i for i, s in self._state.items() if s == "InService" and self._node_of.get(i) in self._ready - self._cordoned}
        gone, self.available = self.available - now, now
        if not is_ours:
            self._lost |= dict.fromkeys(gone, when)
        return gone if is_ours else set()

    def _cordon(self, node, is_on, user):
        self._cordoned.add(node) if is_on else self._cordoned.discard(node)
        return is_on and user == self._run.user

    def _change(self, when, line):
        if line["object"] == "node":
            self._node_of[line["instance"]] = line["id"]
            self._ready.add(line["id"]) if line["state"] == "ready" else self._ready.discard(line["id"])
            if line["state"] == "gone":
                self._cordoned.discard(line["id"])
            return False
        if (group := self._run.group_in(line.get("group") or "")) is None:
            return False
        self._state[line["id"]], self.group_of[line["id"]] = line["state"], group
        if "desired" in line and self.desired.get(group) != line["desired"]:
            self.desired[group] = line["desired"]
            self._wanted.append((when, group, line["desired"]))
        return line["state"] == "Terminating" and line["id"] in self._terminated

    def unavailable(self, when):
        """How many nodes of all groups are missing that the controller must have noticed."""
        return sum(max(0, self._least(group, when) - self._present(group, when)) for group in self.present_groups(when))

    def present_groups(self, when):
        """The groups that have not been deleted."""
        return [group for group in self.desired if spec_at(self._run.specs(group), when) is not None]

    def _least(self, group, when):
        recent = [count for at, name, count in self._wanted if name == group and between(at, when) < GRACE]
        return min([*recent, self.desired[group]])

    def _present(self, group, when):
        recent = [i for i, at in self._lost.items() if i not in self.available and between(at, when) < GRACE]
        return sum(self.group_of[i] == group for i in [*self.available, *recent])


def replaced_nodes(run):
    """(moment, group, instances, unavailable nodes of all groups, desired nodes) of each time the controller took available nodes."""
    timeline = [(logs.timestamp(e), 0, e) for e in run.aws if e["kind"] == "state" and e["object"] in ("instance", "node")]
    timeline += [(when, 1, (node, is_on, user)) for when, node, is_on, user in logs.cordons(run.audit)]
    nodes = ClusterNodes(run)
    for when, _, event in sorted(timeline, key=lambda entry: entry[:2]):
        if gone := nodes.follow(when, event):
            desired = sum(nodes.desired[group] for group in nodes.present_groups(when))
            yield when, nodes.group_of[min(gone)], sorted(gone), nodes.unavailable(when), desired


def revisions(run):
    """One content is stored once, and each revision has a number of its own."""
    made = [e for e in run.writes() if e["verb"] == "create" and e["objectRef"]["resource"] == "boundariesrevisions"]
    specs = [(e, (e.get("requestObject") or {}).get("spec") or {}) for e in made]
    for (_, before), (event, spec) in zip(specs, specs[1:]):
        if content(before) == content(spec):
            yield None, f"the content of revision {before.get('number')} was stored again as {spec.get('number')}", [event]
        if spec.get("number") <= before.get("number"):
            yield None, f"revision {spec.get('number')} was stored after {before.get('number')}", [event]


def content(spec):
    """What a revision is identified by: the policy of its rollout is not part of it."""
    return json.dumps([{key: text for key, text in spec.get("data", {}).items() if key != "rollout"}, spec.get("images")], sort_keys=True)
