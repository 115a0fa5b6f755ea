"""The scenario of `make demo`; demo/run starts it on a local cloud."""

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
from watch import Watch, condition, group_of, is_true

HERE = pathlib.Path(__file__).resolve().parent
OLD_IMAGE, NEW_IMAGE, THIRD_IMAGE = "ami-02100000000000001", "ami-02100000000000002", "ami-02100000000000003"
REVISIONS = "/apis/instancemgr.keikoproj.io/v1alpha1/namespaces/instance-manager/boundariesrevisions"
PODS, BUDGET = 6, 5

phases = []


@contextlib.contextmanager
def phase(title):
    """Prints a title and records how long the block takes."""
    print(f"\n=== {title}", flush=True)
    began = time.monotonic()
    yield
    phases.append((title, time.monotonic() - began))


def file(name):
    """Reads one of the demo's manifests."""
    return (HERE / name).read_text()


def show(text):
    """Prints a manifest without its comments, indented."""
    for line in text.splitlines():
        if not line.startswith("#"):
            print(f"  | {line}")


def all_ready(groups):
    """Whether every group has converged with ready nodes; a Fargate profile has no nodes."""
    return groups and all(is_true(g, "Ready") and (is_true(g, "NodesReady") or "eks-fargate" in g["spec"]) for g in groups.values())


def set_up(cloud):
    """Creates namespaces and boundaries; the local cloud has applied the CRD and RBAC already."""
    print("  crds/ and deploy/rbac.yaml are applied; the controller runs with exactly these permissions")
    for namespace in ("team-search", "team-shop"):
        cloud.kubectl("create", "namespace", namespace)
        print(f"  namespace/{namespace} created")
    cloud.make_node_role("demo-managed-nodes")
    cloud.apply(file("boundaries.yaml"))


def create_groups(cloud, watch):
    """Applies three short InstanceGroups and waits for their nodes."""
    show(file("tenants.yaml"))
    cloud.apply(file("tenants.yaml"))
    groups = watch.until(all_ready, "three groups with ready nodes")
    applied = condition(groups["team-shop/api"], "BoundariesApplied")
    if applied.get("reason") != "TenantValuesOverridden":
        raise Failed(f"team-shop/api does not report that its image is ignored: {applied}")
    print("  team-shop/api sets an image, which the admin restricts; its condition BoundariesApplied reports:\n"
          f"    {applied['message']}")


def start_service(cloud, watch):
    """Starts six pods on the nodes of team-search/web, with a PodDisruptionBudget of five."""
    cloud.apply(file("workload.yaml"))
    deadline = time.monotonic() + 60
    while len(pods := watch.pods()) < PODS:
        if time.monotonic() > deadline:
            raise Failed(f"the service has only {len(pods)} ready pods after 60 s")
        time.sleep(0.2)
    print(f"  {PODS} of {PODS} pods are ready, on {len(set(pods))} nodes")


def create_aws_managed(cloud, watch):
    """Creates a managed node group, a Fargate profile, and a pod that runs on Fargate."""
    show(file("aws-managed.yaml"))
    cloud.apply(file("aws-managed.yaml"))

    def created(groups):
        own = {name: groups[name] for name in ("team-shop/batch", "team-search/functions") if name in groups}
        return len(own) == 2 and all_ready(own)

    groups = watch.until(created, "a managed node group and a Fargate profile")
    print(f"  team-shop/batch is a managed node group with the scaling group {groups['team-shop/batch']['status']['activeScalingGroupName']}")
    cloud.apply(file("function.yaml"))
    path = "/api/v1/namespaces/team-search/pods?labelSelector=runs-on%3Dfargate"
    watch.until(lambda _: any(is_true(pod, "Ready") for pod in cloud.items(path)), "a pod on Fargate", header=False)
    print(f"  pod team-search/resize runs on Fargate, without an EC2 node: {cloud.items(path)[0]['spec']['nodeName']}")


