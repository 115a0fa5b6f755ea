"""Child processes that end with this one, and ports that no other local cloud uses.

This module uses only the standard library.
"""

import ctypes
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# The programs of a cloud get a lower priority than their clients.
NICENESS = 2
# Below Linux's range of ephemeral ports.
PORTS = range(20000, 32000)

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent(parent, with_signal=signal.SIGKILL):
    """Let the kernel signal this process when its parent (process id `parent`) ends. Linux only."""
    if _libc is None:
        return
    _libc.prctl(PR_SET_PDEATHSIG, int(with_signal), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), with_signal)


def run_supervised(work, signals):
    """Run `work` in a child process and return its exit code. No descendant survives if either process is killed.

    Both processes adopt orphaned descendants (Linux). If this process is killed, the child gets SIGTERM. If the child
    is killed, this process kills the remaining descendants. `signals` are forwarded to the child.
    """
    _adopt_orphans()
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        die_with_parent(parent, signal.SIGTERM)
        _adopt_orphans()
        code = 1
        try:
            code = work()
            _end_descendants()
        finally:
            sys.stdout.flush()
            os._exit(code)
    for number in signals:
        signal.signal(number, lambda number, _frame: os.kill(child, number))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for number in signals:
        signal.signal(number, signal.SIG_IGN)
    _end_descendants()
    return code if code >= 0 else 128 - code


def _adopt_orphans():
    if _libc is not None:
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_descendants():
    """Kill the remaining descendants of this process, generation by generation."""
    children = pathlib.Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    while children.exists() and (left := children.read_text().split()):
        for pid in map(int, left):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


class ProcessExited(Exception):
    """A process of the cloud exited unexpectedly. The message contains the end of its log."""


class ChildProcesses:
    """Child processes in the order of their start. They are stopped in the reverse order."""

    def __init__(self, logs):
        self._logs = pathlib.Path(logs)
        self._logs.mkdir(parents=True, exist_ok=True)
        self._running = {}
        self._killable = {}

    def start(self, name, command, environment=None):
        """Start `command` in a new session. Its output goes to `<logs>/<name>.log`."""
        parent = os.getpid()

        def prepare():
            die_with_parent(parent)
            os.nice(NICENESS)

        with open(self._logs / f"{name}.log", "ab") as log:
            self._running[name] = subprocess.Popen(
                [str(part) for part in command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=prepare,
            )

    def start_killable(self, name, command):
        """Start `command`, and start it again whenever it was killed by a signal. Its process id is in `<logs>/<name>.pid`."""
        self._killable[name] = command
        self.start(name, command)
        (self._logs / f"{name}.pid").write_text(str(self._running[name].pid))

    def check(self):
        """Raise `ProcessExited` if a process is no longer running. Start killed ones of `start_killable` again."""
        for name, process in list(self._running.items()):
            if name in self._killable and (process.poll() or 0) < 0:
                self.start_killable(name, self._killable[name])
            elif process.poll() is not None:
                log = self._logs / f"{name}.log"
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                raise ProcessExited(f"{name} exited with {process.returncode}; the end of {log}:\n{tail}")

    def wait_until(self, ready, what, timeout=300):
        """Poll `ready()` until it is true. Fails if a process exits, or after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise ProcessExited(f"{what} was not ready after {timeout} s; see {self._logs}")
            time.sleep(0.05)

    def stop(self, timeout=5):
        """Terminate each process, and kill it after `timeout` seconds. Returns when all have exited."""
        for name in reversed(list(self._running)):
            process = self._running.pop(name)
            process.terminate()
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


_held = []


def free_port():
    """A free TCP port on the loopback address, reserved against other local clouds until this process ends."""
    while True:
        port = random.choice(PORTS)
        hold = socket.socket(socket.AF_UNIX)
        try:
            if sys.platform == "linux":
                hold.bind(f"\0instance-manager-port-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            hold.close()
            continue
        _held.append(hold)
        return port
