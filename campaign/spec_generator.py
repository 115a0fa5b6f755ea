"""The values that specs of generated groups may have: for each aspect of a group a function that draws one.

A group is a choice for each aspect of its shape. A change of a group draws some of its aspects again, so every spec
is valid by construction, and `bad` gives those that are not. Each draw returns fragments of the spec, which `compose`
merges: `annotations`, `strategy`, and the sections of the provisioner.
"""

import json
import re

from campaign.upgrade_manager import TEMPLATE
from e2e import strategies

PREFIX = "instancemgr.keikoproj.io/"
IMAGES = {
    family: [f"ami-0{number}10000000000000{release}" for release in (1, 2, 3)]
    for number, family in enumerate(("amazonlinux2", "amazonlinux2023", "bottlerocket"), 1)
}
"""Images that the simulated AWS publishes for x86_64, oldest first."""
RELEASES = [f"1.32.0-{date}" for date in ("20250101", "20250601", "20251001")]
"""Releases of EKS's image that the simulated AWS has for AL2023 and the cluster's version, oldest first."""
PEOPLE = "people-"
"""Roles and profiles that users made begin with it; a group's name follows."""
SHARED = "shared"
"""Follows in place of a group's name in the role that several groups are given."""
KEY_PAIR = "operators"
POD_ROLES = [f"arn:aws:iam::123456789012:role/pods-{number}" for number in (1, 2)]
"""Roles of users for the pods of Fargate profiles."""
SECURITY_GROUPS = ["demo-nodes", "more-nodes"]
"""Security groups of users, by their Name tags. The simulated AWS has the first."""
SUBNETS = ["demo-private-a", "demo-private-b", "demo-private-c"]
TYPES = ["m5.large", "m5.xlarge", "m5a.large", "c5.large"]
TAINTS = [{"key": "dedicated", "value": "camp", "effect": "NoSchedule"}, {"key": "soft", "value": "1", "effect": "PreferNoSchedule"}]
MANAGED_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE"}


def roles_of_people(text):
    """The names of the roles of users in a text."""
    return sorted(set(re.findall(rf"\b{PEOPLE}[\w-]+", text)))


def some(random, items, least=0):
    """Some of the items, in their order."""
    chosen = random.sample(range(len(items)), random.randint(least, len(items)))
    return [items[index] for index in sorted(chosen)]


# --- Auto Scaling groups --------------------------------------------------------------------------


def sizes(random):
    low = random.choice([0, 1, 1, 2, 2, 3])
    return {"eks": {"minSize": low, "maxSize": low + random.choice([0, 1, 2])}} if low else {"eks": {"minSize": 0, "maxSize": 2}}


def units(random):
    low = random.choice([4, 6])
    return {"eks": {"minSize": low, "maxSize": low + 6}}


def system(random):
    """The OS family with what depends on it."""
    family = random.choice(["amazonlinux2023", "amazonlinux2023", "amazonlinux2", "bottlerocket"])
    configuration = {"image": random.choice(IMAGES[family])}
    if family == "amazonlinux2023" and random.random() < 0.4:
        del configuration["image"]
    if family != "bottlerocket" and random.random() < 0.5:
        script = f"echo {random.randrange(3)} > /etc/campaign\n"
        configuration["userData"] = [{"name": "mark", "stage": random.choice(["PreBootstrap", "PostBootstrap"]), "data": script}]
    return {"annotations": {PREFIX + "os-family": family}, "configuration": configuration}


def windows(random):
    configuration = {"image": random.choice(["latest", "ssm://2022"])}
    return {"annotations": {PREFIX + "os-family": "windows"}, "configuration": configuration}


def instance_type(random):
    return {"configuration": random.choice([{}, *({"instanceType": kind} for kind in TYPES)])}


def subnets(random):
    return {"configuration": random.choice([{}, {"subnets": some(random, SUBNETS, 1)}])}


def labels(random):
    return {"configuration": {"labels": {key: str(random.randrange(2)) for key in some(random, ["team", "tier"])}}}


def taints(random):
    return {"configuration": random.choice([{}, {"taints": some(random, TAINTS)}])}


def tags(random):
    found = [{"key": key, "value": str(random.randrange(2))} for key in some(random, ["cost-center", "stage"])]
    return {"configuration": {"tags": found} if found else {}}


