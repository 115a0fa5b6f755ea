"""`plan` shows what the controller then does, and does nothing itself."""

import json
import os
import subprocess

import pytest
import yaml

from localcloud.tests import support
from e2e import harness, rotation

NOTHING, ERROR, SOMETHING = 0, 1, 2
PLANNER = "planner"
"""The AWS key that `plan` works with, so that its calls can be distinguished."""

CALLS = {
    "CreateRole": "CreateRole", "AttachPolicy": "AttachRolePolicy", "CreateProfile": "CreateInstanceProfile",
    "AddRoleToProfile": "AddRoleToInstanceProfile", "CreateTemplate": "CreateLaunchTemplate",
    "PutTemplateVersion": "CreateLaunchTemplateVersion", "CreateGroup": "CreateAutoScalingGroup",
    "UpdateGroup": "UpdateAutoScalingGroup", "PutTags": "CreateOrUpdateTags", "SuspendProcesses": "SuspendProcesses",
    "EnableMetrics": "EnableMetricsCollection", "PutHook": "PutLifecycleHook",
}
"""The calls that steps make of AWS; steps that are not here write to Kubernetes."""


def run(cloud, *arguments):
    """Runs a command of the program."""
    program = os.environ.get("INSTANCE_MANAGER_BIN", support.REPOSITORY / "target" / "debug" / "instance-manager")
    return subprocess.run([str(program), *map(str, arguments)], env={**cloud.environment, "AWS_ACCESS_KEY_ID": PLANNER}, capture_output=True, text=True)


def plan(cloud, *arguments):
    """Runs `plan`; returns its exit code, its output and what it said beside it."""
    done = run(cloud, "plan", *arguments)
    return done.returncode, done.stdout, done.stderr


def planned(cloud, *arguments):
    """The same as data: exit code and document."""
    code, out, err = plan(cloud, *arguments, "-o", "json")
    return code, json.loads(out or "null") or pytest.fail(err)


def written(cloud):
    """Everything that `plan` wrote, to AWS or to Kubernetes: it names no user agent, which kubectl and this do."""
    to_aws = [event for event in cloud.aws_events() if event["kind"] == "call" and event["caller"]["key"] == PLANNER]
    return to_aws + [e for e in cloud.audit() if e["user"]["username"] == "admin" and not e.get("userAgent")]


def calls(answer):
    """The calls of a group's plan, in order."""
    return [CALLS[s["step"]] for s in answer["steps"] + answer["laterSteps"] if s["step"] in CALLS]


def made(group, after):
    """The calls that the controller made of AWS for a group and that AWS accepted, in order.

    A new instance profile may be refused until IAM knows it everywhere; the call is then made again.
    """
    return [event["operation"] for event in group.writes(after) if event["status"] < 300]


def new_config(cloud, path, change):
    """The live ConfigMap as a file, changed."""
    found = cloud.get(harness.CONFIG)
    change(found["data"])
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "instance-manager"}, "data": found["data"]}
    path.write_text(yaml.safe_dump(body, default_style=None))
    return path


