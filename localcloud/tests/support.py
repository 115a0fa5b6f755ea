"""Helpers for tests: start a local cloud, send requests to it, and wait for conditions."""

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
import requests

from localcloud.controlplane import processes

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
START_TIMEOUT = 900  # a first start builds the control plane
_thread = threading.local()


def session():
    """This thread's HTTP session. It keeps connections open: a TLS handshake costs more than most requests."""
    if not hasattr(_thread, "session"):
        _thread.session = requests.Session()
        _thread.session.trust_env = False
    return _thread.session


def poll_interval(waited):
    """How long to wait before the next look, given how long a test has waited: 0.15 s at first, 0.5 s after five seconds."""
    return min(0.5, 0.15 + waited / 15)


def eventually(check, timeout=300, message=None):
    """Poll until `check()` is truthy, and return its result. On timeout, fail with its last result: a slow machine takes its time."""
    start = time.monotonic()
    while not (answer := check()):
        waited = time.monotonic() - start
        if waited > timeout:
            pytest.fail(f"{message or 'the expected state'} did not come within {timeout} s; last: {answer!r}")
        time.sleep(poll_interval(waited))
    return answer


class Cloud:
    """A running local cloud. `cloud["aws_endpoint"]` and other keys are the entries of its cloud.json."""

    def __init__(self, description, process=None):
        self._description = description
        self.process = process

    def __getitem__(self, name):
        return self._description[name]

    @property
    def environment(self):
        """The environment of a program that runs as the administrator of this cloud."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        return {**own, **self["env"], "KUBECONFIG": self["kubeconfig"]}

    def kubectl(self, *arguments, text=None):
        """Run kubectl as the administrator, with `text` as its input. Returns its output, or fails with its message."""
        command = [*self["kubectl"], *map(str, arguments)]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        assert done.returncode == 0, f"kubectl {' '.join(map(str, arguments))}: {done.stderr}"
        return done.stdout

    def api(self, method, path, body=None, token=None, content_type="application/json", stream=False):
        """Send one request to the API server, as the administrator unless another `token` is given. With `stream`, the
        body is read later."""
        headers = {"Authorization": f"Bearer {token or self['admin_token']}", "Content-Type": content_type}
        data = None if body is None else json.dumps(body)
        return session().request(method, self["apiserver"] + path, headers=headers, data=data, verify=self.certificate_authority, timeout=120, stream=stream)

    @functools.cached_property
    def certificate_authority(self):
        """The path of the certificate that the API server shows."""
        return json.loads(pathlib.Path(self["kubeconfig"]).read_text())["clusters"][0]["cluster"]["certificate-authority"]

    def get(self, path):
        """The object at `path`, or None if it does not exist."""
        answer = self.api("GET", path)
        if answer.status_code == 404:
            return None
        answer.raise_for_status()
        return answer.json()

    def create(self, path, body):
        """Create an object in the collection `path` and return it."""
        answer = self.api("POST", path, body)
        assert answer.ok, answer.text
        return answer.json()

    def patch(self, path, body):
        """Merge `body` into the object at `path` and return the object."""
        answer = self.api("PATCH", path, body, content_type="application/merge-patch+json")
        assert answer.ok, answer.text
        return answer.json()

    @property
    def controller_token(self):
        """The token of the controller's ServiceAccount."""
        return json.loads(pathlib.Path(self["controller_kubeconfig"]).read_text())["users"][0]["user"]["token"]

    def audit(self):
        """Every write that the API server has responded to, in order."""
        return [json.loads(line) for line in pathlib.Path(self["audit_log"]).read_text().splitlines()]


def start(flags, state, log):
    """Start localcloud/up, which ends with this process. Does not wait until it is ready."""
    parent = os.getpid()
    command = [sys.executable, REPOSITORY / "localcloud" / "up", "--state", state, *flags]
    with open(log, "w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            start_new_session=True,
            preexec_fn=lambda: processes.die_with_parent(parent, signal.SIGTERM),
        )
    return process


def stop(process):
    """Stop a local cloud that `start` returned."""
    process.terminate()
    process.wait(60)
