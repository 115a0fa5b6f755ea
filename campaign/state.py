"""What a group came to in AWS and Kubernetes, without what is chance: two runs of one spec must agree on it."""

import json
import re

import yaml

from campaign import scenario as scenarios
from campaign.spec_generator import PEOPLE, POD_ROLES, SHARED
from e2e import logs

NAMESPACE = "camp"
OWNERSHIP = "instancegroups.keikoproj.io/"
OWNER_TAGS = {OWNERSHIP + key for key in ("ClusterName", "Namespace", "InstanceGroup", "RoleId")}
"""The tags that say whose a resource is. Others with this prefix say what the controller did."""
CHANCE = [
    (r"\bi-[0-9a-f]+", "i-..."),
    (r"\blt-[0-9a-f]+", "lt-..."),
    (r"\bsg-[0-9a-f]+", "sg-..."),
    (r"\bip-[0-9-]+[.\w-]*", "ip-..."),
    (r"\b\d{4}-\d\d-\d\d[T ][0-9:.]+(Z|\+00:00)?", "time"),
    (r"-\d{14}\b", "-stamp"),
    (r"\bfargate-demo-\d+(-[0-9a-f]{8})?", "fargate-profile"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "uuid"),
    (r"\bA(ROA|IPA)[A-Z0-9]+\b", "id"),
    (r"-[0-9a-f]{8,10}(?=[-\"/]|$)", "-hash"),
]
"""What differs from run to run: identifiers, addresses, moments."""
OF_THE_PLACE = re.compile(r"hostname|topology|failure-domain|instance-type|eks\.amazonaws\.com/(nodegroup-image|sourceLaunchTemplate)|local\.instance-manager|k8s\.io/")
"""Labels of a Node that say where and what its instance is. AWS chooses that."""
HASHED_NAME = re.compile(rf"\b(demo-{NAMESPACE}-[a-z]+)-[0-9a-f]{{8}}\b")
"""The name of a scaling group or role while another owner has the group's first one."""
IN_PLACE = "instancemgr.keikoproj.io/in-place"
"""The annotation of a Node that says what it got while it ran."""


def owns(group, name, thing):
    """Whether a resource of that name is the group's, by its name or by its ownership tags."""
    tags = thing.get("tags") or thing.get("Tags") or {}
    if isinstance(tags, list):
        tags = {tag["Key"]: tag["Value"] for tag in tags}
    tagged = (tags.get(OWNERSHIP + "Namespace"), tags.get(OWNERSHIP + "InstanceGroup")) == (NAMESPACE, group)
    return tagged or re.search(rf"\b{NAMESPACE}-{group}(\b|-)", name) is not None


def resources(picture, group):
    """Everything in the account that is a group's: {kind: {name: thing}}, kinds without any left out."""
    found = {kind: {name: thing for name, thing in things.items() if owns(group, name, thing)} for kind, things in picture["aws"].items()}
    # The role of a Fargate profile is named after the profile, and an access entry after its role.
    roles = {f"{name}-role" for name in found.get("fargate", {})}
    found["roles"] |= {name: thing for name, thing in picture["aws"]["roles"].items() if name in roles}
    found["access"] |= {arn: entry for arn, entry in picture["aws"]["access"].items() if arn.rpartition("/")[2] in found["roles"]}
    return {kind: things for kind, things in found.items() if things}


def group_state(run, group, content_of=None):
    """What there is of one group at the end of a run, ready to be compared with the same group of another run.

    `content_of(reference, instance)` returns from the log what a deleted launch template version contained.
    """
    picture = run["end"]
    mine = resources(picture, group)
    kubernetes = picture["kubernetes"]
    found = next((g for g in kubernetes["groups"] if g["metadata"]["name"] == group), None)
    nodes = [node for node in kubernetes["nodes"] if (node["metadata"].get("labels") or {}).get("pool") == group]
    arns = [thing["arn"] for thing in mine.get("roles", {}).values()]
    entries = [entry for entry in yaml.safe_load(kubernetes["map_roles"] or "[]") or [] if entry["rolearn"] in arns]
    in_place = changes_in_place(run, group)
    value = {
        "state": found and found.get("status", {}).get("currentState"),
        "finalizers": found and found["metadata"].get("finalizers"),
        "scaling groups": [scaling_group(thing, picture, content_of, in_place) for thing in mine.get("groups", {}).values()],
        "templates": [{"tags": thing["tags"]} for thing in mine.get("templates", {}).values()],
        "node groups": [node_group(thing) for thing in mine.get("nodegroups", {}).values()],
        "fargate profiles": list(mine.get("fargate", {}).values()),
        "roles": [{**without(thing, "arn"), "trust": json.loads(thing["trust"] or "{}")} for thing in mine.get("roles", {}).values()],
        "profiles": [without(thing, "arn") for thing in mine.get("profiles", {}).values()],
        "access entries": [access_entry(thing) for arn, thing in mine.get("access", {}).items() if not is_shared(arn)],
        "aws-auth": entries,
        "nodes": distinct(node_state(node) for node in nodes),
    }
    if may_lose_its_name(run, group):
        value = json.loads(HASHED_NAME.sub(r"\1", json.dumps(value)))
    return masked(value, run["world"])


