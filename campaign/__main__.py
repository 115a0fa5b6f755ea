"""Runs the campaign: `python -m campaign --help`; `make campaign` starts it with everything that it needs."""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import sys
import time
import traceback

from campaign import controller, perturbations
from campaign import scenario as scenarios
from campaign.worlds import Worlds

SEEDS = pathlib.Path(__file__).parent / "seeds.txt"
_worlds = None
"""The clouds of this worker process."""


def main():
    """Runs seeds or replays; the exit code says whether nothing was wrong."""
    options = parse()
    work = work_of(options)
    directory = pathlib.Path(options.output).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    totals = Totals()
    deadline = time.monotonic() + options.minutes * 60 if options.minutes else None
    with concurrent.futures.ProcessPoolExecutor(options.workers) as executor:
        running = set()
        for name, scenario in work:
            if deadline and time.monotonic() > deadline:
                break
            running.add(executor.submit(run_one, name, scenario, str(directory), options.shrink))
            if len(running) >= options.workers:
                running = totals.take(running, concurrent.futures.FIRST_COMPLETED)
        totals.take(running, concurrent.futures.ALL_COMPLETED)
    print(totals.text(), flush=True)
    (directory / "totals.json").write_text(json.dumps(totals.value(), indent=1))
    return 1 if totals.failed else 0


def parse():
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; with --minutes also those after it")
    parser.add_argument("--count", type=int, default=0, help="how many seeds")
    parser.add_argument("--minutes", type=float, default=0, help="begin no seed after so many minutes")
    parser.add_argument("--fixed", action="store_true", help="the seeds in campaign/seeds.txt")
    parser.add_argument("--replay", nargs="*", default=[], help="files with scenarios")
    parser.add_argument("--undisturbed", action="store_true", help="without perturbations: changes alone")
    parser.add_argument("--only", help="perturbations whose name holds this text")
    parser.add_argument("--shrink", action="store_true", help="shrink what fails")
    parser.add_argument("--workers", type=int, default=int(os.environ.get("WORKERS", "2")))
    parser.add_argument("--output", default=os.environ.get("CAMPAIGN_OUTPUT", "target/campaign"), help="where runs and totals are kept")
    return parser.parse_args()


def work_of(options):
    """(name, scenario) of everything that is to be played."""
    for path in options.replay:
        yield pathlib.Path(path).stem, json.loads(pathlib.Path(path).read_text())
    if options.fixed:
        seeds = [int(line.split()[0]) for line in SEEDS.read_text().splitlines() if line.strip() and not line.startswith("#")]
    elif options.seed is not None:
        count = options.count or (1_000_000 if options.minutes else 1)
        seeds = range(options.seed, options.seed + count)
    else:
        seeds = []
    for seed in seeds:
        yield f"seed-{seed}", scenarios.generate(seed, disturb=not options.undisturbed, only=options.only)


def run_one(name, scenario, directory, shrink):
    """Plays one scenario in a worker process; what came of it."""
    global _worlds
    if _worlds is None:
        _worlds = Worlds(controller.settings(), directory)
    try:
        failures, times = _worlds.judge(scenario, name)
    except BaseException as error:  # pytest's failures are not Exceptions
        if isinstance(error, KeyboardInterrupt):
            raise
        failures, times = [{"oracle": "the stage", "group": None, "what": traceback.format_exc(limit=-6), "lines": []}], {}
    path = pathlib.Path(directory) / f"{name}.json"
    path.write_text(json.dumps(scenario, indent=1))
    if failures and shrink:
        from campaign.shrink import shrink_scenario

        smaller = shrink_scenario(_worlds, scenario, failures, name)
        path = pathlib.Path(directory) / f"{name}.small.json"
        path.write_text(json.dumps(smaller, indent=1))
    return {"name": name, "scenario": scenario, "failures": failures, "times": times, "replay": str(path)}


class Totals:
    """What has been played, and what was wrong."""

    def __init__(self):
        self.begun = time.monotonic()
        self.counts = collections.defaultdict(collections.Counter)
        self.failed, self.in_a_row = [], 0

    def take(self, running, until):
        """Waits for runs and counts them; those that still run."""
        done, rest = concurrent.futures.wait(running, return_when=until)
        for future in done:
            self.add(future.result())
        return rest

    def add(self, result):
        """Counts one run, and says how it went."""
        scenario, failures = result["scenario"], result["failures"]
        used = [event["name"] for event in scenario["events"] if event["kind"] == "perturbation"]
        lives = len(scenario["groups"])
        self.counts["runs"]["failed" if failures else "passed"] += 1
        self.counts["lives"]["disturbed" if used else "undisturbed"] += lives
        self.counts["lives"]["of references"] += lives
        self.counts["transitions"]["all"] += scenarios.transitions(scenario)
        self.counts["perturbations"].update(used)
        self.counts["provisioners"].update(group["spec"]["provisioner"] for group in scenario["groups"].values())
        self.counts["failures by oracle"].update({failure["oracle"] for failure in failures})
        self.in_a_row = 0 if failures else self.in_a_row + lives
        print(f"{'FAILED' if failures else 'ok    '} {result['name']}: {lives} groups, {scenarios.transitions(scenario)} transitions, "
              f"{len(used)} perturbations, {result['times']}", flush=True)  # fmt: skip
        for failure in failures:
            print(f"  {failure['oracle']}, {failure['group'] or 'the world'}: {failure['what']}", flush=True)
            for line in failure["lines"]:
                print(f"    {line}", flush=True)
        if failures:
            self.failed.append(result["name"])
            print(f"  again: make campaign REPLAY={result['replay']}", flush=True)

    def value(self):
        """The totals as a JSON value."""
        counted = {kind: dict(sorted(counter.items())) for kind, counter in sorted(self.counts.items())}
        return {**counted, "failed": self.failed, "lives in a row without a failure": self.in_a_row, "minutes": round((time.monotonic() - self.begun) / 60, 1)}

    def text(self):
        """The totals for a reader."""
        return "\n".join(["--- totals", *(f"{kind}: {json.dumps(value)}" for kind, value in self.value().items())])


if __name__ == "__main__":
    sys.exit(main())
