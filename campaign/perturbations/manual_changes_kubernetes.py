"""Changes that users make by hand in Kubernetes: nodes, InstanceGroups, aws-auth, the ConfigMap, locks, budgets and the lease."""

import re

from campaign import foreign_resources, spec_generator
from campaign.perturbations import perturbation
from campaign.user import User
from e2e.harness import AWS_AUTH, CONFIG, PREFIX

NODES = ("eks", "eks-managed")
INDEX = [0, 1, 2]
LATER = [3, 10, None]
LOCK = PREFIX + "lock-upgrades"
BUDGETS = "/apis/policy/v1/namespaces/camp/poddisruptionbudgets"

# --- nodes ----------------------------------------------------------------------------------------


@perturbation("node cordoned", needs=NODES, index=INDEX, later=LATER)
def node_cordoned(runner, group, index, later):
    """It counts as unavailable, and stays cordoned until a user uncordons it."""
    user = User(runner, group)
    if path := user.node(index):
        user.patch(path, {"spec": {"unschedulable": True}})
        runner.undo(lambda: user.patch(path, {"spec": {"unschedulable": None}}), after=later)


@perturbation("drained nodes uncordoned", needs=NODES, times=[1, 4])
def drained_nodes_uncordoned(runner, group, times):
    """None of them is terminated with new pods on it."""
    for _ in range(times):
        for node in User(runner, group).nodes():
            if node["spec"].get("unschedulable"):
                User(runner, group).patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": None}})
        runner.wait(0.7)


@perturbation("Node deleted", needs=NODES, index=INDEX)
def node_deleted(runner, group, index):
    """Its pods go with it and its instance runs on, until a user terminates it."""
    user = User(runner, group)
    if path := user.node(index):
        instance = runner.cloud.get(path)["spec"]["providerID"].rpartition("/")[2]
        runner.cloud.api("DELETE", path)
        user.undo("ec2", "terminate_instances", after=5, InstanceIds=[instance])


@perturbation("marks of nodes wiped", needs=NODES, key=[PREFIX + "disruption", PREFIX + "surge", "label"])
def node_annotations_deleted(runner, group, key):
    """What the controller records on Nodes is gone: a node that it drained may then be anybody's, so a user uncordons it."""
    user = User(runner, group)
    for node in user.nodes():
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        if key == "label":
            user.patch(path, {"metadata": {"labels": {"kubernetes.io/role": None}}})
        elif key in node["metadata"].get("annotations", {}):
            user.patch(path, {"metadata": {"annotations": {key: None}}, "spec": {"unschedulable": None}})


# --- InstanceGroups -------------------------------------------------------------------------------


@perturbation("status wiped", part=["all", "managed", "conditions", "currentState"])
def status_deleted(runner, group, part):
    """As by a restore from a backup: it is written again, and no node is replaced.

    Until then it is unknown whether the controller had made a thing that leaves the spec meanwhile.
    """
    path = runner.path(group)
    found = runner.cloud.get(path) or {}
    wiped = dict.fromkeys(found.get("status", {})) if part == "all" else {part: None}
    User(runner, group).patch(path + "/status", {"status": wiped})
    if "managed" in wiped:
        runner.wait_until(lambda: (runner.cloud.get(path) or {}).get("status", {}).get("managed"), 15)


@perturbation("finalizer taken off")
def finalizer_removed(runner, group):
    """It comes back, so that the group's resources go with it."""
    User(runner, group).patch(runner.path(group), {"metadata": {"finalizers": None}})


@perturbation("made again without its finalizer", status=[True, False])
def group_recreated_without_its_finalizer(runner, group, status):
    """Everything in AWS stays, and the new InstanceGroup takes it over, with its status or without."""
    user = User(runner, group)
    found = runner.cloud.get(runner.path(group))
    if not found or "deletionTimestamp" in found["metadata"]:
        return
    runner.cloud.api("DELETE", runner.path(group))
    runner.wait_until(lambda: user.patch(runner.path(group), {"metadata": {"finalizers": None}}) is False, 20)
    kept = {key: found[key] for key in ("apiVersion", "kind", "spec")}
    made = {**kept, "metadata": {key: found["metadata"].get(key) for key in ("name", "namespace", "annotations")}}
    runner.cloud.server_side_apply(made)
    if status and "status" in found:
        user.patch(runner.path(group) + "/status", {"status": found["status"]})


@perturbation("annotations of others", value=["1", "2"])
def foreign_annotations(runner, group, value):
    """They change nothing."""
    User(runner, group).patch(runner.path(group), {"metadata": {"annotations": {"example.com/theirs": value}, "labels": {"theirs": value}}})


# --- aws-auth -------------------------------------------------------------------------------------


@perturbation("aws-auth entries removed", needs="eks")
def aws_auth_entries_removed(runner, group):
    """Nodes lose the cluster until their entry is back."""
    runner.cloud.edit_map_roles(lambda text: "".join(entry for entry in entries(text) if f"/demo-camp-{group}\n" not in entry))


