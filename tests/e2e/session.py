"""Runs a command while one controller runs in the local cloud that LOCAL_CLOUD names.

`localcloud/up -- python -m e2e.session -- python -m pytest ...`, with the repository and tests/ on PYTHONPATH: the command finds the
controller through E2E_CONTROLLER. The exit code is the command's, or 1 when the controller crashed.
"""

import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from e2e import harness  # noqa: E402


def main(argv):
    """Runs the command after `--`; arguments before it go to the controller."""
    at = argv.index("--")
    cloud = harness.Cloud.shared()
    cloud.install()
    # A controller that reads the subnets while this one is made would know it without its attribute.
    harness.ipv6_subnet(cloud)
    log = pathlib.Path(cloud["logs"]) / "instance-manager.log"
    controller = harness.Controller(cloud, [*harness.SHARED_FLAGS, *argv[:at]], log=log, is_kept=True).start()
    try:
        environment = {**os.environ, "E2E_CONTROLLER": json.dumps(controller.describe())}
        code = subprocess.run(argv[at + 1:], env=environment).returncode
    finally:
        has_crashed = controller.stop() is None
    if has_crashed:
        print(f"the controller ended by itself:\n{controller.tail()}", flush=True)
    return code or int(has_crashed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
