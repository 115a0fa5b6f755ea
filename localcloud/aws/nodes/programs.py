"""Asks the kubelet and nodeadm whether they would start: their own code, in the program of controlplane/nodes.

The program is started with the first question, and ends with this process.
"""

from __future__ import annotations

import base64
import functools
import json
import subprocess
import threading
from typing import Any

from localcloud.aws.nodes.user_data_error import InvalidUserData
from localcloud.controlplane import tools

_lock = threading.Lock()


@functools.cache
def _process() -> subprocess.Popen[str]:
    return subprocess.Popen([tools.node_programs()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@functools.lru_cache(maxsize=512)
def _ask(question: str) -> dict[str, Any]:
    with _lock:
        process = _process()
        process.stdin.write(question + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())


def _result(program: str, question: dict[str, Any]) -> Any:
    answer = _ask(json.dumps(question))
    if "error" in answer:
        raise InvalidUserData(f"{program}: {answer['error']}")
    return answer["result"]


def kubelet(arguments: list[str], config: dict[str, Any] | None = None) -> dict[str, Any]:
    """The labels, taints and maxPods (None by default) of a kubelet with these arguments and this configuration."""
    return _result("kubelet", {"kubelet": {"arguments": arguments, "config": config}})


def nodeadm(user_data: str) -> dict[str, Any]:
    """The cluster, and the kubelet's flags and config, of the NodeConfig documents in user data."""
    return _result("nodeadm", {"nodeadm": base64.b64encode(user_data.encode()).decode()})
