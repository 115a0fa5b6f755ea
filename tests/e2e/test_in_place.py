"""Labels, taints and tags change on running nodes where the group asks for it, and everything else replaces them."""

import contextlib
import json

from e2e import logs, rotation
from localcloud.tests import support

MERGE = "application/merge-patch+json"
RECORD = "instancemgr.keikoproj.io/in-place"
TAINT = {"key": "dedicated", "value": "search", "effect": "NoSchedule"}


def labels(tenant, **extra):
    """The labels of a group in its spec; None removes one."""
    return {**rotation.pool(tenant), **extra}


def taints(node):
    """A node's taints but for those of Kubernetes."""
    return [t for t in node["spec"].get("taints", []) if not t["key"].startswith("node.kubernetes.io/")]


def wait_changed(group, team, found_taints):
    """Waits until the group is Ready and each of its nodes has this label and these taints."""
    def changed(g):
        nodes = g.nodes()
        return nodes and all(n["metadata"]["labels"].get("team") == team and taints(n) == found_taints for n in nodes)
    group.wait(changed, what=f"team={team} and {found_taints} on each node")
    group.wait_ready()


def node_patches(group, after=""):
    """The controller's accepted writes to this group's nodes that change labels or taints, as (node, body)."""
    names = rotation.node_names(group)
    found = logs.audited_writes(group.cloud.audit(), "nodes", subresource="", user=logs.CONTROLLER)
    found = [(e["objectRef"]["name"], e["requestObject"]) for e in found if logs.timestamp(e) > after]
    return [(name, body) for name, body in found if name in names and RECORD in body["metadata"].get("annotations", {})]