def policies(random):
    return {"configuration": random.choice([{}, {"managedPolicies": some(random, ["AmazonSSMManagedInstanceCore", "AmazonS3ReadOnlyAccess"])}])}


def hooks(random):
    launch = {"name": "announce", "lifecycle": "launch", "defaultResult": "continue", "heartbeatTimeout": random.choice([60, 90])}
    end = {"name": "on-termination", "lifecycle": "terminate", "defaultResult": "continue", "heartbeatTimeout": 60, "metadata": "terminated"}
    return {"configuration": random.choice([{}, {}, {"lifecycleHooks": some(random, [launch, end], 1)}])}


def processes(random):
    return {"configuration": random.choice([{}, {"suspendProcesses": some(random, ["AZRebalance", "ScheduledActions", "AlarmNotification"], 1)}])}


def metrics(random):
    return {"configuration": random.choice([{}, {"metricsCollection": some(random, ["GroupMinSize", "GroupMaxSize", "GroupDesiredCapacity"], 1)}, {"metricsCollection": ["all"]}])}


def volumes(random):
    root = {"name": "/dev/xvda", "type": random.choice(["gp2", "gp3"]), "size": random.choice([40, 50])}
    data = {"name": "/dev/xvdb", "type": "gp3", "size": 20, "encrypted": True}
    mounted = {**data, "iops": 3500, "throughput": 200, "mountOptions": {"fileSystem": "xfs", "mount": "/data", "persistence": random.random() < 0.5}}
    return {"configuration": random.choice([{}, {"volumes": [root]}, {"volumes": [root, data]}, {"volumes": [mounted]}])}


def metadata_options(random):
    options = {"httpEndpoint": "enabled", "httpTokens": random.choice(["required", "optional"]), "httpPutHopLimit": random.choice([1, 2])}
    return {"configuration": random.choice([{}, {"metadataOptions": options}])}


def strategy(random):
    """One of the strategies that replace nodes; in each fourth group other controllers do it."""
    if random.random() < 0.25:
        more = random.choice([{}, {"concurrencyPolicy": "replace"}, {"concurrencyPolicy": "allow"}])
        return {"strategy": strategies.rolling_upgrade(spec=TEMPLATE, **more)}
    update = {"maxUnavailable": random.choice([1, 1, 2, "50%"]), "joinTimeout": "20s"}
    update |= random.choice([{}, {}, {"maxSurge": 1}]) | random.choice([{}, {}, {"drainTimeout": "60s", "drainForce": random.random() < 0.5}])
    return {"strategy": {"type": "rollingUpdate", "rollingUpdate": update}}


def mixed(random):
    policy = {"instanceTypes": [{"type": kind} for kind in some(random, ["m5a.large", "m5n.large"], 1)], "spotRatio": random.choice([0, 50, 100])}
    policy |= random.choice([{}, {"baseCapacity": 1}]) | random.choice([{}, {"instancePool": "SubFamilyFlexible"}]) | random.choice([{}, {"onDemandAllocationStrategy": "LowestPrice"}])
    policy |= random.choice([{}, {"strategy": "LowestPrice", "spotPools": 3}, {"strategy": "PriceCapacityOptimized"}, {"strategy": "CapacityOptimizedPrioritized"}])
    return {"configuration": {"instanceType": "m5.large", "mixedInstancesPolicy": policy}}


def weighted(random):
    types = [{"type": "m5a.large", "weight": 1}, {"type": "m5.xlarge", "weight": 2}]
    return {"configuration": {"instanceType": "m5.large", "mixedInstancesPolicy": {"instanceTypes": types, "spotRatio": random.choice([0, 50])}}}


def warm_or_spot(random):
    """AWS allows one of both, so a change from one to the other has an order."""
    pools = [{"minSize": 1, "maxSize": -1}, {"minSize": 0, "maxSize": 3}]
    return random.choice([{}, {"configuration": {"spotPrice": "0.2"}}, *({"eks": {"warmPool": pool}} for pool in pools)])


def identity(random):
    """A role and profile of another owner. `compose` puts the group's name in."""
    return {"configuration": random.choice([{}, {}, {}, {"roleName": PEOPLE, "instanceProfileName": PEOPLE}])}


