"""A group of keikoproj/instance-manager that keiko_loader.py loaded: its resources, and the writes to them since."""

import contextlib
import dataclasses
import json
import threading
from types import SimpleNamespace

from botocore.exceptions import ClientError

from e2e import harness, logs

NOT_READY = "node.kubernetes.io/not-ready"


@dataclasses.dataclass(frozen=True)
class LogPosition:
    """A moment in the simulator's log and in the audit log."""

    aws: int
    audit: int

GROUP_LABELS = {harness.OWNERSHIP + "Namespace", harness.OWNERSHIP + "InstanceGroup"}
"""The labels by which the controller names the group of a node."""


class KeikoGroup(harness.Group):
    """An InstanceGroup of keikoproj/instance-manager, with the names of all its resources.

    `template`, `template_id` and `launch_configuration` are None where the group has none; `desired` is how many nodes
    it had; `recorded` is the state as it was loaded.
    """

    def __init__(self, cloud, data):
        metadata, scaling = data["instanceGroup"]["metadata"], data["autoScalingGroup"]
        super().__init__(SimpleNamespace(cloud=cloud, namespace=metadata["namespace"], controller=None), metadata["name"])
        self.recorded = data
        self.scaling_group = scaling["AutoScalingGroupName"]
        self.desired = scaling["DesiredCapacity"]
        self.role, self.profile = data["role"]["RoleName"], data["instanceProfile"]["InstanceProfileName"]
        self.launch_configuration = (data.get("launchConfiguration") or {}).get("LaunchConfigurationName")
        self.template = data["launchTemplate"][0]["LaunchTemplateName"] if data.get("launchTemplate") else None
        self.template_id = self.described_template()["LaunchTemplateId"] if self.template else None

    # what it is

    def described_template(self):
        """Its launch template as AWS shows it."""
        (found,) = self.cloud.boto("ec2").describe_launch_templates(LaunchTemplateNames=[self.template])["LaunchTemplates"]
        return found

    def pinned(self):
        """The version that its scaling group launches, with a mixed policy or without; None with a launch configuration."""
        asg = self.asg()
        mixed = asg.get("MixedInstancesPolicy", {"LaunchTemplate": {}})["LaunchTemplate"].get("LaunchTemplateSpecification", {})
        return asg.get("LaunchTemplate", mixed).get("Version")

    def running_versions(self):
        """The template version of each of its instances, sorted, as numbers."""
        return sorted(int(i["LaunchTemplate"]["Version"]) for i in self.asg()["Instances"] if "LaunchTemplate" in i)

    def wait_nodes(self, timeout=harness.WAIT):
        """Waits until it has as many Ready nodes as it had, with or without an InstanceGroup.

        Kubernetes takes the taint of a new node off a moment after the node is Ready: one that still has it would differ from
        its later self.
        """
        def settled(node):
            return all(taint["key"] != NOT_READY for taint in node["spec"].get("taints", []))

        self.wait(lambda g: sum(map(settled, g.ready_nodes())) == g.desired, timeout, f"{self.desired} Ready nodes")
        return self

    def snapshot(self):
        """All that AWS and Kubernetes have of it, warm pool and hooks too, as one comparable value; see `differences`."""
        account = self.cloud.snapshot()
        found = self.get()
        return plain({
            "scalingGroup": account["groups"].get(self.scaling_group),
            "template": account["templates"].get(self.template),
            "launchConfiguration": account["configurations"].get(self.launch_configuration),
            "role": account["roles"].get(self.role),
            "profile": account["profiles"].get(self.profile),
            "auth": self.cloud.map_roles(),
            "nodes": {node["metadata"]["name"]: comparable_node(node) for node in self.nodes()},
            "instanceGroup": found and {
                "metadata": {key: found["metadata"].get(key) for key in ("uid", "labels", "annotations", "finalizers", "generation")},
                "spec": found["spec"],
                "status": found.get("status"),
            },
        })  # fmt: skip

    # who wrote

    def mark(self):
        """This moment, for `writes_since` and `kube_writes_since`."""
        return LogPosition(self.cloud.log_position(), len(self.cloud.audit()))

    def names(self):
        """Every name and id of it in AWS."""
        named = {self.scaling_group, self.role, self.profile, self.template, self.template_id, self.launch_configuration}
        warm = self.cloud.boto("autoscaling").describe_warm_pool(AutoScalingGroupName=self.scaling_group)["Instances"]
        return {*named, *self.instances(None), *(i["InstanceId"] for i in warm)} - {None}

    def writes_since(self, mark):
        """The controller's calls that wrote to AWS, or tried to, and named anything of this group; each a line of the log."""
        names = self.names()
        return [e for e in self.cloud.aws_events(mark.aws) if logs.is_controller_call(e) and mentions(e.get("params"), names)]

    def operations_since(self, mark):
        """The names of these calls, in order."""
        return [event["operation"] for event in self.writes_since(mark)]

    def kube_writes_since(self, mark):
        """The controller's accepted writes to the API server on the group, its nodes, and aws-auth: (verb, resource, name).

        The labels that name a node's group are left out: they are set once, and no scheduler or drain looks at them.
        """
        nodes = {node["metadata"]["name"] for node in self.nodes()}
        mine = {"instancegroups": {self.name}, "nodes": nodes, "configmaps": {"aws-auth"}}
        found = []
        for event in self.cloud.audit(mark.audit):
            ref = event.get("objectRef", {})
            about = ref.get("name") in mine.get(ref.get("resource"), ())
            here = ref.get("resource") != "instancegroups" or ref.get("namespace") == self.tenant.namespace
            accepted = event["responseStatus"].get("code", 500) < 300 and event["user"]["username"] == logs.CONTROLLER
            if about and here and accepted and not labels_alone(event):
                found.append((event["verb"], "/".join(filter(None, (ref["resource"], ref.get("subresource")))), ref["name"]))
        return found

    # the hands of others

    @contextlib.contextmanager
    def hooks_answered(self):
        """Completes the lifecycle hooks of waiting instances meanwhile, as a consumer of the hooks would."""
        done = threading.Event()
        asg, name = self.cloud.boto("autoscaling"), {"AutoScalingGroupName": self.scaling_group}

        def answer():
            while not done.wait(0.2):
                group = self.asg() or {"Instances": []}
                waiting = [i for i in group["Instances"] if i["LifecycleState"].endswith(":Wait")]
                hooks = asg.describe_lifecycle_hooks(**name)["LifecycleHooks"] if waiting else []
                for instance in waiting:
                    for hook in hooks:
                        with contextlib.suppress(ClientError):
                            asg.complete_lifecycle_action(
                                **name, LifecycleHookName=hook["LifecycleHookName"], InstanceId=instance["InstanceId"], LifecycleActionResult="CONTINUE"
                            )

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def remove(self):
        """Takes it out of the cloud, with everything that it left; no controller may work on it any more."""
        if self.get():
            self.patch({"metadata": {"finalizers": None}})
            self.delete()
        self.cloud.boto("autoscaling").delete_auto_scaling_group(AutoScalingGroupName=self.scaling_group, ForceDelete=True)


