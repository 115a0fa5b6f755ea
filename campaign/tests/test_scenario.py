"""Scenarios come from their seed alone, and end with specs that somebody can realize."""

import json

from campaign import scenario, shrink


def test_a_seed_gives_the_same_scenario():
    """Else a seed could not be played again."""
    for seed in range(50):
        one = scenario.generate(seed)
        assert json.loads(json.dumps(one)) == scenario.generate(seed)
        assert {"eks-managed", "eks-fargate"} <= {group["spec"]["provisioner"] for group in one["groups"].values()}


def test_other_perturbations_leave_the_world_as_it_is():
    """A new perturbation must not change what the seeds of before play."""
    for seed in range(20):
        disturbed = scenario.generate(seed)
        assert scenario.without_perturbations(disturbed) == scenario.generate(seed, disturb=False)


def test_the_last_spec_of_each_group_is_valid():
    """The end state of a spec that nobody can realize proves nothing."""
    for seed in range(50):
        last = {}
        for event in scenario.generate(seed)["events"]:
            if event["kind"] == "transition":
                last[event["group"]] = event
        assert not any(event.get("bad") for event in last.values())


def test_the_fresh_world_has_every_groups_last_spec():
    """It is what the events should come to."""
    for seed in range(20):
        one = scenario.generate(seed)
        made = scenario.fresh(one)
        assert made["events"] == [] and set(made["groups"]) <= set(one["groups"])
        for event in one["events"]:
            if event["kind"] == "transition" and event is [e for e in one["events"] if e.get("group") == event["group"]][-1]:
                assert made["groups"][event["group"]] == event["to"]


def test_shrinking_keeps_only_what_fails():
    """A reader needs the two events that matter, not twenty."""
    groups = {name: {"spec": {}} for name in ("alpha", "bravo", "charlie")}
    events = [{"kind": "transition", "group": "bravo", "number": number} for number in range(20)]
    asked = []

    def fails(smaller):
        asked.append(smaller)
        return {3, 17} <= {event["number"] for event in smaller["events"]} and "bravo" in smaller["groups"]

    smaller = shrink.shrink({"seed": 1, "groups": groups, "events": events}, fails)
    assert [event["number"] for event in smaller["events"]] == [3, 17] and list(smaller["groups"]) == ["bravo"]
    assert len(asked) < 40
