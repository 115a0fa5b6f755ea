"""Pods on Fargate: each has a node of its own.

Follows the Amazon EKS User Guide, "Simplify compute management with AWS Fargate" and "Define which Pods use AWS Fargate when
launched". Not simulated: how large a node is for what its pod requests, and logging.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Any

from localcloud.aws.eks.fargate import admission as fargate_admission, validation as fargate_input
from localcloud.aws.nodes import authenticator as auth, node_objects as nodes

log = logging.getLogger(__name__)
RETRY = 1.0
LAG = 2.0
"""After so many seconds the API server admits pods by a policy that was written."""
TAINT = {"key": "eks.amazonaws.com/compute-type", "value": "fargate", "effect": "NoSchedule"}
BLOCKED = (
    "Misconfigured Fargate Profile: fargate profile {name} blocked for new launches due to: Pod execution role is not found in "
    "auth config or does not have all required permissions for launching fargate pods."
)


@dataclass
class Pod:
    """One pod for Fargate, and where it runs."""

    key: str
    meta: dict[str, Any]
    profile: str
    node: str = ""
    interface: str = ""
    blocked: bool = False

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return f"/api/v1/namespaces/{self.meta['namespace']}/pods/{self.meta['name']}"


class Pods:
    """The pods for Fargate, by their uid. They are watched once there is a profile."""

    def __init__(self, world: Any, fargate: Any) -> None:
        self.world = world
        self.fargate = fargate
        self.all: dict[str, Pod] = {}
        self.watched = False

    @property
    def kube(self) -> Any:
        """The client of the API server, if there is one."""
        return self.world.kubelets.kube

    def later(self, act: Any) -> None:
        """Talk to the API server, outside the world's lock."""
        self.world.kubelets.worker.after(0, act)

    def match(self, profiles: list[Any]) -> float:
        """Match new pods with these profiles from now on; how long that takes."""
        if self.kube is None:
            return 0.0
        if not self.watched:
            self.watched = True
            threading.Thread(target=self.watch, name="fargate-pods", daemon=True).start()
        chosen = list(profiles)
        self.later(lambda: fargate_admission.write(self.kube, chosen))
        return LAG

    def evict(self, profile: str) -> None:
        """Delete the pods of a profile that goes; who makes them anew finds another profile, or none."""
        if self.kube:
            selector = f"{fargate_admission.LABEL}={profile}"
            self.later(lambda: self.delete_all(selector))

    def delete_all(self, selector: str) -> None:
        """Worker: delete the pods for Fargate of these labels."""
        fields = f"spec.schedulerName={fargate_admission.SCHEDULER}"
        for pod in self.kube.ask("GET", "/api/v1/pods", labelSelector=selector, fieldSelector=fields).json().get("items", []):
            self.kube.ask("DELETE", f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}")

    def watch(self) -> None:
        """Follow the pods of Fargate's scheduler."""
        params = {"fieldSelector": f"spec.schedulerName={fargate_admission.SCHEDULER}"}
        self.kube.follow("/api/v1/pods", params, self.listed, self.changed)

    def listed(self, items: list[dict[str, Any]]) -> None:
        """All the pods there are now."""
        with self.world.lock:
            for key in set(self.all) - {item["metadata"]["uid"] for item in items}:
                self.gone(self.all[key])
            for item in items:
                self.seen(item)

    def changed(self, event: str, item: dict[str, Any]) -> None:
        """A pod came, changed or went."""
        with self.world.lock:
            pod = self.all.get(item["metadata"]["uid"])
            if event != "DELETED":
                self.seen(item)
            elif pod:
                self.gone(pod)

    def seen(self, item: dict[str, Any]) -> None:
        """A new pod gets its node after a while."""
        meta, delays = item["metadata"], self.world.settings.delays
        if meta["uid"] in self.all or item["spec"].get("nodeName"):
            return
        pod = Pod(meta["uid"], meta, (meta.get("labels") or {}).get(fargate_admission.LABEL, ""))
        self.all[pod.key] = pod
        self.world.timers.after(delays.pending + delays.join, lambda: self.launch(pod))

    def launch(self, pod: Pod) -> None:
        """Make the pod's node, if its profile is ACTIVE and its role is let in; else try again."""
        if pod.key not in self.all:
            return
        profile = self.fargate.profiles.get(pod.profile)
        role = fargate_input.role_of(self.world, profile.role) if profile else None
        refusal = auth.refusal(self.world, role, "FARGATE_LINUX") if role else "there is no such profile, or its role is gone"
        if refusal or profile.status != "ACTIVE":
            if profile and refusal and not pod.blocked:
                pod.blocked = True
                self.later(lambda: self.tell_blocked(pod))
                self.world.log.state("fargate-pod", pod.path, profile=pod.profile, state="blocked", reason=refusal)
            self.world.timers.after(RETRY, lambda: self.launch(pod))
            return
        node = self.node(pod, profile)
        self.later(lambda: self.run(pod, node))

    def node(self, pod: Pod, profile: Any) -> dict[str, Any]:
        """The Node of a pod, with an interface in the least used subnet of the profile."""
        used = [interface.subnet.id for interface in self.world.ec2.enis.values()]
        subnet = self.world.ec2.get_subnet(min(profile.subnets, key=used.count))
        interface = self.world.ec2.create_network_interface(subnet, None, description=f"Fargate pod {pod.path}")
        pod.interface, address = interface.id, interface.private_ip_address
        settings = self.world.settings
        node = nodes.fargate(pod.key, address, subnet.availability_zone, settings.region, settings.cluster_version, TAINT)
        pod.node = node["metadata"]["name"]
        return node

    def run(self, pod: Pod, node: dict[str, Any]) -> None:
        """Worker: register the node, bind the pod to it, and let kwok run it."""
        if pod.key not in self.all:
            return
        self.kube.create_node(node)
        target = {"apiVersion": "v1", "kind": "Node", "name": pod.node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.meta["name"], "uid": pod.key}, "target": target}
        answer = self.kube.ask("POST", f"{pod.path}/binding", body)
        if answer.status_code >= 300:
            log.warning("%s: %s", pod.path, answer.text)
        self.kube.set_ready(pod.node, "True", "KubeletReady", "kubelet is posting ready status")
        self.kube.patch_node(pod.node, {"metadata": {"labels": {nodes.KUBELET: "alive"}}})
        self.world.log.state("fargate-pod", pod.path, profile=pod.profile, state="running", node=pod.node)

    def tell_blocked(self, pod: Pod) -> None:
        """Worker: say on the pod why it does not run."""
        reference = {"apiVersion": "v1", "kind": "Pod", "name": pod.meta["name"], "namespace": pod.meta["namespace"], "uid": pod.key}
        event = {
            "metadata": {"generateName": f"{pod.meta['name'][:200]}.", "namespace": pod.meta["namespace"]},
            "involvedObject": reference,
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": BLOCKED.format(name=pod.profile),
            "source": {"component": fargate_admission.SCHEDULER},
        }
        self.kube.ask("POST", f"/api/v1/namespaces/{pod.meta['namespace']}/events", event)

    def gone(self, pod: Pod) -> None:
        """The pod is gone, and its node with it."""
        del self.all[pod.key]
        if pod.node:
            self.world.ec2.delete_network_interface(pod.interface)
            self.later(lambda: self.kube.delete_node(pod.node))
            self.world.log.state("fargate-pod", pod.path, profile=pod.profile, state="gone", node=pod.node)
