"""What the API server itself does with an InstanceGroup: columns, selections, defaults and checks that need no controller."""

import itertools

import pytest

from localcloud.tests import support

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


def rolling(**settings):
    return {"strategy": {"rollingUpdate": settings}}


def eks(**configuration):
    return {"provisioner": "eks", "eks": {"configuration": configuration}}


def managed(**configuration):
    return {"provisioner": "eks-managed", "eks-managed": {"configuration": configuration}}


HOOK = {"name": "a", "lifecycle": "launch"}


@pytest.mark.parametrize(("spec", "named"), [
    (sizes(3, 2), "minSize may not be more than maxSize"),
    ({"provisioner": "eks-managed", "eks-managed": {"minSize": 3, "maxSize": 2}}, "minSize may not be more than maxSize"),
    ({"provisioner": "eks", "eks": {"maxSize": 1}, "eks-managed": {"maxSize": 1}}, "only one of eks, eks-managed and eks-fargate"),
    ({"eks": {"configuration": {"taints": [{"key": "a", "effect": "NoSchedul"}]}}}, "effect"),
    ({"strategy": {"rollingUpdate": {"drainTimeout": "two hours"}}}, "drainTimeout"),
    (rolling(drainTimeout="169h"), "drainTimeout may be at most 168h"),
    (rolling(joinTimeout="25h"), "joinTimeout may be at most 24h"),
    (rolling(maxUnavailable=-1), "maxUnavailable may not be negative"),
    (rolling(maxSurge=-1), "maxSurge may not be negative"),
    ({"strategy": {"managed": {"maxUnavailable": 101}}}, "maxUnavailable must be 1 to 100 nodes, or a percentage"),
    ({"strategy": {"crd": {"maxRetries": -2}}}, "maxRetries"),
    (sizes(-1, 2), "spec.eks.minSize"),
    (sizes(1, 10001), "spec.eks.maxSize"),
    ({"eks": {"warmPool": {"minSize": -1}}}, "spec.eks.warmPool.minSize"),
    ({"eks": {"warmPool": {"maxSize": -2}}}, "spec.eks.warmPool.maxSize"),
    (eks(taints=[{"effect": "NoSchedule"}]), "a taint needs a key"),
    (eks(taints=[{"key": "a"}]), "the effect of a taint must be NoSchedule, PreferNoSchedule or NoExecute"),
    (eks(taints=[{"key": "a", "effect": "noschedule"}]), "the effect of a taint must be NoSchedule, PreferNoSchedule or NoExecute"),
    (eks(tags=[{"value": "a"}]), "a tag needs a key"),
    (eks(tagSpecifications=[{"resourceType": "volume", "tags": [{"value": "a"}]}]), "a tag needs a key"),
    (eks(volumes=[{"size": 8}]), "a volume needs a name"),
    (eks(volumes=[{"name": "/dev/xvda", "type": "gp9"}]), "the type of a volume must be gp2, gp3, io1, io2, sc1, st1 or standard"),
    (eks(volumes=[{"name": "/dev/xvda", "size": 8, "snapshotId": "snap-1"}]), "size cannot be combined with snapshotId"),
    (eks(volumes=[{"name": "/dev/xvdb", "mountOptions": {"fileSystem": "xfs", "mount": "data"}}]), "mount must be an absolute path"),
    (eks(volumes=[{"name": "/dev/xvdb", "mountOptions": {"mount": "/data"}}]), "fileSystem must be xfs or ext4"),
    (eks(lifecycleHooks=[{"lifecycle": "launch"}]), "a lifecycle hook needs a name"),
    (eks(lifecycleHooks=[{"name": "a"}]), "lifecycle must be launch or terminate"),
    (eks(lifecycleHooks=[{**HOOK, "heartbeatTimeout": 29}]), "heartbeatTimeout must be 30 to 7200 seconds"),
    (eks(lifecycleHooks=[{**HOOK, "roleArn": "arn:aws:iam::1:role/a"}]), "roleArn needs notificationArn"),
    (eks(metadataOptions={"httpPutHopLimit": 65}), "httpPutHopLimit"),
    (eks(mixedInstancesPolicy={"spotRatio": 101}), "spotRatio must be 0 to 100 percent"),
    (eks(mixedInstancesPolicy={"baseCapacity": -1}), "baseCapacity"),
    (eks(mixedInstancesPolicy={"instancePool": "Any"}), "instancePool must be SubFamilyFlexible"),
    (eks(mixedInstancesPolicy={"instanceTypes": [{"weight": 1}]}), "an entry of instanceTypes needs a type"),
    (eks(mixedInstancesPolicy={"instanceTypes": [{"type": "m5.large", "weight": 1000}]}), "weight"),
    (managed(volSize=16385), "volSize"),
    (managed(taints=[{"effect": "NO_SCHEDULE"}]), "a taint needs a key"),
    (managed(taints=[{"key": "a"}]), "the effect of a taint must be NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE"),
    ({"eks-managed": {"minSize": -1}}, "spec.eks-managed.minSize"),
    ({"eks-managed": {"maxSize": 10001}}, "spec.eks-managed.maxSize"),
    ({"eks-fargate": {"selectors": [{"labels": {"a": "b"}}]}}, "a selector needs a namespace"),
    ({"eks-fargate": {"selectors": [{"namespace": "a"}] * 6}}, "a Fargate profile has at most 5 selectors"),
    ({"provisioner": "gke"}, '"gke": must be one of eks, eks-managed, eks-fargate, fargate'),
    ({"provisioner": "gke\n"}, "must be one of eks, eks-managed, eks-fargate, fargate"),
    ({"strategy": {"type": "rolling"}}, '"rolling": must be one of rollingUpdate, crd, managed'),
    ({"eks": {"type": "asg"}}, '"asg": must be one of LaunchTemplate, LaunchConfiguration'),
    (rolling(drainTimeout="5 parsecs"), '"5 parsecs": must be a duration such as 90s, 15m or 1h30m'),
    (rolling(maxSurge="many"), '"many": must be a number or a percentage such as "25%"'),
    (eks(taints=[{"key": "a", "effect": "never"}]), 'taints[0].effect: Invalid value: "never": must be one of NoSchedule'),
    (eks(taints=[{"key": "a b", "effect": "NoExecute"}]), '"a b": must be a label key ([prefix/]name)'),
    (eks(labels={"team": "my team"}), '"my team": must be a label value'),
    (eks(placement={"tenancy": "own"}), '"own": must be one of default, dedicated, host'),
    (eks(metadataOptions={"httpTokens": "yes"}), '"yes": must be one of optional, required'),
    (eks(mixedInstancesPolicy={"strategy": "cheap"}), '"cheap": must be one of CapacityOptimized'),
    (eks(lifecycleHooks=[{**HOOK, "lifecycle": "boot"}]), '"boot": must be one of launch, terminate'),
    (managed(capacityType="cheap"), '"cheap": must be one of ON_DEMAND, SPOT'),
], ids=str)  # fmt: skip
def test_an_invalid_object_is_rejected_when_it_is_applied(make, spec, named):
    """`kubectl apply` shows the error at once. The condition of a stalled group shows it only to users who read the group."""
    answer = make(spec)
    message = answer.json()["message"]
    assert answer.status_code == 422 and named in message, message
    assert "should match" not in message