def may_lose_its_name(run, group):
    """Whether a user makes a scaling group of the group's name that is not the group's, so that it gets another name."""
    made = [event for event in run["scenario"]["events"] if event.get("name") == "scaling group made again by hand"]
    return any(event["arguments"]["group"] == group and not event["arguments"]["tagged"] for event in made)


def changes_in_place(run, group):
    """Whether a spec of the group ever asks for labels or taints to be changed on running nodes."""
    return any(fields_in_place(each["spec"]) & {"labels", "taints"} for each in scenarios.specs(run["scenario"], group))


def fields_in_place(spec):
    """What a spec asks to be changed on running nodes."""
    return set(((spec.get("strategy") or {}).get("rollingUpdate") or {}).get("inPlace", ()))


def is_shared(arn):
    """Whether several groups may be given this role. Its access entry has the tags of the group that came first."""
    return arn.endswith(f"/{PEOPLE}{SHARED}") or arn in POD_ROLES


def pod_roles_that_join(run):
    """The roles of users whose pods of Fargate profiles may join in the end, among those that groups name then."""
    picture = run["end"]
    named = json.dumps([group["spec"] for group in picture["kubernetes"]["groups"]])
    entries = {entry["rolearn"] for entry in yaml.safe_load(picture["kubernetes"]["map_roles"] or "[]") or []} | set(picture["aws"]["access"])
    return {arn for arn in POD_ROLES if arn in named and arn in entries}


def given_roles(run):
    """The roles of users, named by specs, that may join in the end: by aws-auth or an access entry."""
    picture = run["end"]
    arns = [entry["rolearn"] for entry in yaml.safe_load(picture["kubernetes"]["map_roles"] or "[]") or []]
    return {arn for arn in [*arns, *picture["aws"]["access"]] if f"/{PEOPLE}" in arn}


def scaling_group(thing, picture, content_of=None, in_place=False):
    """A scaling group with what it launches. Its desired capacity is the autoscaler's; its instances only have to fit.

    `in_place` says that labels and taints, which are in the user data, may have been changed on running nodes.

    That of a managed node group is EKS's own.
    """
    if thing["AutoScalingGroupName"].startswith("eks-"):
        return {"states of instances": sorted({i["LifecycleState"] for i in thing["Instances"]})}
    launched = launch_data(thing, picture)
    mixed = json.loads(json.dumps(thing.get("MixedInstancesPolicy")))
    if mixed:
        mixed["LaunchTemplate"].pop("LaunchTemplateSpecification", None)
        drop_single_weights(mixed["LaunchTemplate"].get("Overrides", []))
    outdated = [i["LifecycleState"] for i in thing["Instances"] + thing["WarmPool"] if not runs(i, thing, picture, content_of, in_place)]
    return {
        **without(thing, *CHANCE_OF_SCALING_GROUPS),
        "MixedInstancesPolicy": mixed,
        "CapacityRebalance": bool(thing.get("CapacityRebalance")),
        "launches": launched,
        "SuspendedProcesses": sorted(process["ProcessName"] for process in thing["SuspendedProcesses"]),
        "subnets": sorted(thing["VPCZoneIdentifier"].split(",")),
        "desired is within its limits": thing["MinSize"] <= thing["DesiredCapacity"] <= thing["MaxSize"],
        "outdated instances": outdated,
        "states of instances": sorted({i["LifecycleState"] for i in thing["Instances"]}),
        **warm_pool(thing),
        "WarmPoolConfiguration": thing.get("WarmPoolConfiguration"),
        "LifecycleHooks": thing["LifecycleHooks"],
    }


def warm_pool(thing):
    """The instances of a warm pool: how many there are beyond what it should have now, and which of them do not wait as they should.

    Their number follows the desired capacity, which is the autoscaler's. At or above MaxGroupPreparedCapacity, the pool has
    MinSize instances (Amazon EC2 Auto Scaling API Reference, PutWarmPool).
    """
    pool, states = thing.get("WarmPoolConfiguration"), [i["LifecycleState"] for i in thing["WarmPool"]]
    if pool is None:
        return {"surplus of warm instances": len(states), "other states of warm instances": sorted(set(states))}
    limit = thing["MaxSize"] if pool["MaxGroupPreparedCapacity"] is None else pool["MaxGroupPreparedCapacity"]
    wanted = max(pool["MinSize"], limit - thing["DesiredCapacity"])
    return {"surplus of warm instances": len(states) - wanted, "other states of warm instances": sorted(set(states) - {f"Warmed:{pool['PoolState']}"})}


