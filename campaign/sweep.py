"""A sweep: a short life of one group of each provisioner, in which the controller is killed at each of its writes in turn.

Outside the sweep, the writes at which a controller is killed are drawn by chance.
"""

import random

from campaign import scenario as scenarios
from campaign import spec_generator
from e2e import logs

GROUP = "alpha"
SHAPES = {"eks": "plain", "eks-managed": "managed", "eks-fargate": "fargate"}
"""For each provisioner the shape of its group."""
KEPT = {"strategy": {"strategy": {"type": "rollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}}, "identity": {}, "sizes": {"eks": {"minSize": 1, "maxSize": 2}}}
"""Aspects of the `eks` group that are not drawn: the controller makes its role and replaces its node, and a kill meets each write of both."""
SETTLE = [{"kind": "settle", "trigger": {"after": 0}}] * 2
"""The replacement of a managed node group takes longer than one of them waits."""
KILL = "killed at a later write"
SYSTEMS = {"AWS": "aws", "API server": "api"}
"""The systems that take writes, and what they are called in the name of a play."""


def work(play):
    """(name, scenario) of every kill. `play(name, scenario)` gives the undisturbed run of each life, whose writes are counted."""
    for name, scenario in lives():
        counts = count_writes(play(name, scenario))
        for system, short in SYSTEMS.items():
            for number in range(counts[system]):
                yield f"{name}-{short}-{number}", with_kill(scenario, system, number)


def lives():
    """(name, scenario) of the creation with a change, and of the deletion, of a group of each provisioner."""
    for provisioner, shape in SHAPES.items():
        chance = random.Random(f"sweep/{provisioner}")
        first, last = draw(chance, shape), draw(chance, shape)
        world = {"seed": f"sweep/{provisioner}", "mode": "API_AND_CONFIG_MAP", "config": scenarios.config_of(scenarios.draw_admin(chance)), "taken over": {}}
        changes = [event for spec in (first, last) for event in ({"kind": "transition", "group": GROUP, "to": spec, "trigger": {"after": 0}}, *SETTLE)]
        yield f"sweep-{provisioner}-life", {**world, "groups": {}, "events": changes}
        yield f"sweep-{provisioner}-deletion", {**world, "groups": {GROUP: last}, "events": [{"kind": "delete", "group": GROUP, "trigger": {"after": 0}}, *SETTLE]}


def draw(chance, shape):
    """A group of a shape."""
    choices = spec_generator.draw_group(chance, shape)
    return spec_generator.compose(GROUP, shape, choices | {aspect: value for aspect, value in KEPT.items() if aspect in choices})


def with_kill(scenario, system, number):
    """The scenario with a kill at the write to a system that comes after so many others."""
    event = {"kind": "perturbation", "name": KILL, "arguments": {"system": system, "number": number}, "trigger": {"after": 0}}
    return {**scenario, "events": [event, *scenario["events"]]}


def count_writes(run):
    """How many writes a run's controller made to each system from the first event to the last one."""
    begin, end = (next(entry["time"] for entry in run["journal"] if entry["what"] == what) for what in ("made", "final"))
    aws = [line for line in run["aws"] if line["kind"] == "call" and line["caller"]["key"].startswith("controller")]
    api = [line for line in run["audit"] if line["user"]["username"] == run["settings"]["user"] and line.get("objectRef", {}).get("resource") not in ("leases", "events")]
    return {system: sum(begin < logs.timestamp(line) < end for line in lines) for system, lines in zip(SYSTEMS, (aws, api), strict=True)}