@pytest.mark.parametrize("spec", [
    sizes(2, 2), sizes(2, None), sizes(None, 2), sizes(None, None), sizes(3, 0), {"eks": {"minSize": 3}}, {},
    rolling(drainTimeout=None, joinTimeout=None, maxUnavailable=None, maxSurge=None),
    rolling(drainTimeout="", joinTimeout="90s", maxUnavailable="25%", maxSurge=0),
    {"strategy": {"crd": {"maxRetries": -1}, "managed": {"maxUnavailable": "5%"}}},
    eks(volumes=[{"name": "/dev/xvda", "type": None, "size": None, "snapshotId": None}, {"name": "/dev/xvdb", "type": "GP3", "size": 0, "snapshotId": "snap-1"}]),
    eks(taints=[{"key": "a", "value": None, "effect": "NoExecute"}], tags=[{"key": "a"}], spotPrice=None),
    eks(lifecycleHooks=[{**HOOK, "heartbeatTimeout": None, "roleArn": None}, {**HOOK, "name": "b", "heartbeatTimeout": 0, "roleArn": ""}]),
    eks(mixedInstancesPolicy={"spotRatio": None, "instancePool": None, "instanceTypes": [{"type": "m5.large", "weight": None}]}),
    eks(mixedInstancesPolicy={"spotRatio": "60%", "instancePool": "subfamilyflexible"}),
    eks(userData=[{"name": "a", "stage": "unknown"}], placement={"hostResourceGroupArn": "arn:aws:resource-groups:us-west-2:1:group/a"}),
    managed(taints=[{"key": "a", "effect": "no_schedule"}], volSize=None),
    {"eks-fargate": {"selectors": None}},
    {"eks-fargate": {"selectors": [{"namespace": "a"}] * 5}},
    {"provisioner": None, "strategy": {"type": None}, "eks": {"type": None}}, {"provisioner": "", "strategy": {"type": ""}},
    {"provisioner": "EKS-Fargate", "strategy": {"type": "MANAGED"}, "eks": {"type": "launchtemplate"}},
    eks(placement={"tenancy": None}, metadataOptions={"httpTokens": "", "httpEndpoint": None}, labels={"a": "", "b": "x.Y_z-1"}),
    managed(capacityType="spot", labels=None),
], ids=str)  # fmt: skip
def test_what_boundaries_may_complete_is_accepted(make, spec):
    """A null, a zero and an absent field all leave it to the admin's defaults."""
    answer = make(spec)
    assert answer.ok, answer.text


