"""Validation of updates of managed node groups.

Follows the Amazon EKS API Reference, UpdateNodegroupConfig, UpdateNodegroupVersion and data type UpdateParam.
"""

from __future__ import annotations

from typing import Any

from localcloud.aws.eks.nodegroups.model import NodeGroup, invalid_parameter
from localcloud.aws.eks.nodegroups.releases import check_release, is_older, minor
from localcloud.aws.eks.nodegroups.validation import (
    check_labels,
    check_repair,
    check_sizes,
    check_taints,
    check_update_config,
)

SIZE_PARAMS = {"minSize": "MinSize", "maxSize": "MaxSize", "desiredSize": "DesiredSize"}


def merge_config(sizes: dict[str, int], before: dict[str, Any], params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The changed settings and the UpdateParams of an update. `sizes` are the current sizes."""
    settings: dict[str, Any] = {}
    shown: dict[str, Any] = {}
    if "scalingConfig" in params:
        if not params["scalingConfig"]:
            raise invalid_parameter("Either all or at least one of minSize, maxSize, desiredSize must be provided")
        settings["scalingConfig"] = check_sizes(sizes, params["scalingConfig"])
        shown |= {SIZE_PARAMS[key]: str(value) for key, value in params["scalingConfig"].items()}
    if "labels" in params:
        add, remove = params["labels"].get("addOrUpdateLabels") or {}, params["labels"].get("removeLabels") or []
        if not add and not remove:
            raise invalid_parameter("Both or either addOrUpdateLabels or removeLabels must not be empty")
        both = set(add) & set(remove)
        if both:
            raise invalid_parameter(f"Labels can't be both updated and removed: {', '.join(sorted(both))}")
        kept = {key: value for key, value in before["labels"].items() if key not in remove}
        settings["labels"] = kept | check_labels(add)
        shown |= {"LabelsToAdd": add} if add else {}
        shown |= {"LabelsToRemove": remove} if remove else {}
    if "taints" in params:
        add, remove = params["taints"].get("addOrUpdateTaints") or [], params["taints"].get("removeTaints") or []
        if not add and not remove:
            raise invalid_parameter("Both or either addOrUpdateTaints or removeTaints must not be empty")
        gone = [identity(taint) for taint in add + remove]
        settings["taints"] = check_taints([taint for taint in before["taints"] if identity(taint) not in gone] + check_taints(add))
        shown |= {"TaintsToAdd": add} if add else {}
        shown |= {"TaintsToRemove": remove} if remove else {}
    largest = settings.get("scalingConfig", sizes)["maxSize"]
    update_config = check_update_config(params.get("updateConfig") or before["updateConfig"], largest)
    if params.get("updateConfig"):
        settings["updateConfig"] = update_config
        shown |= {key[0].upper() + key[1:]: str(value) for key, value in params["updateConfig"].items()}
    if params.get("nodeRepairConfig"):
        settings["nodeRepairConfig"] = check_repair(params["nodeRepairConfig"])
        shown["NodeRepairConfig"] = params["nodeRepairConfig"]
    if not settings:
        raise invalid_parameter("At least one of labels, taints, scalingConfig, updateConfig and nodeRepairConfig must be provided")
    return settings, shown


def identity(taint: dict[str, str]) -> tuple[str, str]:
    """The key and the effect, which identify a taint."""
    return taint.get("key", ""), taint.get("effect", "")


def resolve_target(simulator: Any, cluster: Any, found: NodeGroup, params: dict[str, Any]) -> tuple[str, str]:
    """The Kubernetes version and release of an update. The version defaults to the cluster's (UpdateNodegroupVersion,
    parameter `version`), and is that of the cluster or the node group.

    The wording of the refusal is quoted in a comment of aws/aws-k8s-tester, which tests the upgrade of node groups.
    """
    if params.get("launchTemplate"):
        raise invalid_parameter("The node group was not deployed with a launch template")
    version = params.get("version") or cluster.version
    if minor(version) not in (minor(cluster.version), minor(found.version)):
        accepted = f"Cluster kubernetes version {cluster.version} or NodeGroup kubernetes version {found.version}"
        raise invalid_parameter(f"Nodegroup Kubernetes version should be equal to {accepted}")
    release = check_release(simulator, found.settings["amiType"], version, params.get("releaseVersion"))
    if is_older(simulator, found.settings["amiType"], (version, release), (found.version, found.release)):
        current = f"{found.version} ({found.release})"
        raise invalid_parameter(f"You cannot roll back a node group from {current} to an earlier version: {version} ({release})")
    return version, release
