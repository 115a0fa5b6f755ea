"""Scenarios: a world and what happens in it, drawn from a seed. A scenario is a plain JSON value.

    {"seed": 7, "mode": "CONFIG_MAP", "config": <data of the ConfigMap>, "groups": {name: <group>}, "taken over": {name: state}, "events": [...]}

A group is `{"annotations": ..., "spec": ...}`. Groups that are taken over are as keikoproj/instance-manager leaves them, in a
state of tests/e2e/keiko_groups.py; their first event gives them a spec of this module. Each event has a trigger, `{"after": seconds}` or `{"writes": k}` (after
the controller's k-th write to AWS or the API server since the event before), and is one of:

    {"kind": "transition", "group": name, "to": <group>}  applied; `"bad": true` if it cannot be realized
    {"kind": "config", "config": <data>}
    {"kind": "mode", "mode": <another authentication mode of the cluster>}
    {"kind": "delete", "group": name}
    {"kind": "settle"}
    {"kind": "wait"}
    {"kind": "perturbation", "name": ..., "arguments": {...}}

A transition of a group that was deleted creates it again. The last spec of every group is valid.
"""

import collections
import random
import textwrap

from campaign import spec_generator, perturbations

NAMES = [
    "alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india", "juliett", "kilo", "lima", "mike", "november", "oscar", "papa",
    "quebec", "romeo", "sierra", "tango", "uniform", "victor", "whiskey", "xray", "yankee", "zulu",
]  # fmt: skip
USUAL_SIZE = 8.5
"""How many groups a scenario of no given size has, on average."""
TAKEN_OVER = {
    "plain": "plain", "given": "given_role", "aged": "old_versions", "al2023": "node_config", "hooks": "hooks", "cheap": "never_spot",
    "old-way": "launch_configuration", "mixed": "mixed", "warm": "warm_pool",
}  # fmt: skip
"""Names of groups that are taken over, and their states."""
MODES = ["CONFIG_MAP", "CONFIG_MAP", "API", "API_AND_CONFIG_MAP"]
BOUNDARIES = """
restricted:
- spec.eks.configuration.clusterName
shared:
  merge:
  - spec.eks.configuration.tags
  mergeOverride:
  - metadata.annotations
  - spec.strategy
  - spec.eks.configuration.labels
  replace:
  - spec.eks.configuration.image
  - spec.eks.configuration.instanceType
  - spec.eks.configuration.metadataOptions
  - spec.eks.configuration.securityGroups
  - spec.eks.configuration.subnets
"""
POLICY = "roles: ['*']\nmanagedPolicies: ['*']\nfargateNamespaces: ['*']\nexcludableNamespaces: ['*']\n"
DEFAULTS = """
metadata:
  annotations:
    instancemgr.keikoproj.io/os-family: amazonlinux2023
spec:
  provisioner: eks
  eks:
    configuration:
      clusterName: demo
      image: {image}
      instanceType: {instance_type}
      subnets: [demo-private-a, demo-private-b, demo-private-c]
      securityGroups: [demo-nodes]
      tags:
      - key: owner
        value: {owner}
      labels:
        example.com/pool: {pool}
"""