def drop_single_weights(overrides):
    """Takes the weights off if each is 1. Whether AWS lets a group give its weights up is not documented."""
    if {override.get("WeightedCapacity", "1") for override in overrides} == {"1"}:
        for override in overrides:
            override.pop("WeightedCapacity", None)


CHANCE_OF_SCALING_GROUPS = (
    "AutoScalingGroupARN", "CreatedTime", "DesiredCapacity", "Instances", "WarmPool", "WarmPoolSize", "LaunchTemplate", "AvailabilityZones",
    "VPCZoneIdentifier",
)  # fmt: skip


def runs(instance, thing, picture, content_of, in_place=False):
    """Whether an instance was launched with what its scaling group launches now. The template of the instance may be gone."""
    one, other = template_data(instance.get("LaunchTemplate"), picture), launch_data(thing, picture)
    if one is None and content_of is not None and instance.get("LaunchTemplate"):
        one, other = content_of(instance["LaunchTemplate"], instance["InstanceId"]), content_of(pinned(thing), None)
    return without_user_data(one) == without_user_data(other) if in_place else one == other


def without_user_data(data):
    """The content of a launch template version without its user data, None if there is none."""
    return data and without(data, "UserData")


def pinned(thing):
    """The reference of a scaling group to the launch template version that it launches."""
    policy = thing.get("MixedInstancesPolicy") or {}
    return policy.get("LaunchTemplate", {}).get("LaunchTemplateSpecification") or thing.get("LaunchTemplate")


def launch_data(thing, picture):
    """The content of the launch template version that a scaling group launches."""
    return template_data(pinned(thing), picture)


def template_data(reference, picture):
    """The content of a launch template version, given a reference to it."""
    for name, template in picture["aws"]["templates"].items():
        if reference and reference.get("LaunchTemplateId", name) in (name, template["id"]) and reference.get("LaunchTemplateName", name) == name:
            number = {"$Latest": template["latest"], "$Default": template["default"]}.get(reference["Version"], reference["Version"])
            return template["versions"].get(str(number), {}).get("data")
    return None


def node_group(thing):
    """A managed node group, without what EKS chose or an autoscaler owns. Auto repair that was turned off is none."""
    found = without(thing, "createdAt", "modifiedAt", "nodegroupArn", "resources", "launchTemplate")
    if found.get("nodeRepairConfig") == {"enabled": False}:
        del found["nodeRepairConfig"]
    return {**found, "scalingConfig": without(found["scalingConfig"], "desiredSize")}


def access_entry(thing):
    """An access entry. EKS makes that of a Fargate profile too, without tags, if it comes first."""
    chance = ["tags"] if thing["type"] == "FARGATE_LINUX" else []
    return without(thing, "createdAt", "modifiedAt", "accessEntryArn", *chance)


def node_state(node):
    """What another client set on a Node."""
    labels = {key: value for key, value in node["metadata"].get("labels", {}).items() if not OF_THE_PLACE.search(key)}
    annotations = sorted(key for key in node["metadata"].get("annotations", {}) if "keikoproj.io" in key and key != IN_PLACE)
    taints = [without(t, "timeAdded") for t in node["spec"].get("taints", []) if not t["key"].startswith("node.kubernetes.io/not-")]
    return {"labels": labels, "annotations": annotations, "taints": taints, "unschedulable": node["spec"].get("unschedulable", False)}


def without(thing, *keys):
    """A dict without some keys."""
    return {key: value for key, value in thing.items() if key not in keys}


def distinct(values):
    """The values, each once."""
    return [json.loads(text) for text in sorted({json.dumps(value, sort_keys=True) for value in values})]


def masked(value, world):
    """The value without identifiers, and with the order of lists taken away."""
    text = json.dumps(value, sort_keys=True)
    for number, subnet in enumerate(world["subnets"]):
        text = text.replace(subnet, f"subnet {number}")
    text = text.replace(world["security_group"], "security group")
    for pattern, name in CHANCE:
        text = re.sub(pattern, name, text)
    return logs.ordered(json.loads(text))


def differences(one, other, path=""):
    """Where two values differ: (path, one, other)."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted({*one, *other})
        return [found for key in keys for found in differences(one.get(key), other.get(key), f"{path}.{key}" if path else key)]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [found for number, pair in enumerate(zip(one, other, strict=True)) for found in differences(*pair, f"{path}[{number}]")]
    return [] if one == other else [(path, one, other)]