@perturbation("aws-auth deleted", when=lambda scenario: scenario["mode"] != "API")
def aws_auth_deleted(runner):
    """The controller's entries come back by themselves, those of others and of EKS by users."""
    of_eks = [f"/{spec_generator.PEOPLE}{name}\n" for name, group in runner.present.items() if group["spec"].get("provisioner") == "eks-managed"]
    theirs = [entry for entry in entries(runner.cloud.map_roles().replace(foreign_resources.AUTH, "")) if any(role in entry for role in of_eks)] + [foreign_resources.AUTH]
    runner.cloud.api("DELETE", AWS_AUTH)
    runner.undo(lambda: runner.cloud.edit_map_roles(lambda text: text + "".join(entry for entry in theirs if entry not in text)), after=1)


@perturbation("aws-auth broken", later=LATER, text=["- rolearn: {\n", "rolearn\n"])
def aws_auth_broken(runner, later, text):
    """No controller can parse it, so none writes it, until a user corrects it."""
    runner.cloud.edit_map_roles(lambda now: now + text)
    runner.undo(lambda: runner.cloud.edit_map_roles(lambda now: now.replace(text, "")), after=later)


@perturbation("aws-auth entry edited", needs="eks", later=LATER)
def aws_auth_entry_edited(runner, group, later):
    """Two opinions about one role: it stays as it is until a user takes the other one back."""

    def swap(one, other):
        return lambda text: "".join(entry.replace(one, other) if f"/demo-camp-{group}\n" in entry else entry for entry in entries(text))

    runner.cloud.edit_map_roles(swap("system:bootstrappers", "system:theirs"))
    runner.undo(lambda: runner.cloud.edit_map_roles(swap("system:theirs", "system:bootstrappers")), after=later)


def entries(text):
    """The entries of mapRoles, as text."""
    return re.split(r"^(?=- )", text, flags=re.MULTILINE)


# --- the ConfigMap --------------------------------------------------------------------------------


@perturbation("ConfigMap deleted", later=LATER, copy=[True, False])
def config_map_deleted(runner, later, copy):
    """Perhaps with the copy of its last good revision: then nothing is changed, also no group is deleted, until a user puts it back."""
    runner.cloud.api("DELETE", CONFIG)
    if copy:
        runner.cloud.api("DELETE", CONFIG + "-last-good")
    runner.undo(lambda: runner.configure(runner.config), after=later or 10 if copy else later)


@perturbation("ConfigMap broken", later=LATER, data=[{"boundaries": "restricted: {"}, {"defaults": "spec: ["}, {"boundaries": None}, {"defaults": None}])
def config_map_broken(runner, later, data):
    """What cannot be read changes nothing; what is left out changes what it says. A user puts it right."""
    User(runner, None).patch(CONFIG, {"data": data})
    runner.undo(lambda: runner.configure(runner.config), after=later)


# --- locks and budgets ----------------------------------------------------------------------------


@perturbation("lock", where=["group", "Namespace", "ConfigMap"], later=LATER)
def lock(runner, group, where, later):
    """A user sets `lock-upgrades`, and removes it later."""
    path = {"group": runner.path(group), "Namespace": "/api/v1/namespaces/camp", "ConfigMap": CONFIG}[where]
    user = User(runner, group)
    user.patch(path, {"metadata": {"annotations": {LOCK: "true"}}})
    runner.undo(lambda: user.patch(path, {"metadata": {"annotations": {LOCK: None}}}), after=later)


@perturbation("budget that blocks", needs=NODES, later=LATER)
def budget_that_blocks(runner, group, later):
    """No pod may go until a user relaxes it."""
    user = User(runner, group)
    user.patch(f"{BUDGETS}/on-{group}", {"spec": {"maxUnavailable": 0}})
    runner.undo(lambda: user.patch(f"{BUDGETS}/on-{group}", {"spec": {"maxUnavailable": 1}}), after=later)


@perturbation("second budget", needs=NODES, later=LATER)
def second_budget(runner, group, later):
    """The API server evicts no pod of two budgets."""
    budget = {"metadata": {"name": f"also-{group}"}, "spec": {"selector": {"matchLabels": {"app": f"on-{group}"}}, "maxUnavailable": 1}}
    if runner.cloud.api("POST", BUDGETS, budget).ok:
        runner.undo(lambda: runner.cloud.api("DELETE", f"{BUDGETS}/also-{group}"), after=later)


@perturbation("pods that stay", needs=NODES, later=LATER)
def pods_that_stay(runner, group, later):
    """A finalizer keeps evicted pods until a user takes it off."""
    user, pods = User(runner, group), "/api/v1/namespaces/camp/pods"
    held = [f"{pods}/{p['metadata']['name']}" for p in runner.cloud.get(pods)["items"] if p["metadata"]["labels"].get("app") == f"on-{group}"]
    for path in held:
        user.patch(path, {"metadata": {"finalizers": ["example.com/theirs"]}})
        runner.undo(lambda path=path: user.patch(path, {"metadata": {"finalizers": None}}), after=later)


# --- the lease ------------------------------------------------------------------------------------


@perturbation("lease deleted")
def lease_deleted(runner):
    """The leader no longer knows that it is alone."""
    runner.cloud.api("DELETE", runner.settings["lease"])


@perturbation("lease taken", renewals=[1, 4])
def lease_acquired_by_another_client(runner, renewals):
    """Another process holds it for a while, and does nothing."""
    user = User(runner, None)
    for _ in range(renewals):
        user.patch(runner.settings["lease"], {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 2}})
        runner.wait(1)
