"""Pods on Fargate, each with its own node.

Follows the Amazon EKS User Guide, "Simplify compute management with AWS Fargate" and "Define which Pods use AWS Fargate
when launched". Node sizes by pod requests, and logging, are not simulated.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any

from localcloud.aws.eks.fargate import admission, validation
from localcloud.aws.nodes import authenticator, node_objects

log = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
ADMISSION_DELAY = 2.0
"""Time in seconds until the API server uses a changed admission policy."""
TAINT = {"key": "eks.amazonaws.com/compute-type", "value": "fargate", "effect": "NoSchedule"}
BLOCKED = (
    "Misconfigured Fargate Profile: fargate profile {name} blocked for new launches due to: Pod execution role is not found in "
    "auth config or does not have all required permissions for launching fargate pods."
)


@dataclass
class FargatePod:
    """One Fargate pod, and its node."""

    uid: str
    meta: dict[str, Any]
    profile: str
    node: str = ""
    interface: str = ""
    blocked: bool = False

    @property
    def path(self) -> str:
        """The pod's path in the Kubernetes API."""
        return f"/api/v1/namespaces/{self.meta['namespace']}/pods/{self.meta['name']}"


class FargatePods:
    """The Fargate pods by uid. The watch starts with the first profile."""

    def __init__(self, simulator: Any, fargate: Any) -> None:
        self.simulator = simulator
        self.fargate = fargate
        self.all: dict[str, FargatePod] = {}
        self.is_watching = False

    @property
    def kube(self) -> Any:
        """The client of the API server, if there is one."""
        return self.simulator.kubelets.kube

    def enqueue(self, function: Any) -> None:
        """Call the Kubernetes API from the worker thread, without the simulator's lock."""
        self.simulator.kubelets.worker.after(0, function)

    def match(self, profiles: list[Any], then: Any) -> None:
        """Match new pods with these profiles, and call `then` when this is effective."""
        if self.kube is None:
            self.simulator.timers.after(0, then)
            return
        if not self.is_watching:
            self.is_watching = True
            threading.Thread(target=self.watch, name="fargate-pods", daemon=True).start()
        chosen = list(profiles)
        self.enqueue(lambda: self.apply(chosen, then))

    def apply(self, profiles: list[Any], then: Any) -> None:
        """Worker: change the admission policy, however long the API server takes for that."""
        try:
            admission.apply_policy(self.kube, profiles)
        finally:
            self.simulator.timers.after(ADMISSION_DELAY, then)

    def evict(self, profile: str) -> None:
        """Delete the pods of a profile that is being deleted. Their replacements match another profile, or none."""
        if self.kube:
            selector = f"{admission.LABEL}={profile}"
            self.enqueue(lambda: self.delete_all(selector))

    def delete_all(self, selector: str) -> None:
        """Worker: delete the Fargate pods with these labels."""
        fields = f"spec.schedulerName={admission.SCHEDULER}"
        for pod in self.kube.request("GET", "/api/v1/pods", labelSelector=selector, fieldSelector=fields).json().get("items", []):
            self.kube.request("DELETE", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}")

    def watch(self) -> None:
        """Watch the pods of the Fargate scheduler."""
        params = {"fieldSelector": f"spec.schedulerName={admission.SCHEDULER}"}
        self.kube.list_and_watch("/api/v1/pods", params, self.on_pods_listed, self.on_pod_event)

    def on_pods_listed(self, items: list[dict[str, Any]]) -> None:
        """Handle a list of all existing pods."""
        with self.simulator.lock:
            for uid in set(self.all) - {item["metadata"]["uid"] for item in items}:
                self.on_pod_deleted(self.all[uid])
            for item in items:
                self.on_pod(item)

    def on_pod_event(self, event: str, item: dict[str, Any]) -> None:
        """Handle a watch event of a pod."""
        with self.simulator.lock:
            pod = self.all.get(item["metadata"]["uid"])
            if event != "DELETED":
                self.on_pod(item)
            elif pod:
                self.on_pod_deleted(pod)

    def on_pod(self, item: dict[str, Any]) -> None:
        """Schedule the launch of a node for a new pod."""
        meta, delays = item["metadata"], self.simulator.settings.delays
        if meta["uid"] in self.all or item["spec"].get("nodeName"):
            return
        pod = FargatePod(meta["uid"], meta, (meta.get("labels") or {}).get(admission.LABEL, ""))
        self.all[pod.uid] = pod
        self.simulator.timers.after(delays.pending + delays.join, lambda: self.launch(pod))

    def launch(self, pod: FargatePod) -> None:
        """Create the pod's node, if its profile is ACTIVE and its role is authorized. Otherwise retry."""
        if pod.uid not in self.all:
            return
        profile = self.fargate.profiles.get(pod.profile)
        role = validation.find_role(self.simulator, profile.role) if profile else None
        problem = "the profile or its role does not exist"
        if role:
            problem = authenticator.authorization_problem(self.simulator, role, "FARGATE_LINUX")
        if problem or profile.status != "ACTIVE":
            if profile and problem and not pod.blocked:
                pod.blocked = True
                self.enqueue(lambda: self.publish_blocked_event(pod))
                self.simulator.log.state("fargate-pod", pod.path, profile=pod.profile, state="blocked", reason=problem)
            self.simulator.timers.after(RETRY_SECONDS, lambda: self.launch(pod))
            return
        node = self.node(pod, profile)
        self.enqueue(lambda: self.run(pod, node))

    def node(self, pod: FargatePod, profile: Any) -> dict[str, Any]:
        """The Node of a pod, with a network interface in the profile's least used subnet."""
        used = [interface.subnet.id for interface in self.simulator.ec2.enis.values()]
        subnet = self.simulator.ec2.get_subnet(min(profile.subnets, key=used.count))
        interface = self.simulator.ec2.create_network_interface(subnet, None, description=f"Fargate pod {pod.path}")
        pod.interface, address = interface.id, interface.private_ip_address
        settings = self.simulator.settings
        node = node_objects.build_fargate_node(pod.uid, address, subnet.availability_zone, settings.region, settings.cluster_version, TAINT)
        pod.node = node["metadata"]["name"]
        return node

    def run(self, pod: FargatePod, node: dict[str, Any]) -> None:
        """Worker: register the node and bind the pod to it. kwok then runs the pod."""
        if pod.uid not in self.all:
            return
        self.kube.create_node(node)
        target = {"apiVersion": "v1", "kind": "Node", "name": pod.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.meta["name"], "uid": pod.uid}, "target": target}
        response = self.kube.request("POST", f"{pod.path}/binding", body)
        if response.status_code >= 300:
            log.warning("%s: %s", pod.path, response.text)
        self.kube.set_ready(pod.node, "True", "KubeletReady", "kubelet is posting ready status")
        self.kube.patch_node(pod.node, {"metadata": {"labels": {node_objects.KUBELET_LABEL: "alive"}}})
        self.simulator.log.state("fargate-pod", pod.path, profile=pod.profile, state="running", node=pod.node)

    def publish_blocked_event(self, pod: FargatePod) -> None:
        """Worker: publish a Kubernetes event with the reason why the pod does not run."""
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod.meta["name"], "namespace": pod.meta["namespace"], "uid": pod.uid}
        event = {
            "metadata": {"generateName": f"{pod.meta['name'][:200]}.", "namespace": pod.meta["namespace"]},
            "involvedObject": reference,
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": BLOCKED.format(name=pod.profile),
            "source": {"component": admission.SCHEDULER},
        }
        self.kube.request("POST", f"/api/v1/namespaces/{pod.meta['namespace']}/events", event)

    def on_pod_deleted(self, pod: FargatePod) -> None:
        """Delete the node of a deleted pod."""
        del self.all[pod.uid]
        if pod.node:
            self.simulator.ec2.delete_network_interface(pod.interface)
            self.enqueue(lambda: self.kube.delete_node(pod.node))
            self.simulator.log.state("fargate-pod", pod.path, profile=pod.profile, state="gone", node=pod.node)
