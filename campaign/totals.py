"""What has been played and what was wrong: of one run of the campaign, and of all runs in one directory."""

import collections
import json
import pathlib
import subprocess

from campaign import features
from campaign import scenario as scenarios
from campaign.controller import REPOSITORY

SUMS = (
    "runs", "lives", "disturbed lives by provisioner", "transitions", "ends compared", "perturbations", "perturbations that hit", "features",
    "failures by oracle",
)  # fmt: skip
"""Counters that add up over runs of the campaign."""


class Totals:
    """Counts runs, as `run_one` returns them."""

    def __init__(self):
        self.counts = {name: collections.Counter() for name in SUMS}
        self.row = collections.Counter()
        """Lives and transitions since the last failure."""
        self.failed, self.revisions, self.seconds = [], collections.Counter(), 0.0

    def add(self, result, revision):
        """Counts one run."""
        scenario, failures = result["scenario"], result["failures"]
        used = [event["name"] for event in scenario["events"] if event["kind"] == "perturbation"]
        ends = scenarios.fresh(scenario)["groups"]
        lives = {"disturbed": len(disturbed(scenario)), "hit": len(disturbed(scenario, result["hits"])), "all": len(scenarios.names(scenario))}
        lives["of references"] = len(ends) if result["reference"] else 0
        changes = scenarios.transitions(scenario)
        self.counts["runs"]["failed" if failures else "passed"] += 1
        self.counts["lives"].update(lives)
        self.counts["disturbed lives by provisioner"].update(provisioner_of(scenario, name) for name in disturbed(scenario))
        self.counts["transitions"].update(changes)
        if result["is compared"]:
            changed = {event["group"] for event in scenario["events"] if event["kind"] == "transition"} & set(ends)
            self.counts["ends compared"].update({"all": len(ends), "after transitions": len(changed)})
        self.counts["perturbations"].update(used)
        self.counts["perturbations that hit"].update(event["name"] for event in result["hits"])
        self.counts["features"].update(features.of_scenario(scenario))
        self.counts["failures by oracle"].update({failure["oracle"] for failure in failures})
        if failures:
            self.row.clear()
            self.failed.append(f"{result['name']} at {revision}")
        else:
            self.row.update({"disturbed lives": lives["disturbed"], "transitions": sum(changes.values())})
        self.revisions[revision] += 1
        self.seconds += sum(result["times"].values())

    def value(self):
        """The totals as a JSON value."""
        counted = {name: dict(sorted(counter.items())) for name, counter in self.counts.items()}
        row = {name: self.row[name] for name in ("disturbed lives", "transitions")}
        return {**counted, "in a row without a failure": row, "failed": self.failed, "runs by revision": dict(self.revisions), "seconds": round(self.seconds)}

    def text(self, title):
        """The totals for a reader."""
        return "\n".join([f"--- {title}", *(f"{kind}: {json.dumps(value)}" for kind, value in self.value().items())])

    @classmethod
    def load(cls, path):
        """The totals that `save` wrote, or none."""
        made, path = cls(), pathlib.Path(path)
        if path.exists():
            value = json.loads(path.read_text())
            for name in SUMS:
                made.counts[name].update(value.get(name, {}))
            made.row.update(value["in a row without a failure"])
            made.failed, made.seconds = value["failed"], value["seconds"]
            made.revisions.update(value["runs by revision"])
        return made

    def save(self, path):
        """Keeps them, from which the next run of the campaign continues."""
        pathlib.Path(path).write_text(json.dumps(self.value(), indent=1))


def disturbed(scenario, perturbed=None):
    """Names of the groups that a perturbation acts on: one that names no group acts on all. Of these perturbations, or of all."""
    names = set()
    for event in scenario["events"] if perturbed is None else perturbed:
        if event["kind"] == "perturbation":
            group = event["arguments"].get("group")
            names |= {group} if group else set(scenarios.names(scenario))
    return names


def provisioner_of(scenario, name):
    """The provisioner of a group. One that is deleted as the Keiko controller left it has no spec in the scenario."""
    specs = scenarios.specs(scenario, name)
    return specs[0]["spec"]["provisioner"] if specs else "eks"


def revision():
    """The commit that is checked out, with a `+` if files differ from it."""
    found = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=REPOSITORY, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"
