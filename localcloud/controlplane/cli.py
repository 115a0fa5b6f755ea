"""The command line of localcloud/up."""

import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from localcloud.controlplane import processes, tools
from localcloud.controlplane.tools import log_progress

DESCRIPTION = """\
Starts a cloud on this machine: a real Kubernetes control plane, simulated nodes and
a simulated AWS. Everything listens on free ports of the loopback address only, and
stops with this command. Several clouds can run side by side.

The first start builds the control plane (about 8 minutes on 2 cores) into
${INSTANCE_MANAGER_CACHE:-~/.cache}/instance-manager. Later starts take seconds.
Prerequisites: Linux, Python 3.11 with venv, and Go or KUBEBUILDER_ASSETS. Missing ones are reported.
"""
EXAMPLES = """\
examples:
  localcloud/up                        runs until Ctrl-C; prints the environment for clients
  localcloud/up -- kubectl get nodes   runs as long as the command, whose environment has
                                       kubectl, the tests' Python and the AWS endpoint
"""
MARKER = ".local-cloud"
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Interrupted(Exception):
    """This process received a signal to stop."""

    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


def _arguments(argv):
    parser = argparse.ArgumentParser(
        prog="localcloud/up",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [options] [-- COMMAND...]",
    )
    parser.add_argument("--state", metavar="DIR", type=pathlib.Path,
                        help="directory for its files; the cloud is ready when DIR/cloud.json exists (default: target/local-cloud, or the next free name)")
    parser.add_argument("--delays", choices=("short", "realistic"), default="short",
                        help="delays of instance boot, node registration and termination, and of node failure detection (default: short)")
    parser.add_argument("--node-timeout", metavar="SECONDS", type=int,
                        help="time until a silent node is NotReady; kubelets report four times in it, which thousands of them cannot do in the default time (default: 20, with realistic delays 50)")
    parser.add_argument("--authentication-mode", choices=("CONFIG_MAP", "API_AND_CONFIG_MAP", "API"), default="CONFIG_MAP",
                        help="authentication mode of the EKS cluster: aws-auth, access entries, or both (default: CONFIG_MAP)")
    parser.add_argument("--no-aws", action="store_true", help="start Kubernetes only")
    parser.add_argument("--no-crds", action="store_true", help="do not apply the InstanceGroup CRD")
    parser.add_argument("--prepare", action="store_true", help="build what is missing, print the path of the tests' Python, then exit")
    command = []
    if "--" in argv:
        at = argv.index("--")
        argv, command = argv[:at], argv[at + 1:]
    return parser.parse_args(argv), command


def main(argv):
    """Run localcloud/up. Returns the exit code."""
    arguments, command = _arguments(argv)
    for number in STOP_SIGNALS:
        signal.signal(number, _raise_interrupted)
    try:
        python = tools.python_environment()
        if pathlib.Path(sys.prefix) != python.parent.parent:
            os.execv(python, [str(python), str(tools.HERE / "up"), *argv])
        programs = tools.programs()
        tools.node_programs()
        if arguments.prepare:
            print(python)
            return 0
        return processes.run_supervised(lambda: _start(programs, arguments, command), STOP_SIGNALS)
    except tools.MissingPrerequisite as error:
        print(f"localcloud/up: {error}", file=sys.stderr)
        return 1
    except Interrupted as interrupted:
        return interrupted.exit_code


def _start(programs, arguments, command):
    try:
        with _state_directory(arguments.state) as state:
            return _run(programs, state, arguments, command)
    except (tools.MissingPrerequisite, processes.ProcessExited) as error:
        print(f"localcloud/up: {error}", file=sys.stderr)
        return 1
    except Interrupted as interrupted:
        return interrupted.exit_code


def _raise_interrupted(number, _frame):
    # A second signal must not interrupt the shutdown.
    for each in STOP_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


# --- the state directory ------------------------------------------------------------------------


@contextlib.contextmanager
def _state_directory(chosen):
    """An empty state directory, locked against other local clouds."""
    state, lock = _locked(chosen)
    with lock:
        for path in state.iterdir():
            if path.name != MARKER:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        try:
            yield state
        finally:
            (state / "cloud.json").unlink(missing_ok=True)
            for name in ("etcd", "pki", "kubectl-cache"):
                shutil.rmtree(state / name, ignore_errors=True)


def _locked(chosen):
    if chosen is not None:
        lock = _try_lock(chosen.absolute())
        if lock is None:
            raise tools.MissingPrerequisite(f"another local cloud runs in {chosen}; choose another --state")
        return chosen.absolute(), lock
    number = 1
    while True:
        state = tools.REPOSITORY / "target" / ("local-cloud" if number == 1 else f"local-cloud-{number}")
        if lock := _try_lock(state):
            return state, lock
        number += 1


