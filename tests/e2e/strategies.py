"""Resources of the crd strategy: their definitions, and a fake of the controllers that reconcile them.

Argo's definition of a Workflow is Argo's own, out of its published module. That of a RollingUpgrade is ours, with every
property of upgrade-manager's, because no registry has it; see `ROLLING_UPGRADE_SCHEMA`. With E2E_STRATEGY_CRDS set, the
files `<plural>.<group>.yaml` in that directory are applied in their place.
"""

import json
import os
import pathlib

from e2e import harness, logs
from localcloud.controlplane import tools

ROLLING_UPGRADE = ("upgrademgr.keikoproj.io", "RollingUpgrade", "rollingupgrades")
WORKFLOW = ("argoproj.io", "Workflow", "workflows")
VERSION = "v1alpha1"


def _object(**properties):
    return {"type": "object", "properties": properties}


def _list(items):
    return {"type": "array", "items": items}


TEXT, NUMBER, FLAG, TIME = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": "string", "format": "date-time"}
ROLLING_UPGRADE_SPEC = _object(
    asgName=TEXT,
    forceRefresh=FLAG,
    ignoreDrainFailures=FLAG,
    nodeIntervalSeconds=NUMBER,
    postDrain=_object(script=TEXT, postWaitScript=TEXT, waitSeconds={**NUMBER, "format": "int64"}),
    postDrainDelaySeconds=NUMBER,
    postTerminate=_object(script=TEXT),
    preDrain=_object(script=TEXT),
    readinessGates=_list(_object(matchLabels={"type": "object", "additionalProperties": TEXT})),
    strategy=_object(
        type=TEXT,
        mode=TEXT,
        drainTimeout=NUMBER,
        maxUnavailable={"x-kubernetes-int-or-string": True, "anyOf": [NUMBER, TEXT]},
    ),
)
ROLLING_UPGRADE_STATUS = _object(
    completePercentage=TEXT,
    conditions=_list(_object(type=TEXT, status=TEXT)),
    currentStatus=TEXT,
    startTime=TEXT,
    endTime=TEXT,
    lastBatchNodes=_list(TEXT),
    lastDrainTime=TIME,
    lastTerminationTime=TIME,
    nodeInProcessing={
        "type": "object",
        "additionalProperties": _object(nodeName=TEXT, stepName=TEXT, stepStartTime=TIME, stepEndTime=TIME, upgradeStartTime=TIME),
    },
    nodesProcessed=NUMBER,
    statistics=_list(_object(stepName=TEXT, durationSum=TEXT, durationCount={**NUMBER, "format": "int32"})),
    totalNodes=NUMBER,
    totalProcessingTime=TEXT,
)
ROLLING_UPGRADE_SCHEMA = _object(apiVersion=TEXT, kind=TEXT, metadata={"type": "object"}, spec=ROLLING_UPGRADE_SPEC, status=ROLLING_UPGRADE_STATUS)
"""Names and types of the properties in config/crd/bases of upgrade-manager v1.0.11: there are no enumerations, nothing is
required (up to v1.0.3 `spec.strategy.drainTimeout` was), and the API server drops what is not named."""
ROLLING_UPGRADE_COLUMNS = {"Status": "currentStatus", "TotalNodes": "totalNodes", "NodesProcessed": "nodesProcessed", "Complete": "completePercentage"}
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def rolling_upgrade_definition():
    """The CustomResourceDefinition of a RollingUpgrade."""
    body = definition(ROLLING_UPGRADE, schema=ROLLING_UPGRADE_SCHEMA)
    body["spec"]["names"]["shortNames"] = ["ru"]
    columns = [{"name": name, "type": "string", "jsonPath": f".status.{field}"} for name, field in ROLLING_UPGRADE_COLUMNS.items()]
    body["spec"]["versions"][0]["additionalPrinterColumns"] = columns
    return body


def definition(kind, scope="Namespaced", schema=ANYTHING):
    """A CustomResourceDefinition with a status subresource."""
    group, name, plural = kind
    version = {"name": VERSION, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    names = {"kind": name, "listKind": f"{name}List", "plural": plural, "singular": name.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": scope, "versions": [version]},
    }


def install(cloud, *kinds):
    """Applies the definitions that are not there yet, by default of both known kinds, and waits until they are served."""
    for kind in kinds or (ROLLING_UPGRADE, WORKFLOW):
        name = f"{kind[2]}.{kind[0]}"
        if cloud.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}") is None:
            cloud.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=_text(kind))
        served = f"/apis/{kind[0]}/{VERSION}/{kind[2]}"
        harness.support.eventually(lambda served=served: cloud.api("GET", served).ok, harness.WAIT, f"{name} to be served")


def _text(kind):
    directory = os.environ.get("E2E_STRATEGY_CRDS")
    given = directory and pathlib.Path(directory) / f"{kind[2]}.{kind[0]}.yaml"
    if given and given.exists():
        return given.read_text()
    if kind == WORKFLOW:
        return tools.workflow_definition().read_text()
    return json.dumps(rolling_upgrade_definition() if kind == ROLLING_UPGRADE else definition(kind))