def boot(random):
    """What a kubelet and its instance start with."""
    options = [{}, {"bootstrapOptions": {"maxPods": random.choice([20, 30])}}, {"bootstrapArguments": "--v=3"}, {"keyPairName": KEY_PAIR}, {"placement": {"tenancy": "dedicated"}}]
    return {"configuration": random.choice([{}, *options])}


def tags_of_volumes(random):
    return {"configuration": random.choice([{}, {}, {"tagSpecifications": [{"resourceType": "volume", "tags": [{"key": "backup", "value": str(random.randrange(2))}]}]}])}


COMMON = (sizes, labels, taints, tags, policies, identity, hooks, processes, metrics, subnets, strategy, tags_of_volumes)

# --- managed node groups --------------------------------------------------------------------------


def managed_sizes(random):
    low = random.choice([1, 1, 2])
    return {"eks-managed": {"minSize": low, "maxSize": low + random.choice([0, 2])}}


def managed_labels(random):
    return {"configuration": {"nodeLabels": {key: str(random.randrange(2)) for key in some(random, ["team", "tier"])}}}


def managed_taints(random):
    found = [{**taint, "effect": MANAGED_EFFECTS[taint["effect"]]} for taint in some(random, TAINTS)]
    return {"configuration": {"taints": found} if found else {}}


def managed_shape(random):
    """What EKS cannot change in place. All of it is given: EKS keeps what it chose for an omitted field."""
    given = {"instanceTypes": random.choice([["m5.large"], ["m5.large", "m5a.large"], ["c5.large"]]), "volSize": random.choice([30, 40])}
    return {"configuration": {**given, "capacityType": random.choice(["ON_DEMAND", "SPOT"]), "amiType": "AL2023_x86_64_STANDARD", "subnets": some(random, SUBNETS, 1)}}


def managed_repair(random):
    return {"configuration": {"nodeRepairConfig": {"enabled": random.random() < 0.5}}}


def managed_strategy(random):
    """A number above maxSize, which may be one, would be refused."""
    return {"strategy": {"type": "managed", "managed": {"maxUnavailable": random.choice([1, "50%"])}}}


# --- Fargate profiles -----------------------------------------------------------------------------


def selectors(random):
    chosen = [{"namespace": "camp", "labels": {"compute": random.choice(["one", "two"])}}, {"namespace": "batch-*"}]
    return {"eks-fargate": {"selectors": some(random, chosen, 1)}}


def fargate_subnets(random):
    return {"eks-fargate": {"subnets": some(random, SUBNETS, 1)}}


def fargate_tags(random):
    return {"eks-fargate": random.choice([{}, {"tags": [{"owner": random.choice(["a", "b"])}]}])}


def fargate_strategy(random):
    return {"strategy": {"type": "managed"}}


# --- rare fields, which wide worlds add or omit ----------------------------------------------------

HOOK = {"name": "notice", "lifecycle": "terminate", "defaultResult": "continue", "heartbeatTimeout": 60}


def rare_annotations(random):
    """Annotations that decide tags, labels and policies."""
    known = {PREFIX + "cluster-autoscaler-enabled": "true", PREFIX + "irsa-enabled": "true", PREFIX + "default-labels": "origin=campaign"}
    return {"annotations": {key: known[key] for key in some(random, sorted(known))}}


def rare_hook(random):
    """A hook whose optional fields come and go. AWS keeps one that a call leaves out."""
    optional = {"metadata": "campaign", "heartbeatTimeout": 45, "notificationArn": "arn:aws:lambda:us-west-2:123456789012:function:campaign"}
    return {"rare hook": random.choice([None, *({**HOOK, **{key: optional[key] for key in some(random, sorted(optional))}} for _ in range(4))])}


def rare_launch(random):
    """What an instance is launched with, beside what the other aspects have."""
    tag = {"resourceType": "network-interface", "tags": [{"key": "vpc", "value": str(random.randrange(2))}]}
    license = "arn:aws:license-manager:us-west-2:123456789012:license-configuration:lic-0123456789abcdef0123456789abcdef"
    return {"configuration": random.choice([{}, {}, {"tagSpecifications": [tag]}, {"licenseSpecifications": [license]}, {"placement": {"tenancy": "default"}}])}


