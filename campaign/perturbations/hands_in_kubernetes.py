"""People's hands in Kubernetes: nodes, InstanceGroups, aws-auth, the ConfigMap, locks, budgets and the lease."""

import re

from campaign import aspects, foreign_resources
from campaign.person import Person
from campaign.perturbations import perturbation
from e2e.harness import AWS_AUTH, CONFIG, PREFIX

NODES = ("eks", "eks-managed")
INDEX = [0, 1, 2]
LATER = [3, 10, None]
LOCK = PREFIX + "lock-upgrades"
BUDGETS = "/apis/policy/v1/namespaces/camp/poddisruptionbudgets"

# --- nodes ----------------------------------------------------------------------------------------


@perturbation("node cordoned", needs=NODES, index=INDEX, later=LATER)
def node_cordoned(stage, group, index, later):
    """It counts as unavailable, and stays cordoned until a person uncordons it."""
    person = Person(stage, group)
    if path := person.node(index):
        person.patch(path, {"spec": {"unschedulable": True}})
        stage.undo(lambda: person.patch(path, {"spec": {"unschedulable": None}}), after=later)


@perturbation("drained nodes uncordoned", needs=NODES, times=[1, 4])
def drained_nodes_uncordoned(stage, group, times):
    """None of them is terminated with new pods on it."""
    for _ in range(times):
        for node in Person(stage, group).nodes():
            if node["spec"].get("unschedulable"):
                Person(stage, group).patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": None}})
        stage.wait(0.7)


@perturbation("Node deleted", needs=NODES, index=INDEX)
def node_deleted(stage, group, index):
    """Its pods go with it and its instance runs on, until a person terminates it."""
    person = Person(stage, group)
    if path := person.node(index):
        instance = stage.cloud.get(path)["spec"]["providerID"].rpartition("/")[2]
        stage.cloud.api("DELETE", path)
        person.undo("ec2", "terminate_instances", after=5, InstanceIds=[instance])


@perturbation("marks of nodes wiped", needs=NODES, key=[PREFIX + "disruption", PREFIX + "surge", "label"])
def marks_of_nodes_wiped(stage, group, key):
    """What the controller records on Nodes is gone: a node that it drained may then be anybody's, so a person uncordons it."""
    person = Person(stage, group)
    for node in person.nodes():
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        if key == "label":
            person.patch(path, {"metadata": {"labels": {"kubernetes.io/role": None}}})
        elif key in node["metadata"].get("annotations", {}):
            person.patch(path, {"metadata": {"annotations": {key: None}}, "spec": {"unschedulable": None}})


# --- InstanceGroups -------------------------------------------------------------------------------


@perturbation("status wiped", part=["all", "managed", "conditions", "currentState"])
def status_wiped(stage, group, part):
    """As by a restore from a backup: it is written again, and no node is replaced.

    Until then nobody knows of a thing that leaves the spec meanwhile whether the controller had made it.
    """
    path = stage.path(group)
    found = stage.cloud.get(path) or {}
    wiped = dict.fromkeys(found.get("status", {})) if part == "all" else {part: None}
    Person(stage, group).patch(path + "/status", {"status": wiped})
    if "managed" in wiped:
        stage.wait_until(lambda: (stage.cloud.get(path) or {}).get("status", {}).get("managed"), 15)


@perturbation("finalizer taken off")
def finalizer_taken_off(stage, group):
    """It comes back, so that the group's resources go with it."""
    Person(stage, group).patch(stage.path(group), {"metadata": {"finalizers": None}})


@perturbation("made again without its finalizer", status=[True, False])
def made_again_without_its_finalizer(stage, group, status):
    """Everything in AWS stays, and the new InstanceGroup takes it over, with its status or without."""
    person = Person(stage, group)
    found = stage.cloud.get(stage.path(group))
    if not found or "deletionTimestamp" in found["metadata"]:
        return
    stage.cloud.api("DELETE", stage.path(group))
    stage.wait_until(lambda: person.patch(stage.path(group), {"metadata": {"finalizers": None}}) is False, 20)
    kept = {key: found[key] for key in ("apiVersion", "kind", "spec")}
    made = {**kept, "metadata": {key: found["metadata"].get(key) for key in ("name", "namespace", "annotations")}}
    stage.cloud.server_side_apply(made)
    if status and "status" in found:
        person.patch(stage.path(group) + "/status", {"status": found["status"]})


@perturbation("annotations of others", value=["1", "2"])
def annotations_of_others(stage, group, value):
    """They change nothing."""
    Person(stage, group).patch(stage.path(group), {"metadata": {"annotations": {"example.com/theirs": value}, "labels": {"theirs": value}}})


# --- aws-auth -------------------------------------------------------------------------------------


@perturbation("aws-auth entries removed", needs="eks")
def aws_auth_entries_removed(stage, group):
    """Nodes lose the cluster until their entry is back."""
    stage.cloud.edit_map_roles(lambda text: "".join(entry for entry in entries(text) if f"/demo-camp-{group}\n" not in entry))


