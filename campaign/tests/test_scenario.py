"""Scenarios come from their seed alone, and end with specs that can be realized."""

import json

import pytest

from campaign import rollouts, scenario, shrink, spec_generator, totals
from campaign.oracles.rollouts import image_of


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


def test_variants_of_a_seed_share_their_world():
    """Each is judged by the same reference, which is played once."""
    for seed in range(20):
        one, other = scenario.generate(seed), scenario.generate(seed, variant=2)
        assert one != other and scenario.fresh(one) == scenario.fresh(other)
        assert scenario.without_perturbations(one) == scenario.without_perturbations(other)


def test_a_larger_world_has_as_many_events_per_group_in_the_same_time():
    """More lives are played in the same time, and each is disturbed as much as in a world of the usual size."""
    usual, large = ([scenario.generate(seed, size=size) for seed in range(40)] for size in (None, 24))

    def per_group(worlds, kind):
        return sum(event["kind"] == kind for one in worlds for event in one["events"]) / sum(len(one["groups"]) for one in worlds)

    def waits(worlds):
        return sum(event["trigger"].get("after", 0) for one in worlds for event in one["events"])

    assert all(len(one["groups"]) == 24 for one in large)
    for kind in ("transition", "perturbation"):
        assert abs(per_group(large, kind) - per_group(usual, kind)) < 0.25 * per_group(usual, kind)
    assert abs(waits(large) - waits(usual)) < 0.25 * waits(usual)


def test_the_halves_of_a_scenario_are_playable_and_end_as_the_whole():
    """The fixed seeds would play less than the seed, or worlds that cannot come to their end."""
    split = [one for one in map(scenario.generate, range(60)) if any(event["kind"] == "settle" for event in one["events"][1:-1])]
    assert len(split) > 30 and any(one["taken over"] for one in split)
    for one in split:
        first, second = scenario.halves(one)
        assert first["events"] + [{"kind": "settle", "trigger": {"after": 0}}] + second["events"] == one["events"]
        assert scenario.is_playable(first) and scenario.is_playable(second)
        assert scenario.fresh(second) == scenario.fresh(one)
        assert {**first["taken over"], **second["taken over"]} == one["taken over"]


def test_a_wide_world_has_shared_roles_and_clusters_that_change_their_authentication():
    """Each world comes to the mode that its reference has from its begin."""
    wide = [scenario.generate(seed, size=12) for seed in range(60)]
    assert sum("people-shared" in json.dumps(one["groups"]) for one in wide) > 20
    changed = [[one["mode"], *(event["mode"] for event in one["events"] if event["kind"] == "mode")] for one in wide]
    assert sum(len(modes) > 1 for modes in changed) > 10
    for one, modes in zip(wide, changed, strict=True):
        assert modes in ([one["mode"]], ["CONFIG_MAP", "API_AND_CONFIG_MAP"]) and scenario.fresh(one)["mode"] == modes[-1]


def test_releases_of_node_groups_only_rise():
    """EKS refuses an older one, so that a world that goes back could never come to its end."""
    rises = 0
    for seed in range(60):
        one = scenario.generate(seed, size=12)
        for name in scenario.names(one):
            specs = [spec["spec"]["eks-managed"]["configuration"] for spec in scenario.specs(one, name) if spec["spec"]["provisioner"] == "eks-managed"]
            is_deleted = any(event["kind"] == "delete" and event["group"] == name for event in one["events"])
            releases = [found["releaseVersion"] for found in specs]
            assert is_deleted or releases == sorted(releases)
            rises += len(set(releases)) - 1 if releases else 0
    assert rises > 20


def test_rare_fields_come_and_go_in_wide_worlds():
    """A field that leaves the spec must leave AWS, and only a change shows whether it does."""
    changes = {}
    for seed in range(60):
        one = scenario.generate(seed, size=12)
        for name in scenario.names(one):
            specs = [spec["spec"] for spec in scenario.specs(one, name)]
            for before, after in zip(specs, specs[1:]):
                provisioner = before["provisioner"]
                fields = [{*spec[provisioner], *spec[provisioner].get("configuration", {})} for spec in (before, after) if spec["provisioner"] == provisioner]
                for field in fields[0] ^ fields[-1]:
                    known = changes.setdefault(f"{provisioner}: {field}", set())
                    known.add("removed" if field in fields[0] else "added")
    for field in ["eks: licenseSpecifications", "eks: securityGroups", "eks-managed: capacityType", "eks-managed: instanceTypes", "eks-managed: volSize", "eks-managed: nodeRepairConfig", "eks-fargate: subnets", "eks-fargate: podExecutionRoleArn"]:
        assert changes[field] == {"added", "removed"}, field


