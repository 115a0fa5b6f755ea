"""A controller's clock can be moved while it runs."""

import os
import subprocess
import sys
import time

from campaign.clock import Clock


def test_a_clock_that_is_moved_is_seen_by_a_process_that_runs(tmp_path):
    """Else the perturbation does nothing, and its runs prove nothing."""
    clock = Clock(tmp_path)
    command = [sys.executable, "-c", "import sys, time\nfor _ in sys.stdin: print(int(time.time()), flush=True)"]
    with subprocess.Popen(command, env={**os.environ, **clock.environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:

        def ahead():
            process.stdin.write("\n")
            return int(process.stdout.readline()) - int(time.time())

        for seconds in (0, 3600, -3600, 0):
            clock.move(seconds)
            assert abs(ahead() - seconds) < 60
        process.stdin.close()