def plan(cloud, new, old_image, new_image):
    """Prints what the new ConfigMap would change, and returns that; nothing is changed yet."""
    path = pathlib.Path(cloud.facts["state"]) / "new.yaml"
    path.write_text(new)
    command = [BINARY, "plan", "--config", path, "--all-namespaces"]
    print(f"  - image: {old_image}\n  + image: {new_image}\n  $ instance-manager plan --config new.yaml -A", flush=True)
    done = subprocess.run(command, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        print(f"    {line}")
    if done.returncode != 2:
        raise Failed(f"plan exited with {done.returncode}; expected 2, because something would change: {done.stderr}")
    return done.stdout


def rotate(cloud, watch, new):
    """Applies the one-line change and follows the rotation."""
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
    print(f"  {len(before - after)} nodes replaced, {len(before & after)} kept (Bottlerocket has its own image)")
    print(f"  team-search/web: at least {watch.fewest_nodes} of 3 nodes were in service at all times (maxUnavailable 1)")
    print(f"  its service: at least {watch.fewest_pods} of {PODS} pods were ready at all times (budget {BUDGET}); "
          f"{cloud.blocked_evictions()} evictions were blocked by the budget and retried")
    if watch.fewest_nodes < 2 or watch.fewest_pods < BUDGET:
        raise Failed("the rotation exceeded maxUnavailable or the PodDisruptionBudget")


def node_image(node):
    """The image of a node, from its label."""
    return node["metadata"]["labels"].get("instancemgr.keikoproj.io/image")


def group_images(cloud, group):
    """The images of the nodes of a group."""
    return {node_image(node) for node in cloud.nodes().values() if group_of(node) == group}


def with_waves(image):
    """The ConfigMap with an image and the policy of demo/rollout.yaml."""
    patience = "maxUnavailable: 1\n          joinTimeout: 10s"
    text = file("boundaries.yaml").replace(OLD_IMAGE, image).replace("maxUnavailable: 1", patience)
    return text + "  rollout: |\n" + textwrap.indent(file("rollout.yaml"), "    ")


def rollout(*arguments):
    """Prints a command about the rollout and its output."""
    print(f"  $ instance-manager rollout {' '.join(arguments)}", flush=True)
    done = subprocess.run([BINARY, "rollout", *arguments], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        print(f"    {line}")
    if done.returncode != 0:
        raise Failed(f"rollout {' '.join(arguments)}: {done.stderr}")


def newest_phase(cloud):
    """The phase of the newest revision of the boundaries."""
    newest = max(cloud.items(REVISIONS), key=lambda item: item["spec"]["number"])
    return newest.get("status", {}).get("phase")


def stop_bad_change(cloud, watch):
    """A bad image halts in the canary, which returns by itself; no other tenant is touched."""
    show(file("rollout.yaml"))
    cloud.kubectl("label", "namespace", "team-shop", "rollout/wave=canary")
    cloud.apply(with_waves(NEW_IMAGE))
    watch.until(lambda groups: all_ready(groups) and newest_phase(cloud) == "Complete", "the policy")
    nodes = {name for name, node in cloud.nodes().items() if group_of(node) == "web"}
    bad = cloud.facts["amis"]["broken_never_joins"]
    print(f"  - image: {NEW_IMAGE}\n  + image: {bad}, whose nodes never join", flush=True)
    cloud.apply(with_waves(bad))
    watch.until(lambda groups: newest_phase(cloud) == "Halted" and all_ready(groups), "the halt and the way back")
    if nodes != {name for name, node in cloud.nodes().items() if group_of(node) == "web"}:
        raise Failed("the bad image reached another tenant")
    if group_images(cloud, "api") != {NEW_IMAGE}:
        raise Failed(f"team-shop/api did not return to {NEW_IMAGE} from the bad image: {group_images(cloud, 'api')}")
    rollout("status")


def roll_out(cloud, watch):
    """The corrected change reaches the groups in waves, as `plan` shows. A tenant defers it, and then ends the deferral."""
    corrected = with_waves(THIRD_IMAGE)
    if "reaches the groups in waves" not in plan(cloud, corrected, cloud.facts["amis"]["broken_never_joins"], THIRD_IMAGE):
        raise Failed("plan does not show the waves of the rollout")
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    print(f"  team-search defers it: kubectl annotate namespace team-search instancemgr.keikoproj.io/defer-until={until}")
    cloud.kubectl("annotate", "namespace", "team-search", f"instancemgr.keikoproj.io/defer-until={until}")
    cloud.apply(corrected)
    watch.until(
        lambda groups: newest_phase(cloud) == "Complete" and all_ready(groups) and group_images(cloud, "api") == {THIRD_IMAGE},
        "the end of the rollout",
    )
    if group_images(cloud, "web") != {NEW_IMAGE}:
        raise Failed(f"team-search/web did not keep {NEW_IMAGE}, although its tenant deferred the change: {group_images(cloud, 'web')}")
    rollout("status")
    rollout("history")
    print("  team-search ends the deferral: kubectl annotate namespace team-search instancemgr.keikoproj.io/defer-until-")
    cloud.kubectl("annotate", "namespace", "team-search", "instancemgr.keikoproj.io/defer-until-")


def take_deferred(cloud, watch):
    """The nodes of the tenant that deferred the change have been replaced as well."""
    watch.until(
        lambda groups: all_ready(groups) and group_images(cloud, "web") == {THIRD_IMAGE} and len(watch.pods()) == PODS,
        "the change that team-search deferred",
    )
    print(f"  team-search/web runs {THIRD_IMAGE}: the change has reached every group")


def delete_group(cloud, watch):
    """Deletes one group and checks that nothing of it is left in AWS."""
    print("  $ kubectl delete instancegroup api --namespace team-shop")
    cloud.kubectl("delete", "instancegroup", "api", "--namespace", "team-shop", "--wait=false")
    watch.until(lambda groups: "team-shop/api" not in groups, "the deletion of team-shop/api")
    if "demo-team-shop-api" in cloud.aws_snapshot():
        raise Failed("resources of team-shop/api are left in AWS")
    print("  its scaling group, launch template, role and instance profile are deleted in AWS")


def summary(cloud):
    """Prints the created resources, the AWS calls, and the duration of each phase."""
    print("\n=== summary")
    print("  created in AWS: " + ", ".join(f"{count} x {name.removeprefix('Create')}" for name, count in sorted(cloud.created().items())))
    calls = cloud.calls()
    for kind in ("writes", "reads"):
        counts = ", ".join(f"{name} {count}" for name, count in calls[kind].items())
        print(textwrap.fill(f"{calls['total'][kind]} {kind}: {counts}", 110,
                            initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False))
    for title, seconds in phases:
        print(f"  {seconds:6.1f} s  {title}")
    print(f"  {sum(seconds for _, seconds in phases):6.1f} s  in total")


def keep(cloud, controller):
    """Keeps everything running until Ctrl-C or SIGTERM."""
    print(f"\n=== running until Ctrl-C or `kill {os.getppid()}`; in another terminal:")
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
    parser.add_argument("--keep", action="store_true", help="keep everything running at the end")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if "DEMO_BUILD_SECONDS" in os.environ:
        phases.append(("building", float(os.environ["DEMO_BUILD_SECONDS"])))
        phases.append(("starting the local cloud", time.time() - float(os.environ["DEMO_STARTED"])))
    cloud = Cloud()
    new = file("boundaries.yaml").replace(OLD_IMAGE, NEW_IMAGE)
    with phase("admin: CRD, RBAC and boundaries (demo/boundaries.yaml)"):
        set_up(cloud)
        controller = Controller(cloud)
        controller.wait_ready()
        print("  the controller is the leader and ready")
    watch = Watch(cloud, controller)
    with phase("two tenants: three short InstanceGroups become nodes"):
        create_groups(cloud, watch)
    with phase("tenant: a service of 6 pods, of which 5 must stay ready (PodDisruptionBudget)"):
        start_service(cloud, watch)
    with phase("admin: preview a new image; nothing changes yet"):
        plan(cloud, new, OLD_IMAGE, NEW_IMAGE)
    with phase("admin: change that one line; nodes rotate, one at a time in each group"):
        rotate(cloud, watch, new)
    with phase("admin: a bad image, with waves: it halts in the canary, which returns by itself"):
        stop_bad_change(cloud, watch)
    with phase("admin: the corrected image reaches the groups in waves; a tenant defers it"):
        roll_out(cloud, watch)
    with phase("two tenants: a managed node group and a Fargate profile"):
        create_aws_managed(cloud, watch)
    with phase("tenant: delete a group; its nodes are drained and nothing is left in AWS"):
        delete_group(cloud, watch)
    with phase("tenant: the nodes take the image whose deferral ended, one at a time"):
        take_deferred(cloud, watch)
    summary(cloud)
    if arguments.keep:
        keep(cloud, controller)
    controller.stop()
    print("  the controller has stopped; the local cloud stops now")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Failed, requests.RequestException) as failure:
        print(f"\nthe demo failed: {failure}", file=sys.stderr)
        sys.exit(1)