def _try_lock(state):
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(state.iterdir()) and not (state / MARKER).exists():
        raise tools.MissingPrerequisite(f"{state} contains files that are not a local cloud's; choose an empty --state")
    lock = open(state / MARKER, "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


# --- the cloud ----------------------------------------------------------------------------------


def _run(programs, state, arguments, command):
    from localcloud.controlplane.cluster import Cluster

    log_progress(f"starting a local cloud in {state}")
    children = processes.ChildProcesses(state / "logs")
    try:
        cluster = Cluster(programs, children, state, arguments.delays, arguments.node_timeout)
        with tools.start_slot():
            cluster.start()
            cluster.install_kubectl()
            aws = None if arguments.no_aws else _start_aws(cluster, children, state, arguments)
            controller = cluster.apply_manifests(not arguments.no_crds)
        cloud = _describe(cluster, controller, state)
        if aws is not None:
            cloud.update(_aws_description(aws, children, state))
        _write_json(state / "cloud.json", cloud)
        log_progress("the local cloud is ready")
        return _run_command(command, cloud, state, children) if command else _wait(cloud, children)
    finally:
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        log_progress("stopping the local cloud")
        children.stop()


def _write_json(path, content):
    temporary = path.with_suffix(".tmp")
    temporary.touch(mode=0o600)
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.rename(path)


def _without_aws(environment):
    """The environment without the user's own AWS settings, so that nothing can reach a real account."""
    return {name: value for name, value in environment.items() if not name.startswith("AWS_")}


def _describe(cluster, controller, state):
    return {
        "kubeconfig": str(cluster.kubeconfig),
        "controller_kubeconfig": str(controller),
        "apiserver": cluster.url,
        "admin_token": cluster.tokens["admin"],
        "kubectl": cluster.kubectl,
        "audit_log": str(cluster.audit_log),
        "state": str(state),
        "logs": str(state / "logs"),
        "env": {},
    }


def _start_aws(cluster, children, state, arguments):
    """Start the simulated AWS. Returns its port."""
    port = processes.free_port()
    kube = {"url": cluster.url, "token": cluster.tokens["aws-simulator"], "ca": str(cluster.ca)}
    _write_json(state / "kube.json", kube)
    flags = ["--port", port, "--state", state, "--kubeconfig-json", state / "kube.json", "--delays", arguments.delays]
    flags += ["--authentication-mode", arguments.authentication_mode]
    environment = {**_without_aws(os.environ), "PYTHONPATH": str(tools.REPOSITORY)}
    children.start("aws", [sys.executable, "-m", "localcloud.aws.server", *flags], environment)
    return port


def _aws_description(port, children, state):
    answer = state / "aws.json"
    children.wait_until(answer.exists, "the simulated AWS")
    endpoint = f"http://127.0.0.1:{port}"
    part = {"aws_endpoint": endpoint, "control": f"{endpoint}/_local", **json.loads(answer.read_text())}
    environment = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": part["region"],
        "AWS_DEFAULT_REGION": part["region"],
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
    return {**part, "env": {**environment, **part.get("env", {})}}


def _wait(cloud, children):
    print(f"export KUBECONFIG={cloud['kubeconfig']}")
    print(f"export PATH={pathlib.Path(cloud['kubectl'][0]).parent}:$PATH")
    for name, value in cloud["env"].items():
        print(f"export {name}={value}")
    print(f"# logs and the audit log: {cloud['state']}; Ctrl-C stops the cloud", flush=True)
    while True:
        children.check()
        time.sleep(1)


def _run_command(command, cloud, state, children):
    environment = {
        **_without_aws(os.environ),
        **cloud["env"],
        "KUBECONFIG": cloud["kubeconfig"],
        "KUBECACHEDIR": str(state / "kubectl-cache"),
        "LOCAL_CLOUD": str(state / "cloud.json"),
        "PATH": os.pathsep.join([str(state / "bin"), str(pathlib.Path(sys.prefix) / "bin"), os.environ.get("PATH", os.defpath)]),
    }
    parent = os.getpid()
    try:
        process = subprocess.Popen(command, env=environment, preexec_fn=lambda: processes.die_with_parent(parent))
    except OSError as error:
        raise processes.ProcessExited(f"{command[0]}: {error.strerror}") from error
    try:
        while True:
            children.check()
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(1)
                return code if code >= 0 else 128 - code
    finally:
        _terminate(process)


def _terminate(process, timeout=10):
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
