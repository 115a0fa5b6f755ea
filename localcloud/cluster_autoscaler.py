"""A simulated Kubernetes Cluster Autoscaler: what it takes away from scaling groups, as its source has it (1.36).

It removes instances that do not become Nodes, takes back what was asked for and could not be launched, and removes Nodes that
no pod needs. Each of these lowers the desired capacity. It never raises it: pods that find no Node stay pending.

Simpler than the real one: utilization is a number of pods, where pods would go is not simulated beyond node selectors, budgets
show only when an eviction is refused, and a Node that is not Ready is a candidate as soon as it is registered.
"""

import contextlib
import dataclasses
import datetime
import logging
import threading
import time

from botocore.exceptions import BotoCoreError, ClientError

log = logging.getLogger(__name__)

DISCOVERY_TAG = "k8s.io/cluster-autoscaler/enabled"
TAINT = "ToBeDeletedByClusterAutoscaler"
DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
MIRROR = "kubernetes.io/config.mirror"
PLACEHOLDER = "i-placeholder"
OK_UNREADY, MOST_UNREADY = 3, 0.45
"""How many Nodes, and which part of all, may be not Ready before it removes no healthy one."""
AT_ONCE, DRAINS_AT_ONCE = 10, 1
"""How many Nodes it removes at once, and how many of them with pods."""


@dataclasses.dataclass(frozen=True)
class Options:
    """The flags that matter here, with the defaults of the real one, in seconds."""

    interval: float = 10
    cache_age: float = 60
    """How old its picture of the scaling groups may become. Its own removals make it look again in the next loop."""
    provision_time: float = 15 * 60
    removes_unneeded: bool = True
    unneeded_time: float = 10 * 60
    unready_time: float = 20 * 60
    """The same for Nodes that are not Ready."""
    drain_time: float = 10 * 60
    most_pods: int = 0
    """With how many pods, besides those of DaemonSets, a Node is underused."""
    cordons: bool = True
    """Whether it also cordons the Node that it taints, and uncordons it if it gives up: the default since 1.34."""

    def scaled(self, factor):
        """The same with all times so many times as long."""
        times = {field.name: getattr(self, field.name) * factor for field in dataclasses.fields(self) if field.type is float}
        return dataclasses.replace(self, **times)


def is_discovered(group):
    """Whether a scaling group has the tag by which it finds them. EKS tags those of managed node groups by itself."""
    return any(tag["Key"] == DISCOVERY_TAG for tag in group["Tags"])


@dataclasses.dataclass
class Group:
    """Its picture of a scaling group."""

    name: str
    low: int
    size: int
    """The desired capacity; it counts its own changes until it looks again."""
    instances: dict
    """The lifecycle state of each instance, in Standby or terminating as well; and a placeholder for each that is missing."""
    is_short: bool
    """Whether launches fail, so that placeholders are taken back at once."""


@dataclasses.dataclass
class Removal:
    """A Node that it has tainted."""

    group: str
    instance: str
    has_pods: bool
    deadline: float


