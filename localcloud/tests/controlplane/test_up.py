"""localcloud/up starts and stops a cloud, and reports missing prerequisites."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from localcloud.tests.support import REPOSITORY, eventually

UP = [sys.executable, REPOSITORY / "localcloud" / "up"]


def processes_of(state):
    """The command lines of all processes that refer to `state`. Every process of a cloud has a file there."""
    found = []
    for place in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = place.read_bytes()
        except OSError:
            continue  # the process has exited
        if os.fsencode(state) in command:
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def children(pid):
    return list(map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def parts(cloud):
    """The process ids of etcd and the other programs, in the order of their start."""
    return children(children(cloud.process.pid)[0])


def run(*arguments, **environment):
    return subprocess.run([*UP, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environment})


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda how: how.name)
def test_no_process_is_left(private_cloud, how):
    cloud = private_cloud("--no-aws")
    assert len(processes_of(cloud["state"])) >= 7  # the launcher, its child and five programs
    cloud.process.send_signal(how)
    cloud.process.wait()
    eventually(lambda: not processes_of(cloud["state"]))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=lambda how: how.name)
@pytest.mark.parametrize("whom", ["launcher", "its child"])
def test_no_process_of_the_command_is_left(private_cloud, tmp_path, whom, how):
    # The command leaves an orphan in another session.
    script = f"setsid sh -c 'while true; do sleep 0.1; done' {tmp_path}/orphan & exec sleep 1000"
    cloud = private_cloud("--no-aws", "--", "sh", "-c", script)
    eventually(lambda: processes_of(tmp_path / "orphan"))
    os.kill(cloud.process.pid if whom == "launcher" else children(cloud.process.pid)[0], how)
    cloud.process.wait()
    eventually(lambda: not processes_of(cloud["state"]) and not processes_of(tmp_path / "orphan"))


def test_a_cloud_stops_when_one_of_its_programs_exits(private_cloud):
    cloud = private_cloud("--no-aws")
    os.kill(parts(cloud)[0], signal.SIGKILL)
    assert cloud.process.wait(60) == 1
    assert not processes_of(cloud["state"])


def test_a_command_gets_the_environment_and_sets_the_exit_code(tmp_path):
    script = 'kubectl get namespace instance-manager -o name; cat "$LOCAL_CLOUD"; echo; echo "[$AWS_PROFILE]"; exit 7'
    done = run("--no-aws", "--state", tmp_path / "cloud", "--", "sh", "-c", script, AWS_PROFILE="production")
    assert done.returncode == 7, done.stderr
    first, *description, profile = done.stdout.splitlines()
    assert first == "namespace/instance-manager"
    assert json.loads("\n".join(description))["state"] == str(tmp_path / "cloud")
    assert profile == "[]"
    assert not processes_of(tmp_path)


def test_clouds_run_side_by_side_in_different_directories(kubernetes, private_cloud):
    other = private_cloud("--no-aws")
    assert other["apiserver"] != kubernetes["apiserver"]
    assert other.api("GET", "/readyz").ok and kubernetes.api("GET", "/readyz").ok
    refused = run("--no-aws", "--state", other["state"])
    assert refused.returncode == 1 and "another local cloud runs in" in refused.stderr


def test_a_restart_in_the_same_directory_is_a_new_cloud(tmp_path):
    script = "kubectl get namespace first -o name --ignore-not-found; kubectl create namespace first -o name"
    for _ in range(2):
        done = run("--no-aws", "--state", tmp_path, "--", "sh", "-c", script)
        assert done.stdout == "namespace/first\n", done.stderr


def test_foreign_files_are_never_removed(tmp_path):
    (tmp_path / "precious").write_text("data")
    refused = run("--no-aws", "--state", tmp_path)
    assert refused.returncode == 1 and "choose an empty --state" in refused.stderr
    assert (tmp_path / "precious").read_text() == "data"


def test_tokens_are_readable_by_their_owner_only(kubernetes):
    state = pathlib.Path(kubernetes["state"])
    assert state.stat().st_mode & 0o077 == 0
    assert pathlib.Path(kubernetes["controller_kubeconfig"]).stat().st_mode & 0o077 == 0


def test_everything_listens_on_loopback_only(kubernetes):
    listening = [line for line in pathlib.Path("/proc/net/tcp6").read_text().splitlines()[1:] if line.split()[3] == "0A"]
    listening += [line for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:] if line.split()[3] == "0A"]
    inodes = {line.split()[9]: line.split()[1] for line in listening}
    addresses = set()
    for descriptor in (entry for part in parts(kubernetes) for entry in pathlib.Path(f"/proc/{part}/fd").iterdir()):
        link = os.readlink(descriptor) if descriptor.is_symlink() else ""
        addresses.add(inodes.get(link.removeprefix("socket:[").removesuffix("]"), "").rpartition(":")[0])
    assert addresses - {""} == {"0100007F"}


def test_help_describes_the_command():
    done = run("--help")
    assert done.returncode == 0 and "loopback" in done.stdout
