"""A controller under test as a process, started by the command of its settings file."""

import os
import pathlib
import signal
import subprocess

import yaml

from localcloud.controlplane import processes

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
SETTINGS = REPOSITORY / "campaign" / "controllers" / "instance-manager.yaml"


def settings(path=None):
    """The settings of a controller: see controllers/instance-manager.yaml."""
    return yaml.safe_load(pathlib.Path(path or os.environ.get("CONTROLLER", SETTINGS)).read_text())


class Controller:
    """One process. It ends with this one."""

    def __init__(self, settings, cloud, kubeconfig, number, log, clock):
        self._cloud, self._log, self._clock = cloud, log, clock
        binary = os.environ.get("INSTANCE_MANAGER_BIN", REPOSITORY / "target" / "debug" / "instance-manager")
        values = {"binary": binary, "kubeconfig": kubeconfig, "port": processes.free_port(), "number": number}
        self.command = [part.format(**values) for part in settings["command"]]
        self._environment = {name: value.format(**values) for name, value in settings.get("environment", {}).items()}
        self.key = "controller" if number == 1 else f"controller{number}"
        """Its AWS access key, by which the simulator's log names it."""
        self.process = None
        self.expected = True
        """Whether it is expected to run until the campaign ends it."""

    def start(self):
        """Starts it; does not wait."""
        parent = os.getpid()
        environment = {**self._cloud.environment, "AWS_ACCESS_KEY_ID": self.key}
        environment.pop("KUBECONFIG", None)
        environment |= self._environment | self._clock.environment
        with open(self._log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, env=environment, stdout=log, stderr=log, preexec_fn=lambda: processes.die_with_parent(parent)
            )
        return self

    def signal(self, number):
        """Sends it a signal if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def end(self, graceful=False):
        """Ends it, at once or as a rollout does."""
        self.signal(signal.SIGTERM if graceful else signal.SIGKILL)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @property
    def running(self):
        """Whether it has not ended."""
        return self.process is not None and self.process.poll() is None
