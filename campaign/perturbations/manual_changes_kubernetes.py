"""Changes that users make by hand in Kubernetes: nodes, InstanceGroups, aws-auth, the ConfigMap, locks, budgets and the lease."""

import json
import re

from campaign import foreign_resources, spec_generator
from campaign.perturbations import groups_of, perturbation
from campaign.rollouts import has_rollout
from campaign.scenario import is_wide, specs
from campaign.user import User
from e2e import strategies
from e2e.harness import AWS_AUTH, CONFIG, PREFIX

NODES = ("eks", "eks-managed")
INDEX = [0, 1, 2]
LATER = [3, 10, None]
LOCK = PREFIX + "lock-upgrades"
BUDGETS = "/apis/policy/v1/namespaces/camp/poddisruptionbudgets"
ROLLING_UPGRADES = f"/apis/{strategies.ROLLING_UPGRADE[0]}/{strategies.VERSION}/namespaces/camp/{strategies.ROLLING_UPGRADE[2]}"

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


@perturbation("labels of nodes edited", needs="eks", when=is_wide, key=["team", "tier"], value=["edited", None])
def labels_of_nodes_edited(runner, group, key, value):
    """The controller writes only what a spec changes. In the end, a user puts back what the spec has then."""
    user = User(runner, group)

    def put_back(path):
        node = runner.cloud.get(path)
        if node and node["metadata"]["labels"].get(key) == value:
            user.patch(path, {"metadata": {"labels": {key: present_configuration(runner, group).get("labels", {}).get(key)}}})

    for node in user.nodes():
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        if key in node["metadata"]["labels"] and user.patch(path, {"metadata": {"labels": {key: value}}}):
            runner.undo(lambda path=path: put_back(path))


@perturbation("taints of nodes removed", needs="eks", when=is_wide, key=[taint["key"] for taint in spec_generator.TAINTS])
def taints_of_nodes_removed(runner, group, key):
    """As a network plugin does that is ready, so it stays removed. In the end, a user puts back what the spec has then."""
    user = User(runner, group)

    def put_back(path):
        # Another client may write the node at once.
        runner.wait_until(lambda: edit_taints(runner, user, path, lambda taints: [*taints, *missing_taints(runner, group, key, taints)]), 10)

    for node in user.nodes():
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        if any(taint["key"] == key for taint in node["spec"].get("taints", [])):
            runner.wait_until(lambda path=path: edit_taints(runner, user, path, lambda taints: [taint for taint in taints if taint["key"] != key]), 10)
            runner.undo(lambda path=path: put_back(path))


def edit_taints(runner, user, path, change):
    """Changes the taints of a Node, if no other client wrote it since it was read; whether nothing is left to do."""
    node = runner.cloud.get(path)
    taints = node["spec"].get("taints", []) if node else []
    if node is None or change(taints) == taints:
        return True
    return user.patch(path, {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": change(taints)}})


def missing_taints(runner, group, key, taints):
    """The taints of a key that the group's present spec has, and `taints` lack."""
    wanted = present_configuration(runner, group).get("taints", [])
    there = {(taint["key"], taint["effect"]) for taint in taints}
    return [taint for taint in wanted if taint["key"] == key and (key, taint["effect"]) not in there]


def present_configuration(runner, group):
    """`spec.eks.configuration` of a group as it is now, empty without one."""
    return runner.present.get(group, {}).get("spec", {}).get("eks", {}).get("configuration", {})


# --- resources of the crd strategy -----------------------------------------------------------------


def groups_with_crd(scenario):
    """Groups whose nodes another controller replaces, by one of their specs."""
    return [name for name in groups_of(scenario, "eks") if '"type": "crd"' in json.dumps(specs(scenario, name))]


def has_crd(scenario):
    """Whether it is wide, and has such a group."""
    return is_wide(scenario) and bool(groups_with_crd(scenario))


@perturbation("RollingUpgrade deleted", needs="eks", when=has_crd, allows=("needless_rotation",))
def rolling_upgrade_deleted(runner, group):
    """It is submitted again while nodes are outdated, and then replaces all of them, also those that are new already."""
    for found in rolling_upgrades(runner, group):
        runner.cloud.api("DELETE", f"{ROLLING_UPGRADES}/{found['metadata']['name']}")


@rolling_upgrade_deleted.draw
def _(random, scenario):
    return {"group": random.choice(groups_with_crd(scenario))}


EDITS = [{"spec": {"asgName": "nobodys"}}, {"status": {"currentStatus": "error"}}, {"status": {"currentStatus": "completed"}}]


@perturbation("RollingUpgrade edited", needs="eks", when=has_crd, allows=("needless_rotation",))
def rolling_upgrade_edited(runner, group, change):
    """It fails, or ends too early, and is submitted again. In the end, a user deletes one that failed too often."""
    user = User(runner, group)
    for found in rolling_upgrades(runner, group):
        path = f"{ROLLING_UPGRADES}/{found['metadata']['name']}"
        user.patch(path + ("/status" if "status" in change else ""), change)
        runner.undo(lambda path=path: delete_failed(runner, path))


@rolling_upgrade_edited.draw
def _(random, scenario):
    return {"group": random.choice(groups_with_crd(scenario)), "change": random.choice(EDITS)}


def rolling_upgrades(runner, group):
    """The RollingUpgrades for a group's scaling group."""
    name = (User(runner, group).scaling_group() or {}).get("AutoScalingGroupName")
    return [found for found in (runner.cloud.get(ROLLING_UPGRADES) or {"items": []})["items"] if found["spec"].get("asgName") == name]


def delete_failed(runner, path):
    """Deletes a RollingUpgrade that has failed: the controller submits another one, and counts its failures from zero."""
    if ((runner.cloud.get(path) or {}).get("status") or {}).get("currentStatus") == "error":
        runner.cloud.api("DELETE", path)


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


@perturbation("status forged", when=is_wide, forged=[{"currentState": "Error"}, {"currentState": "Ready"}, {"observedGeneration": 0}])
def status_forged(runner, group, forged):
    """It is written again as it is. What the controller decides by a record of the status is left: only the controller may write that."""
    User(runner, group).patch(runner.path(group) + "/status", {"status": forged})


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


def has_one_revision(scenario):
    """Whether all groups have the live content of the ConfigMap, or its copy."""
    return is_wide(scenario) and not has_rollout(scenario)


@perturbation("last good copy edited", when=has_one_revision, later=LATER, data=[{"boundaries": "restricted: {"}, {"policy": "roles: []\n"}, {"defaults": None}])
def last_good_copy_edited(runner, later, data):
    """And the ConfigMap broken, so that the copy counts, if it can be read. Without either, no group is deleted, so a user puts
    the ConfigMap right soon, and the copy follows."""
    user = User(runner, None)
    user.patch(CONFIG + "-last-good", {"data": data})
    user.patch(CONFIG, {"data": {"boundaries": "restricted: ["}})
    runner.undo(lambda: runner.configure(runner.config), after=later or 10)


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
    if runner.settings["lease"]:
        runner.cloud.api("DELETE", runner.settings["lease"])


@perturbation("lease taken", renewals=[1, 4])
def lease_acquired_by_another_client(runner, renewals):
    """Another process holds it for a while, and does nothing."""
    user = User(runner, None)
    for _ in range(renewals if runner.settings["lease"] else 0):
        user.patch(runner.settings["lease"], {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 2}})
        runner.wait(1)
