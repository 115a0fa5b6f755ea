"""Starts simulated AWS processes quickly: imports moto once, and forks a process for each start.

An import of moto takes 2 seconds of CPU time. `ForkServer` is the client, which runs this module as a process.
"""

from __future__ import annotations

import gc
import json
import os
import random
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from localcloud.aws import server
from localcloud.controlplane import processes

SERVICES = ("autoscaling", "ec2", "eks", "iam", "ssm", "sts")
"""The services that the controller and the tests call."""


class ForkServer:
    """A process that forks simulated AWS processes. All of them end with it, and it ends with this process."""

    def __init__(self, environment: dict[str, str], directory: Path) -> None:
        parent = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "localcloud.aws.fork_server"], cwd=directory, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=lambda: processes.die_with_parent(parent),
        )  # fmt: skip

    def start(self, arguments: list[str], log: Path) -> int:
        """Start a simulated AWS with these arguments of server.py, whose output goes to `log`. Return its process id."""
        return self._request("start", arguments=[str(argument) for argument in arguments], log=str(log))

    def is_running(self, process: int) -> bool:
        """Whether a simulated AWS still runs."""
        return self._request("is_running", process=process)

    def stop(self, process: int) -> None:
        """Kill a simulated AWS."""
        self._request("stop", process=process)

    def _request(self, action: str, **parameters: Any) -> Any:
        self._process.stdin.write(json.dumps({"action": action, "parameters": parameters}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


def start(arguments: list[str], log: str) -> int:
    """Fork a simulated AWS."""
    parent = os.getpid()
    process = os.fork()
    if process == 0:
        try:
            run(arguments, log, parent)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    children.add(process)
    return process


def run(arguments: list[str], log: str, parent: int) -> None:
    """Serve in a forked process. Its random identifiers differ from those of other forks."""
    processes.die_with_parent(parent)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for descriptor, target in ((os.open(os.devnull, os.O_RDONLY), 0), (output, 1), (output, 2)):
        os.dup2(descriptor, target)
    from moto.moto_api._internal import mock_random

    random.seed()
    mock_random.seed()
    server.main(arguments)


def is_running(process: int) -> bool:
    """Whether a fork still runs."""
    if process in children and os.waitpid(process, os.WNOHANG) != (0, 0):
        children.remove(process)
    return process in children


def stop(process: int) -> None:
    """Kill a fork."""
    if is_running(process):
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        children.remove(process)


children: set[int] = set()
ACTIONS = {"start": start, "is_running": is_running, "stop": stop}


def preload() -> None:
    """Import what a simulated AWS imports, and load what moto and the simulator read once and keep in memory."""
    server.set_moto_environment()
    server.import_modules()
    from moto.backends import get_backend
    from moto.core.base_backend import AccountSpecificBackend
    from moto.core.utils import get_service_model
    from moto.eks import utils

    from localcloud.aws.iam.operations import managed_policies
    from localcloud.aws.request import rest_routes
    from localcloud.aws.settings import Settings

    # moto's EKS makes a session for each role, which reads the list of partitions again.
    utils.Session = AccountSpecificBackend.get_session
    for service in SERVICES:
        get_service_model(service)
        # The names of its regions. A region with its resources is made by the fork.
        get_backend(service)[Settings.account]
    rest_routes("eks")
    managed_policies()
    # The garbage collector of a fork ignores these objects, so their memory stays shared.
    gc.collect()
    gc.freeze()


def main() -> None:
    """Answer requests from stdin until it is closed."""
    preload()
    for line in sys.stdin:
        request = json.loads(line)
        answer = ACTIONS[request["action"]](**request["parameters"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
