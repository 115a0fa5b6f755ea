"""Kubernetes API calls of EKS for managed node groups: drains, labels, taints and aws-auth.

Follows the Amazon EKS User Guide, "Delete a managed node group" and "Understand each phase of node updates". All calls
run on one worker thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from localcloud.aws.kubernetes import KubernetesClient
from localcloud.aws.nodes.authenticator import arn_without_path
from localcloud.aws.timers import Timers

RETRY_SECONDS = 0.5
"""Interval at which a drain retries evictions."""
EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"


class NodeManager:
    """Changes nodes and aws-auth of one cluster. Without a cluster, every method is complete immediately."""

    def __init__(self, kube: KubernetesClient | None) -> None:
        self.kube = kube
        self.worker = Timers("eks-nodes")

    def enqueue(self, function: Callable[[], None]) -> None:
        """Run a function on the worker thread, in order."""
        if self.kube:
            self.worker.after(0, function)

    def remove_role_from_aws_auth(self, role_arn: str) -> None:
        """Remove a role's entry from aws-auth."""
        self.enqueue(lambda: self.kube.remove_aws_auth_entries(arn_without_path(role_arn)))

    def update_labels_and_taints(self, node: str, add: dict[str, str], remove: list[str], taints: Callable[[list[Any]], list[Any]]) -> None:
        """Change the labels and taints of an existing node."""
        self.enqueue(lambda: self._update_labels_and_taints(node, add, remove, taints))

    def _update_labels_and_taints(
        self, node: str, add: dict[str, str], remove: list[str], taints: Callable[[list[Any]], list[Any]]
    ) -> None:
        found = self.kube.request("GET", f"/api/v1/nodes/{node}")
        if found.status_code != 200:
            return
        before = found.json()["spec"].get("taints") or []
        patch: dict[str, Any] = {"metadata": {"labels": {**add, **dict.fromkeys(remove)}}}
        after = taints(before)
        if after != before:
            patch["spec"] = {"taints": after}
        self.kube.patch_node(node, patch)

    def cordon(self, node: str, on: bool) -> None:
        """Cordon a node and exclude it from load balancers, or the reverse."""
        patch = {"metadata": {"labels": {EXCLUDED: "true" if on else None}}, "spec": {"unschedulable": on or None}}
        self.enqueue(lambda: self.kube.patch_node(node, patch))

    def drain(self, node: str, timeout: float, force: bool, done: Callable[[list[str]], None]) -> None:
        """Evict the pods of a node until the timeout, in seconds. `done` gets the names of the remaining pods."""
        if self.kube is None or not node:
            done([])
            return
        deadline = time.monotonic() + timeout
        self.worker.after(0, lambda: self._drain(node, deadline, force, done))

    def _drain(self, node: str, deadline: float, force: bool, done: Callable[[list[str]], None]) -> None:
        pods = self.pods(node)
        if not pods or time.monotonic() > deadline:
            if force:
                for pod in pods:
                    self._delete(pod)
                pods = []
            done([pod_name(pod) for pod in pods])
            return
        for pod in pods:
            if not pod["metadata"].get("deletionTimestamp"):
                self._evict(pod)
        self.worker.after(RETRY_SECONDS, lambda: self._drain(node, deadline, force, done))

    def pods(self, node: str) -> list[dict[str, Any]]:
        """The pods of a node that a drain evicts. Finished, DaemonSet and static pods are excluded."""
        answer = self.kube.request("GET", "/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
        return [pod for pod in answer.json().get("items", []) if is_evictable(pod)] if answer.ok else []

    def _evict(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": meta["name"], "namespace": meta["namespace"]}}
        self.kube.request_once("POST", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction", body)

    def _delete(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        self.kube.request_once("DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", None)


def pod_name(pod: dict[str, Any]) -> str:
    """Namespace and name of a pod."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def is_evictable(pod: dict[str, Any]) -> bool:
    """Whether a drain evicts this pod."""
    if pod["status"].get("phase") in ("Succeeded", "Failed"):
        return False
    meta = pod["metadata"]
    if "kubernetes.io/config.mirror" in (meta.get("annotations") or {}):
        return False
    return all(owner["kind"] != "DaemonSet" for owner in meta.get("ownerReferences") or [])