def uninstall(cloud, kind):
    """Takes a definition away, with all its resources."""
    cloud.kubectl("delete", "crd", f"{kind[2]}.{kind[0]}", "--ignore-not-found", "--wait")


ROLLING_UPGRADE_TEMPLATE = """\
apiVersion: upgrademgr.keikoproj.io/v1alpha1
kind: RollingUpgrade
metadata:
  name: {{ .InstanceGroup.GetName }}
  namespace: {{ .InstanceGroup.GetNamespace }}
spec:
  asgName: {{ .InstanceGroup.Status.ActiveScalingGroupName }}
"""

WORKFLOW_TEMPLATE = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata:
  generateName: {{ .InstanceGroup.GetName }}-
  namespace: {{ .InstanceGroup.GetNamespace }}
  labels:
    nodes: {{ .InstanceGroup.Spec.EKSSpec.EKSConfiguration.InstanceType }}
spec:
  entrypoint: replace
  templates:
  - name: replace
    container:
      image: example.com/replace
      args: [{{ .InstanceGroup.Status.ActiveScalingGroupName }}, "{{ .InstanceGroup.Spec.EKSSpec.MaxSize }}"]
"""


def rolling_upgrade(**more):
    """`spec.strategy` for upgrade-manager."""
    crd = {
        "crdName": "rollingupgrades",
        "statusJSONPath": ".status.currentStatus",
        "statusSuccessString": "completed",
        "statusFailureString": "error",
        "spec": ROLLING_UPGRADE_TEMPLATE,
    }
    return {"type": "crd", "crd": {**crd, **more}}


def workflow(**more):
    """`spec.strategy` for Argo Workflows; the words are in another case than Argo's own."""
    crd = {
        "crdName": "workflows.argoproj.io",
        "statusJSONPath": "{.status.phase}",
        "statusSuccessString": "succeeded",
        "statusFailureString": "failed",
        "spec": WORKFLOW_TEMPLATE,
    }
    return {"type": "crd", "crd": {**crd, **more}}


class StrategyController:
    """A fake of the controller that reconciles a group's resources, driven by a test step by step."""

    def __init__(self, group, kind):
        self.group, self.cloud, self.kind = group, group.cloud, kind
        self.collection = f"/apis/{kind[0]}/{VERSION}/namespaces/{group.tenant.namespace}/{kind[2]}"

    def resources(self):
        """All that are there, oldest first."""
        found = (self.cloud.get(self.collection) or {"items": []})["items"]
        return sorted(found, key=lambda r: (r["metadata"]["creationTimestamp"], int(r["metadata"]["resourceVersion"])))

    def unprocessed(self):
        """The one that has no status yet, if it is there."""
        return next((r for r in self.resources() if not r.get("status")), None)

    def wait_submitted(self):
        """Waits for one that has no status yet, and returns its name."""
        return self.group.wait(lambda _: self.unprocessed(), what=f"a {self.kind[1]}")["metadata"]["name"]

    def set_phase(self, name, word):
        """Writes a resource's status, where its own controller does."""
        if self.kind == ROLLING_UPGRADE:
            path, status = f"{self.collection}/{name}/status", {"currentStatus": word}
        else:
            path, status = f"{self.collection}/{name}", {"phase": word}
        self.cloud.patch(path, {"status": status})

    def delete(self, name):
        """Deletes a resource, as a user does."""
        assert self.cloud.api("DELETE", f"{self.collection}/{name}").ok

    def replace_nodes(self):
        """Terminates every instance that runs another version than the pinned one, and waits for the new nodes."""
        scaling, pinned = self.cloud.boto("autoscaling"), self.group.pinned()
        old = [i["InstanceId"] for i in self.group.asg()["Instances"] if i["LaunchTemplate"]["Version"] != pinned]
        for instance in old:
            scaling.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=False)
        self.group.wait(lambda g: not set(g.instances(None)) & set(old), what="the end of the old nodes")
        desired = self.group.asg()["DesiredCapacity"]
        self.group.wait(lambda g: len(g.ready_nodes()) == desired, what="the new nodes")

    def created(self):
        """Names that the controller created, in order."""
        found = logs.audited_writes(self.cloud.audit(), self.kind[2], namespace=self.group.tenant.namespace, user=logs.CONTROLLER)
        return [e.get("objectRef", {}).get("name") for e in found if e["verb"] == "create"]

    def deleted(self):
        """Names that the controller deleted, in order."""
        found = logs.audited_writes(self.cloud.audit(), self.kind[2], namespace=self.group.tenant.namespace, user=logs.CONTROLLER)
        return [e["objectRef"]["name"] for e in found if e["verb"] == "delete"]


def start(tenant, strategy, nodes=1, name="web", annotations=None):
    """A Ready group of that many nodes with a strategy."""
    tenant.set_defaults(image=tenant.cloud["amis"]["amazonlinux2023"][0])
    group = tenant.group(name, spec={"strategy": strategy}, size=(nodes, nodes + 2), annotations=annotations)
    return group.wait_ready(nodes=nodes)


def change(tenant, image=1):
    """Asks for another image, so that every node is outdated."""
    tenant.set_defaults(image=tenant.cloud["amis"]["amazonlinux2023"][image])
