"""The clouds of one worker, and whole plays on them: a scenario with its references, judged."""

import json
import pathlib
import shutil
import tempfile
import time

from campaign import oracles
from campaign import scenario as scenarios
from campaign.runner import Runner
from e2e.cloud_pool import CloudPool
from localcloud.tests import support


class Worlds:
    """Local clouds for one process, started when they are needed; they end with it."""

    def __init__(self, settings, directory):
        self.settings, self.directory = settings, pathlib.Path(directory)
        self._base = pathlib.Path(tempfile.mkdtemp(prefix="campaign-clouds-"))
        self._started = []
        self._pool = CloudPool(self._start_cloud)
        self._references = {}

    def _start_cloud(self, *flags):
        state = self._base / str(len(self._started))
        log = self._base / f"{len(self._started)}.log"
        process = support.start(flags, state, log)
        self._started.append(process)
        description = state / "cloud.json"
        support.eventually(lambda: description.exists() or process.poll() is not None, support.START_TIMEOUT, f"a local cloud ({log})")
        return support.Cloud(json.loads(description.read_text()), process)

    def close(self):
        """Ends the clouds."""
        for process in self._started:
            if process.poll() is None:
                support.stop(process)
        shutil.rmtree(self._base, ignore_errors=True)

    def play(self, scenario, name):
        """One play of a scenario: its run (see Runner.play), kept as `<name>/run.json`."""
        directory = self.directory / name
        started = time.monotonic()
        run = Runner(self._pool, scenario, self.settings, directory).play()
        run["seconds"] = round(time.monotonic() - started, 1)
        (directory / "run.json").write_text(json.dumps(run, default=str))
        return run

    def reference(self, scenario, name):
        """The run of a scenario without events, played once for each end."""
        wanted = scenarios.fresh(scenario)
        key = json.dumps({**wanted, "seed": None}, sort_keys=True)
        if key not in self._references:
            # Only the last few are asked for again, by variants of one scenario.
            self._references = {key: self.play(wanted, name)}
        return self._references[key]

    def judge(self, scenario, name):
        """Plays a scenario and the world that it should come to. Returns what is wrong, and how long it took."""
        reference = self.reference(scenario, f"{name}-fresh")
        run = self.play(scenario, name)
        failures = oracles.judge(reference) + oracles.judge(run, reference)
        return failures, {"seconds": run["seconds"], "reference": reference["seconds"]}