def test_a_rollout_begins_with_images_that_are_new():
    """The oracles can find the groups of an image only if it is new."""
    for seed in range(30):
        one = rollouts.generate(seed)
        images = [image_of(event["config"]) for event in one["events"] if event["kind"] == "config"]
        assert len(dict.fromkeys([image_of(one["config"]), *images])) >= 3
        assert any(rollouts.WAVE in group["annotations"] for group in one["groups"].values())
        assert json.loads(json.dumps(one)) == rollouts.generate(seed)


def test_the_last_spec_of_each_group_is_valid():
    """The end state of an unrealizable spec proves nothing."""
    for seed in range(50):
        last = {}
        for event in scenario.generate(seed)["events"]:
            if event["kind"] == "transition":
                last[event["group"]] = event
        assert not any(event.get("bad") for event in last.values())


def test_node_groups_ask_for_no_more_unavailable_nodes_than_they_have():
    """EKS refuses a maxUnavailable above maxSize, so that a world with one could never come to its end."""
    for seed in range(100):
        one = scenario.generate(seed)
        for spec in (group["spec"] for name in scenario.names(one) for group in scenario.specs(one, name)):
            if spec["provisioner"] == "eks-managed":
                most = spec["strategy"]["managed"]["maxUnavailable"]
                assert most == "50%" or most <= spec["eks-managed"]["maxSize"]


def test_the_fresh_world_has_every_groups_last_spec():
    """It is what the events should come to."""
    for seed in range(20):
        one = scenario.generate(seed)
        made = scenario.fresh(one)
        assert made["events"] == [] and set(made["groups"]) <= set(scenario.names(one))
        for event in one["events"]:
            if event["kind"] == "transition" and event is [e for e in one["events"] if e.get("group") == event["group"]][-1]:
                assert made["groups"][event["group"]] == event["to"]


def test_adopted_groups_get_a_generated_spec():
    """Only then the final state can be compared with that of a new group."""
    taken = [one for one in map(scenario.generate, range(50)) if one["taken over"]]
    assert len(taken) > 5
    for one in taken:
        assert one["mode"] != "API" and set(one["taken over"]) <= {event["group"] for event in one["events"] if event["kind"] == "transition"}


def test_a_hundred_seeds_draw_everything():
    """What no seed draws is not covered, whatever the totals say."""
    counted = totals.Totals()
    for seed in range(100):
        counted.add({"name": "x", "scenario": scenario.generate(seed), "failures": [], "times": {}, "reference": True, "is compared": True, "hits": []}, "now")
    found = counted.counts["features"]
    wanted = ["provisioner: eks", "provisioner: eks-managed", "provisioner: eks-fargate", "strategy: rollingUpdate", "strategy: crd", "strategy: managed"]
    wanted += [f"os: {family}" for family in ("amazonlinux2", "amazonlinux2023", "bottlerocket", "windows")]
    wanted += [f"authentication: {mode}" for mode in scenario.MODES] + [f"taken over: {state}" for state in scenario.TAKEN_OVER.values()]
    wanted += ["spot", "mixed: weights", "mixed: instancePool", "eks: warmPool", "eks: roleName", "rollingUpdate: maxSurge", "change: eks -> mixed", "change: mixed -> warm"]
    assert set(wanted) <= set(found)
    assert set(counted.counts["transitions"]) == {"spec", "bad spec", "config", "delete"}


def test_totals_add_up_over_runs(tmp_path):
    """The last 500 lives without a failure may be played on many evenings."""
    one, path = scenario.generate(1), tmp_path / "totals.json"
    result = {"name": "seed-1", "scenario": one, "failures": [], "times": {"seconds": 1.5}, "reference": True, "is compared": True, "hits": []}
    failed = {**result, "failures": [{"oracle": "leaks"}]}
    for each in (result, failed, result):
        counted = totals.Totals.load(path)
        counted.add(each, "now")
        counted.save(path)
    found = totals.Totals.load(path).value()
    assert found["runs"] == {"failed": 1, "passed": 2} and found["failures by oracle"] == {"leaks": 1} and found["runs by revision"] == {"now": 3}
    assert found["lives"]["disturbed"] == 3 * found["in a row without a failure"]["disturbed lives"] > 0
    assert sum(found["transitions"].values()) == 3 * found["in a row without a failure"]["transitions"]


