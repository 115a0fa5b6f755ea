"""What has been played and what was wrong: of one run of the campaign, and of all runs in one directory."""

import collections
import json
import pathlib
import subprocess

from campaign import features
from campaign import scenario as scenarios
from campaign.controller import REPOSITORY

SUMS = ("runs", "lives", "transitions", "perturbations", "features", "failures by oracle")
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
        lives = {"disturbed": len(disturbed(scenario)), "all": len(scenarios.names(scenario)), "of references": len(scenarios.fresh(scenario)["groups"]) if result["reference"] else 0}
        changes = scenarios.transitions(scenario)
        self.counts["runs"]["failed" if failures else "passed"] += 1
        self.counts["lives"].update(lives)
        self.counts["transitions"].update(changes)
        self.counts["perturbations"].update(used)
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
                made.counts[name].update(value[name])
            made.row.update(value["in a row without a failure"])
            made.failed, made.seconds = value["failed"], value["seconds"]
            made.revisions.update(value["runs by revision"])
        return made

    def save(self, path):
        """Keeps them, for the next run of the campaign to go on from."""
        pathlib.Path(path).write_text(json.dumps(self.value(), indent=1))


def disturbed(scenario):
    """Names of the groups that a perturbation acted on: one that names no group acts on all."""
    names = set()
    for event in scenario["events"]:
        if event["kind"] == "perturbation":
            group = event["arguments"].get("group")
            names |= {group} if group else set(scenarios.names(scenario))
    return names


def revision():
    """The commit that is checked out, with a `+` if files differ from it."""
    found = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=REPOSITORY, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"