def pod_with_zonal_volume(tenant, node):
    """Runs a pod on a node with a claim whose volume is in the zone of the node."""
    zone = node["metadata"]["labels"]["topology.kubernetes.io/zone"]
    terms = [{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}]
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}}
    spec = volume | {"claimRef": {"namespace": tenant.namespace, "name": "data-db-0"}, "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}
    metadata = {"name": f"pv-{tenant.namespace}"}
    tenant.cloud.create("/api/v1/persistentvolumes", {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})
    claim = [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]
    container = {"containers": [{"name": "db", "image": "db"}], "volumes": claim, "nodeName": node["metadata"]["name"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-0"}, "spec": container}
    tenant.cloud.create(f"/api/v1/namespaces/{tenant.namespace}/pods", pod)
    return zone


@pytest.mark.private
def test_the_plan_matches_what_is_applied(own_cloud, start_controller, make_tenant, tmp_path):
    cloud = own_cloud()
    tenant = make_tenant(cloud=cloud, controller=harness.Controller(cloud))
    old, new = rotation.images(cloud)[:2]
    tenant.set_defaults(image=old)
    # Kubernetes returns times in whole seconds.
    cloud.control("POST", "delays", join=3.0)
    group = tenant.group("web", size=(2, 3), tags=[{"key": "team", "value": "a"}], suspendProcesses=["AZRebalance"])
    other = tenant.group("calm", size=(1, 2))

    before = cloud.log_position()
    code, found = planned(cloud, f"{tenant.namespace}/web")
    assert (code, [g["change"] for g in found["groups"]]) == (SOMETHING, ["create"])
    tenant.controller = controller = start_controller(cloud)
    group.wait_ready(nodes=2), other.wait_ready(nodes=1)
    assert made(group, before) == calls(found["groups"][0])

    assert planned(cloud, "-A")[0] == NOTHING
    controller.stop()
    node = group.nodes()[0]
    zone = pod_with_zonal_volume(tenant, node)
    # The admin's question: one image, one group that has its own, and a tenant whose group is locked.
    other.annotate(lock_upgrades="true")
    conditional = {"metadata": {}, "spec": {"eks": {"configuration": {"image": new}}}}

    def edit(data):
        data["conditionals"] = yaml.safe_dump([{"annotationSelector": f"e2e = {tenant.unique}", "defaults": {"spec": conditional["spec"]}}])

    file = new_config(cloud, tmp_path / "new.yaml", edit)
    code, found = planned(cloud, "-A", "--config", file)
    web, calm = (next(g for g in found["groups"] if g["group"].endswith(name)) for name in ("/web", "/calm"))
    assert code == SOMETHING and found["totals"]["rotate"] == 2 and found["totals"]["nodesToRotate"] == 3
    assert {leaving["instance"] for leaving in web["rotate"]} == set(group.instances())
    assert web["rotate"][0]["reasons"] == [{"field": "image", "from": old, "to": new}]
    assert "lock-upgrades" in calm["blockedBy"] and "blockedBy" not in web
    text = plan(cloud, "-A", "--config", file)[1]
    bound = {"node": node["metadata"]["name"], "pod": f"{tenant.namespace}/db-0", "claim": "data-db-0", "zones": [zone]}
    assert web["zoneBoundPods"] == [bound] and "zoneBoundPods" not in calm
    assert f"needs a node in {zone}: pod {tenant.namespace}/db-0, for its volume data-db-0" in text
    assert "rotates 2 nodes" in text and f"image: {old} -> {new}" in text
    assert f"{web['measuredJoin']} from launch to Ready, as measured on 2 of these nodes" in text and web["estimatedMinutes"] < 10

    seen, instances = cloud.log_position(), group.instances()
    cloud.kubectl("apply", "--server-side", "--force-conflicts", "-n", "instance-manager", "-f", file)
    tenant.controller = start_controller(cloud)
    rotation.wait_rotated(group, instances, 2, new)
    in_place = [c for c in made(group, seen) if c != "TerminateInstanceInAutoScalingGroup"]
    assert in_place == calls(web)
    assert set(other.instances()) == {leaving["instance"] for leaving in calm["rotate"]}, "the locked nodes stay"
    assert not written(cloud), "planning writes nothing"


def test_errors_name_file_line_and_field(shared, tmp_path):
    broken = tmp_path / "broken.yaml"
    broken.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: instance-manager}\ndata:\n  defaults: |\n    spec:\n      eks:\n        minSize: many\n")
    code, out, err = plan(shared, "-A", "--config", broken)
    assert (code, out) == (ERROR, "")
    assert f"{broken}:8: defaults: spec.eks.minSize" in err
    code, out, err = plan(shared, "nobody/nothing")
    assert (code, out) == (ERROR, "") and "nobody/nothing" in err
    assert plan(shared, "-A", "--config", tmp_path / "missing.yaml")[0] == ERROR