def test_a_perturbation_of_one_group_disturbs_one_life():
    """Otherwise the totals would count groups that no perturbation touched."""
    one = {**scenario.generate(1), "events": [{"kind": "perturbation", "name": "x", "arguments": {"group": "alpha"}}]}
    assert totals.disturbed(one) == {"alpha"}
    one["events"].append({"kind": "perturbation", "name": "y", "arguments": {}})
    assert totals.disturbed(one) == set(scenario.names(one))


def test_the_totals_tell_what_hit_from_what_was_drawn(tmp_path):
    """Faults that no request met, and ends that were not compared, prove nothing."""
    one, path = scenario.generate(1), tmp_path / "totals.json"
    name = sorted(one["groups"])[0]
    drawn = [{"kind": "perturbation", "name": each, "arguments": {"group": name} if each == "x" else {}} for each in ("x", "y")]
    one = {**one, "taken over": {}, "events": [{"kind": "transition", "group": name, "to": one["groups"][name]}, *drawn]}
    counted = totals.Totals()
    result = {"name": "seed-1", "scenario": one, "failures": [], "times": {}, "reference": True, "is compared": True, "hits": drawn[:1]}
    counted.add(result, "now")
    counted.add({**result, "failures": [{"oracle": "the runner"}], "is compared": False, "hits": []}, "now")
    counted.save(path)
    found, groups = totals.Totals.load(path).value(), len(one["groups"])
    assert found["perturbations"] == {"x": 2, "y": 2} and found["perturbations that hit"] == {"x": 1}
    assert found["lives"]["disturbed"] == 2 * groups and found["lives"]["hit"] == 1
    assert found["ends compared"] == {"all": groups, "after transitions": 1}
    assert sum(found["disturbed lives by provisioner"].values()) == 2 * groups


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


class BrokenWorlds:
    """Worlds in which what an event number says happens: the play fails an oracle, or breaks the runner."""

    def judge(self, smaller, _name):
        numbers = {event["number"] for event in smaller["events"]}
        if 3 not in numbers:
            pytest.fail("the cloud did not start")
        return [{"oracle": "leaks"}] if 7 in numbers else [], {}


def test_a_play_that_breaks_the_runner_is_not_the_failure():
    """One assertion in a smaller world must not end the campaign, or pass for the defect that is looked for."""
    events = [{"kind": "wait", "number": number} for number in range(10)]
    smaller = shrink.shrink_scenario(BrokenWorlds(), {"groups": {"alpha": {}}, "events": events}, [{"oracle": "leaks"}], "x", tries=100)
    assert [event["number"] for event in smaller["events"]] == [3, 7]


def test_shrinking_leaves_every_group_with_a_valid_spec():
    """Without the valid spec after a bad one, or the first one after a takeover, the world fails by itself."""
    taken = {"kind": "transition", "group": "plain", "to": {}}
    bad, good = ({"kind": "transition", "group": "alpha", "to": {}, "bad": is_bad} for is_bad in (True, False))

    def scenario_of(*events):
        return {"groups": {"alpha": {}}, "taken over": {"plain": "plain"}, "events": list(events)}

    assert scenario.is_playable(scenario_of(taken, bad, good)) and scenario.is_playable(scenario_of({"kind": "delete", "group": "plain"}))
    assert not scenario.is_playable(scenario_of(taken, bad)) and not scenario.is_playable(scenario_of(bad, good))
    asked = []
    smaller = shrink.shrink(scenario_of(taken, bad, good), lambda smaller: asked.append(smaller) or bad in smaller["events"])
    assert smaller["events"] == [bad, good] and smaller["taken over"] == {} and all(map(scenario.is_playable, asked))


def test_the_roles_that_specs_name_are_made():
    """The name of a group that is taken over has a hyphen. Without its role, the group could never be Ready."""
    text = json.dumps({"roleName": "people-old-way", "nodeRole": "arn:aws:iam::1:role/people-alpha"})
    assert spec_generator.roles_of_people(text) == ["people-alpha", "people-old-way"]