def rare_security_groups(random):
    """Security groups beside those of the admin's defaults, or instead of them."""
    return {"configuration": random.choice([{}, {}, {"securityGroups": some(random, SECURITY_GROUPS, 1)}])}


def rare_target(random):
    """A hook that notifies a topic or a queue, for which Auto Scaling needs a role."""
    target = {"notificationArn": f"arn:aws:{random.choice(['sns', 'sqs'])}:us-west-2:123456789012:campaign", "roleArn": "arn:aws:iam::123456789012:role/notifier"}
    return {"rare hook": random.choice([None, None, {**HOOK, "name": "target", **target}])}


def rare_taint(random):
    """A taint that evicts pods. The workloads of the campaign tolerate its key."""
    return {"rare taint": random.choice([None, None, {"key": "soft", "value": str(random.randrange(2)), "effect": "NoExecute"}])}


def rare_in_place(random):
    """What changes on running nodes without a rotation."""
    return {"in place": some(random, ["labels", "taints", "tags"]) if random.random() < 0.5 else []}


def rare_omission(random):
    """What a managed node group does not say, so that EKS chooses it."""
    return {"omitted": some(random, ["amiType", "capacityType", "instanceTypes", "volSize", "nodeRepairConfig", "managed"]) if random.random() < 0.5 else []}


def rare_access(random):
    """SSH access to the nodes of a managed node group."""
    return {"configuration": random.choice([{}, {}, {"keyPairName": KEY_PAIR}])}


def rare_managed_taint(random):
    """The same as rare_taint, for a managed node group."""
    taint = rare_taint(random)["rare taint"]
    return {"rare taint": taint and {**taint, "effect": "NO_EXECUTE"}}


def rare_pod_role(random):
    """A role of users for the pods of a Fargate profile."""
    return {"configuration": random.choice([{}, {}, *({"podExecutionRoleArn": arn} for arn in POD_ROLES)])}


def rare_subnets(random):
    """A Fargate profile in the subnets that EKS chooses."""
    return {"omitted": random.choice([[], ["subnets"]])}


RARE = {
    "eks": (rare_annotations, rare_hook, rare_launch, rare_security_groups, rare_target, rare_taint, rare_in_place),
    "eks-managed": (rare_omission, rare_access, rare_managed_taint),
    "eks-fargate": (rare_subnets, rare_pod_role),
}
"""For each provisioner, what wide worlds draw in addition."""


def with_rare(group, choices):
    """A group with what `choices` adds to its spec, or omits from it."""
    spec = json.loads(json.dumps(group["spec"]))
    section = spec[spec["provisioner"]]
    configuration = section.get("configuration", section)
    annotations = dict(group["annotations"])
    for fragments in choices.values():
        annotations |= fragments.get("annotations", {})
        configuration.update({key: value for key, value in fragments.get("configuration", {}).items() if key not in configuration})
        if fragments.get("rare hook"):
            configuration["lifecycleHooks"] = [*configuration.get("lifecycleHooks", []), fragments["rare hook"]]
        if fragments.get("rare taint"):
            configuration["taints"] = [*configuration.get("taints", []), fragments["rare taint"]]
        if fragments.get("in place") and spec["strategy"]["type"] == "rollingUpdate":
            spec["strategy"]["rollingUpdate"]["inPlace"] = fragments["in place"]
        for field in fragments.get("omitted", []):
            (spec["strategy"] if field == "managed" else configuration).pop(field, None)
    return {**group, "annotations": annotations, "spec": spec}


# --- shapes ---------------------------------------------------------------------------------------

SHAPES = {
    "plain": ("eks", (*COMMON, system, instance_type, volumes, metadata_options, boot)),
    "windows": ("eks", (*COMMON, windows, instance_type)),
    "mixed": ("eks", (*COMMON, system, mixed)),
    "weighted": ("eks", (*(a for a in COMMON if a is not sizes), units, system, weighted)),
    "warm": ("eks", (*COMMON, system, instance_type, warm_or_spot)),
    "managed": ("eks-managed", (managed_sizes, managed_labels, managed_taints, managed_shape, managed_repair, managed_strategy, tags)),
    "fargate": ("eks-fargate", (selectors, fargate_subnets, fargate_tags, fargate_strategy)),
}
"""For each shape its provisioner and its aspects."""
WEIGHTS = {"plain": 5, "windows": 1, "mixed": 2, "weighted": 2, "warm": 2, "managed": 1, "fargate": 1}
"""How often each shape is drawn."""
KEPT_SHAPES = ("weighted",)
"""Shapes that change by themselves alone: from weights to none, AWS and the controller ask for sizes in both units."""

