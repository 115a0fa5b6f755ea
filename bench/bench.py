"""Measures AWS calls, time, CPU and memory of the controller: for the creation of 20 groups, then while idle.

Run by `make bench`, which starts a new local cloud. The controller runs with its default delays.
BENCH_PROFILE=release measures target/release instead of target/debug; INSTANCE_MANAGER_BIN selects another binary.
BENCH=features adds one group for each feature (features.yaml). Their number of reads is limited.
BENCH=scale measures the CPU time of one reconcile with 20, 300 and 1,000 groups (BENCH_SCALES).
BENCH=rollout measures one change of the image with and without waves, for 2,000 groups (rollout.py).
BENCH=others measures a managed node group and a Fargate profile instead (others.yaml), reconciled once a minute.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY)]

import requests  # noqa: E402
import yaml  # noqa: E402

from localcloud.tests import support  # noqa: E402
from e2e import harness  # noqa: E402
from localcloud.controlplane import processes  # noqa: E402

GROUPS = int(os.environ.get("BENCH_GROUPS", "2000" if os.environ.get("BENCH") == "rollout" else "20"))
QUIET_SECONDS = int(os.environ.get("BENCH_QUIET_SECONDS", "300"))
TIMEOUT = 1800
API = "/apis/instancemgr.keikoproj.io/v1alpha1/namespaces/bench/instancegroups"
CONTROLLER = "system:serviceaccount:instance-manager:instance-manager"
BENCH = os.environ.get("BENCH", "")
FEATURES, OTHERS, SCALE, ROLLOUT = (BENCH == name for name in ("features", "others", "scale", "rollout"))
SCALES = [int(groups) for groups in os.environ.get("BENCH_SCALES", "20,300,1000").split(",")]
SCALE_GOALS = {"CPU ms a reconcile": 5, "slope": 1.1}
INSTANCE_TYPE_CALLS = ("ec2:DescribeInstanceTypes", "ec2:DescribeInstanceTypeOfferings")
if FEATURES:
    BUILD_GOALS = {"calls per write": 1.1, "instance type calls": 6, "seconds to Ready": 120}
    # One GetParameters call resolves the four image aliases.
    QUIET_GOALS = {"instance type calls": 0, "image look-ups": QUIET_SECONDS // 240 + 1, "CPU ms a reconcile": 5, "writes": 0}
elif OTHERS:
    BUILD_GOALS = {"calls to AWS": 25, "seconds to Ready": 120}
    # One call describes one node group, lists all Fargate profiles, or describes a hundred scaling groups.
    QUIET_GOALS = {"calls per reconcile": 2, "CPU ms a reconcile": 5, "writes": 0}
else:
    BUILD_GOALS = {"calls to AWS": 176, "seconds to Ready": 60, "CPU seconds": 1, "peak memory (MB)": 80}
    QUIET_GOALS = {"calls to AWS": 30, "CPU seconds": 1, "writes": 0}


def binary():
    """The binary to measure."""
    profile = os.environ.get("BENCH_PROFILE", "debug")
    return pathlib.Path(os.environ.get("INSTANCE_MANAGER_BIN") or REPOSITORY / "target" / profile / "instance-manager")


class Controller:
    """The controller with its own ServiceAccount. It stops with this process."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.port = processes.free_port()
        self.log = pathlib.Path(cloud["state"]) / "logs" / "controller.log"
        self.log.unlink(missing_ok=True)
        self.process = self._start()

    def restart(self):
        """Replaces the process, so that nothing that the one before kept in memory counts."""
        self.stop()
        self.process = self._start()
        support.eventually(self.ready, message="the controller to be ready again")

    def _start(self):
        cloud, parent = self.cloud, os.getpid()
        command = [binary(), "--kubeconfig", cloud["controller_kubeconfig"], "--metrics-addr", f"127.0.0.1:{self.port}"]
        command += ["--resync-period", "60s"] if OTHERS else []
        with open(self.log, "a") as log:
            return subprocess.Popen(
                [str(part) for part in command], env=cloud.environment, stdout=log, stderr=log,
                preexec_fn=lambda: processes.die_with_parent(parent),
            )  # fmt: skip

    def ready(self):
        """Whether it is the leader and its caches are synced."""
        if self.process.poll() is not None:
            sys.exit(f"the controller exited with {self.process.returncode}: {self.log.read_text()[-3000:]}")
        try:
            return requests.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5).status_code == 200
        except requests.ConnectionError:
            return False

    def cpu(self):
        """Its CPU time in seconds."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def reconciles(self):
        """Its number of reconciles."""
        return self.metric("controller_runtime_reconcile_total")

    def metric(self, name):
        """The sum of all series of a metric."""
        text = requests.get(f"http://127.0.0.1:{self.port}/metrics", timeout=10).text
        found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, found))

    def peak(self):
        """Its peak resident memory in MB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024 / 1e6

    def stop(self):
        """Stops it."""
        self.process.terminate()
        self.process.wait(60)


