"""Fixtures for a control plane without AWS, and for nodes that tests create themselves."""

import pytest


@pytest.fixture(scope="session")
def kubernetes(start_cloud):
    """A control plane without AWS, for this process only."""
    return start_cloud("--no-aws")


@pytest.fixture
def namespace(kubernetes, unique):
    """A namespace for this test, ready for pods."""
    kubernetes.kubectl("create", "namespace", unique)
    kubernetes.kubectl("wait", "--for=create", "serviceaccount/default", "-n", unique, "--timeout=60s")
    yield unique
    kubernetes.kubectl("delete", "namespace", unique, "--wait=false")


@pytest.fixture
def node(kubernetes, unique):
    """Creates a Node with the given kubelet state. Only this test's pods can run on it."""
    names = []

    def make(kubelet="alive"):
        name = f"{unique}-{len(names)}"
        names.append(name)
        sizes = {"cpu": "4", "memory": "8Gi", "pods": "50"}
        kubernetes.create("/api/v1/nodes", {
            "metadata": {"name": name, "labels": {"local.instance-manager/kubelet": kubelet, "test": unique}},
            "spec": {"taints": [{"key": "test", "value": unique, "effect": "NoSchedule"}]},
            # A kubelet registers with Ready=False. Without the condition, the node would be schedulable.
            "status": {"capacity": sizes, "allocatable": sizes, "conditions": [{"type": "Ready", "status": "False"}]},
        })
        return name

    yield make
    for name in names:
        kubernetes.api("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture
def deployment(kubernetes, namespace, unique):
    """Creates a Deployment whose pods run on this test's nodes."""

    def make(replicas, name="web", annotations=None):
        template = {
            "metadata": {"labels": {"app": name}, "annotations": annotations or {}},
            "spec": {
                "nodeSelector": {"test": unique},
                "tolerations": [{"key": "test", "operator": "Exists"}],
                "containers": [{"name": "main", "image": "example.org/none"}],
            },
        }
        return kubernetes.create(f"/apis/apps/v1/namespaces/{namespace}/deployments", {
            "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
        })

    return make