def generate(seed, disturb=True, only=None, variant=1, size=None):
    """The scenario of a seed, without perturbations unless `disturb`, or with those whose name holds the text `only`.

    Variants of a seed have the same world and changes, and other perturbations. With `size`, the scenario has so many groups:
    each has as many changes as in a scenario of the usual size, and the whole takes no longer, because more happens at once.
    """
    found = {name: each for name, each in perturbations.load().items() if only is None or only in name}
    chance = random.Random(seed)
    admin = draw_admin(chance)
    names = NAMES[: size or chance.randint(7, 10)]
    factor = (size or USUAL_SIZE) / USUAL_SIZE
    # One group of each provisioner, and any others.
    drawn = chance.choices(sorted(spec_generator.WEIGHTS), [spec_generator.WEIGHTS[name] for name in sorted(spec_generator.WEIGHTS)], k=len(names) - 2)
    shapes = ["managed", "fargate", *drawn]
    chance.shuffle(shapes)
    shape_of = dict(zip(names, shapes, strict=True))
    choices = {name: spec_generator.draw_group(chance, shape_of[name]) for name in names}
    # Drawn separately: scenarios of the usual size stay what they are.
    more = random.Random(f"{seed}/wide")
    shared = draw_shared(more, shape_of) if size else set()
    groups = {name: compose(name, shape_of, choices, shared) for name in names}
    scenario = {"seed": seed, "mode": chance.choice(MODES), "config": config_of(admin), "groups": groups, "taken over": {}, "events": []}
    present = dict(groups)
    # Their nodes joined by aws-auth.
    if scenario["mode"] != "API" and chance.random() < 0.4:
        scenario["taken over"] = {name: TAKEN_OVER[name] for name in chance.sample(sorted(TAKEN_OVER), chance.choice([1, 2, 3]))}
        shape_of |= {name: chance.choice(["plain", "mixed", "warm"]) for name in scenario["taken over"]}
    for _ in range(round(chance.randint(12, 18) * factor)):
        scenario["events"] += draw_step(chance, shape_of, choices, present, admin, shared)
    for name in sorted(set(scenario["taken over"]) - set(present)):
        scenario["events"].insert(chance.randrange(len(scenario["events"])), draw_change(chance, name, shape_of, choices, present, shared))
    if size:
        scenario = with_releases(widened(scenario, more), random.Random(f"{seed}/releases"))
        scenario = with_rare_fields(scenario, random.Random(f"{seed}/rare fields"))
    # Drawn separately: another set of perturbations leaves the world and its changes as they are.
    key = f"{seed}/perturbations" + (f"/{variant}" if variant > 1 else "")
    scenario = with_perturbations(scenario, random.Random(key), found) if disturb else scenario
    return hastened(scenario, factor) if size else scenario


def compose(name, shape_of, choices, shared):
    """A group as its choices have it; those in `shared` have one given role, if they have one."""
    return spec_generator.compose(name, shape_of[name], choices[name], spec_generator.SHARED if name in shared else None)


