"""Programs are taken from the user's installation, or built once and cached."""

import json
import os
import re
import stat
import threading

import pytest

from localcloud.controlplane import tools
from localcloud.tests.support import eventually


def fake_control_plane(directory, version, names=tools.CONTROL_PLANE):
    directory.mkdir()
    for name in names:
        program = directory / name
        program.write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(directory)


@pytest.fixture
def nothing_built(tmp_path, monkeypatch):
    """Records which programs would be built, and builds none."""
    built = []
    monkeypatch.setenv("INSTANCE_MANAGER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(tools, "_build", lambda name, source, directory: built.append(name))
    return built


def test_a_complete_installed_control_plane_is_used(tmp_path, monkeypatch, nothing_built):
    assets = fake_control_plane(tmp_path / "assets", "v1.33.1", [*tools.CONTROL_PLANE, "kwok"])
    monkeypatch.setenv("KUBEBUILDER_ASSETS", assets)
    assert tools.programs() == {name: [f"{assets}/{name}"] for name in [*tools.CONTROL_PLANE, "kwok"]}
    assert nothing_built == []


@pytest.mark.parametrize(("version", "names"), [("v1.29.9", tools.CONTROL_PLANE), ("v1.33.1", ("etcd", "kube-apiserver", "kubectl"))])
def test_an_old_or_incomplete_control_plane_is_not_used(tmp_path, monkeypatch, capsys, nothing_built, version, names):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", fake_control_plane(tmp_path / "assets", version, names))
    found = tools.programs()
    assert nothing_built == ["controlplane", "kwok"]
    assert found["etcd"][1:] == ["etcd"] and str(tmp_path / "cache") in found["etcd"][0]
    assert "our own build" in capsys.readouterr().err


def test_builds_are_cached(nothing_built):
    assert tools.programs() == tools.programs()
    assert nothing_built == ["controlplane", "kwok"]


def test_concurrent_starts_build_once(nothing_built, monkeypatch):
    building, go_on = threading.Event(), threading.Event()

    def build(name, source, directory):
        nothing_built.append(name)
        building.set()
        go_on.wait(60)

    lock, at_lock = tools._lock, []

    def counted_lock(name):
        at_lock.append(name)
        return lock(name)

    monkeypatch.setattr(tools, "_build", build)
    monkeypatch.setattr(tools, "_lock", counted_lock)
    # The second start waits for the build of the first one.
    starts = [threading.Thread(target=tools._build_cached, args=["kwok"]) for _ in range(2)]
    starts[0].start()
    building.wait(60)
    starts[1].start()
    eventually(lambda: len(at_lock) == 2, message="the second start at the lock")
    go_on.set()
    for start in starts:
        start.join()
    assert nothing_built == ["kwok"]


def test_a_failed_build_leaves_nothing_in_the_cache(nothing_built, monkeypatch):
    def build(name, source, directory):
        (directory / "half").write_text("")
        raise tools.MissingPrerequisite("no compiler")

    monkeypatch.setattr(tools, "_build", build)
    with pytest.raises(tools.MissingPrerequisite, match="no compiler"):
        tools.programs()
    assert [path.suffix for path in tools.cache_directory().iterdir()] == [".lock"]


@pytest.fixture
def fake_go(tmp_path, monkeypatch, nothing_built):
    """Puts a fake Go on PATH that serves one module. Returns the file of its calls, and a function to set the module's
    hash.
    """
    module, asked, answer = tmp_path / "module", tmp_path / "asked", tmp_path / "answer"
    definition = module / "manifests" / "base" / "crds" / "minimal" / "argoproj.io_workflows.yaml"
    definition.parent.mkdir(parents=True)
    definition.write_text("kind: CustomResourceDefinition\n")
    go = tmp_path / "go"
    go.write_text(f'#!/bin/sh\n[ "$1" = env ] && echo go1.26.0 && exit\necho "$*" >>{asked}\ncat {answer}\n')
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")
    asked.touch()
    return asked, lambda digest: answer.write_text(json.dumps({"Sum": digest, "Dir": str(module)}))


def test_the_workflow_crd_is_fetched_once_without_dependencies(fake_go):
    """The module is not fetched again for each clone, nor with its dependencies, and the control plane is not rebuilt."""
    asked, digest = fake_go
    digest(re.search(r" (h1:\S+)", (tools.HERE / "controlplane" / "argo" / "go.sum").read_text())[1])
    first = tools.workflow_definition()
    assert first.read_text() == "kind: CustomResourceDefinition\n" and first == tools.workflow_definition()
    (line,) = asked.read_text().splitlines()
    assert re.fullmatch(rf"mod download -json {tools.ARGO}@v[\d.]+", line)


def test_a_module_with_another_hash_is_rejected(fake_go):
    """A module proxy cannot change what the tests install."""
    _, digest = fake_go
    digest("h1:other")
    with pytest.raises(tools.MissingPrerequisite, match="go.sum pins: h1:other"):
        tools.workflow_definition()
    assert [path.suffix for path in tools.cache_directory().iterdir()] == [".lock"]


def test_missing_go_is_reported_with_the_remedy(monkeypatch):
    monkeypatch.setattr(tools.shutil, "which", lambda *_, **__: None)
    with pytest.raises(tools.MissingPrerequisite, match="Go is missing.*\n.*https://go.dev/dl"):
        tools._go()


def test_an_old_go_is_reported(tmp_path, monkeypatch):
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.19.8\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tools.MissingPrerequisite, match="go1.19.8; 1.21 or newer"):
        tools._go()
