"""Runs the campaign: `python -m campaign --help`; `make campaign` starts it with everything that it needs."""

import argparse
import concurrent.futures
import json
import multiprocessing.util
import os
import pathlib
import shutil
import sys
import time
import traceback

from campaign import controller, hits, oracles, rollouts, sweep
from campaign import scenario as scenarios
from campaign.shrink import shrink_scenario
from campaign.totals import Totals, disturbed, revision
from campaign.worlds import Worlds
from localcloud.controlplane import processes

FIXED_WORKERS = 8
"""How many plays of the fixed seeds run at once: most of a play is waiting."""
SEEDS = pathlib.Path(__file__).parent / "seeds.txt"
REGRESSIONS = pathlib.Path(__file__).parent / "regressions"
"""Scenarios in which a defect was found, shrunk: a seed means something else when perturbations are added."""
_worlds = None
"""The clouds of this worker process."""


def main():
    """Runs seeds or replays; the exit code says whether nothing was wrong."""
    options = parse()
    directory = pathlib.Path(options.output).resolve()
    directory.mkdir(parents=True, exist_ok=True)
    tally = Tally(directory / "totals.json")
    deadline = time.monotonic() + options.minutes * 60 if options.minutes else None
    workers = concurrent.futures.ProcessPoolExecutor(options.workers, initializer=processes.die_with_parent, initargs=(os.getpid(),))
    with workers as executor:
        plays = Plays(executor, options, str(directory), tally)
        for name, scenario in sweep.work(plays.play) if options.sweep else work_of(options):
            if deadline and time.monotonic() > deadline:
                break
            plays.begin(name, scenario)
        plays.end()
    tally.report()
    return 1 if tally.now.failed else 0


def parse():
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--seed", type=int, help="the first seed; with --minutes also those after it")
    parser.add_argument("--count", type=int, default=0, help="how many seeds")
    parser.add_argument("--variants", type=int, default=1, help="how often each seed's world is played, each time with other perturbations")
    parser.add_argument("--size", type=int, default=int(os.environ.get("SIZE", "0")), help="how many groups each seed's world has, instead of 7 to 10")
    parser.add_argument("--rollouts", action="store_true", help="worlds in which changes of the ConfigMap reach the groups in waves")
    parser.add_argument("--minutes", type=float, default=0, help="begin no seed after so many minutes")
    parser.add_argument("--fixed", action="store_true", help="the seeds in campaign/seeds.txt, and the scenarios in campaign/regressions")
    parser.add_argument("--sweep", action="store_true", help="a short life of a group of each provisioner, with a kill at each of its writes in turn")
    parser.add_argument("--replay", nargs="*", default=[], help="files with scenarios")
    parser.add_argument("--undisturbed", action="store_true", help="without perturbations: changes alone")
    parser.add_argument("--only", help="perturbations whose name holds this text")
    parser.add_argument("--shrink", action="store_true", help="shrink what fails")
    parser.add_argument("--workers", type=int, default=int(os.environ.get("WORKERS", "0")), help="how many worlds are played at once")
    parser.add_argument("--output", default=os.environ.get("CAMPAIGN_OUTPUT", "target/campaign"), help="where runs and totals are kept")
    options = parser.parse_args()
    options.workers = options.workers or (FIXED_WORKERS if options.fixed else 2)
    return options


def work_of(options):
    """(name, scenario) of everything that is to be played."""
    yield from map(read_scenario, options.replay)
    if options.fixed:
        yield from ((f"seed-{name}", scenario) for name, scenario, _ in fixed_seeds())
        yield from map(read_scenario, sorted(REGRESSIONS.glob("*.json")))
    if options.seed is not None:
        count = options.count or (1_000_000 if options.minutes else 1)
        seeds = range(options.seed, options.seed + count)
    else:
        seeds = []
    for seed in seeds:
        for variant in range(1, options.variants + 1):
            kind = "rollout" if options.rollouts else f"seed-of-{options.size}" if options.size else "seed"
            name = f"{kind}-{seed}" + (f".{variant}" if variant > 1 else "")
            how = {"disturb": not options.undisturbed, "only": options.only, "variant": variant}
            yield name, rollouts.generate(seed, **how) if options.rollouts else scenarios.generate(seed, **how, size=options.size or None)


def fixed_seeds():
    """(name, scenario, its known digest) of everything in campaign/seeds.txt: `2a` is the first half of seed 2."""
    for line in SEEDS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, digest = line.split()
            scenario = scenarios.generate(int(name.rstrip("ab")))
            yield name, scenarios.halves(scenario)["ab".index(name[-1])] if name[-1] in "ab" else scenario, digest


def read_scenario(path):
    """(name, scenario) of a file."""
    return pathlib.Path(path).stem, json.loads(pathlib.Path(path).read_text())


