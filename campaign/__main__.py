"""Runs the campaign: `python -m campaign --help`; `make campaign` starts it with everything that it needs."""

import argparse
import concurrent.futures
import json
import multiprocessing.util
import os
import pathlib
import sys
import time
import traceback

from campaign import controller
from campaign import scenario as scenarios
from campaign.totals import Totals, disturbed, revision
from campaign.worlds import Worlds

SEEDS = pathlib.Path(__file__).parent / "seeds.txt"
REGRESSIONS = pathlib.Path(__file__).parent / "regressions"
"""Scenarios in which a defect was found, shrunk: a seed means something else when perturbations are added."""
_worlds = None
"""The clouds of this worker process."""


def main():
    """Runs seeds or replays; the exit code says whether nothing was wrong."""
    options = parse()
    work = work_of(options)
    directory = pathlib.Path(options.output).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    tally = Tally(directory / "totals.json")
    deadline = time.monotonic() + options.minutes * 60 if options.minutes else None
    with concurrent.futures.ProcessPoolExecutor(options.workers) as executor:
        running = set()
        for name, scenario in work:
            if deadline and time.monotonic() > deadline:
                break
            running.add(executor.submit(run_one, name, scenario, str(directory), options.shrink))
            if len(running) >= options.workers:
                running = tally.take(running, concurrent.futures.FIRST_COMPLETED)
        tally.take(running, concurrent.futures.ALL_COMPLETED)
    tally.report()
    return 1 if tally.now.failed else 0


def parse():
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; with --minutes also those after it")
    parser.add_argument("--count", type=int, default=0, help="how many seeds")
    parser.add_argument("--minutes", type=float, default=0, help="begin no seed after so many minutes")
    parser.add_argument("--fixed", action="store_true", help="the seeds in campaign/seeds.txt, and the scenarios in campaign/regressions")
    parser.add_argument("--replay", nargs="*", default=[], help="files with scenarios")
    parser.add_argument("--undisturbed", action="store_true", help="without perturbations: changes alone")
    parser.add_argument("--only", help="perturbations whose name holds this text")
    parser.add_argument("--shrink", action="store_true", help="shrink what fails")
    parser.add_argument("--workers", type=int, default=int(os.environ.get("WORKERS", "2")))
    parser.add_argument("--output", default=os.environ.get("CAMPAIGN_OUTPUT", "target/campaign"), help="where runs and totals are kept")
    return parser.parse_args()


def work_of(options):
    """(name, scenario) of everything that is to be played."""
    for path in [*options.replay, *(sorted(REGRESSIONS.glob("*.json")) if options.fixed else [])]:
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
        multiprocessing.util.Finalize(None, _worlds.close, exitpriority=10)
    try:
        failures, times = _worlds.judge(scenario, name)
    except BaseException as error:  # pytest's failures are not Exceptions
        if isinstance(error, KeyboardInterrupt):
            raise
        failures, times = [{"oracle": "the stage", "group": None, "what": traceback.format_exc(limit=-6), "lines": []}], {}
    path = pathlib.Path(directory) / f"{name}.json"
    if failures:
        path.write_text(json.dumps(scenario, indent=1))
    else:
        _worlds.forget(name)
    if failures and shrink:
        from campaign.shrink import shrink_scenario

        smaller = shrink_scenario(_worlds, scenario, failures, name)
        path = pathlib.Path(directory) / f"{name}.small.json"
        path.write_text(json.dumps(smaller, indent=1))
    return {"name": name, "scenario": scenario, "failures": failures, "times": times, "replay": str(path)}


class Tally:
    """Takes runs as they end, says how each went, and keeps the totals of this and all earlier times in a file."""

    def __init__(self, path):
        self._path, self._revision = path, revision()
        self.now = Totals()

    def take(self, running, until):
        """Waits for runs and counts them; those that still run."""
        done, rest = concurrent.futures.wait(running, return_when=until)
        for future in done:
            self._take(future.result())
        return rest

    def _take(self, result):
        self.now.add(result, self._revision)
        # Read again: another process may play other seeds into the same directory.
        everything = Totals.load(self._path)
        everything.add(result, self._revision)
        everything.save(self._path)
        describe(result)

    def report(self):
        """Prints the totals."""
        print(self.now.text("totals"), flush=True)
        print(f"--- with all earlier runs: {self._path}", flush=True)


def describe(result):
    """Prints how one run went."""
    scenario, failures = result["scenario"], result["failures"]
    lives, hit = len(scenarios.names(scenario)), len(disturbed(scenario))
    changes = sum(scenarios.transitions(scenario).values())
    print(f"{'FAILED' if failures else 'ok    '} {result['name']}: {lives} groups ({hit} disturbed), {changes} transitions, {result['times']}", flush=True)
    for failure in failures:
        print(f"  {failure['oracle']}, {failure['group'] or 'the world'}: {failure['what']}", flush=True)
        for line in failure["lines"]:
            print(f"    {line}", flush=True)
    if failures:
        print(f"  again: make campaign REPLAY={result['replay']}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
