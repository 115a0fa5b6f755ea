"""Scenarios of rollouts: an admin's changes reach the groups in waves, while everything of a scenario happens.

The ConfigMap has the key `rollout`, most groups take their image from it, and the admin changes it again and again. Groups
of early waves carry the annotation `WAVE`. A tenant changes a group now and then, and half of the perturbations are those
that meet a rollout: of the process, its clock, its watches, its writes, and what users order.
"""

import random

import yaml

from campaign import perturbations, spec_generator
from campaign import scenario as scenarios

WAVE = "campaign/wave"
SIZE = (6, 8)
IMAGES = spec_generator.IMAGES["amazonlinux2023"]
KEYS = ["image", "image", "instance_type", "owner", "pool"]
"""Which of the admin's defaults changes after the first two images."""
SHAPES = {"plain": 5, "mixed": 1, "warm": 1, "managed": 1, "fargate": 1}
"""How often each shape is drawn. Weights are left out: a budget counts nodes."""
EARLY_SHAPES = ("plain", "plain", "mixed", "warm")
CLOSE = ("campaign.perturbations.process", "campaign.perturbations.clock", "campaign.perturbations.network", "campaign.perturbations.orders")
"""Modules of the perturbations that meet a rollout."""


def generate(seed, disturb=True, only=None, variant=1):
    """The scenario of a seed; see scenario.generate."""
    found = {name: each for name, each in perturbations.load().items() if only is None or only in name}
    chance = random.Random(f"{seed}/rollout")
    names = scenarios.NAMES[: chance.randint(*SIZE)]
    early = chance.sample(names, chance.choice([1, 2, 2]))
    shape_of = {name: chance.choice(EARLY_SHAPES) if name in early else chance.choices(list(SHAPES), SHAPES.values())[0] for name in names}
    choices = {name: draw_group(chance, shape_of[name], "canary" if name in early else None) for name in names}
    groups = {name: spec_generator.compose(name, shape_of[name], choices[name]) for name in names}
    admin, policy = {**scenarios.draw_admin(chance), "image": IMAGES[0]}, draw_policy(chance)
    scenario = {"seed": f"{seed} (rollout)", "mode": chance.choice(scenarios.MODES), "config": config_of(admin, policy), "groups": groups, "taken over": {}, "wide": True, "events": []}
    present = dict(groups)
    for number in range(chance.choice([3, 4])):
        # The first two images are new, so that the order in which they reach the groups can be judged.
        scenario["events"].append(change_of_admin(chance, admin, policy, ["image"] if number < 2 else KEYS))
        for _ in range(chance.randint(2, 5)):
            scenario["events"] += draw_step(chance, shape_of, choices, present, admin, policy)
    key = f"{seed}/rollout/perturbations" + (f"/{variant}" if variant > 1 else "")
    return with_perturbations(scenario, random.Random(key), found) if disturb else scenario


def draw_group(chance, shape, wave):
    """A group that takes its image from the admin, in four of five cases."""
    choices = spec_generator.draw_group(chance, shape)
    if "system" in choices and (wave or chance.random() < 0.8):
        choices["system"] = without_image(choices["system"])
    if wave:
        # Its first node shows that it has begun.
        choices["sizes"] = {"eks": {"minSize": chance.choice([1, 2]), "maxSize": 3}}
        choices["wave"] = {"annotations": {WAVE: wave}}
    return choices


def without_image(system):
    """The admin's image is of Amazon Linux 2023."""
    configuration = {key: value for key, value in system["configuration"].items() if key != "image"}
    return {"annotations": {**system["annotations"], spec_generator.PREFIX + "os-family": "amazonlinux2023"}, "configuration": configuration}


def draw_policy(chance):
    """The value of the key `rollout`."""
    canary = {"name": "canary", "groups": f"{WAVE} = canary", "soak": chance.choice(["1s", "3s", "6s"])}
    early = {"name": "early", "percent": chance.choice([30, 50]), "soak": chance.choice(["1s", "4s"])}
    rest = {"name": "rest", **chance.choice([{}, {}, {"atOnce": 1}, {"atOnce": 2}])}
    policy = {"waves": chance.choice([[canary, rest], [canary, rest], [canary, early, rest], [early, rest], [rest]])}
    policy |= chance.choice([{}, {"budget": draw_budget(chance)}, {"budget": draw_budget(chance)}])
    policy |= chance.choice([{}, {}, {}, {"onFailure": "return"}]) | chance.choice([{}, {}, {"withoutRotation": "waves"}])
    if chance.random() < 0.2:
        for wave in policy["waves"]:
            wave["maxFailures"] = "50%"
    return policy | chance.choice([{}, {}, {}, {"patience": "20s"}])


