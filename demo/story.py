"""The story that `make demo` tells; run on a local cloud by demo/run."""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import requests

from cloud import BINARY, Cloud, Controller, Failed
from watch import Watch, condition, is_true

HERE = pathlib.Path(__file__).resolve().parent
OLD_IMAGE, NEW_IMAGE = "ami-02100000000000001", "ami-02100000000000002"
PODS, BUDGET = 6, 5

phases = []


@contextlib.contextmanager
def phase(title):
    """Prints a title, and remembers how long what follows took."""
    print(f"\n=== {title}", flush=True)
    began = time.monotonic()
    yield
    phases.append((title, time.monotonic() - began))


def file(name):
    """The text of one of the demo's manifests."""
    return (HERE / name).read_text()


def show(text):
    """Prints a manifest without its comments, indented."""
    for line in text.splitlines():
        if not line.startswith("#"):
            print(f"  | {line}")


def all_ready(groups):
    """Whether every group is converged with ready nodes; a Fargate profile has none."""
    return groups and all(is_true(g, "Ready") and (is_true(g, "NodesReady") or "eks-fargate" in g["spec"]) for g in groups.values())


def set_up(cloud):
    """Namespaces and the admin's boundaries; the CRD and the rights are in the cluster already."""
    print("  crds/ and deploy/rbac.yaml are applied; the controller runs with exactly those rights")
    for namespace in ("team-search", "team-shop"):
        cloud.kubectl("create", "namespace", namespace)
        print(f"  namespace/{namespace} created")
    cloud.make_node_role("demo-managed-nodes")
    cloud.apply(file("boundaries.yaml"))


def create_groups(cloud, watch):
    """Three short resources become nodes."""
    show(file("tenants.yaml"))
    cloud.apply(file("tenants.yaml"))
    groups = watch.until(all_ready, "three groups with ready nodes")
    told = condition(groups["team-shop/api"], "BoundariesApplied")
    if told.get("reason") != "TenantValuesOverridden":
        raise Failed(f"team-shop/api was not told that its image was not used: {told}")
    print(f"  team-shop/api asked for an image that the admin decides, and is told in its condition BoundariesApplied:\n    {told['message']}")


def start_service(cloud, watch):
    """Six pods on the nodes of team-search/web, and a budget of five."""
    cloud.apply(file("workload.yaml"))
    deadline = time.monotonic() + 60
    while len(pods := watch.pods()) < PODS:
        if time.monotonic() > deadline:
            raise Failed(f"the service has {len(pods)} pods ready after 60 s")
        time.sleep(0.2)
    print(f"  {PODS} of {PODS} pods ready, on {len(set(pods))} nodes")


def create_beside(cloud, watch):
    """A managed node group and a Fargate profile, and a pod for the latter."""
    show(file("beside.yaml"))
    cloud.apply(file("beside.yaml"))
    groups = watch.until(lambda groups: len(groups) == 5 and all_ready(groups), "a managed node group and a Fargate profile")
    print(f"  EKS runs the node group {groups['team-shop/batch']['status']['activeScalingGroupName']} for team-shop/batch")
    cloud.apply(file("function.yaml"))
    path = "/api/v1/namespaces/team-search/pods?labelSelector=runs-on%3Dfargate"
    watch.until(lambda _: any(is_true(pod, "Ready") for pod in cloud.items(path)), "a pod on Fargate", header=False)
    print(f"  the pod team-search/resize runs on {cloud.items(path)[0]['spec']['nodeName']}, without a node of anyone's")


