"""The Kubernetes API requests of the simulator: nodes, evictions, aws-auth and watches."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import requests
import yaml

log = logging.getLogger(__name__)
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"


class KubernetesClient:
    """A client of one API server."""

    def __init__(self, access: dict[str, str]) -> None:
        self.url = access["url"].rstrip("/")
        self.access = access
        self.session = self._session(access)

    @staticmethod
    def _session(access: dict[str, str]) -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        session.headers["Authorization"] = f"Bearer {access['token']}"
        session.headers["User-Agent"] = "local-cloud-kubelets"
        session.verify = access["ca"]
        return session

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json", **params: Any) -> requests.Response:
        """Send one request. Retries on a connection error and on a status of 429, or 500 and above."""
        for attempt in range(6):
            try:
                answer = self.session.request(
                    method, self.url + path, data=json.dumps(body) if body is not None else None, params=params,
                    headers={"Content-Type": content_type}, timeout=60,
                )  # fmt: skip
                if answer.status_code < 500 and answer.status_code != 429:
                    return answer
            except requests.RequestException as error:
                if attempt == 5:
                    raise
                log.debug("%s %s: %s", method, path, error)
            time.sleep(0.2 * 2**attempt)
        return answer

    def request_once(self, method: str, path: str, body: Any) -> requests.Response | None:
        """Send one request without retries. Returns None if there was no response."""
        try:
            headers = {"Content-Type": "application/json"}
            return self.session.request(method, self.url + path, data=json.dumps(body) if body else None, headers=headers, timeout=60)
        except requests.RequestException as error:
            log.debug("%s %s: %s", method, path, error)
            return None

    def create_node(self, node: dict[str, Any]) -> requests.Response:
        """Register a node. Like a restarted kubelet, this updates an existing node of the same name."""
        answer = self.request("POST", "/api/v1/nodes", node)
        if answer.status_code == 409:
            answer = self.patch_node(node["metadata"]["name"], {key: node[key] for key in ("metadata", "spec")})
        return answer

    def patch_node(self, name: str, patch: dict[str, Any]) -> requests.Response:
        """Patch a node's metadata or spec."""
        return self.request("PATCH", f"/api/v1/nodes/{name}", patch, MERGE)

    def set_ready(self, name: str, status: str, reason: str, message: str, **labels: str) -> requests.Response:
        """Set a node's condition Ready, and labels with it, as a kubelet may."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        condition = {
            "type": "Ready",
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        return self.request("PATCH", f"/api/v1/nodes/{name}/status", {"metadata": {"labels": labels}, "status": {"conditions": [condition]}}, STRATEGIC)

    def delete_node(self, name: str) -> None:
        """Delete a node, and its pods as the pod garbage collector does."""
        self.request("DELETE", f"/api/v1/nodes/{name}")
        pods = self.request("GET", "/api/v1/pods", fieldSelector=f"spec.nodeName={name}").json().get("items", [])
        for pod in pods:
            meta = pod["metadata"]
            self.request("DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", {"gracePeriodSeconds": 0})

    def add_aws_auth_entry(self, entry: dict[str, Any]) -> None:
        """Add an entry to mapRoles of aws-auth, as EKS does, unless the role has one. Other entries are kept."""
        while True:
            answer = self.request("GET", f"{CONFIG_MAPS}/aws-auth")
            config = answer.json() if answer.status_code == 200 else {"metadata": {"name": "aws-auth"}}
            data = config.setdefault("data", {})
            entries = yaml.safe_load(data.get("mapRoles") or "[]") or []
            if any(str(found.get("rolearn", "")).lower() == entry["rolearn"].lower() for found in entries):
                return
            data["mapRoles"] = append_entry(data.get("mapRoles") or "", entry)
            method, path = ("PUT", f"{CONFIG_MAPS}/aws-auth") if answer.status_code == 200 else ("POST", CONFIG_MAPS)
            if self.request(method, path, config).status_code != 409:
                return

    def remove_aws_auth_entries(self, role_arn: str) -> None:
        """Remove a role's entries from mapRoles of aws-auth, as EKS does. Other entries are kept."""
        while True:
            answer = self.request("GET", f"{CONFIG_MAPS}/aws-auth")
            config = answer.json() if answer.status_code == 200 else {}
            text = (config.get("data") or {}).get("mapRoles") or ""
            remaining = remove_entries(text, role_arn)
            if remaining == text:
                return
            config["data"]["mapRoles"] = remaining
            if self.request("PUT", f"{CONFIG_MAPS}/aws-auth", config).status_code != 409:
                return

    def watch_aws_auth(self, changed: Callable[[str | None], None]) -> None:
        """Call `changed` with mapRoles of aws-auth, now and after changes, from a new thread. Changes that come while it is
        at work are handled as one.
        """
        found: queue.SimpleQueue[str | None] = queue.SimpleQueue()

        def handle() -> None:
            while True:
                latest = found.get()
                while not found.empty():
                    latest = found.get()
                started = time.monotonic()
                changed(latest)
                # A list of thousands of roles takes long, and must not take the whole processor.
                time.sleep(time.monotonic() - started)

        for work in (handle, lambda: self._watch_aws_auth(found.put)):
            threading.Thread(target=work, name="aws-auth", daemon=True).start()

    def _watch_aws_auth(self, changed: Callable[[str | None], None]) -> None:
        def roles(item: dict[str, Any]) -> str:
            return (item.get("data") or {}).get("mapRoles", "")

        self.list_and_watch(
            CONFIG_MAPS,
            {"fieldSelector": "metadata.name=aws-auth"},
            lambda items: changed(roles(items[0]) if items else None),
            lambda event, item: changed(None if event == "DELETED" else roles(item)),
        )

    def list_and_watch(
        self,
        path: str,
        params: dict[str, str],
        listed: Callable[[list[dict[str, Any]]], None],
        changed: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """List, then watch, forever.

        `listed` gets all existing objects after each list. `changed` gets each change: ADDED, MODIFIED or DELETED.
        """
        session = self._session(self.access)
        while True:
            try:
                found = session.get(self.url + path, params=params, timeout=60).json()
                listed(found["items"])
                watch_params = {"watch": "1", "resourceVersion": found["metadata"]["resourceVersion"], "timeoutSeconds": "3000"}
                with session.get(self.url + path, params=params | watch_params, stream=True, timeout=(10, None)) as stream:
                    for line in stream.iter_lines(chunk_size=2**20):
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            break
                        changed(event["type"], event["object"])
            except (requests.RequestException, ValueError, KeyError) as error:
                log.debug("watch of %s: %s", path, error)
                time.sleep(0.5)


def append_entry(text: str, entry: dict[str, Any]) -> str:
    """Append an entry to a YAML list. A list in block style keeps its formatting."""
    root = yaml.compose(text)
    if isinstance(root, yaml.SequenceNode) and root.value and not root.flow_style and not root.start_mark.column:
        return text.rstrip("\n") + "\n" + yaml.safe_dump([entry])
    return yaml.safe_dump([*(yaml.safe_load(text or "[]") or []), entry])


def remove_entries(text: str, role_arn: str) -> str:
    """Remove the entries of a role from a YAML list. The other entries keep their formatting."""
    root = yaml.compose(text or "[]")
    lines = text.splitlines(keepends=True)
    for node in reversed(root.value if isinstance(root, yaml.SequenceNode) else []):
        found = yaml.safe_load(yaml.serialize(node))
        if isinstance(found, dict) and str(found.get("rolearn", "")).lower() == role_arn.lower():
            if root.flow_style:
                return yaml.safe_dump([e for e in yaml.safe_load(text) if str(e.get("rolearn", "")).lower() != role_arn.lower()])
            del lines[node.start_mark.line : last_line(node) + 1]
    return "".join(lines)


def last_line(node: Any) -> int:
    """The last line of a YAML value."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return node.end_mark.line
    last = node.value[-1]
    return last_line(last[1] if isinstance(last, tuple) else last)
