"""Runs a command while one controller runs in the local cloud that LOCAL_CLOUD names.

`localcloud/up -- python -m e2e.session -- python -m pytest ...`, with the repository and tests/ on PYTHONPATH: the command finds the
controller through E2E_CONTROLLER. The exit code is the command's. A controller that ends by itself is started again, as its
Deployment would; it fails the session unless it said that it had to restart.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from e2e import harness  # noqa: E402

RESTARTS = ("Lease lost, exiting", "caches cannot follow the API server, exiting")
"""The last words of a controller that a busy machine kept from its Lease, or from its watches, for too long."""


class Kept:
    """A controller that is started, and started again when it ends by itself, until `stop`.

    `crashes` has the end of its log for each time that it ended without one of `RESTARTS`.
    """

    def __init__(self, controller):
        self._controller = controller
        self._is_stopping = False
        self._lock = threading.Lock()
        self.crashes = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self):
        """Starts it, and returns when it is ready."""
        self._controller.start()
        self._thread.start()
        return self

    def stop(self):
        """Ends it."""
        with self._lock:
            self._is_stopping = True
            self._controller.stop()
        self._thread.join()

    def _run(self):
        while True:
            code = self._controller.process.wait()
            with self._lock:
                if self._is_stopping:
                    return
                last = self._controller.tail(count=5)
                print(f"the controller ended by itself with status {code} and is started again:\n{last}", flush=True)
                if not any(words in last for words in RESTARTS):
                    self.crashes.append(last)
                self._controller.start(wait=False)


def main(argv):
    """Runs the command after `--`; arguments before it go to the controller."""
    at = argv.index("--")
    cloud = harness.Cloud.shared()
    cloud.install()
    # A controller that reads the subnets while this one is made would know it without its attribute.
    harness.ipv6_subnet(cloud)
    controller = harness.Controller(cloud, [*harness.SHARED_FLAGS, *argv[:at]], log=pathlib.Path(cloud["logs"]) / "instance-manager.log")
    kept = Kept(controller).start()
    try:
        environment = {**os.environ, "E2E_CONTROLLER": json.dumps(controller.describe())}
        code = subprocess.run(argv[at + 1:], env=environment).returncode
    finally:
        kept.stop()
    return code or bool(kept.crashes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