@perturbation("aws-auth deleted", when=lambda scenario: scenario["mode"] != "API")
def aws_auth_deleted(stage):
    """The controller's entries come back by themselves, those of others and of EKS by people."""
    of_eks = [f"/{aspects.PEOPLE}{name}\n" for name, group in stage.present.items() if group["spec"].get("provisioner") == "eks-managed"]
    theirs = [entry for entry in entries(stage.cloud.map_roles().replace(foreign_resources.AUTH, "")) if any(role in entry for role in of_eks)] + [foreign_resources.AUTH]
    stage.cloud.api("DELETE", AWS_AUTH)
    stage.undo(lambda: stage.cloud.edit_map_roles(lambda text: text + "".join(entry for entry in theirs if entry not in text)), after=1)


@perturbation("aws-auth broken", later=LATER, text=["- rolearn: {\n", "rolearn\n"])
def aws_auth_broken(stage, later, text):
    """No controller can parse it, so none writes it, until a person corrects it."""
    stage.cloud.edit_map_roles(lambda now: now + text)
    stage.undo(lambda: stage.cloud.edit_map_roles(lambda now: now.replace(text, "")), after=later)


@perturbation("aws-auth entry edited", needs="eks", later=LATER)
def aws_auth_entry_edited(stage, group, later):
    """Two opinions about one role: it stays as it is until a person takes the other one back."""

    def swap(one, other):
        return lambda text: "".join(entry.replace(one, other) if f"/demo-camp-{group}\n" in entry else entry for entry in entries(text))

    stage.cloud.edit_map_roles(swap("system:bootstrappers", "system:theirs"))
    stage.undo(lambda: stage.cloud.edit_map_roles(swap("system:theirs", "system:bootstrappers")), after=later)


def entries(text):
    """The entries of mapRoles, as text."""
    return re.split(r"^(?=- )", text, flags=re.MULTILINE)


# --- the ConfigMap --------------------------------------------------------------------------------


@perturbation("ConfigMap deleted", later=LATER, copy=[True, False])
def config_map_deleted(stage, later, copy):
    """Perhaps with the copy of its last good revision: then nothing is changed, also no group is deleted, until a person puts it back."""
    stage.cloud.api("DELETE", CONFIG)
    if copy:
        stage.cloud.api("DELETE", CONFIG + "-last-good")
    stage.undo(lambda: stage.configure(stage.config), after=later or 10 if copy else later)


@perturbation("ConfigMap broken", later=LATER, data=[{"boundaries": "restricted: {"}, {"defaults": "spec: ["}, {"boundaries": None}, {"defaults": None}])
def config_map_broken(stage, later, data):
    """What cannot be read changes nothing; what is left out changes what it says. A person puts it right."""
    Person(stage, None).patch(CONFIG, {"data": data})
    stage.undo(lambda: stage.configure(stage.config), after=later)


# --- locks and budgets ----------------------------------------------------------------------------


@perturbation("lock", where=["group", "Namespace", "ConfigMap"], later=LATER)
def lock(stage, group, where, later):
    """A person sets `lock-upgrades`, and removes it later."""
    path = {"group": stage.path(group), "Namespace": "/api/v1/namespaces/camp", "ConfigMap": CONFIG}[where]
    person = Person(stage, group)
    person.patch(path, {"metadata": {"annotations": {LOCK: "true"}}})
    stage.undo(lambda: person.patch(path, {"metadata": {"annotations": {LOCK: None}}}), after=later)


@perturbation("budget that blocks", needs=NODES, later=LATER)
def budget_that_blocks(stage, group, later):
    """No pod may go until a person relaxes it."""
    person = Person(stage, group)
    person.patch(f"{BUDGETS}/on-{group}", {"spec": {"maxUnavailable": 0}})
    stage.undo(lambda: person.patch(f"{BUDGETS}/on-{group}", {"spec": {"maxUnavailable": 1}}), after=later)


@perturbation("second budget", needs=NODES, later=LATER)
def second_budget(stage, group, later):
    """The API server evicts no pod of two budgets."""
    budget = {"metadata": {"name": f"also-{group}"}, "spec": {"selector": {"matchLabels": {"app": f"on-{group}"}}, "maxUnavailable": 1}}
    if stage.cloud.api("POST", BUDGETS, budget).ok:
        stage.undo(lambda: stage.cloud.api("DELETE", f"{BUDGETS}/also-{group}"), after=later)


@perturbation("pods that stay", needs=NODES, later=LATER)
def pods_that_stay(stage, group, later):
    """A finalizer keeps evicted pods until a person takes it off."""
    person, pods = Person(stage, group), "/api/v1/namespaces/camp/pods"
    held = [f"{pods}/{p['metadata']['name']}" for p in stage.cloud.get(pods)["items"] if p["metadata"]["labels"].get("app") == f"on-{group}"]
    for path in held:
        person.patch(path, {"metadata": {"finalizers": ["example.com/theirs"]}})
        stage.undo(lambda path=path: person.patch(path, {"metadata": {"finalizers": None}}), after=later)


# --- the lease ------------------------------------------------------------------------------------


@perturbation("lease deleted")
def lease_deleted(stage):
    """The leader no longer knows that it is alone."""
    stage.cloud.api("DELETE", stage.settings["lease"])


@perturbation("lease taken", renewals=[1, 4])
def lease_taken(stage, renewals):
    """Another process holds it for a while, and does nothing."""
    person = Person(stage, None)
    for _ in range(renewals):
        person.patch(stage.settings["lease"], {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 2}})
        stage.wait(1)
