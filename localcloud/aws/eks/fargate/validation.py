"""Checks of a Fargate profile before EKS makes it.

Follows the Amazon EKS API Reference, CreateFargateProfile and FargateProfileSelector, and the User Guide, "Define which
Pods use AWS Fargate when launched" and "Amazon EKS Pod execution IAM role". The messages are those that AWS answers with
where they are known.
"""

from __future__ import annotations

import json
import re
from typing import Any

from moto.ec2.exceptions import InvalidSubnetIdError

from localcloud.aws.eks import tags as eks_tags
from localcloud.aws.errors import Refused
from localcloud.aws.iam.policy_simulation import like, many

NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]*", re.ASCII)
LABEL = r"[A-Za-z0-9*?]([A-Za-z0-9._*?-]{0,61}[A-Za-z0-9*?])?"
NAMESPACE = re.compile(r"[a-z0-9*?]([a-z0-9*?-]{0,61}[a-z0-9*?])?")
LABEL_KEY = re.compile(rf"([a-z0-9.*?-]{{1,253}}/)?{LABEL}")
LABEL_VALUE = re.compile(rf"({LABEL})?")
SERVICE = "eks-fargate-pods.amazonaws.com"
TRUST = f"Misconfigured PodExecutionRole Trust Policy; Please add the {SERVICE} Service Principal"


def refused(message: str) -> Refused:
    """What is wrong with a parameter."""
    return Refused("InvalidParameterException", message)


def check(world: Any, params: dict[str, Any]) -> list[str]:
    """Whether EKS would take the call; the subnets, which are the private ones of the cluster unless some are given."""
    check_name(params["fargateProfileName"])
    check_selectors(params.get("selectors") or [])
    eks_tags.check(params.get("tags") or {})
    check_role(world, params["podExecutionRoleArn"])
    return check_subnets(world, params.get("subnets") or [])


def check_name(name: str) -> None:
    """The name of a profile."""
    if len(name) > 100:
        raise refused("The Fargate profile name parameter should not be greater than 100 characters.")
    if not NAME.fullmatch(name):
        raise refused(
            "The fargateProfileName parameter contains invalid characters. It should conform to the regular expression "
            '"^[0-9A-Za-z][A-Za-z0-9-_]*"In other words, it should start with a number or letter, and can contain numbers, '
            "letters, dashes, and underscores."
        )
    if name.startswith("eks-"):
        raise refused("The fargate profile name starts with the reserved prefix: 'eks-'.")


def check_selectors(selectors: list[dict[str, Any]]) -> None:
    """One to five selectors, each with a namespace and at most five labels, as Kubernetes has them or with wildcards."""
    if not selectors:
        raise refused("Fargate Profile requires at least one selector.")
    if len(selectors) > 5:
        raise refused("Fargate Profile can have at most 5 selectors.")
    for selector in selectors:
        namespace, labels = selector.get("namespace"), selector.get("labels") or {}
        if not namespace:
            raise refused("Fargate Profile must have at least one selector with at least one namespace value.")
        if not NAMESPACE.fullmatch(namespace):
            raise refused(f"Selector namespace {namespace} is invalid")
        if len(labels) > 5:
            raise refused("Request contains Selector with more than 5 Label pairs")
        for key, value in labels.items():
            if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
                raise refused(f"Selector label {key}={value} is invalid")


def role_of(world: Any, arn: str) -> Any:
    """The role of that ARN, if it is there."""
    return next((role for role in world.iam.roles.values() if role.arn == arn), None)


def check_role(world: Any, arn: str) -> None:
    """The pod execution role; one that was made just now is not known yet, as the wrong trust policy shows."""
    role = role_of(world, arn)
    if role is None or not world.known(role) or not trusts_fargate(world, role):
        raise refused(TRUST)


def trusts_fargate(world: Any, role: Any) -> bool:
    """Whether the role trusts Fargate pods of this cluster's profiles."""
    settings = world.settings
    source = f"arn:aws:eks:{settings.region}:{settings.account}:fargateprofile/{settings.cluster_name}/any"
    document = role.assume_role_policy_document
    statements = many((json.loads(document) if isinstance(document, str) else document)["Statement"])
    return any(trusts(statement, source) for statement in statements)


def trusts(statement: dict[str, Any], source: str) -> bool:
    """Whether a statement of a trust policy lets Fargate take the role for that profile; of conditions aws:SourceArn counts."""
    principal = statement.get("Principal")
    services = many(principal.get("Service", [])) if isinstance(principal, dict) else []
    keys = [pair for condition in statement.get("Condition", {}).values() for pair in condition.items()]
    sources = [pattern for key, value in keys if key.lower() == "aws:sourcearn" for pattern in many(value)]
    return statement["Effect"] == "Allow" and SERVICE in services and (not sources or any(like(p, source) for p in sources))


def check_subnets(world: Any, given: list[str]) -> list[str]:
    """Private subnets of the cluster's VPC."""
    mine = world.eks.clusters[world.settings.cluster_name].resources_vpc_config["subnetIds"]
    vpc = world.ec2.get_subnet(mine[0]).vpc_id
    found = given or [identifier for identifier in mine if not public(world, world.ec2.get_subnet(identifier))]
    if not found:
        raise refused("The cluster has no private subnet: at least one is needed for a Fargate profile")
    for identifier in found:
        try:
            subnet = world.ec2.get_subnet(identifier)
        except InvalidSubnetIdError:
            raise refused(f"The subnet ID '{identifier}' does not exist") from None
        if subnet.vpc_id != vpc:
            raise refused(f"Subnet {identifier} provided in Fargate Profile is not in the VPC of the cluster")
        if public(world, subnet):
            raise refused(f"Subnet {identifier} provided in Fargate Profile is not a private subnet")
    return found


def public(world: Any, subnet: Any) -> bool:
    """Whether the subnet's route table, or else the main one of its VPC, leads to an internet gateway."""
    tables = world.ec2.route_tables.values()
    own = [t for t in tables if any(a.get("SubnetId") == subnet.id for a in t.associations)]
    main = [t for t in tables if t.vpc_id == subnet.vpc_id and t.main_association_id]
    return any((route.gateway_id or "").startswith("igw-") for table in own or main for route in table.routes)