def calls(cloud):
    """Calls to AWS since the last reset."""
    return requests.get(f"{cloud['control']}/calls", timeout=10).json()


def kube_writes(cloud, since):
    """The controller's writes to Kubernetes after line `since` of the audit log, without its lease."""
    mine = [e for e in cloud.audit()[since:] if e["user"]["username"] == CONTROLLER]
    return [e for e in mine if e["objectRef"].get("resource") not in ("leases", "selfsubjectaccessreviews")]


def group(number):
    """A group of one node with all other values from the ConfigMap."""
    return {
        "apiVersion": "instancemgr.keikoproj.io/v1alpha1",
        "kind": "InstanceGroup",
        "metadata": {"name": f"group-{number:02}", "namespace": "bench"},
        "spec": {"eks": {"minSize": 1, "maxSize": 1}},
    }


def features():
    """The ConfigMap, and a group for each feature."""
    config, listed = yaml.safe_load_all((REPOSITORY / "bench" / "features.yaml").read_text())
    made = []
    for name, said in listed["groups"].items():
        annotations = {f"instancemgr.keikoproj.io/{key}": value for key, value in said.get("annotations", {}).items()}
        eks = {"minSize": 1, **said.get("eks", {}), "configuration": said.get("configuration", {})}
        spec = {"eks": eks, **({"strategy": said["strategy"]} if "strategy" in said else {})}
        made.append({**group(0), "metadata": {"name": name, "namespace": "bench", "annotations": annotations}, "spec": spec})
    return config, made


def others(cloud):
    """A managed node group with its role, and a Fargate profile."""
    cloud.make_role("bench-managed-nodes")
    return list(yaml.safe_load_all((REPOSITORY / "bench" / "others.yaml").read_text()))


def prepare(cloud):
    """Applies the ConfigMap. Returns the groups to measure and their description."""
    cloud.kubectl("create", "namespace", "bench")
    plain = [group(number) for number in range(GROUPS)]
    if OTHERS:
        return others(cloud), "one managed node group and one Fargate profile"
    if FEATURES:
        config, made = features()
        cloud.kubectl("apply", "-f", "-", text=json.dumps(config))
        return made + plain, f"{len(made + plain)} groups of one node, {len(made)} of them with a feature each"
    cloud.kubectl("apply", "-f", REPOSITORY / "boundaries" / "basic.yaml")
    return plain, f"{len(plain)} groups of one node"


def is_ready(item):
    """Whether a group has the condition Ready."""
    conditions = item.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def build(cloud, controller, groups):
    """Creates the groups and measures until all are Ready."""
    started, cpu = time.monotonic(), controller.cpu()
    for made in groups:
        cloud.create(API, made)
    while waiting := [item for item in cloud.get(API)["items"] if not is_ready(item)]:
        if time.monotonic() - started > TIMEOUT:
            states = {item["metadata"]["name"]: item.get("status", {}).get("conditions") for item in waiting}
            sys.exit(f"not Ready after {TIMEOUT} s: {json.dumps(states, indent=1)}")
        # A list of all groups is work for the API server, which would then measure itself.
        time.sleep(max(0.25, len(groups) / 400))
    seconds = time.monotonic() - started
    return {"seconds to Ready": seconds, "CPU seconds": controller.cpu() - cpu, "peak memory (MB)": controller.peak()}


def quiet(cloud, controller):
    """Measures a period without changes."""
    requests.post(f"{cloud['control']}/reset-log", timeout=10)
    cpu, audited, reconciles = controller.cpu(), len(cloud.audit()), controller.reconciles()
    time.sleep(QUIET_SECONDS)
    counted = calls(cloud)
    reconciles = controller.reconciles() - reconciles
    written = kube_writes(cloud, audited)
    figures = {
        "calls to AWS": counted["total"]["reads"] + counted["total"]["writes"],
        "CPU seconds": controller.cpu() - cpu,
        "writes": counted["total"]["writes"] + len(written),
    }
    figures["calls per reconcile"] = figures["calls to AWS"] / max(reconciles, 1)
    figures["instance type calls"] = sum(counted["reads"].get(name, 0) for name in INSTANCE_TYPE_CALLS)
    figures["image look-ups"] = counted["reads"].get("ssm:GetParameters", 0)
    for event in written:
        print(f"  written: {event['verb']} {event['requestURI']}")
    return figures, counted