def labels_alone(event):
    """Whether a write is a patch of a node with nothing but the labels that name its group."""
    body = event.get("requestObject")
    if event["objectRef"].get("resource") != "nodes" or event["verb"] != "patch" or not isinstance(body, dict):
        return False
    labels = body.get("metadata", {}).get("labels") or {}
    return body == {"metadata": {"labels": labels}} and set(labels) == GROUP_LABELS


def comparable_node(node):
    """What of a node a takeover leaves as it is."""
    metadata, spec = node["metadata"], node["spec"]
    own = {key: value for key, value in metadata.get("annotations", {}).items() if key.startswith(harness.PREFIX)}
    labels = {key: value for key, value in metadata["labels"].items() if not key.startswith("local.") and key not in GROUP_LABELS}
    return {"uid": metadata["uid"], "labels": labels, "annotations": own, "unschedulable": spec.get("unschedulable", False), "taints": spec.get("taints", [])}


def plain(value):
    """A value as JSON has it, so that two can be compared."""
    return json.loads(json.dumps(value, default=str))


def mentions(value, names):
    """Whether a text in a value is one of the names, or an ARN or path that ends in one."""
    if isinstance(value, dict):
        return any(mentions(each, names) for each in value.values())
    if isinstance(value, list):
        return any(mentions(each, names) for each in value)
    return isinstance(value, str) and (value in names or value.rpartition("/")[2] in names)


def differences(before, after, path=""):
    """Where two snapshots differ: {dotted path: (before, after)}, items of lists by their number; what is missing is None."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = sorted({*before, *after})
        pairs = [(key, before.get(key), after.get(key)) for key in keys]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = [(str(number), *pair) for number, pair in enumerate(zip(before, after, strict=True))]
    else:
        return {} if before == after else {path: (before, after)}
    found = {}
    for key, old, new in pairs:
        found |= differences(old, new, f"{path}.{key}" if path else key)
    return found