class ClusterAutoscaler:
    """Works on a thread of its own between `start` and `stop`.

    `scaling` is a boto3 client with an access key of its own, `kubernetes` a client like support.Cloud, and
    `discovers(group)` says of a scaling group, as AWS describes it, whether it is one of its.
    """

    def __init__(self, scaling, kubernetes, options=None, discovers=is_discovered):
        self._scaling, self._kubernetes, self.options, self._discovers = scaling, kubernetes, options or Options(), discovers
        self._groups, self._looked, self._sized = {}, None, {}
        self._unregistered, self._unneeded, self._removals = {}, {}, {}
        self.removed = []
        """What it took away: (why, name of the scaling group, id of the instance or the new desired capacity)."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cluster-autoscaler", daemon=True)

    def start(self):
        """Begins to look; returns itself."""
        self._thread.start()
        return self

    def stop(self, timeout=30):
        """Ends it. What it has not removed yet loses its taint, as at the next start of the real one, if the API server answers in time."""
        self._stopped.set()
        self._thread.join()
        deadline = time.monotonic() + timeout
        while self._removals and time.monotonic() < deadline:
            for name in list(self._removals):
                with contextlib.suppress(OSError):
                    self._abandon_removal(name)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def _run(self):
        while not self._stopped.wait(self.options.interval):
            try:
                self._run_loop(time.monotonic())
            except (OSError, BotoCoreError, ClientError) as error:
                # The API server or AWS may be out of service: it looks again.
                log.info("the loop ended early: %s", error)

    def _run_loop(self, now):
        self._refresh(now)
        nodes = {_instance_of(node): node for node in self._get("/api/v1/nodes")["items"]}
        self._remove_unregistered(nodes, now)
        pods = self._pods()
        self._continue_removals(pods, now)
        unready = sum(not _is_ready(node) for node in nodes.values())
        if unready > OK_UNREADY and unready > MOST_UNREADY * len(nodes):
            self._unneeded = {}
            return
        self._delete_placeholders()
        if self.options.removes_unneeded:
            self._remove_unneeded(nodes, pods, now)

    # --- what it knows of AWS ---------------------------------------------------------------------

    def _refresh(self, now):
        if self._looked is not None and now < self._looked + self.options.cache_age:
            return
        pages = self._scaling.get_paginator("describe_auto_scaling_groups").paginate()
        found = [group for page in pages for group in page["AutoScalingGroups"] if self._discovers(group)]
        self._groups = {group["AutoScalingGroupName"]: self._refresh_group(group) for group in found}
        self._looked = now

    def _refresh_group(self, group):
        name, desired = group["AutoScalingGroupName"], group["DesiredCapacity"]
        instances = {i["InstanceId"]: i["LifecycleState"] for i in group["Instances"]}
        missing = range(len(instances), desired)
        is_short = bool(missing) and name in self._groups and self._has_failed_launch(name)
        return Group(name, group["MinSize"], desired, instances | {f"{PLACEHOLDER}-{name}-{i}": None for i in missing}, is_short)

    def _has_failed_launch(self, name):
        """Whether the last activities, up to the one in which it set the size itself, have one that failed, however long ago."""
        for activity in self._scaling.describe_scaling_activities(AutoScalingGroupName=name)["Activities"]:
            if name in self._sized and activity["StartTime"] < self._sized[name]:
                return False
            if activity["StatusCode"] == "Failed":
                return True
        return False

    # --- what it takes away -----------------------------------------------------------------------

    def _remove_unregistered(self, nodes, now):
        """Removes what has not become a Node in time, and what it asked AWS for and did not get."""
        found = [i for group in self._groups.values() for i in group.instances if i not in nodes and not (group.is_short and _is_placeholder(i))]
        self._unregistered = {instance: self._unregistered.get(instance, now) for instance in found}
        for group in self._groups.values():
            late = [i for i in group.instances if i in self._unregistered and self._unregistered[i] + self.options.provision_time < now]
            self._delete(group, late[: max(0, group.size - group.low)], "unregistered")

    def _delete_placeholders(self):
        for group in self._groups.values():
            if group.is_short:
                self._delete(group, [i for i in group.instances if _is_placeholder(i)], "no capacity")

    def _delete(self, group, instances, why):
        """Whether it got rid of instances and placeholders of one group, which are not needed to reach its minimum."""
        if not instances or group.size <= group.low:
            return False
        try:
            if any(map(_is_placeholder, instances)):
                (now,) = self._scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group.name])["AutoScalingGroups"] or [None]
                self._set_size(group, len(now["Instances"]) if now else group.size, why)
            for instance in instances:
                if not _is_placeholder(instance) and not group.instances[instance].startswith("Terminat"):
                    self._scaling.terminate_instance_in_auto_scaling_group(InstanceId=instance, ShouldDecrementDesiredCapacity=True)
                    group.size -= 1
                    self.removed.append((why, group.name, instance))
        except ClientError as refused:
            log.info("AWS refused to remove %s: %s", instances, refused)
            return False
        self._looked = None
        return True

    def _set_size(self, group, size, why):
        began = datetime.datetime.now(datetime.UTC)
        self._scaling.set_desired_capacity(AutoScalingGroupName=group.name, DesiredCapacity=size, HonorCooldown=False)
        self._sized[group.name], group.size = began, size
        self.removed.append((why, group.name, size))

    # --- Nodes that no pod needs ------------------------------------------------------------------

    def _remove_unneeded(self, nodes, pods, now):
        """Taints Nodes that were not needed for long enough; the next loops drain and remove them. A cordon does not matter."""
        group_of = {i: group for group in self._groups.values() for i in group.instances}
        names = {node["metadata"]["name"]: instance for instance, node in nodes.items()}
        unneeded = [name for name, i in names.items() if i in group_of and self._is_unneeded(nodes[i], pods, nodes)]
        self._unneeded = {name: self._unneeded.get(name, now) for name in unneeded}
        for name in sorted(self._unneeded, key=lambda name: len(pods.get(name, []))):
            node, group, has_pods = nodes[names[name]], group_of[names[name]], bool(pods.get(name))
            wait = self.options.unneeded_time if _is_ready(node) else self.options.unready_time
            drains = sum(removal.has_pods for removal in self._removals.values())
            is_too_much = len(self._removals) >= AT_ONCE or has_pods and drains >= DRAINS_AT_ONCE
            leaving = sum(removal.group == group.name for removal in self._removals.values())
            if now <= self._unneeded[name] + wait or is_too_much or group.size - leaving <= group.low:
                continue
            taint = {"key": TAINT, "value": str(int(time.time())), "effect": "NoSchedule"}
            if self._change(node, [*node["spec"].get("taints", []), taint], True):
                self._removals[name] = Removal(group.name, names[name], has_pods, now + self.options.drain_time)

    def _is_unneeded(self, node, pods, nodes):
        is_excluded = _is_tainted(node) or node["metadata"].get("annotations", {}).get(DISABLED) == "true"
        there = pods.get(node["metadata"]["name"], [])
        others = [other for other in nodes.values() if other is not node]
        return not is_excluded and len(there) <= self.options.most_pods and all(_is_movable(pod, others) for pod in there)

    def _continue_removals(self, pods, now):
        """Evicts what is left on the Nodes that it removes, and terminates those that are empty."""
        for name, removal in list(self._removals.items()):
            left = pods.get(name, [])
            if not left:
                group = self._groups.get(removal.group)
                is_there = group is not None and removal.instance in group.instances
                if is_there and self._delete(group, [removal.instance], "unneeded"):
                    del self._removals[name]
                else:
                    self._abandon_removal(name)
            elif now > removal.deadline or not removal.has_pods:
                # Pods came to a Node that was empty, or one of them does not go.
                self._abandon_removal(name)
            else:
                self._evict([pod["metadata"] for pod in left if "deletionTimestamp" not in pod["metadata"]])

    def _evict(self, pods):
        for pod in pods:
            body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["name"], "namespace": pod["namespace"]}}
            self._kubernetes.api("POST", f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}/eviction", body)

    def _abandon_removal(self, name):
        """Removes the taint, and the cordon with it, even if another client set the cordon."""
        node = self._kubernetes.get(f"/api/v1/nodes/{name}")
        if node is None or self._change(node, [t for t in node["spec"].get("taints", []) if t["key"] != TAINT], False):
            self._removals.pop(name, None)

    def _change(self, node, taints, cordoned):
        """Whether it could write the Node, which no other client changed since the read."""
        spec = {"taints": taints} | ({"unschedulable": cordoned} if self.options.cordons else {})
        body = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": spec}
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        return self._kubernetes.api("PATCH", path, body, content_type="application/merge-patch+json").ok

    # --- what it knows of Kubernetes --------------------------------------------------------------

    def _get(self, path):
        answer = self._kubernetes.api("GET", path)
        answer.raise_for_status()
        return answer.json()

    def _pods(self):
        """The running pods on each Node, without those of DaemonSets and static pods."""
        found = {}
        for pod in self._get("/api/v1/pods")["items"]:
            is_bound = pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed")
            if is_bound and _owner(pod) != "DaemonSet" and MIRROR not in pod["metadata"].get("annotations", {}):
                found.setdefault(pod["spec"]["nodeName"], []).append(pod)
        return found


def _instance_of(node):
    return node["spec"].get("providerID", "").rpartition("/")[2] or node["metadata"]["name"]


def _is_ready(node):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in node.get("status", {}).get("conditions", []))


def _is_tainted(node):
    return any(taint["key"] == TAINT for taint in node["spec"].get("taints", []))


def _is_placeholder(instance):
    return instance.startswith(PLACEHOLDER)


def _owner(pod):
    return next((owner["kind"] for owner in pod["metadata"].get("ownerReferences", []) if owner.get("controller")), None)


def _is_movable(pod, nodes):
    """Whether a pod comes again, and another Node may take it."""
    wanted = pod["spec"].get("nodeSelector", {}).items()
    fitting = [n for n in nodes if wanted <= n["metadata"].get("labels", {}).items() and not n["spec"].get("unschedulable")]
    return _owner(pod) is not None and any(_is_ready(node) and not _is_tainted(node) for node in fitting)
