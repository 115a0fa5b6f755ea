"""Finds, builds and caches the programs and the Python environment of the local cloud.

This module uses only the standard library, because it runs before the environment exists.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

from localcloud.controlplane import processes

HERE = pathlib.Path(__file__).resolve().parent.parent
REPOSITORY = HERE.parent
CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
MIN_KUBERNETES = (1, 30)
MIN_PYTHON = (3, 11)
MIN_GO = (1, 21)
BUILD_SPACE = 4 << 30
# Folder, package and tags of what we build. promtool's own service discovery needs hundreds of modules.
BUILDS = {
    "controlplane": ("programs", ".", ""),
    "kwok": ("programs", "sigs.k8s.io/kwok/cmd/kwok", ""),
    "nodes": ("nodes", ".", ""),
    "promtool": ("promtool", "github.com/prometheus/prometheus/cmd/promtool", "remove_all_sd"),
}
ARGO = "github.com/argoproj/argo-workflows/v3"


class MissingPrerequisite(Exception):
    """A prerequisite that the user must install. The message says what is missing and how to get it."""


_started = time.monotonic()


def log_progress(text):
    """Print one line of progress, with the seconds since the start."""
    print(f"[{time.monotonic() - _started:6.1f}s] {text}", file=sys.stderr, flush=True)


def cache_directory():
    """The cache of built tools. `cargo clean` does not delete it."""
    chosen = os.environ.get("INSTANCE_MANAGER_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(chosen or base) / "instance-manager"


@contextlib.contextmanager
def start_slot():
    """Lets few local clouds of a user start at a time: as many as there are processors.

    Each start keeps a processor busy for seconds. Many at once would take so long together that requests time out.
    """
    count = os.cpu_count() or 1
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as files:
        slots = [files.enter_context(open(directory / f"starting-{number}.lock", "w")) for number in range(count)]
        while not any(map(_try_lock, slots)):
            time.sleep(0.1)
        yield


def _try_lock(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _cache_key(parts):
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else str(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def _lock(name):
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / f"{name}.lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log_progress(f"waiting: another process is building {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _cached(name, make):
    """The directory `name` of the cache. Creates it with `make(temporary directory)` if it does not exist."""
    target = cache_directory() / name
    if target.is_dir():
        return target
    with _lock(name):
        if target.is_dir():
            return target
        temporary = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}.making-", dir=cache_directory()))
        try:
            make(temporary)
            temporary.chmod(0o755)
            temporary.rename(target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target


# --- the Python environment ---------------------------------------------------------------------


def python_environment():
    """The Python of a virtual environment with exactly the pinned packages of requirements.txt."""
    if sys.version_info < MIN_PYTHON:
        raise MissingPrerequisite(
            f"Python {platform.python_version()} is too old: {'.'.join(map(str, MIN_PYTHON))} or newer is needed.\n"
            "  Debian 12 and Ubuntu 24.04 have it: apt-get install python3 python3-venv"
        )
    requirements = HERE / "requirements.txt"
    key = _cache_key([requirements.read_bytes(), platform.python_version(), sys.base_prefix])
    return _cached(f"venv-{key}", lambda directory: _make_environment(directory, requirements)) / "bin" / "python"


def _make_environment(directory, requirements):
    log_progress("creating the Python environment from requirements.txt (once; about a minute)")
    try:
        import ensurepip  # noqa: F401
        import venv
    except ImportError as error:
        raise MissingPrerequisite(
            f"This Python lacks the module {error.name}, which virtual environments require.\n"
            "  Debian and Ubuntu: apt-get install python3-venv"
        ) from error
    venv.create(directory, with_pip=True, symlinks=True)
    command = [directory / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, "--require-hashes", "--requirement", requirements], stdout=sys.stderr)
    if done.returncode:
        raise MissingPrerequisite("pip could not install localcloud/requirements.txt; see its message above.\n"
                      "  It needs a package index: see `pip config list` and PIP_INDEX_URL.")
    # Scripts contain the interpreter's path, which changes when the directory is renamed. `python -m` still works.
    for script in (directory / "bin").iterdir():
        if script.is_file() and not script.is_symlink() and script.read_bytes().startswith(b"#!" + os.fsencode(directory)):
            script.unlink()
    log_progress("the Python environment is ready")


# --- the control plane --------------------------------------------------------------------------


def programs():
    """The command line prefix of each program: an installed one, or our own build."""
    found = _installed_control_plane()
    if found is None:
        binary = str(_build_cached("controlplane") / "controlplane")
        found = {name: [binary, name] for name in CONTROL_PLANE}
    kwok = shutil.which("kwok", path=_search_path())
    found["kwok"] = [kwok or str(_build_cached("kwok") / "kwok")]
    return found


def _search_path():
    return os.pathsep.join(filter(None, [os.environ.get("KUBEBUILDER_ASSETS"), os.environ.get("PATH")]))


def _installed_control_plane():
    """A complete control plane in KUBEBUILDER_ASSETS or on PATH, or None. Programs of two releases are not mixed."""
    found = {name: shutil.which(name, path=_search_path()) for name in CONTROL_PLANE}
    absent = [name for name, path in found.items() if path is None]
    if absent:
        if os.environ.get("KUBEBUILDER_ASSETS"):
            log_progress(f"KUBEBUILDER_ASSETS and PATH have no {', '.join(absent)}: using a control plane of our own build")
        return None
    answer = subprocess.run([found["kube-apiserver"], "--version"], capture_output=True, text=True).stdout
    version = re.search(r"v(\d+)\.(\d+)", answer)
    if version is None or tuple(map(int, version.groups())) < MIN_KUBERNETES:
        log_progress(f"{found['kube-apiserver']} is {answer.strip() or 'of unknown version'}: using our own build")
        return None
    log_progress(f"using {answer.strip()} of {os.path.dirname(found['kube-apiserver'])}")
    return {name: [path] for name, path in found.items()}


def promtool():
    """The path of Prometheus' promtool: an installed one, or our own build."""
    return shutil.which("promtool") or str(_build_cached("promtool") / "promtool")


