"""What the tests of rotations share: short words for groups, workloads and what the logs contain about them."""

import datetime

from e2e import logs

ROTATION = 400
"""How long a test waits for a whole rotation, in seconds."""
DISRUPTION = "instancemgr.keikoproj.io/disruption"


def images(cloud, family="amazonlinux2023"):
    """Image ids of one OS family, oldest first."""
    return cloud["amis"][family]


def start_group(tenant, nodes, image=None, name="web", annotations=None, **rolling):
    """A group of that many Ready nodes, which run the oldest image and have the label `pool`."""
    tenant.set_defaults(image=image or images(tenant.cloud)[0])
    return add_group(tenant, nodes, name, annotations, **rolling)


def add_group(tenant, nodes, name, annotations=None, **rolling):
    """A further group of the same tenant."""
    strategy = {"type": "rollingUpdate", "rollingUpdate": {"maxUnavailable": 1, **rolling}}
    group = tenant.group(name, spec={"strategy": strategy}, annotations=annotations, size=(nodes, nodes + 4), labels=pool(tenant, name))
    group.wait_ready(nodes=nodes)
    return group


def pool(tenant, name="web"):
    """The label that a group's nodes have and no other."""
    return {"pool": f"{tenant.unique}-{name}"}


def spread(app):
    """A pod's affinity: not two of `app` on one node."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def block_drains(tenant, replicas, app="app", name="web"):
    """One pod on each node, and a budget that lets none of them go."""
    tenant.deployment(app, replicas, pool(tenant, name), {"maxUnavailable": 0}, affinity=spread(app))
    tenant.wait_pods_running(replicas, app)


def allow_disruptions(tenant, allowed=1, app="app"):
    """Lets so many of the pods go at once."""
    tenant.cloud.patch(f"/apis/policy/v1/namespaces/{tenant.namespace}/poddisruptionbudgets/{app}", {"spec": {"maxUnavailable": allowed}})


def wait_rotated(group, old, nodes, image):
    """Waits until none of the instances `old` is left and the group is Ready on `image`."""
    group.wait(lambda g: not set(g.instances(None)) & set(old), ROTATION, "the end of every old node")
    group.wait_ready(nodes=nodes)
    assert {i["LaunchTemplate"]["Version"] for i in group.asg()["Instances"]} == {group.pinned()}
    assert group.template_versions()[int(group.pinned()) - 1]["LaunchTemplateData"]["ImageId"] == image


def draining_nodes(group):
    """The group's nodes that carry a record of disruption."""
    return [n for n in group.nodes() if DISRUPTION in n["metadata"].get("annotations", {})]


def wait_draining(group, count=1):
    """Waits until so many nodes are being drained, and returns them."""
    return group.wait(lambda g: len(found := draining_nodes(g)) == count and found, what=f"{count} nodes being drained")


def in_standby(group):
    """Ids of its instances in standby."""
    return [i["InstanceId"] for i in group.asg()["Instances"] if "Standby" in i["LifecycleState"]]


def terminated(group, after=0):
    """Instances that the controller terminated, in order."""
    calls = [e for e in group.writes(after) if e["operation"] == "TerminateInstanceInAutoScalingGroup" and e["status"] < 300]
    return [e["params"]["InstanceId"] for e in calls]


def calls(group, operation, after=0):
    """The controller's calls of one operation for this group."""
    return [e for e in group.writes(after) if e["operation"] == operation]


def node_names(group):
    """Names of every node that the group ever had."""
    return {e["id"] for e in group.events_in_aws() if e["kind"] == "state" and e["object"] == "node" and e["state"] == "joined"}


def cordons(group, after="", on=True):
    """The controller's changes of `unschedulable` on this group's nodes since a moment: (moment, node)."""
    names = node_names(group)
    found = logs.cordons(group.cloud.audit())
    return [(when, node) for when, node, cordoned, user in found if node in names and cordoned == on and user == logs.CONTROLLER and when > after]


def evictions(tenant, after=""):
    """The controller's accepted evictions in the tenant's namespace since a moment: (moment, pod)."""
    found = logs.audited_writes(tenant.cloud.audit(), "pods", namespace=tenant.namespace, subresource="eviction", user=logs.CONTROLLER)
    return [(logs.timestamp(e), e["objectRef"]["name"]) for e in found if logs.timestamp(e) > after]


def deleted_pods(tenant):
    """Pods of the tenant that the controller deleted without the eviction API."""
    found = logs.audited_writes(tenant.cloud.audit(), "pods", namespace=tenant.namespace, subresource="", user=logs.CONTROLLER)
    return [e for e in found if e["verb"] == "delete"]


def progress(group):
    """What `.status.nodes` was after each write that changed it, in order."""
    written = logs.audited_writes(group.cloud.audit(), "instancegroups", name=group.name, namespace=group.tenant.namespace, subresource="status")
    found = [{}]
    for event in written:
        changes = (event.get("requestObject") or {}).get("status", {}).get("nodes")
        if changes:
            found.append({**found[-1], **changes})
    return found[1:]


def now_utc():
    """The present time in the format of the logs."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")[:26]


def event_message(event):
    """An event's message."""
    return event.get("message") or event.get("note") or ""