def node_events(tenant, node):
    """The events on a Node."""
    found = tenant.cloud.get("/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    return [e for e in found if e["regarding"].get("name") == node["metadata"]["name"]]


def test_labels_and_taints_change_without_a_rotation_and_an_image_rotates_later(tenant):
    """Without this, a new label would drain every node, or the nodes would lose what a person set on them."""
    group = rotation.start_group(tenant, 2, inPlace=["labels", "taints"])
    old, (first, second) = group.instances(), group.nodes()
    place = f"/api/v1/nodes/{first['metadata']['name']}"
    tenant.cloud.patch(place, {"metadata": {"labels": {"mine": "x"}}, "spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}})
    group.annotate(lock_upgrades="true")
    group.patch_spec(labels=labels(tenant, team="search"), taints=[TAINT])
    group.wait(lambda g: all(TAINT in taints(n) and n["metadata"]["labels"].get("team") == "search" for n in g.nodes()), what="the label and the taint on each node")
    group.annotate(lock_upgrades=None)
    group.wait_ready(nodes=2)
    assert {"key": "mine", "effect": "NoSchedule"} in taints(tenant.cloud.get(place)), "a person's taint stays"
    patched = node_patches(group)
    assert sorted(name for name, _ in patched) == sorted(n["metadata"]["name"] for n in (first, second)), "one write for each node"
    assert all("resourceVersion" in body["metadata"] for _, body in patched), "the list of taints is replaced as a whole"
    assert group.pinned() == "2" and group.status()["nodes"] == {"desired": 2, "ready": 2, "updated": 2, "outdated": 0, "draining": 0}
    assert group.wait_event("NodesChangedInPlace", "labels[team]: (none) -> search, taints: (none) -> dedicated=search:NoSchedule on ")
    group.wait(lambda g: any(e["reason"] == "NodeChangedInPlace" and g.key in e["note"] for e in node_events(tenant, first)), what="the event on the Node")
    changed_at = rotation.now_utc()
    tenant.cloud.patch(place, {"spec": {"taints": None}})
    group.patch_spec(labels={"team": None}, taints=[])
    group.wait(lambda g: all("team" not in n["metadata"]["labels"] and not taints(n) for n in g.nodes()), what="nodes without them")
    group.wait_ready(nodes=2)
    assert tenant.cloud.get(place)["metadata"]["labels"]["mine"] == "x", "a person's label stays"
    assert len(node_patches(group, changed_at)) == 2
    assert rotation.terminated(group) == [] and rotation.cordons(group) == [] and sorted(group.instances()) == sorted(old)
    new_image = rotation.images(tenant.cloud)[1]
    tenant.set_defaults(image=new_image)
    rotation.wait_rotated(group, old, 2, new_image)
    assert group.max_unavailable_seen() == 1 and group.undrained() == {}
    assert not any(RECORD in n["metadata"].get("annotations", {}) for n in group.nodes()), "new nodes start with the spec's labels"


def test_a_scale_out_gets_new_labels_and_a_node_that_registers_again_is_changed_again(tenant):
    """Without this, nodes of one group would differ until the next rotation."""
    group = rotation.start_group(tenant, 1, inPlace=["labels"])
    (node,) = group.nodes()
    group.patch_spec(labels=labels(tenant, team="search"))
    wait_changed(group, "search", [])
    record = json.loads(group.nodes()[0]["metadata"]["annotations"][RECORD])
    assert record["instance"] == group.instances()[0] and record["labels"]["team"] == "search" and "taints" not in record
    tenant.cloud.boto("autoscaling").set_desired_capacity(AutoScalingGroupName=group.scaling_group, DesiredCapacity=2)
    group.wait_ready(nodes=2)
    wait_changed(group, "search", [])
    assert len(node_patches(group)) == 1, "the new node was launched with the label"
    # The kubelet of a Node that was deleted registers it with the labels of its launch, and without the record.
    place = f"/api/v1/nodes/{node['metadata']['name']}"
    tenant.cloud.patch(place, {"metadata": {"labels": {"team": None}, "annotations": {RECORD: None}}})
    wait_changed(group, "search", [])
    assert len(node_patches(group)) == 2 and rotation.terminated(group) == []


@contextlib.contextmanager
def denied_label(group, value):
    """An admission policy that lets no client give a node the label `team` with this value, from the moment when it is in force."""
    cloud = group.cloud
    place, name = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic", f"no-{value}"
    given, had = (f"'team' in {where}.metadata.labels && {where}.metadata.labels['team'] == '{value}'" for where in ("object", "oldObject"))
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["UPDATE"]}
    validation = {"expression": f"!({given}) || ({had})", "message": f"{value} is not a team", "reason": "Forbidden"}
    cloud.create(f"{place}ies", {"metadata": {"name": name}, "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}})
    cloud.create(f"{place}ybindings", {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]}})

    def is_active():
        """Whether an administrator may not label any of the group's present nodes so."""
        paths = [f"/api/v1/nodes/{node['metadata']['name']}?dryRun=All" for node in group.nodes()]
        answers = [cloud.api("PATCH", path, {"metadata": {"labels": {"team": value}}}, content_type=MERGE) for path in paths]
        return 403 in [answer.status_code for answer in answers]

    try:
        # The API server learns of policies a moment later, and the controller's first change would get past.
        support.eventually(is_active, message="the active policy")
        yield
    finally:
        for kind in ("ybindings", "ies"):
            cloud.api("DELETE", f"{place}{kind}/{name}")


def refused_patches(group):
    """The controller's writes to this group's nodes that the API server refused."""
    names = rotation.node_names(group)
    found = [e for e in group.cloud.audit() if e.get("objectRef", {}).get("resource") == "nodes" and e["user"]["username"] == logs.CONTROLLER]
    return [e for e in found if e["objectRef"]["name"] in names and e["responseStatus"]["code"] == 403]


def test_a_policy_that_denies_a_label_does_not_stop_the_rotation(tenant):
    """One label would keep old nodes forever, and uncordon those whose pods were evicted already."""
    group = rotation.start_group(tenant, 3, inPlace=["labels"])
    old, new_image, team = group.instances(), rotation.images(tenant.cloud)[1], tenant.unique
    tenant.set_defaults(image=new_image)
    group.wait(lambda g: set(g.instances()) - set(old), what="the first new node")
    group.annotate(lock_upgrades="true")
    with denied_label(group, team):
        group.patch_spec(labels=labels(tenant, team=team))
        group.wait(lambda g: len(refused_patches(g)) >= 5, what="changes that the policy denied")
        group.wait(lambda g: f"{team} is not a team" in json.dumps(g.status()["conditions"]), what="the policy's message in the status")
        group.annotate(lock_upgrades=None)
        group.wait(lambda g: not set(g.instances(None)) & set(old), rotation.ROTATION, "the end of every old node")
        assert group.undrained() == {}
    group.patch_spec(labels=labels(tenant, team="search"))
    wait_changed(group, "search", [])


def test_without_in_place_a_label_replaces_nodes(tenant):
    """Without this, nodes would change although their group never asked for it."""
    group = rotation.start_group(tenant, 1)
    old = group.instances()
    group.patch_spec(labels=labels(tenant, team="search"))
    rotation.wait_rotated(group, old, 1, rotation.images(tenant.cloud)[0])
    assert rotation.terminated(group) == old and node_patches(group) == []


def test_an_evicting_taint_replaces_nodes_one_after_the_other(tenant):
    """Without this, a NoExecute taint would evict the pods of all nodes at once, past their budget."""
    group = rotation.start_group(tenant, 2, inPlace=["labels", "taints"])
    old = group.instances()
    group.patch_spec(labels=labels(tenant, team="search"), taints=[{**TAINT, "effect": "NoExecute"}])
    rotation.wait_rotated(group, old, 2, rotation.images(tenant.cloud)[0])
    assert group.max_unavailable_seen() == 1 and group.undrained() == {} and node_patches(group) == []


def tags_of(group):
    """The tags of the group's instances, by instance."""
    found = group.cloud.boto("ec2").describe_instances(InstanceIds=group.instances())
    instances = [instance for reservation in found["Reservations"] for instance in reservation["Instances"]]
    return {i["InstanceId"]: {tag["Key"]: tag["Value"] for tag in i["Tags"]} for i in instances}


def test_tags_change_on_running_instances_and_foreign_tags_stay(tenant):
    """AWS would bill the old team until the next rotation."""
    group = rotation.start_group(tenant, 2, inPlace=["tags"])
    old = sorted(group.instances())
    ec2 = group.cloud.boto("ec2")
    group.patch_spec(tags=[{"key": "cost", "value": "a"}, {"key": "stage", "value": "test"}])
    group.wait(lambda g: all(t.get("cost") == "a" and t.get("stage") == "test" for t in tags_of(g).values()), what="both tags on each instance")
    # An edit between a change and its record makes the record fail, and the next change starts from what was recorded.
    group.wait_event("InstancesTagged", "tags[cost]: (none) -> a")
    ec2.create_tags(Resources=old[:1], Tags=[{"Key": "stage", "Value": "a person's"}, {"Key": "mine", "Value": "x"}])
    group.patch_spec(tags=[{"key": "cost", "value": "b"}])
    group.wait(lambda g: all(t.get("cost") == "b" for t in tags_of(g).values()) and "stage" not in tags_of(g)[old[1]], what="the new tags on each instance")
    group.wait_ready(nodes=2)
    first = tags_of(group)[old[0]]
    assert (first["stage"], first["mine"]) == ("a person's", "x") and first["instancegroups.keikoproj.io/InstanceGroup"] == group.name
    assert group.wait_event("InstancesTagged", "tags[cost]: a -> b")
    assert rotation.terminated(group) == [] and sorted(group.instances()) == old and rotation.cordons(group) == []
    group.cloud.boto("autoscaling").set_desired_capacity(AutoScalingGroupName=group.scaling_group, DesiredCapacity=3)
    group.wait_ready(nodes=3)
    assert {t["cost"] for t in tags_of(group).values()} == {"b"}
    calls = [e for e in group.cloud.aws_events() if e["kind"] == "call" and e["operation"] in ("CreateTags", "DeleteTags") and e["service"] == "ec2" and old[0] in json.dumps(e["params"])]
    operations = [e["operation"] for e in calls if e["caller"]["key"] == "controller"]
    assert operations == ["CreateTags", "CreateTags", "DeleteTags"], "one call for each change, whatever the number of instances"
