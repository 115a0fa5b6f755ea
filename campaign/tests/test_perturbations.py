"""Perturbations can be drawn, said in JSON, and called with what was drawn."""

import functools
import inspect
import json
import random

from campaign import perturbations, rollouts, scenario

REGISTRY = perturbations.load()


def test_every_perturbation_fits_a_scenario_and_accepts_its_drawn_arguments():
    """One that is never drawn, or cannot be called, disturbs nothing."""
    left = dict(REGISTRY)
    for seed in range(120):
        # A third of them have rollouts, and a third are wide.
        drawn = [scenario.generate, rollouts.generate, functools.partial(scenario.generate, size=12)][seed % 3](seed, disturb=False)
        for name, found in list(left.items()):
            if found.fits(drawn):
                arguments = found.arguments(random.Random(seed), drawn)
                assert json.loads(json.dumps(arguments)) == arguments
                inspect.signature(found._act).bind(None, **arguments)
                assert arguments.get("group", next(iter(drawn["groups"]))) in drawn["groups"]
                del left[name]
    assert left == {}


def test_the_group_is_one_of_the_provisioners_that_are_needed():
    """A manual change of a launch template has no effect on a Fargate profile."""
    for seed in range(20):
        drawn = scenario.generate(seed, disturb=False)
        for found in REGISTRY.values():
            group = found.fits(drawn) and found.arguments(random.Random(seed), drawn).get("group")
            if group and found.needs:
                assert drawn["groups"][group]["spec"]["provisioner"] in found.needs


def test_only_chooses_by_a_part_of_the_name():
    """So one kind of perturbation can be looked for."""
    used = {e["name"] for seed in range(30) for e in scenario.generate(seed, only="watches")["events"] if e["kind"] == "perturbation"}
    assert used and all("watches" in name for name in used)
