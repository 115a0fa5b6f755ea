"""Changes that users make by hand in EKS: access entries, managed node groups and Fargate profiles."""

import json

from campaign import state
from campaign.perturbations import perturbation
from campaign.scenario import is_wide
from campaign.user import User

LATER = [3, 10, None]
PODS = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"Service": "eks-fargate-pods.amazonaws.com"}, "Action": "sts:AssumeRole"}]})


def has_access_entries(scenario):
    """Whether the cluster reads access entries."""
    return scenario["mode"] != "CONFIG_MAP"


@perturbation("access entries deleted", needs=("eks", "eks-fargate"), when=has_access_entries)
def access_entries_deleted(runner, group):
    """Nodes lose the cluster until they are back."""
    user = User(runner, group)
    for arn, _ in user.each("access"):
        user.do("eks", "delete_access_entry", clusterName="demo", principalArn=arn)


@perturbation("access entries made again by hand", needs="eks", when=has_access_entries, later=LATER)
def access_entries_recreated_by_hand(runner, group, later):
    """Of a type that lets no node join, and not the controller's: a user deletes it again."""
    user = User(runner, group)
    for arn, _ in user.each("access"):
        user.do("eks", "delete_access_entry", clusterName="demo", principalArn=arn)
        if user.do("eks", "create_access_entry", clusterName="demo", principalArn=arn, type="STANDARD") is not None:
            user.undo("eks", "delete_access_entry", after=later, clusterName="demo", principalArn=arn)


@perturbation("access entry edited", needs=("eks", "eks-fargate"), when=lambda scenario: is_wide(scenario) and has_access_entries(scenario), later=LATER, tag=["InstanceGroup", "RoleId"])
def access_entry_edited(runner, group, later, tag):
    """It says that it is another group's, or of another role of that name. EKS allows no other edit of an entry of nodes.

    Only that of a role that the controller made: it goes with its role, whatever it says. A user takes the edit back.
    """
    user, roles = User(runner, group), dict(User(runner, group).each("roles"))
    for arn, entry in user.each("access"):
        key = state.OWNERSHIP + tag
        if arn.rpartition("/")[2] in roles and key in entry["tags"]:
            user.do("eks", "tag_resource", resourceArn=entry["accessEntryArn"], tags={key: "theirs"})
            user.undo("eks", "tag_resource", after=later, resourceArn=entry["accessEntryArn"], tags={key: entry["tags"][key]})


@perturbation("tags of EKS resources taken off", kinds=[["access"], ["nodegroups"], ["fargate"], ["access", "nodegroups", "fargate"]], later=LATER)
def tags_removed_from_eks_resources(runner, group, kinds, later):
    """A user puts back those that say whose it is, because what has none is not the controller's to delete.

    The controller puts back those of the spec, which may have dropped them by then.
    """
    user = User(runner, group)
    for kind in kinds:
        for _, thing in user.each(kind):
            arn = thing.get("accessEntryArn") or thing.get("nodegroupArn") or thing.get("fargateProfileArn")
            if thing.get("tags"):
                user.do("eks", "untag_resource", resourceArn=arn, tagKeys=list(thing["tags"]))
            if of_owner := {key: value for key, value in thing.get("tags", {}).items() if key.startswith(state.OWNERSHIP)}:
                user.undo("eks", "tag_resource", after=later, resourceArn=arn, tags=of_owner)


@perturbation("node group edited", needs="eks-managed", change=[
    {"labels": {"addOrUpdateLabels": {"team": "edited"}}}, {"labels": {"removeLabels": ["pool"]}}, {"scalingConfig": {"minSize": 0, "maxSize": 5}},
    {"taints": {"addOrUpdateTaints": [{"key": "theirs", "value": "1", "effect": "PREFER_NO_SCHEDULE"}]}}, {"updateConfig": {"maxUnavailable": 3}},
])  # fmt: skip
def node_group_edited(runner, group, change):
    """What the spec sets comes back, as one update. A label or taint of another key stays, until the user takes it back."""
    user = User(runner, group)
    for name, _ in user.each("nodegroups"):
        user.do("eks", "update_nodegroup_config", clusterName="demo", nodegroupName=name, **change)
        if added := change.get("labels", {}).get("addOrUpdateLabels"):
            runner.undo(lambda name=name, keys=set(added): revert_labels(runner, group, name, keys))
        if added := change.get("taints", {}).get("addOrUpdateTaints"):
            runner.undo(lambda name=name, added=added: revert(runner, group, name, taints={"removeTaints": added}))
        if "updateConfig" in change:
            runner.undo(lambda name=name: revert_update_config(runner, group, name))


def revert_labels(runner, group, name, keys):
    """Removes labels that the group's present spec does not have, as soon as EKS accepts an update."""
    spec = runner.present.get(group, {}).get("spec", {}).get("eks-managed", {})
    surplus = keys - set(spec.get("configuration", {}).get("nodeLabels", {}))
    if surplus:
        revert(runner, group, name, labels={"removeLabels": sorted(surplus)})


def revert_update_config(runner, group, name):
    """Sets the default of EKS where the group's present spec sets nothing, as soon as EKS accepts an update."""
    if "managed" not in runner.present.get(group, {}).get("spec", {}).get("strategy", {}):
        revert(runner, group, name, updateConfig={"maxUnavailable": 1})