class Plays:
    """Plays scenarios and their references in worker processes, and judges each when both have ended."""

    def __init__(self, executor, options, directory, tally):
        self._executor, self._workers, self._shrink, self._directory, self._tally = executor, options.workers, options.shrink, directory, tally
        self._running, self._open = set(), []
        self._reference = (None, None)
        """The last world without perturbations, and its play: variants of a seed share it."""

    def begin(self, name, scenario):
        """Begins the plays of a scenario, as soon as workers are free."""
        world = scenarios.fresh(scenario)
        is_new = self._reference[0] != world
        if is_new:
            self._reference = (world, self._submit(play_one, f"{name}-fresh", world, self._directory))
        played = self._submit(play_one, name, scenario, self._directory)
        self._open.append((name, scenario, is_new, self._reference[1], played))

    def play(self, name, scenario):
        """The run of a scenario that is not judged. Waits for it."""
        run = self._submit(play_one, name, scenario, self._directory).result()
        assert "broken" not in run, run["broken"]
        shutil.rmtree(pathlib.Path(self._directory) / name)
        return run

    def end(self):
        """Waits for everything that runs, and judges it."""
        while self._open:
            self._wait()

    def _submit(self, *work):
        while len(self._running) >= self._workers:
            self._wait()
        future = self._executor.submit(*work)
        self._running.add(future)
        return future

    def _wait(self):
        _, self._running = concurrent.futures.wait(self._running, return_when=concurrent.futures.FIRST_COMPLETED)
        done = [entry for entry in self._open if entry[3].done() and entry[4].done()]
        self._open = [entry for entry in self._open if entry not in done]
        for name, scenario, is_new, reference, played in done:
            self._tally.take(self._judge(name, scenario, is_new, reference.result(), played.result()))

    def _judge(self, name, scenario, is_new, reference, run):
        broken = [found for found in (reference, run) if "broken" in found]
        if broken:
            failures, times = [{"oracle": "the runner", "group": None, "what": found["broken"], "lines": []} for found in broken], {}
        else:
            of_reference = [{**found, "what": f"in the reference: {found['what']}"} for found in (oracles.judge(reference) if is_new else [])]
            failures = of_reference + oracles.judge(run, reference)
            times = {"seconds": run["seconds"], **({"reference": reference["seconds"]} if is_new else {})}
        path = pathlib.Path(self._directory) / f"{name}.json"
        if failures:
            path.write_text(json.dumps(scenario, indent=1))
        else:
            for played in (name, f"{name}-fresh"):
                shutil.rmtree(path.with_name(played), ignore_errors=True)
        if failures and self._shrink:
            smaller = self._submit(shrink_one, name, scenario, failures, self._directory).result()
            path = path.with_name(f"{name}.small.json")
            path.write_text(json.dumps(smaller, indent=1))
        kills = sum(entry["what"] == "killed" for entry in run.get("journal", ()))
        result = {"name": name, "scenario": scenario, "failures": failures, "times": times, "reference": is_new, "replay": str(path), "kills": kills}
        return {**result, "is compared": not broken, "hits": [] if broken else hits.of_run(run)}


def worlds(directory):
    """The clouds of this worker process."""
    global _worlds
    if _worlds is None:
        _worlds = Worlds(controller.settings(), directory)
        multiprocessing.util.Finalize(None, _worlds.close, exitpriority=10)
    return _worlds


def play_one(name, scenario, directory):
    """Plays one scenario in a worker process; its run, or what broke the runner."""
    try:
        return worlds(directory).play(scenario, name)
    except BaseException as error:  # pytest's failures are not Exceptions
        if isinstance(error, KeyboardInterrupt):
            raise
        return {"broken": traceback.format_exc(limit=-6)}


def shrink_one(name, scenario, failures, directory):
    """Shrinks a scenario that fails in a worker process."""
    return shrink_scenario(worlds(directory), scenario, failures, name)


class Tally:
    """Takes runs as they end, says how each went, and keeps the totals of this and all earlier times in a file."""

    def __init__(self, path):
        self._path, self._revision = path, revision()
        self.now = Totals()

    def take(self, result):
        """Counts a judged run, and prints how it went."""
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
    lives, of_groups = len(scenarios.names(scenario)), len(disturbed(scenario))
    changes = sum(scenarios.transitions(scenario).values())
    print(f"{'FAILED' if failures else 'ok    '} {result['name']}: {lives} groups ({of_groups} disturbed), {changes} transitions, {len(result['hits'])} perturbations that hit, {result['kills']} kills, {result['times']}", flush=True)
    for failure in failures:
        print(f"  {failure['oracle']}, {failure['group'] or 'the world'}: {failure['what']}", flush=True)
        for line in failure["lines"]:
            print(f"    {line}", flush=True)
    if failures:
        print(f"  again: make campaign REPLAY={result['replay']}; with SHRINK=1, it looks for fewer events that fail", flush=True)


if __name__ == "__main__":
    sys.exit(main())