def without_rules(schema):
    """A copy of a schema without the checks that a newer release may add."""
    if isinstance(schema, list):
        return [without_rules(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: without_rules(value) for key, value in schema.items() if key not in ("x-kubernetes-validations", "minimum", "maximum")}


def test_stored_groups_that_break_a_new_rule_stay_editable(kubernetes, namespace, unique):
    """A release with more checks must not block status writes and other edits of groups that exist (CRD validation ratcheting)."""
    group = f"{unique}.example.com"
    definitions, path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", f"/apis/{group}/v1alpha1/namespaces/{namespace}/instancegroups"
    definition = kubernetes.get(f"{definitions}/instancegroups.instancemgr.keikoproj.io")
    names = {**definition["spec"]["names"], "shortNames": [], "kind": "InstanceGroup"}
    spec = {**definition["spec"], "group": group, "names": names}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"instancegroups.{group}"}}
    kubernetes.create(definitions, {**body, "spec": without_rules(spec)})
    make = lambda name, spec: kubernetes.api("POST", path, {"apiVersion": f"{group}/v1alpha1", "kind": "InstanceGroup", "metadata": {"name": name}, "spec": spec})
    broken = eks(taints=[{"key": "a", "effect": "noschedule"}], volumes=[{"name": "/dev/xvda", "type": "gp9"}])
    support.eventually(lambda: make("old", broken).status_code in (201, 409), message="a definition that is served")
    kubernetes.patch(f"{definitions}/instancegroups.{group}", {"spec": spec})
    numbers = itertools.count()
    support.eventually(lambda: make(f"new{next(numbers)}", broken).status_code == 422, message="the new rules")
    edit = lambda change, path=f"{path}/old": kubernetes.api("PATCH", path, change, content_type="application/merge-patch+json")
    assert edit({"status": {"currentState": "Error"}}, f"{path}/old/status").ok
    assert edit({"metadata": {"labels": {"a": "b"}}}).ok
    assert edit({"spec": {"eks": {"configuration": {"instanceType": "m5.large"}}}}).ok
    answer = edit({"spec": {"eks": {"configuration": {"taints": [{"key": "a", "effect": "NOEXECUTE"}]}}}})
    assert answer.status_code == 422 and "the effect of a taint must be" in answer.json()["message"]
    assert edit({"spec": {"eks": {"configuration": {"taints": [{"key": "a", "effect": "NoExecute"}]}}}}).ok
    kubernetes.api("DELETE", f"{definitions}/instancegroups.{group}")


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