def revert(runner, group, name, **change):
    """Changes a node group as soon as EKS accepts an update."""
    update = {"clusterName": "demo", "nodegroupName": name, **change}
    if any(found == name for found, _ in User(runner, group).each("nodegroups")):
        runner.wait_until(lambda: User(runner, group).do("eks", "update_nodegroup_config", **update) is not None, 40)


@perturbation("node group deleted", needs="eks-managed")
def node_group_deleted(runner, group):
    """It is made again."""
    delete_each(User(runner, group), "nodegroups", "delete_nodegroup", "nodegroupName")


@perturbation("Fargate profile deleted", needs="eks-fargate")
def fargate_profile_deleted(runner, group):
    """It is made again."""
    delete_each(User(runner, group), "fargate", "delete_fargate_profile", "fargateProfileName")


def delete_each(user, kind, operation, parameter):
    """Deletes what a group has of one kind."""
    for name, _ in user.each(kind):
        user.do("eks", operation, clusterName="demo", **{parameter: name})


@perturbation("node group made again by hand", needs="eks-managed", when=is_wide, how=["same", "untagged", "other"], later=LATER)
def node_group_recreated_by_hand(runner, group, how, later):
    """With the group's tags and content it is the group's. A user deletes any other one."""
    fields = ("scalingConfig", "instanceTypes", "subnets", "amiType", "nodeRole", "capacityType", "diskSize")
    fields += ("remoteAccess", "labels", "taints", "tags")
    delete = {"operation": "delete_nodegroup", "arn": "nodegroupArn", "describe": "describe_nodegroup", "result": "nodegroup"}
    for name, found in User(runner, group).each("nodegroups"):
        request = {"clusterName": "demo", "nodegroupName": name, **{key: found[key] for key in fields if found.get(key)}}
        request |= {"diskSize": found["diskSize"] + 10} if how == "other" else {}
        recreate(runner, User(runner, group), "create_nodegroup", request, how, later, delete)


@perturbation("Fargate profile made again by hand", needs="eks-fargate", when=is_wide, how=["same", "untagged", "other"], later=LATER)
def fargate_profile_recreated_by_hand(runner, group, how, later):
    """With the group's tags and content it is the group's. A user deletes any other one."""
    delete = {"operation": "delete_fargate_profile", "arn": "fargateProfileArn", "describe": "describe_fargate_profile", "result": "fargateProfile"}
    for name, found in User(runner, group).each("fargate"):
        fields = ("podExecutionRoleArn", "subnets", "selectors", "tags")
        request = {"clusterName": "demo", "fargateProfileName": name, **{key: found[key] for key in fields if found.get(key)}}
        request |= {"selectors": [{"namespace": "by-hand"}]} if how == "other" else {}
        recreate(runner, User(runner, group), "create_fargate_profile", request, how, later, delete)


def recreate(runner, user, operation, request, how, later, delete):
    """Deletes a resource and creates it again at once; one that is not as it was is deleted later."""
    named = {key: value for key, value in request.items() if key in ("clusterName", "nodegroupName", "fargateProfileName")}
    request = {key: value for key, value in request.items() if not (how == "untagged" and key == "tags")}
    if user.do("eks", delete["operation"], **named) is None or not runner.wait_until(lambda: described(user, named, delete) is None, 20):
        return
    # The controller may have been first.
    answer = user.do("eks", operation, **request)
    if answer and how != "same":
        arn = answer[delete["result"]][delete["arn"]]
        runner.undo(lambda: runner.wait_until(lambda: is_deleted(user, named, arn, delete), 60), after=later)


def described(user, named, delete):
    """A node group or Fargate profile as EKS has it, or None."""
    eks = user.runner.cloud.boto("eks")
    try:
        return getattr(eks, delete["describe"])(**named)[delete["result"]]
    except eks.exceptions.ResourceNotFoundException:
        return None


def is_deleted(user, named, arn, delete):
    """Whether a resource that a user made is gone, or is about to be. Asks for its deletion."""
    found = described(user, named, delete)
    is_another = found is None or found[delete["arn"]] != arn or found["status"] == "DELETING"
    return is_another or user.do("eks", delete["operation"], **named) is not None


@perturbation("node group updated by another client", needs="eks-managed")
def node_group_updated_by_another_client(runner, group):
    """EKS accepts no second update meanwhile."""
    user = User(runner, group)
    for name, _ in user.each("nodegroups"):
        user.do("eks", "update_nodegroup_version", clusterName="demo", nodegroupName=name, force=True)


@perturbation("Fargate profile of others", needs="eks-fargate")
def foreign_fargate_profile(runner, group):
    """EKS makes and deletes one profile at a time, so the group waits for theirs."""
    user = User(runner, group)
    role = user.do("iam", "create_role", RoleName="theirs", AssumeRolePolicyDocument=PODS) or user.do("iam", "get_role", RoleName="theirs")
    made = {"clusterName": "demo", "fargateProfileName": "theirs"}
    user.do("eks", "create_fargate_profile", **made, podExecutionRoleArn=role["Role"]["Arn"], selectors=[{"namespace": "theirs"}])
    runner.undo(lambda: runner.wait_until(lambda: delete_profile(user, made), 40))


def delete_profile(user, which):
    """Asks for the deletion of a profile, and again while EKS deletes it; whether it is gone."""
    try:
        found = user.runner.cloud.boto("eks").describe_fargate_profile(**which)["fargateProfile"]
    except user.runner.cloud.boto("eks").exceptions.ResourceNotFoundException:
        return True
    if found["status"] != "DELETING":
        user.do("eks", "delete_fargate_profile", **which)
    return False