def draw_budget(chance):
    """How many nodes may be unavailable at once."""
    return chance.choice([{"nodes": 1}, {"nodes": 2}, {"nodes": 2}, {"nodes": 3}, {"nodes": "40%"}, {"zone": 1}, {"nodes": 2, "surge": 1}])


def config_of(admin, policy):
    """The data of the ConfigMap."""
    return {**scenarios.config_of(admin), "rollout": yaml.safe_dump(policy)}


def trigger(chance):
    """When an event happens, after the one before: a rollout takes longer than a change of one group."""
    return chance.choice([{"after": chance.choice([0, 1, 3, 8])}, {"writes": chance.randint(1, 12)}, {"writes": chance.randint(1, 4)}])


def draw_step(chance, shape_of, choices, present, admin, policy):
    """The next events; all arguments but the first two follow them."""
    kind = chance.choices(["policy", "change", "bad", "delete", "settle", "wait"], [1, 4, 1, 1, 2, 4])[0]
    if kind in ("settle", "wait"):
        return [{"kind": kind, "trigger": {"after": chance.choice([2, 5, 10]) if kind == "wait" else 0}}]
    if kind == "policy":
        policy["budget"] = draw_budget(chance)
        return [{"kind": "config", "config": config_of(admin, policy), "trigger": trigger(chance)}]
    name = chance.choice(sorted(shape_of))
    before = present.get(name)
    if kind == "delete" and before:
        present.pop(name)
        again = change_of_group(chance, name, shape_of, choices, present)
        return [{"kind": "delete", "group": name, "trigger": trigger(chance)}, again]
    last = change_of_group(chance, name, shape_of, choices, present)
    if kind == "bad" and before:
        bad = spec_generator.spoil(chance, before)
        return [{"kind": "transition", "group": name, "to": bad, "bad": True, "trigger": trigger(chance)}, last]
    return [last]


def change_of_admin(chance, admin, policy, keys):
    """The ConfigMap with another value of one of the admin's defaults."""
    key, before = chance.choice(keys), dict(admin)
    if keys == ["image"]:
        admin["image"] = IMAGES[IMAGES.index(admin["image"]) + 1]
    while admin == before:
        admin[key] = scenarios.draw_admin(chance)[key]
    return {"kind": "config", "config": config_of(admin, policy), "trigger": trigger(chance)}


def change_of_group(chance, name, shape_of, choices, present):
    """A transition of a group by its tenant: of what the image does not depend on, so that a group stays one that takes it."""
    shape, before = shape_of[name], choices[name]
    choices[name] = {**spec_generator.redraw(chance, shape, before), **{key: before[key] for key in ("system", "wave") if key in before}}
    if "wave" in before:
        choices[name]["sizes"] = before["sizes"]
    present[name] = spec_generator.compose(name, shape, choices[name])
    return {"kind": "transition", "group": name, "to": present[name], "trigger": trigger(chance)}


def with_perturbations(scenario, chance, registry):
    """The scenario with perturbations between its events; half of them are of the modules that meet a rollout."""
    fitting = [found for found in registry.values() if found.fits(scenario)]
    close = [found for found in fitting if found.module in CLOSE]
    events = []
    for event in scenario["events"]:
        events.append(event)
        if event["kind"] != "settle" and fitting and chance.random() < 0.6:
            found = chance.choice(close if close and chance.random() < 0.5 else fitting)
            events.append({"kind": "perturbation", "name": found.name, "arguments": found.arguments(chance, scenario), "trigger": trigger(chance)})
    return {**scenario, "events": events}


def policy_of(config):
    """The value of the key `rollout` of a ConfigMap, or None."""
    return yaml.safe_load(config["rollout"]) if "rollout" in config else None


def has_rollout(scenario):
    """Whether changes of its ConfigMap reach the groups in waves."""
    return "rollout" in scenario.get("config", ())
