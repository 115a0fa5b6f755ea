"""Validation of calls on managed node groups.

Follows the Amazon EKS API Reference, CreateNodegroup and UpdateNodegroupConfig with their data types, and the Amazon
EKS User Guide, "Create a managed node group for your cluster" and "Prevent Pods from being scheduled on specific
nodes".
"""

from __future__ import annotations

import re
from typing import Any

from moto.ec2.exceptions import InvalidSubnetIdError
from moto.ec2.models.instance_types import INSTANCE_TYPES

from localcloud.aws.eks import tags as eks_tags
from localcloud.aws.eks.nodegroups.model import invalid_parameter
from localcloud.aws.eks.nodegroups.releases import AMI_TYPES, architecture, default_type

NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,62}")
LABEL_VALUE = re.compile(r"[0-9A-Za-z]([0-9A-Za-z_.-]{0,61}[0-9A-Za-z])?")
TAINT_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[0-9A-Za-z]([0-9A-Za-z_.-]{0,61}[0-9A-Za-z])?")
EFFECTS = ("NO_SCHEDULE", "NO_EXECUTE", "PREFER_NO_SCHEDULE")
CAPACITY = ("ON_DEMAND", "SPOT")
DEFAULT_SIZES = {"minSize": 2, "maxSize": 2, "desiredSize": 2}
MUTUALLY_EXCLUSIVE = (
    ("maxUnhealthyNodeThresholdCount", "maxUnhealthyNodeThresholdPercentage"),
    ("maxParallelNodesRepairedCount", "maxParallelNodesRepairedPercentage"),
)
LABEL_RULE = (
    "field must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def validate_create(simulator: Any, cluster: Any, params: dict[str, Any]) -> dict[str, Any]:
    """The settings of a new node group, with EKS's defaults."""
    check_name(params.get("nodegroupName"))
    if params.get("launchTemplate"):
        raise invalid_parameter("launchTemplate is not simulated")
    ami_type = params.get("amiType") or default_type(params.get("version") or cluster.version)
    if ami_type not in AMI_TYPES:
        raise invalid_parameter(f"AMI Type {ami_type} is not supported")
    types = params.get("instanceTypes") or ["t3.medium"]
    subnets = check_subnets(simulator, cluster, params.get("subnets"))
    check_types(simulator, types, ami_type, subnets)
    capacity = params.get("capacityType") or "ON_DEMAND"
    if capacity not in CAPACITY:
        raise invalid_parameter(f"Capacity type {capacity} is not supported")
    disk = params.get("diskSize") or (50 if ami_type.startswith("WINDOWS") else 20)
    if not 1 <= disk <= 16384:
        raise invalid_parameter(f"Disk size {disk} is not valid: it must be between 1 and 16384 GiB")
    sizes = check_sizes(DEFAULT_SIZES, params.get("scalingConfig") or {})
    settings = {
        "scalingConfig": sizes,
        "subnets": subnets,
        "nodeRole": check_role(simulator, cluster, params.get("nodeRole")),
        "amiType": ami_type,
        "instanceTypes": types,
        "capacityType": capacity,
        "diskSize": disk,
        "labels": check_labels(params.get("labels") or {}),
        "taints": check_taints(params.get("taints") or []),
        "tags": eks_tags.check(params.get("tags") or {}),
        "updateConfig": check_update_config(params.get("updateConfig") or {"maxUnavailable": 1}, sizes["maxSize"]),
    }
    if params.get("nodeRepairConfig"):
        settings["nodeRepairConfig"] = check_repair(params["nodeRepairConfig"])
    if params.get("remoteAccess"):
        settings["remoteAccess"] = check_remote_access(simulator, params["remoteAccess"])
    return settings


def check_name(name: str | None) -> None:
    """Check the name: a letter or digit, then letters, digits, hyphens and underscores, at most 63 characters."""
    if not name or not NAME.fullmatch(name):
        raise invalid_parameter(
            f"nodegroupName {name!r} is not valid: it can't be longer than 63 characters, must start with a letter or digit, "
            "and can also include hyphens and underscores for the remaining characters"
        )


def check_sizes(before: dict[str, int], given: dict[str, int]) -> dict[str, int]:
    """The sizes after a call. Omitted sizes keep their values and must still fit."""
    sizes = {**before, **{key: value for key, value in given.items() if value is not None}}
    low, high, desired = sizes["minSize"], sizes["maxSize"], sizes["desiredSize"]
    if low < 0 or desired < 0 or high < 1:
        raise invalid_parameter("minSize and desiredSize must be at least 0, and maxSize at least 1")
    if low > high:
        raise invalid_parameter(f"Minimum capacity {low} can't be greater than maximum size {high}")
    if low > desired:
        raise invalid_parameter(f"Minimum capacity {low} can't be greater than desired size {desired}")
    if desired > high:
        raise invalid_parameter(f"Desired capacity {desired} can't be greater than max size {high}")
    return sizes


def check_subnets(simulator: Any, cluster: Any, subnets: list[str] | None) -> list[str]:
    """Check that there is at least one subnet, and that all are in the cluster's VPC."""
    if not subnets:
        raise invalid_parameter("Subnets must be provided")
    vpc = simulator.ec2.get_subnet(cluster.resources_vpc_config["subnetIds"][0]).vpc_id
    for subnet in subnets:
        try:
            found = simulator.ec2.get_subnet(subnet)
        except InvalidSubnetIdError:
            raise invalid_parameter(f"The subnet ID '{subnet}' does not exist") from None
        if found.vpc_id != vpc:
            raise invalid_parameter(f"Subnet {subnet} is not in the VPC {vpc} of the cluster")
    return list(subnets)


def check_role(simulator: Any, cluster: Any, arn: str | None) -> str:
    """Check that the role exists, that EC2 can assume it, and that it is not the cluster's role."""
    match = re.fullmatch(r"arn:aws[a-z-]*:iam::\d{12}:role/(?:.*/)?([^/]+)", arn or "")
    if not match:
        raise invalid_parameter(f"nodeRole {arn!r} is not the ARN of a role")
    if arn == cluster.role_arn:
        raise invalid_parameter(f"The role {arn} is used to create a cluster: it can't be used for nodes")
    role = next((r for r in simulator.iam.roles.values() if r.name == match[1]), None)
    if role is None or role.arn != arn:
        raise invalid_parameter(f"The role with name {match[1]} cannot be found.")
    if "ec2.amazonaws.com" not in role.assume_role_policy_document:
        missing = "Following required service principals [ec2.amazonaws.com] were not found"
        raise invalid_parameter(f"{missing} in the trust relationships of nodeRole {arn}")
    return arn


def check_types(simulator: Any, types: list[str], ami_type: str, subnets: list[str]) -> None:
    """Check that the instance types exist, are offered in the subnets, and fit the AMI's architecture."""
    if len(types) > 20:
        raise invalid_parameter("The number of instance types can't be greater than 20")
    zones = [simulator.ec2.get_subnet(subnet).availability_zone for subnet in subnets]
    catalog, processor = simulator.instance_type_catalog, architecture(ami_type)
    missing = [kind for kind in types if kind not in INSTANCE_TYPES or all(catalog.unsupported_reason(kind, zone) for zone in zones)]
    if missing:
        raise invalid_parameter(f"The following supplied instance types do not exist: [{', '.join(missing)}]")
    wrong = [kind for kind in types if processor not in INSTANCE_TYPES[kind]["ProcessorInfo"]["SupportedArchitectures"]]
    if wrong:
        raise invalid_parameter(f"[{', '.join(wrong)}] is not a valid instance type for requested amiType {ami_type}")


def check_labels(labels: dict[str, str]) -> dict[str, str]:
    """Check keys and values of 1 to 63 characters. Labels that a kubelet rejects are accepted here."""
    for key, value in labels.items():
        if not 1 <= len(key) <= 63 or not TAINT_KEY.fullmatch(key):
            raise invalid_parameter(f"Invalid value: {key} : {LABEL_RULE}")
        if not LABEL_VALUE.fullmatch(value or ""):
            raise invalid_parameter(f"Invalid value: {value} : {LABEL_RULE}")
        if key.startswith("eks.amazonaws.com/"):
            raise invalid_parameter("Label cannot contain reserved prefixes [eks.amazonaws.com/]")
    return dict(labels)


def check_taints(taints: list[dict[str, str]]) -> list[dict[str, str]]:
    """Check taints: at most 50, each with a key of 1 to 63 characters, its prefix included, and an effect in the API's
    spelling. An empty value is omitted.
    """
    if len(taints) > 50:
        raise invalid_parameter("A maximum of 50 taints are allowed per node group")
    for taint in taints:
        key, value = taint.get("key") or "", taint.get("value") or ""
        if not TAINT_KEY.fullmatch(key) or len(key) > 63:
            raise invalid_parameter(f"Invalid taint key: {key!r}")
        if value and not LABEL_VALUE.fullmatch(value):
            raise invalid_parameter(f"Invalid taint value: {value!r}")
        if taint.get("effect") not in EFFECTS:
            raise invalid_parameter(f"Invalid taint effect: {taint.get('effect')}, must be one of these [{', '.join(EFFECTS)}]")
    return [{name: value for name, value in taint.items() if value} for taint in taints]


def check_update_config(given: dict[str, Any], largest: int) -> dict[str, Any]:
    """Check that exactly one of maxUnavailable and maxUnavailablePercentage is set."""
    number, share = given.get("maxUnavailable"), given.get("maxUnavailablePercentage")
    if (number is None) == (share is None):
        raise invalid_parameter("Exactly one of maxUnavailable and maxUnavailablePercentage must be provided in updateConfig")
    if not 1 <= (number if share is None else share) <= 100:
        raise invalid_parameter("maxUnavailable and maxUnavailablePercentage must be between 1 and 100")
    if number is not None and number > largest:
        raise invalid_parameter("max-unavailable must be within the range 1 and max size of the node group")
    if given.get("updateStrategy") not in (None, "DEFAULT", "MINIMAL"):
        raise invalid_parameter(f"Update strategy {given['updateStrategy']} is not supported")
    return dict(given)


def check_repair(given: dict[str, Any]) -> dict[str, Any]:
    """Check that each limit is either a count or a percentage."""
    for pair in MUTUALLY_EXCLUSIVE:
        if all(given.get(name) is not None for name in pair):
            raise invalid_parameter(f"{' and '.join(pair)} can't be provided together")
    return dict(given)


def check_remote_access(simulator: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Check that the key pair exists. Source security groups require a key pair."""
    key, sources = given.get("ec2SshKey"), given.get("sourceSecurityGroups") or []
    if sources and not key:
        raise invalid_parameter("ec2SshKey in remote-access can't be empty when sourceSecurityGroups is provided")
    if key and key not in simulator.ec2.key_pairs:
        raise invalid_parameter(f"The key pair '{key}' does not exist")
    missing = [group for group in sources if simulator.ec2.get_security_group_from_id(group) is None]
    if missing:
        raise invalid_parameter(f"The security group '{missing[0]}' does not exist")
    return dict(given)