BAD = {
    "eks": [
        {"image": "no-image"},
        {"image": "ami-0ffffffffffffffff"},
        {"instanceType": "m9.nothing"},
        {"subnets": ["no-such-subnet"]},
        {"securityGroups": ["no-such-group"]},
        {"taints": [{"key": "twice", "value": value, "effect": "NoSchedule"} for value in ("1", "2")]},
        {"bootstrapOptions": {"containerRuntime": "rkt"}},
        {"volumes": [{"name": "/dev/xvda", "type": "gp9", "size": 40}]},
        {"roleName": "no-such-role", "instanceProfileName": "no-such-profile"},
        {"minSize": 9, "maxSize": 1},
    ],
    "eks-managed": [{"instanceTypes": ["m9.nothing"]}, {"subnets": ["no-such-subnet"]}, {"nodeRole": "arn:aws:iam::123456789012:role/no-such-role"}, {"volSize": 0}],
    "eks-fargate": [{"subnets": ["no-such-subnet"]}, {"subnets": ["demo-public-a"]}, {"selectors": []}],
}
"""What makes a spec of the provisioner invalid, or impossible in AWS."""


def draw_group(random, shape):
    """A group of that shape: a choice for each aspect, by its name."""
    return {aspect.__name__: aspect(random) for aspect in SHAPES[shape][1]}


def redraw(random, shape, choices):
    """The same with one to three of its aspects drawn again."""
    aspects = {aspect.__name__: aspect for aspect in SHAPES[shape][1]}
    changed = random.sample(sorted(aspects), random.choice([1, 1, 1, 2, 3]))
    return {**choices, **{name: aspects[name](random) for name in sorted(changed) if name in aspects}}


def others(shape):
    """The shapes that a group of a shape can be changed to; without any other one, its own."""
    if shape in KEPT_SHAPES:
        return [shape]
    return [name for name, (provisioner, _) in SHAPES.items() if provisioner == SHAPES[shape][0] and name not in KEPT_SHAPES]


def compose(name, shape, choices, role=None):
    """The annotations and spec that the choices come to; `role` ends the names of a given role and profile, instead of the group's."""
    provisioner = SHAPES[shape][0]
    found = {"annotations": {}, "strategy": {}, "configuration": {}, "eks": {}, "eks-managed": {}, "eks-fargate": {}}
    for fragments in choices.values():
        for section, values in fragments.items():
            found[section] = {**found[section], **values}
    configuration, section = found["configuration"], found[provisioner]
    pool = {"pool": name}
    if provisioner == "eks":
        configuration["labels"] = {**configuration.get("labels", {}), **pool}
        configuration |= {key: PEOPLE + (role or name) for key, value in configuration.items() if value == PEOPLE}
    elif provisioner == "eks-managed":
        configuration["nodeLabels"] = {**configuration.get("nodeLabels", {}), **pool}
        configuration["nodeRole"] = f"arn:aws:iam::123456789012:role/{PEOPLE}{name}"
        configuration["clusterName"] = "demo"
    else:
        section["clusterName"] = "demo"
    body = {**section, "configuration": configuration} if provisioner != "eks-fargate" else section
    return {"annotations": found["annotations"], "spec": {"provisioner": provisioner, "strategy": found["strategy"], provisioner: body}}


def spoil(random, group):
    """A spec that no controller can realize, out of one that it can."""
    provisioner = group["spec"]["provisioner"]
    change = random.choice(BAD[provisioner])
    section = group["spec"][provisioner]
    top = {key: value for key, value in change.items() if key in ("minSize", "maxSize", "selectors") or provisioner == "eks-fargate"}
    inner = {key: value for key, value in change.items() if key not in top}
    spoiled = {**section, **top}
    if inner:
        spoiled["configuration"] = {**section["configuration"], **inner}
    return {**group, "spec": {**group["spec"], provisioner: spoiled}}