def node_programs():
    """The program that reads user data with the code of the kubelet and of nodeadm."""
    return str(_build_cached("nodes") / "nodes")


def _build_cached(name):
    source = HERE / "controlplane" / BUILDS[name][0]
    files = sorted(path for path in source.iterdir() if path.name in ("go.mod", "go.sum") or path.suffix == ".go")
    key = _cache_key([name, platform.system(), platform.machine(), *(path.read_bytes() for path in files)])
    return _cached(f"{name}-{key}", lambda directory: _build(name, source, directory))


def _build(name, source, directory):
    go = _go()
    _, package, tags = BUILDS[name]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    free = shutil.disk_usage(directory).free
    if free < BUILD_SPACE:
        log_progress(f"only {free >> 20} MB are free in {cache_directory()}; a first build needs about {BUILD_SPACE >> 30} GB")
    log_progress(f"building {name} from its published Go modules (once; 6 to 8 min on 2 cores, seconds when Go has built it before)")
    listed = subprocess.run([go, "list", "-tags", tags, "-deps", package], cwd=source, env=environment, stdout=subprocess.PIPE, text=True)
    if listed.returncode:
        raise MissingPrerequisite("Go could not fetch the modules; see its message above. It needs a module proxy: see `go env GOPROXY`.")
    flags = "-ldflags=-s -w " + " ".join(_version_flags((source / "go.mod").read_text()))
    command = [go, "build", "-v", "-trimpath", "-buildvcs=false", "-tags", tags, flags, "-o", str(directory / name), package]
    parent = os.getpid()
    build = subprocess.Popen(command, cwd=source, env=environment, stderr=subprocess.PIPE, text=True,
                             preexec_fn=lambda: processes.die_with_parent(parent))
    try:
        build_errors = _show_build_progress(build.stderr, name, len(listed.stdout.split()))
        build.wait()
    finally:
        build.kill()
        build.wait()
    if build.returncode:
        raise MissingPrerequisite(f"`{' '.join(command)}` in {source} failed:\n" + "\n".join(build_errors))
    log_progress(f"{name} is built")


def workflow_definition():
    """The file with the CustomResourceDefinition of Argo's Workflow, from the published module that argo/ pins."""
    source = HERE / "controlplane" / "argo"
    key = _cache_key((source / name).read_bytes() for name in ("go.mod", "go.sum"))
    return _cached(f"argo-{key}", lambda directory: _fetch_argo(source, directory)) / "workflows.yaml"


def _fetch_argo(source, directory):
    version = re.search(rf"{ARGO} (v\S+)", (source / "go.mod").read_text())[1]
    pinned = re.search(rf"{ARGO} {re.escape(version)} (h1:\S+)", (source / "go.sum").read_text())[1]
    log_progress(f"fetching the definition of a Workflow from {ARGO} {version} (once; 9 MB)")
    # A module dependency would also fetch all dependencies of Argo.
    command = [_go(), "mod", "download", "-json", f"{ARGO}@{version}"]
    environment = {**os.environ, "GO111MODULE": "on", "GOWORK": "off"}
    done = subprocess.run(command, cwd=directory, env=environment, stdout=subprocess.PIPE, text=True)
    answer = json.loads(done.stdout or "{}")
    if done.returncode:
        raise MissingPrerequisite(f"Go could not fetch {ARGO} {version}: {answer.get('Error', 'see its message above')}.\n"
                      "  It needs a module proxy: see `go env GOPROXY`.")
    if answer["Sum"] != pinned:
        raise MissingPrerequisite(f"{ARGO} {version} is not what {source / 'go.sum'} pins: {answer['Sum']}")
    shutil.copyfile(pathlib.Path(answer["Dir"]) / "manifests/base/crds/minimal/argoproj.io_workflows.yaml", directory / "workflows.yaml")


def _version_flags(go_mod):
    """Linker flags that set the programs' version, as official builds do."""
    version = re.search(r"^\s*k8s\.io/kubernetes (v(\d+)\.(\d+)\S*)", go_mod, re.MULTILINE)
    if version is None:
        return []
    values = zip(("gitVersion", "gitMajor", "gitMinor"), version.groups())
    return [f"-X k8s.io/component-base/version.{field}={value}" for field, value in values]


def _show_build_progress(lines, name, total):
    """Print the progress of a build. Returns the last lines that are not package names."""
    compiled, shown, build_errors = 0, time.monotonic(), []
    for line in lines:
        if re.fullmatch(r"[\w./~+-]+", line.strip()):
            compiled += 1
        else:
            build_errors = [*build_errors[-30:], line.rstrip()]
        if time.monotonic() - shown > 20:
            shown = time.monotonic()
            log_progress(f"  {name}: {compiled} of at most {total} packages compiled")
    return build_errors


def _go():
    remedy = "  Get it from https://go.dev/dl (unpack to /usr/local/go), or set KUBEBUILDER_ASSETS to a complete control plane."
    go = shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/go/bin"]))
    if go is None:
        raise MissingPrerequisite(f"Go is missing. It is required to build the control plane.\n{remedy}")
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True).stdout.strip()
    version = re.match(r"go(\d+)\.(\d+)", answer)
    if version is None or tuple(map(int, version.groups())) < MIN_GO:
        raise MissingPrerequisite(f"{go} is {answer or 'of unknown version'}; 1.21 or newer is needed (it fetches the release that go.mod names).\n{remedy}")
    return go
