"""What scenarios cover: features of specs, of worlds and of changes, counted by name."""

import collections

from campaign import scenario as scenarios

ANNOTATION = "instancemgr.keikoproj.io/os-family"
NOT_FEATURES = {"clusterName", "subnets", "securityGroups", "instanceType", "instanceTypes", "image", "minSize", "maxSize", "labels", "nodeLabels", "nodeRole", "selectors", "volSize", "amiType"}
"""Fields that nearly every spec has."""


def of_scenario(scenario):
    """How many specs of a scenario have each feature, and what its world is like."""
    found = collections.Counter()
    for name in scenarios.names(scenario):
        specs = scenarios.specs(scenario, name)
        found.update(feature for group in specs for feature in of_group(group))
        shapes = [shape_of(group) for group in specs]
        found.update(f"change: {one} -> {other}" for one, other in zip(shapes, shapes[1:], strict=False) if one != other)
    found[f"authentication: {scenario['mode']}"] += 1
    found.update(f"taken over: {state}" for state in scenario.get("taken over", {}).values())
    return found


def of_group(group):
    """The names of the features of one group."""
    spec = group["spec"]
    provisioner, strategy = spec["provisioner"], spec.get("strategy") or {}
    section = spec[provisioner]
    configuration = section.get("configuration", {})
    found = {f"provisioner: {provisioner}", f"strategy: {strategy.get('type', 'none')}"}
    found |= {f"{provisioner}: {key}" for key in {*section, *configuration} - NOT_FEATURES - {"configuration"}}
    found |= {f"rollingUpdate: {key}" for key in strategy.get("rollingUpdate", {})}
    policy = configuration.get("mixedInstancesPolicy") or {}
    found |= {f"mixed: {key}" for key in policy if key != "instanceTypes"}
    if any("weight" in kind for kind in policy.get("instanceTypes", [])):
        found.add("mixed: weights")
    if ANNOTATION in group["annotations"]:
        found.add(f"os: {group['annotations'][ANNOTATION]}")
    if configuration.get("capacityType") == "SPOT" or "spotPrice" in configuration or policy.get("spotRatio"):
        found.add("spot")
    return sorted(found)


def shape_of(group):
    """The kind of a group that a change of shape exchanges."""
    section = group["spec"][group["spec"]["provisioner"]]
    configuration = section.get("configuration", {})
    family = group["annotations"].get(ANNOTATION, "")
    kinds = {"mixed": "mixedInstancesPolicy" in configuration, "warm": "warmPool" in section, "spot": "spotPrice" in configuration, "windows": family == "windows"}
    return next((name for name, has in kinds.items() if has), group["spec"]["provisioner"])