def reconcile_cost(cloud, controller, groups):
    """CPU milliseconds per reconcile. Each group is reconciled ten times, after a change of an unrelated annotation."""
    cpu, reconciles = reconcile_all(cloud, controller, groups, turns=10)
    return 1000 * cpu / max(reconciles, 1)


def reconcile_all(cloud, controller, groups, turns):
    """Reconciles each group several times. Returns the CPU seconds and the reconciles of that period."""
    cpu, reconciles = controller.cpu(), controller.reconciles()
    for turn in range(turns):
        for made in groups:
            cloud.patch(f"{API}/{made['metadata']['name']}", {"metadata": {"annotations": {"example.com/bench": f"{cpu}-{turn}"}}})
        time.sleep(1)
    return controller.cpu() - cpu, controller.reconciles() - reconciles


def scale(cloud, controller):
    """Measures reconciles of the same 20 groups while more and more others exist. Returns whether the goals are met.

    The figure is the median of several: other work on the machine makes single ones differ by a quarter.
    """
    sample, costs = [group(number) for number in range(SCALES[0])], []
    for known, total in zip((0, *SCALES), SCALES):
        build(cloud, controller, [group(number) for number in range(known, total)])
        time.sleep(30)
        costs.append(statistics.median(reconcile_cost_beside(cloud, controller, sample) for _ in range(5)))
        print(f"  {total:5} groups: {costs[-1]:.2f} ms of CPU a reconcile, {controller.peak():.0f} MB at most", flush=True)
    figures = {"CPU ms a reconcile": costs[0], "slope": costs[-1] / costs[0]}
    return show(f"one reconcile with {SCALES[0]} to {SCALES[-1]} groups", figures, SCALE_GOALS, {"reads": {}, "writes": {}})


def reconcile_cost_beside(cloud, controller, sample):
    """CPU milliseconds per reconcile of these groups, without what the process uses for all others in the same time."""
    started = time.monotonic()
    busy = reconcile_all(cloud, controller, sample, turns=12)
    duration, idle = time.monotonic() - started, (controller.cpu(), controller.reconciles())
    # Heartbeats of nodes and resyncs of the other groups are no cost of these reconciles.
    time.sleep(duration)
    cpu, reconciles = controller.cpu() - idle[0], controller.reconciles() - idle[1]
    return 1000 * (busy[0] - cpu) / max(busy[1] - reconciles, 1)


def show(title, figures, goals, counted):
    """Prints figures and their goals. Returns whether all goals are met."""
    print(f"\n{title}\n  {'':22} {'measured':>9} {'goal':>6}")
    for name, goal in goals.items():
        print(f"  {name:22} {figures[name]:9.3g} {goal:>6} {'' if figures[name] <= goal else '  MISSED'}")
    for kind in ("reads", "writes"):
        counts = ", ".join(f"{operation} {count}" for operation, count in counted[kind].items())
        print(f"  {kind}: {counts or 'none'}")
    return all(figures[name] <= goal for name, goal in goals.items())


def main():
    sys.modules["bench"] = sys.modules["__main__"]
    cloud = harness.Cloud.shared()
    groups, what = prepare(cloud)
    requests.post(f"{cloud['control']}/reset-log", timeout=10)
    controller = Controller(cloud)
    support.eventually(controller.ready, message="the controller to be ready")
    if SCALE:
        return 0 if scale(cloud, controller) else 1
    if ROLLOUT:
        import rollout

        return 0 if rollout.measure(cloud, controller) else 1
    figures = build(cloud, controller, groups)
    # Count the last calls and writes that follow the change to Ready.
    time.sleep(20)
    counted = calls(cloud)
    figures["calls to AWS"] = counted["total"]["reads"] + counted["total"]["writes"]
    figures["instance type calls"] = sum(counted["reads"].get(name, 0) for name in INSTANCE_TYPE_CALLS)
    figures["calls per write"] = figures["calls to AWS"] / max(counted["total"]["writes"], 1)
    met = show(f"{what}, from nothing to Ready ({binary()})", figures, BUILD_GOALS, counted)
    sys.stdout.flush()
    figures, counted = quiet(cloud, controller)
    figures["CPU ms a reconcile"] = reconcile_cost(cloud, controller, groups) if BENCH else 0
    met &= show(f"{QUIET_SECONDS} idle seconds", figures, QUIET_GOALS, counted)
    controller.stop()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
