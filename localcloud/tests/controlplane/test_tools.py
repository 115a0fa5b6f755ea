"""Programs are the user's own, or built once for all; two starts never build the same thing twice."""

import json
import os
import re
import stat
import threading

import pytest

from localcloud.controlplane import tools


def fake_control_plane(directory, version, names=tools.CONTROL_PLANE):
    directory.mkdir()
    for name in names:
        program = directory / name
        program.write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(directory)


@pytest.fixture
def nothing_built(tmp_path, monkeypatch):
    """Shows what would be built, and builds nothing."""
    built = []
    monkeypatch.setenv("INSTANCE_MANAGER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setattr(tools, "_build", lambda name, source, directory: built.append(name))
    return built


def test_a_whole_control_plane_of_the_user_is_used(tmp_path, monkeypatch, nothing_built):
    assets = fake_control_plane(tmp_path / "assets", "v1.33.1", [*tools.CONTROL_PLANE, "kwok"])
    monkeypatch.setenv("KUBEBUILDER_ASSETS", assets)
    assert tools.programs() == {name: [f"{assets}/{name}"] for name in [*tools.CONTROL_PLANE, "kwok"]}
    assert nothing_built == []


@pytest.mark.parametrize(("version", "names"), [("v1.29.9", tools.CONTROL_PLANE), ("v1.33.1", ("etcd", "kube-apiserver", "kubectl"))])
def test_one_that_is_too_old_or_not_whole_is_not(tmp_path, monkeypatch, capsys, nothing_built, version, names):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", fake_control_plane(tmp_path / "assets", version, names))
    found = tools.programs()
    assert nothing_built == ["controlplane", "kwok"]
    assert found["etcd"][1:] == ["etcd"] and str(tmp_path / "cache") in found["etcd"][0]
    assert "our own build" in capsys.readouterr().err


def test_what_is_built_is_kept(nothing_built):
    assert tools.programs() == tools.programs()
    assert nothing_built == ["controlplane", "kwok"]


def test_two_starts_build_once(nothing_built, monkeypatch):
    building, go_on = threading.Event(), threading.Event()

    def build(name, source, directory):
        nothing_built.append(name)
        building.set()
        go_on.wait(60)

    monkeypatch.setattr(tools, "_build", build)
    # A second start, which finds the first one building.
    starts = [threading.Thread(target=tools._built, args=["kwok"]) for _ in range(2)]
    starts[0].start()
    building.wait(60)
    starts[1].start()
    go_on.set()
    for start in starts:
        start.join()
    assert nothing_built == ["kwok"]


def test_a_failed_build_leaves_nothing_in_the_cache(nothing_built, monkeypatch):
    def build(name, source, directory):
        (directory / "half").write_text("")
        raise tools.Missing("no compiler")

    monkeypatch.setattr(tools, "_build", build)
    with pytest.raises(tools.Missing, match="no compiler"):
        tools.programs()
    assert [path.suffix for path in tools.cache_directory().iterdir()] == [".lock"]


@pytest.fixture
def fake_go(tmp_path, monkeypatch, nothing_built):
    """Puts a Go on PATH that knows one module; answers what it was asked for, and how to set the module's hash."""
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


def test_argos_definition_is_fetched_once_and_alone(fake_go):
    """Else every clone would fetch Argo again, or all that Argo is made of, or build the control plane anew."""
    asked, digest = fake_go
    digest(re.search(r" (h1:\S+)", (tools.HERE / "controlplane" / "argo" / "go.sum").read_text())[1])
    first = tools.workflow_definition()
    assert first.read_text() == "kind: CustomResourceDefinition\n" and first == tools.workflow_definition()
    (line,) = asked.read_text().splitlines()
    assert re.fullmatch(rf"mod download -json {tools.ARGO}@v[\d.]+", line)


def test_a_module_that_is_not_the_pinned_one_is_refused(fake_go):
    """Else whoever answers for the module proxy would say what the tests install."""
    _, digest = fake_go
    digest("h1:other")
    with pytest.raises(tools.Missing, match="go.sum pins: h1:other"):
        tools.workflow_definition()
    assert [path.suffix for path in tools.cache_directory().iterdir()] == [".lock"]


def test_missing_go_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(tools.shutil, "which", lambda *_, **__: None)
    with pytest.raises(tools.Missing, match="Go is missing.*\n.*https://go.dev/dl"):
        tools._go()


def test_a_go_that_is_too_old_is_named(tmp_path, monkeypatch):
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go1.19.8\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tools.Missing, match="go1.19.8; 1.21 or newer"):
        tools._go()
