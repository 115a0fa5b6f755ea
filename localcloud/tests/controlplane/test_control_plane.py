"""The control plane of the local cloud behaves as a real one, nodes included."""

import contextlib
import os
import pathlib
import signal

import requests

from localcloud.tests.support import eventually


def ready_status(kubernetes, node):
    conditions = kubernetes.get(f"/api/v1/nodes/{node}")["status"].get("conditions", [])
    return next((c["status"] for c in conditions if c["type"] == "Ready"), None)


def pods(kubernetes, namespace):
    return kubernetes.get(f"/api/v1/namespaces/{namespace}/pods")["items"]


def running(kubernetes, namespace):
    return [p for p in pods(kubernetes, namespace) if p["status"]["phase"] == "Running" and "deletionTimestamp" not in p["metadata"]]


def evict(kubernetes, pod):
    place = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod["metadata"]["name"]}}
    return kubernetes.api("POST", f"{place}/eviction", body)


def test_the_kubernetes_version_is_supported(kubernetes):
    assert kubernetes.api("GET", "/readyz").text == "ok"
    version = kubernetes.get("/version")
    assert (int(version["major"]), int(version["minor"].rstrip("+"))) >= (1, 30)


def test_a_deployment_runs_on_an_alive_node_only(kubernetes, namespace, node, deployment):
    good, bad = node("alive"), node("never-ready")
    eventually(lambda: ready_status(kubernetes, good) == "True")
    eventually(lambda: ready_status(kubernetes, bad) == "False")
    deployment(3)
    found = eventually(lambda: len(running(kubernetes, namespace)) == 3 and running(kubernetes, namespace))
    assert {p["spec"]["nodeName"] for p in found} == {good}


def test_an_eviction_respects_its_budget(kubernetes, namespace, node, deployment):
    node()
    deployment(1)
    pod = eventually(lambda: running(kubernetes, namespace))[0]
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    kubernetes.create(budgets, {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}})
    eventually(lambda: kubernetes.get(f"{budgets}/web").get("status", {}).get("currentHealthy") == 1)
    assert evict(kubernetes, pod).status_code == 429

    kubernetes.patch(f"/apis/apps/v1/namespaces/{namespace}/deployments/web", {"spec": {"replicas": 2}})
    eventually(lambda: evict(kubernetes, pod).status_code in (201, 404))
    place = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    eventually(lambda: kubernetes.get(place) is None)
    eventually(lambda: len(running(kubernetes, namespace)) == 2)


def test_a_dead_kubelet_is_detected_and_blocks_pod_deletion(kubernetes, namespace, node, deployment):
    name = node()
    place = f"/api/v1/nodes/{name}"
    deployment(2)
    pod = eventually(lambda: len(running(kubernetes, namespace)) == 2 and running(kubernetes, namespace))[0]
    web = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    kubernetes.patch(place, {"metadata": {"labels": {"local.instance-manager/kubelet": "dead"}}})
    eventually(lambda: ready_status(kubernetes, name) == "Unknown")
    eventually(lambda: "node.kubernetes.io/unreachable" in {t["key"] for t in kubernetes.get(place)["spec"].get("taints", [])})
    eventually(lambda: not kubernetes.get(web)["status"].get("readyReplicas"))

    assert evict(kubernetes, pod).status_code == 201
    pod_place = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
    # The Deployment has created a replacement, so the eviction was processed. The old pod remains.
    eventually(lambda: len(pods(kubernetes, namespace)) == 3)
    assert kubernetes.get(pod_place)["metadata"]["deletionTimestamp"]

    kubernetes.patch(place, {"metadata": {"labels": {"local.instance-manager/kubelet": "alive"}}})
    eventually(lambda: kubernetes.get(pod_place) is None)
    eventually(lambda: ready_status(kubernetes, name) == "True")
    eventually(lambda: kubernetes.get(web)["status"].get("readyReplicas") == 2)


def test_pods_may_stay_not_ready_or_complete(kubernetes, namespace, node, deployment):
    node()
    deployment(1, "stuck", {"local.instance-manager/pod": "never-ready"})
    deployment(1, "short", {"local.instance-manager/complete-after": "100ms"})
    eventually(lambda: "Succeeded" in {p["status"]["phase"] for p in pods(kubernetes, namespace)})
    stuck = eventually(lambda: [p for p in running(kubernetes, namespace) if p["metadata"]["labels"]["app"] == "stuck"])
    assert "True" not in [c["status"] for c in stuck[0]["status"]["conditions"] if c["type"] == "Ready"]


def test_the_audit_log_has_every_write_and_no_secret(kubernetes, namespace):
    canary = "CANARY-7f3a"
    maps, secrets = (f"/api/v1/namespaces/{namespace}/{kind}" for kind in ("configmaps", "secrets"))
    kubernetes.create(maps, {"metadata": {"name": "a"}, "data": {"seen": "yes"}})
    kubernetes.create(secrets, {"metadata": {"name": "b"}, "stringData": {"hidden": canary}})
    assert kubernetes.api("GET", f"{maps}/a").ok
    assert kubernetes.api("DELETE", f"{maps}/absent").status_code == 404
    written = [
        (line["user"]["username"], line["verb"], line["objectRef"]["resource"], line["objectRef"].get("name"), line["responseStatus"]["code"])
        for line in kubernetes.audit()
        if line["objectRef"].get("namespace") == namespace and line["user"]["username"] == "admin"
    ]
    assert written == [
        ("admin", "create", "configmaps", "a", 201),
        ("admin", "create", "secrets", "b", 201),
        ("admin", "delete", "configmaps", "absent", 404),
    ]
    assert canary not in str(kubernetes.audit())
    assert any(line.get("requestObject", {}).get("data") == {"seen": "yes"} for line in kubernetes.audit())


def test_a_killed_api_server_restarts_with_its_objects(kubernetes, namespace, node, deployment):
    """A managed control plane restarts its API servers at any time, and etcd keeps everything."""
    name = node("alive")
    deployment(1)
    (before,) = eventually(lambda: running(kubernetes, namespace))
    process = pathlib.Path(kubernetes["logs"]) / "kube-apiserver.pid"
    killed = process.read_text()
    os.kill(int(killed), signal.SIGKILL)
    eventually(lambda: process.read_text() != killed, message="another process")

    def ready():
        with contextlib.suppress(requests.ConnectionError):
            return kubernetes.api("GET", "/readyz").text == "ok"

    eventually(ready, message="the API server")
    assert [p["metadata"]["uid"] for p in running(kubernetes, namespace)] == [before["metadata"]["uid"]]
    eventually(lambda: ready_status(kubernetes, name) == "True", message="the Ready node")
    deployment(1, "more")
    eventually(lambda: len(running(kubernetes, namespace)) == 2, message="work of the scheduler and of kwok")
