"""Perturbations can be drawn, said in JSON, and called with what was drawn."""

import functools
import hashlib
import inspect
import json
import random
import re
from types import SimpleNamespace

from campaign import perturbations, rollouts, scenario
from campaign.__main__ import fixed_seeds
from campaign.controller import REPOSITORY
from campaign.perturbations import aws, nodes
from localcloud.aws.event_log import is_read

REGISTRY = perturbations.load()
OPERATIONS = re.findall(r'^    \("\w+", "(\w+)"\),$', (REPOSITORY / "src" / "aws" / "sdk" / "call_metrics.rs").read_text(), re.MULTILINE)
"""Every operation of AWS that the controller calls. Two services have one of the same name."""


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


def test_the_fixed_seeds_draw_what_they_drew():
    """CI would play other scenarios than those that are known to pass and to find defects, and no test would fail.

    A new perturbation has `when=is_wide`, or another condition that no fixed seed meets. To let a fixed seed play something
    else, play it, and write its new digest into campaign/seeds.txt.
    """
    for name, drawn, digest in fixed_seeds():
        assert hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()[:12] == digest, f"seed {name}"


def test_each_operation_that_the_controller_calls_is_denied_alone():
    """The refusal of an operation that it never calls disturbs nothing, and counts as played."""
    reads, writes = aws.READS + aws.RARE_READS, aws.WRITES + aws.RARE_WRITES
    assert len(OPERATIONS) > 60 and sorted(reads + writes) == sorted(set(OPERATIONS))
    assert not any(map(is_read, writes)) and all(is_read(operation) or operation.startswith("Simulate") for operation in reads)


def test_instances_of_a_broken_image_are_replaced_before_they_show_it(monkeypatch):
    """A node that has just joined would stay not Ready after the end, and the group would not settle."""
    kubelets = {
        "i-fine": {"state": "ready", "behavior": "ok"},
        "i-refused": {"state": "refused", "behavior": "ok"},
        "i-joined": {"state": "joined", "behavior": "not-ready"},
        "i-booting": {"state": "booting", "behavior": "never-joins"},
    }
    terminated = []
    user = SimpleNamespace(do=lambda service, operation, InstanceIds: terminated.extend(InstanceIds))
    monkeypatch.setattr(nodes, "User", lambda *_: user)
    nodes.terminate_broken(SimpleNamespace(cloud=SimpleNamespace(control=lambda *_: kubelets)))
    assert terminated == ["i-refused", "i-joined", "i-booting"]
