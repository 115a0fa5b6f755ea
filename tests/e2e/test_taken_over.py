"""A cluster swaps keikoproj/instance-manager for this controller: nothing is replaced, and what changes is in docs/takeover.md.

All groups of a fleet are taken over at once, as in a cluster. Worlds are described in original.py and worlds.py.
"""

import contextlib

import pytest
import yaml

import support
from e2e import harness, original, worlds

pytestmark = pytest.mark.private

NOT_YET = {"warm": "spec.eks.warmPool", "warm_pool": "spec.eks.warmPool"}
"""Worlds whose feature is not there yet, by the row of docs/not-supported.md; they only have to be left alone."""
REPAIRS = {"UpdateAutoScalingGroup", "CreateTags", "TagRole", "TagInstanceProfile", "EnableMetricsCollection", "SuspendProcesses", "PutLifecycleHook"}
"""The calls to AWS that docs/takeover.md lists; of the first, only the pin of a template version."""
CHANGED = (
    "instanceGroup.status", "scalingGroup.LaunchTemplate.Version", "scalingGroup.EnabledMetrics", "scalingGroup.SuspendedProcesses",
    "scalingGroup.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification.Version", "scalingGroup.LifecycleHooks",
    "template.tags", "role.tags", "profile.tags",
)  # fmt: skip
"""What these repairs may change in a snapshot."""


def test_every_world_that_is_not_taken_over_yet_waits_for_a_feature():
    """The list above must not outlive the feature that a world waits for."""
    text = (support.REPOSITORY / "docs" / "not-supported.md").read_text()
    assert {row for row in NOT_YET.values() if f"| `{row}` |" not in text} == set()


def taken_over(group, ours):
    """Whether the controller has said how a group stands."""
    kind = ("Adopted", "True", None) if ours else ("Stalled", "True", "NotSupported")
    return group.is_(*kind) and group.state() in ("Ready", "Error")


def improper(group, before, mark):
    """What a takeover did that it may not do, in words."""
    wrong = [f"call {e['operation']} {e['params']}" for e in group.writes_since(mark) if not repair(e)]
    wrong += [f"write {w}" for w in group.kube_writes_since(mark) if w[:2] != ("patch", "instancegroups/status")]
    changes = original.differences(before, group.snapshot())
    return wrong + [f"{path}: {change}" for path, change in changes.items() if not path.startswith(CHANGED)]


def repair(event):
    """Whether a call is one of the listed repairs."""
    only = {"AutoScalingGroupName", "LaunchTemplate", "MixedInstancesPolicy"}
    return event["operation"] in REPAIRS and (event["operation"] != "UpdateAutoScalingGroup" or set(event["params"]) <= only)


def looked_at(controller, groups):
    """Whether the controller has reconciled each of the groups."""
    text = controller.metrics()
    return all(f'reconcile_success_total{{instancegroup="{g.key}"}}' in text or f'reconcile_fail_total{{instancegroup="{g.key}"' in text for g in groups)


def swap(cloud, start_controller, fleet):
    """Takes a fleet over, twice, then changes each group whose feature is there."""
    groups = list(fleet.values())
    ours = {name: group for name, group in fleet.items() if name.split("/")[0] not in NOT_YET}
    before, mark = {name: group.snapshot() for name, group in fleet.items()}, groups[0].mark()
    first = start_controller(cloud)
    for name, group in fleet.items():
        group.tenant.controller = first
        group.wait(lambda g, name=name: taken_over(g, name in ours), what="its takeover")
    first.stop()
    wrong = {name: improper(group, before[name], mark) for name, group in fleet.items()}

    again = groups[0].mark()
    second = start_controller(cloud)
    support.eventually(lambda: looked_at(second, groups), harness.WAIT, "a look at every group")
    second.stop()
    for name, group in fleet.items():
        wrong[name] += [f"second start: {e['operation']}" for e in group.writes_since(again)]
        wrong[name] += [f"second start: {w}" for w in group.kube_writes_since(again)]
    judged({name: found for name, found in wrong.items() if found})

    third = start_controller(cloud)
    with contextlib.ExitStack() as answering:
        for group in ours.values():
            group.tenant.controller = third
            answering.enter_context(group.hooks_answered())
        rotate(ours)


def judged(wrong):
    """Shows everything that is wrong, of every group."""
    assert wrong == {}, yaml.safe_dump(wrong, width=400)


def rotate(fleet):
    """Changes the instance type of each group and judges the rotations."""
    old = {name: set(group.instances(None)) for name, group in fleet.items()}
    marks = {name: group.mark() for name, group in fleet.items()}
    for group in fleet.values():
        group.patch_spec(instanceType="m5.xlarge", **other_types(group))
    for name, group in fleet.items():
        group.wait(lambda g, name=name: not old[name] & set(g.instances(None)), 2 * harness.WAIT, "new nodes")
        group.wait_ready(nodes=group.desired)
    wrong = {}
    for name, group in fleet.items():
        ended = [e["params"]["InstanceId"] for e in group.events_in_aws() if e.get("operation") == "TerminateInstanceInAutoScalingGroup" and e["status"] < 300]
        found = {
            "versions made but one": made(group, marks[name]) - 1,
            "not terminated once each": sorted(ended) != sorted(old[name]),
            "unavailable beyond one": max(0, group.max_unavailable_seen() - 1),
            "undrained": group.undrained(),
        }
        wrong |= {name: found} if any(found.values()) else {}
    judged(wrong)


def other_types(group):
    """What a mixed group has to change as well: every type of its policy."""
    policy = group.get()["spec"]["eks"]["configuration"].get("mixedInstancesPolicy")
    types = [{"type": kind, "weight": 1} for kind in ("m5.xlarge", "m5a.xlarge")]
    return {"mixedInstancesPolicy": policy | {"instanceTypes": types}} if policy else {}


def made(group, mark):
    """How many template versions were made; the name of one group may be that of another's template, so ids count."""
    calls = group.writes_since(mark)
    versions = [e for e in calls if e["operation"] == "CreateLaunchTemplateVersion" and e["params"]["LaunchTemplateId"] == group.template_id]
    return len(versions) + (group.template is None and len(group.template_versions()))


@pytest.mark.skipif(not original.recordings(), reason="there are no recordings")
def test_what_the_original_was_recorded_to_leave_is_taken_over_without_a_rotation(own_cloud, start_controller):
    """The promise of a swap: an admin who loses nodes by it will not try twice."""
    cloud = own_cloud(config=None)
    named = {name: original.recording(cloud, name) for name in original.recordings()}
    swap(cloud, start_controller, original.load_all(cloud, named))


def test_what_the_original_is_known_to_leave_is_taken_over_without_a_rotation(own_cloud, start_controller, unique):
    """The same for what no recording shows."""
    cloud = own_cloud(config=None)
    site = original.Site.of(cloud, unique)
    named = {f"{name}/{number}": world for name, make in worlds.WORLDS.items() for number, world in enumerate(make(site))}
    swap(cloud, start_controller, original.load_all(cloud, named))