def plan(cloud, new):
    """Asks what the new ConfigMap would do; nothing is changed."""
    path = pathlib.Path(cloud.facts["state"]) / "new.yaml"
    path.write_text(new)
    command = [BINARY, "plan", "--config", path, "--all-namespaces"]
    print(f"  - image: {OLD_IMAGE}\n  + image: {NEW_IMAGE}\n  $ instance-manager plan --config new.yaml -A", flush=True)
    done = subprocess.run(command, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        print(f"    {line}")
    if done.returncode != 2:
        raise Failed(f"plan ended with {done.returncode} and not with 2, which says that something would change: {done.stderr}")


def rotate(cloud, watch, new):
    """The one-line change, and what follows from it."""
    before = {name for name, node in cloud.nodes().items()}
    kept = {name for name in before if node_image(cloud.nodes()[name]) != OLD_IMAGE}
    watch.count_from_now()
    cloud.apply(new)

    def rotated(groups):
        nodes = cloud.nodes()
        return all_ready(groups) and not any(node_image(node) == OLD_IMAGE for node in nodes.values()) and len(watch.pods()) == PODS

    watch.until(rotated, "a rotation to the new image")
    after = set(cloud.nodes())
    if not kept <= after:
        raise Failed(f"nodes with another image were replaced: {kept - after}")
    print(f"  {len(before - after)} nodes replaced, {len(before & after)} untouched (Bottlerocket has an image of its own)")
    print(f"  team-search/web: never fewer than {watch.fewest_nodes} of 3 nodes in service (maxUnavailable 1)")
    print(f"  its service: never fewer than {watch.fewest_pods} of {PODS} pods ready (budget {BUDGET}); "
          f"the budget refused {cloud.refused_evictions()} evictions, which were asked again")
    if watch.fewest_nodes < 2 or watch.fewest_pods < BUDGET:
        raise Failed("the rotation took more than it may")


def node_image(node):
    """The image that a node says it runs."""
    return node["metadata"]["labels"].get("instancemgr.keikoproj.io/image")


def delete_group(cloud, watch):
    """One group goes, with everything that was made for it."""
    print("  $ kubectl delete instancegroup api --namespace team-shop")
    cloud.kubectl("delete", "instancegroup", "api", "--namespace", "team-shop", "--wait=false")
    watch.until(lambda groups: "team-shop/api" not in groups, "the end of team-shop/api")
    if "demo-team-shop-api" in cloud.aws_snapshot():
        raise Failed("something of team-shop/api is left in AWS")
    print("  no scaling group, launch template, role or instance profile of it is left in AWS")


def summary(cloud):
    """What was made, what AWS was asked, and how long it took."""
    print("\n=== summary")
    print("  made in AWS: " + ", ".join(f"{count} x {name.removeprefix('Create')}" for name, count in sorted(cloud.created().items())))
    calls = cloud.calls()
    for kind in ("writes", "reads"):
        told = ", ".join(f"{name} {count}" for name, count in calls[kind].items())
        print(textwrap.fill(f"{calls['total'][kind]} {kind}: {told}", 110,
                            initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False))
    for title, seconds in phases:
        print(f"  {seconds:6.1f} s  {title}")
    print(f"  {sum(seconds for _, seconds in phases):6.1f} s  together")


def keep(cloud, controller):
    """Leaves everything running until Ctrl-C or SIGTERM."""
    print(f"\n=== it goes on running until Ctrl-C, or `kill {os.getppid()}`; in another terminal:")
    print(f"  export KUBECONFIG={cloud.facts['kubeconfig']}")
    print(f"  export PATH={pathlib.Path(cloud.facts['kubectl'][0]).parent}:$PATH")
    for name, value in cloud.facts["env"].items():
        print(f"  export {name}={value}")
    print("  kubectl get instancegroups --all-namespaces")
    print("  kubectl describe instancegroup web --namespace team-search")
    print("  kubectl edit configmap instance-manager --namespace instance-manager")
    print(f"  {BINARY} plan --all-namespaces")
    print(f"  # metrics: {controller.url}/metrics, logs: {cloud.facts['logs']}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            controller.check()
            time.sleep(1)


def main():
    parser = argparse.ArgumentParser(prog="demo/run")
    parser.add_argument("--keep", action="store_true", help="leave everything running at the end")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if "DEMO_BUILD_SECONDS" in os.environ:
        phases.append(("building what was not built yet", float(os.environ["DEMO_BUILD_SECONDS"])))
        phases.append(("starting the local cloud", time.time() - float(os.environ["DEMO_STARTED"])))
    cloud = Cloud()
    new = file("boundaries.yaml").replace(OLD_IMAGE, NEW_IMAGE)
    with phase("the admin: CRD, rights, and what all tenants share (demo/boundaries.yaml)"):
        set_up(cloud)
        controller = Controller(cloud)
        controller.wait_ready()
        print("  the controller leads and is ready")
    watch = Watch(cloud, controller)
    with phase("two tenants: three short InstanceGroups become nodes"):
        create_groups(cloud, watch)
    with phase("a tenant's service: 6 pods, of which 5 must always be ready (PodDisruptionBudget)"):
        start_service(cloud, watch)
    with phase("the admin asks what a new image would do; nothing changes yet"):
        plan(cloud, new)
    with phase("the admin changes that one line; nodes rotate, one of each group at a time"):
        rotate(cloud, watch, new)
    with phase("beside them: a node group that AWS manages, and a Fargate profile"):
        create_beside(cloud, watch)
    with phase("a tenant deletes a group; its nodes are drained and nothing of it stays"):
        delete_group(cloud, watch)
    summary(cloud)
    if arguments.keep:
        keep(cloud, controller)
    controller.stop()
    print("  the controller has stopped; everything else ends now")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, requests.RequestException) as failure:
        print(f"\nthe demo failed: {failure}", file=sys.stderr)
        sys.exit(1)
