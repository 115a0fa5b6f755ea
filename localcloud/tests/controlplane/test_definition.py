"""What the API server itself does with an InstanceGroup: columns, selections, defaults and checks that need no controller."""

import itertools

import pytest

GROUPS = "/apis/instancemgr.keikoproj.io/v1alpha1"


@pytest.fixture
def make(kubernetes, namespace):
    """Creates an InstanceGroup with this spec; returns the API server's answer."""
    numbers = itertools.count()

    def create(spec):
        body = {"apiVersion": "instancemgr.keikoproj.io/v1alpha1", "kind": "InstanceGroup", "metadata": {"name": f"g{next(numbers)}"}, "spec": spec}
        return kubernetes.api("POST", f"{GROUPS}/namespaces/{namespace}/instancegroups", body)

    return create


def sizes(low, high):
    return {"provisioner": "eks", "eks": {"minSize": low, "maxSize": high}}


@pytest.mark.parametrize(("spec", "named"), [
    (sizes(3, 2), "minSize may not be more than maxSize"),
    ({"provisioner": "eks-managed", "eks-managed": {"minSize": 3, "maxSize": 2}}, "minSize may not be more than maxSize"),
    ({"provisioner": "eks", "eks": {"maxSize": 1}, "eks-managed": {"maxSize": 1}}, "only one of eks, eks-managed and eks-fargate"),
    ({"eks": {"configuration": {"taints": [{"key": "a", "effect": "NoSchedul"}]}}}, "effect"),
    ({"strategy": {"rollingUpdate": {"drainTimeout": "two hours"}}}, "drainTimeout"),
], ids=str)  # fmt: skip
def test_a_mistake_is_told_when_it_is_applied(make, spec, named):
    """`kubectl apply` says it at once; the condition of a stalled group says it to whoever looks there."""
    answer = make(spec)
    assert answer.status_code == 422 and named in answer.json()["message"]


@pytest.mark.parametrize("spec", [sizes(2, 2), sizes(2, None), sizes(None, 2), sizes(None, None), sizes(3, 0), {"eks": {"minSize": 3}}, {}], ids=str)
def test_what_boundaries_may_complete_is_accepted(make, spec):
    """A null, a zero and an absent field all leave it to the admin's defaults."""
    answer = make(spec)
    assert answer.ok, answer.text


def test_a_group_that_no_controller_has_seen_is_not_current(make):
    """kstatus, Flux and Argo CD compare observedGeneration; without one they take a new group for ready."""
    found = make(sizes(1, 2)).json()
    assert found["status"] == {"observedGeneration": -1} and found["metadata"]["generation"] == 1


def test_columns_answer_what_people_ask_first(kubernetes, namespace, make):
    """State, counts and the reason are seen without `describe`; `-o wide` has the rest."""
    name = make(sizes(1, 2)).json()["metadata"]["name"]
    conditions = [{"type": "Stalled", "status": "False", "reason": "Rotating"}, {"type": "Ready", "status": "False", "reason": "Rotating"}]
    status = {"currentState": "InitUpgrade", "nodes": {"desired": 4, "ready": 3, "updated": 1}, "conditions": conditions, "currentMin": 7}
    kubernetes.patch(f"{GROUPS}/namespaces/{namespace}/instancegroups/{name}/status", {"status": status})
    columns, values = kubernetes.kubectl("get", "ig", "-n", namespace, name).splitlines()
    assert columns.split() == ["NAME", "STATE", "DESIRED", "READY", "UPDATED", "REASON", "AGE"]
    assert values.split()[:6] == [name, "InitUpgrade", "4", "3", "1", "Rotating"]
    assert "STRATEGY" in kubernetes.kubectl("get", "ig", "-n", namespace, "-o", "wide")
    selected = kubernetes.kubectl("get", "ig", "-n", namespace, "--field-selector", "status.currentState=InitUpgrade", "-o", "name")
    assert selected.splitlines() == [f"instancegroup.instancemgr.keikoproj.io/{name}"]