def draw_shared(chance, shape_of):
    """A third of the Auto Scaling groups."""
    names = [name for name, shape in sorted(shape_of.items()) if spec_generator.SHAPES[shape][0] == "eks"]
    return set(chance.sample(names, len(names) // 3))


def widened(scenario, chance):
    """The scenario of a wide world: the cluster may begin to read access entries while it lasts.

    It does not stop to read aws-auth: that takes the nodes of all groups away until the controller reads the cluster's mode
    again, after ten minutes, and is to be done only when every role has an access entry.
    """
    scenario = {**scenario, "wide": True, "events": list(scenario["events"])}
    if scenario["mode"] == "CONFIG_MAP" and chance.random() < 0.5:
        event = {"kind": "mode", "mode": "API_AND_CONFIG_MAP", "trigger": trigger(chance)}
        scenario["events"].insert(chance.randrange(len(scenario["events"])), event)
    return scenario


def with_releases(scenario, chance):
    """The scenario with a release of EKS's image in every spec of a managed node group. EKS does not go back to an older one,
    so that releases only rise while a group lives."""
    rank, found = {}, {**scenario, "groups": dict(scenario["groups"]), "events": []}

    def released(name, group):
        if group["spec"]["provisioner"] != "eks-managed":
            return group
        rank[name] = chance.choice([known for known in range(len(spec_generator.RELEASES)) if known >= rank.get(name, 0)])
        section = group["spec"]["eks-managed"]
        configuration = {**section["configuration"], "releaseVersion": spec_generator.RELEASES[rank[name]]}
        return {**group, "spec": {**group["spec"], "eks-managed": {**section, "configuration": configuration}}}

    for name, group in scenario["groups"].items():
        found["groups"][name] = released(name, group)
    for event in scenario["events"]:
        event = {**event, "to": released(event["group"], event["to"])} if "to" in event else event
        found["events"].append(event)
        if event["kind"] == "delete":
            rank.pop(event["group"], None)
    return found


def with_rare_fields(scenario, chance):
    """The scenario with rare fields in its specs, which come and go with the changes of a group. Specs that cannot be realized
    stay as they are."""
    choices, found = {}, {**scenario, "groups": dict(scenario["groups"]), "events": []}

    def varied(name, group):
        provisioner, kept = group["spec"]["provisioner"], choices.setdefault(name, {})
        for aspect in spec_generator.RARE[provisioner]:
            if aspect.__name__ not in kept or chance.random() < 0.3:
                kept[aspect.__name__] = aspect(chance)
        return spec_generator.with_rare(group, kept)

    for name, group in scenario["groups"].items():
        found["groups"][name] = varied(name, group)
    for event in scenario["events"]:
        found["events"].append({**event, "to": varied(event["group"], event["to"])} if "to" in event and not event.get("bad") else event)
    return found


def is_wide(scenario):
    """Whether more may happen in it than in the scenarios of the fixed seeds."""
    return scenario.get("wide", False)


def draw_admin(chance):
    """What the admin's defaults say."""
    return {
        "image": chance.choice(spec_generator.IMAGES["amazonlinux2023"]),
        "instance_type": chance.choice(spec_generator.TYPES[:2]),
        "owner": chance.choice(["platform", "search"]),
        "pool": chance.choice(["shared", "other"]),
    }


def config_of(admin):
    """The data of the ConfigMap."""
    return {"boundaries": BOUNDARIES.lstrip(), "defaults": textwrap.dedent(DEFAULTS).lstrip().format(**admin), "policy": POLICY}


def trigger(chance):
    """When an event happens, after the one before."""
    return chance.choice([{"after": 0}, {"after": chance.choice([0.5, 1, 2, 4])}, {"writes": chance.randint(1, 6)}, {"writes": chance.randint(1, 3)}])


def draw_step(chance, shape_of, choices, present, admin, shared):
    """The next events; `choices`, `present` (the groups as they are now) and `admin` follow them."""
    name = chance.choice(sorted(shape_of))
    kind = chance.choices(["change", "shape", "bad", "config", "delete", "again", "settle"], [10, 4, 2, 2, 1, 1, 3])[0]
    if kind == "settle":
        return [{"kind": "settle", "trigger": {"after": 0}}]
    if kind == "config":
        key = chance.choice(sorted(admin))
        admin[key] = draw_admin(chance)[key]
        return [{"kind": "config", "config": config_of(admin), "trigger": trigger(chance)}]
    before = present.get(name)
    if kind == "shape":
        shape_of[name] = chance.choice(spec_generator.others(shape_of[name]))
        choices.pop(name, None)
    last = draw_change(chance, name, shape_of, choices, present, shared)
    if kind == "bad" and before:
        bad = spec_generator.spoil(chance, before)
        return [{"kind": "transition", "group": name, "to": bad, "bad": True, "trigger": trigger(chance)}, last]
    if kind in ("delete", "again"):
        first = {"kind": "delete", "group": name, "trigger": trigger(chance)}
        return [first, {**last, "trigger": {"after": 0} if kind == "again" else trigger(chance)}]
    return [last]


def draw_change(chance, name, shape_of, choices, present, shared):
    """A transition of a group to a spec near its present one, or to any of its shape if it has none."""
    known, shape = choices.get(name), shape_of[name]
    choices[name] = spec_generator.redraw(chance, shape, known) if known else spec_generator.draw_group(chance, shape)
    present[name] = compose(name, shape_of, choices, shared)
    return {"kind": "transition", "group": name, "to": present[name], "trigger": trigger(chance)}


def with_perturbations(scenario, chance, registry):
    """The scenario with perturbations between its events."""
    fitting = [found for found in registry.values() if found.fits(scenario)]
    events = []
    for event in scenario["events"]:
        events.append(event)
        if event["kind"] != "settle" and fitting and chance.random() < 0.5:
            found = chance.choice(fitting)
            events.append({"kind": "perturbation", "name": found.name, "arguments": found.arguments(chance, scenario), "trigger": trigger(chance)})
    return {**scenario, "events": events}


def hastened(scenario, factor):
    """The scenario with its waits of a given length so many times shorter."""

    def shorter(trigger):
        return {"after": round(trigger["after"] / factor, 2)} if "after" in trigger else trigger

    return {**scenario, "events": [{**event, "trigger": shorter(event["trigger"])} for event in scenario["events"]]}


def without_perturbations(scenario):
    """The same world and changes, undisturbed."""
    return {**scenario, "events": [event for event in scenario["events"] if event["kind"] != "perturbation"]}


def halves(scenario):
    """A long scenario as two that can be played at once: until the settle that is nearest to its middle, and from there on.

    The second one begins with what the first one ends with. None of its groups is taken over but those that the first one
    leaves as they are.
    """
    events = scenario["events"]
    middle = min((n for n, event in enumerate(events) if event["kind"] == "settle"), key=lambda n: abs(n - len(events) / 2))
    first = {**scenario, "events": events[:middle]}
    changed = {event.get("group") for event in first["events"] if event["kind"] in ("transition", "delete")}
    left = {name: state for name, state in scenario["taken over"].items() if name not in changed}
    first = {**first, "taken over": {name: state for name, state in scenario["taken over"].items() if name in changed}}
    return [first, {**fresh(first), "taken over": left, "events": events[middle + 1 :]}]


def fresh(scenario):
    """The world in which every group is made with its last spec, and nothing happens to it."""
    groups, config, mode = dict(scenario["groups"]), scenario["config"], scenario["mode"]
    for event in scenario["events"]:
        if event["kind"] == "transition":
            groups[event["group"]] = event["to"]
        elif event["kind"] == "delete":
            groups.pop(event["group"], None)
        elif event["kind"] == "config":
            config = event["config"]
        elif event["kind"] == "mode":
            mode = event["mode"]
    return {**scenario, "mode": mode, "config": config, "groups": groups, "taken over": {}, "events": []}


def is_playable(scenario):
    """Whether every group ends with a valid spec, or deleted, and one that is taken over with a spec of this module.

    Otherwise the world would not come to its end by itself, and `fresh` would be no reference for it.
    """
    last = {event["group"]: event for event in scenario["events"] if event["kind"] in ("transition", "delete")}
    return not any(event.get("bad") for event in last.values()) and set(scenario.get("taken over", ())) <= set(last)


def transitions(scenario):
    """How many changes it has, by kind: of specs, to specs that cannot be realized, of the ConfigMap, deletions."""
    found = collections.Counter()
    for event in scenario["events"]:
        if event["kind"] in ("config", "delete", "mode"):
            found[event["kind"]] += 1
        elif event["kind"] == "transition":
            found["bad spec" if event.get("bad") else "spec"] += 1
    return found


def names(scenario):
    """The names of all groups of a scenario."""
    return sorted({*scenario["groups"], *scenario.get("taken over", ()), *(event["group"] for event in scenario["events"] if "group" in event)})


def has_own_role(spec):
    """Whether the controller makes the IAM role of a group with this spec."""
    section = spec[spec["provisioner"]]
    named = {"eks": (section.get("configuration") or {}).get("roleName"), "eks-fargate": section.get("podExecutionRoleArn")}
    return spec["provisioner"] in named and not named[spec["provisioner"]]


def specs(scenario, name):
    """The valid specs that a group has, one after the other."""
    later = [event["to"] for event in scenario["events"] if event["kind"] == "transition" and event["group"] == name and not event.get("bad")]
    return [*([scenario["groups"][name]] if name in scenario["groups"] else []), *later]
