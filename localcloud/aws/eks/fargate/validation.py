"""Validation of Fargate profiles.

Follows the Amazon EKS API Reference, CreateFargateProfile and FargateProfileSelector, and the User Guide, "Define which
Pods use AWS Fargate when launched" and "Amazon EKS Pod execution IAM role". Messages are those of AWS where they are
known.
"""

from __future__ import annotations

import json
import re
from typing import Any

from moto.ec2.exceptions import InvalidSubnetIdError

from localcloud.aws.ec2.subnets import is_public
from localcloud.aws.eks import tags as eks_tags
from localcloud.aws.errors import AwsError
from localcloud.aws.iam.policy_simulation import as_list, matches_wildcards

NAME = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]*", re.ASCII)
LABEL = r"[A-Za-z0-9*?]([A-Za-z0-9._*?-]{0,61}[A-Za-z0-9*?])?"
NAMESPACE = re.compile(r"[a-z0-9*?]([a-z0-9*?-]{0,61}[a-z0-9*?])?")
LABEL_KEY = re.compile(rf"([a-z0-9.*?-]{{1,253}}/)?{LABEL}")
LABEL_VALUE = re.compile(rf"({LABEL})?")
SERVICE = "eks-fargate-pods.amazonaws.com"
TRUST = f"Misconfigured PodExecutionRole Trust Policy; Please add the {SERVICE} Service Principal"


def invalid_parameter(message: str) -> AwsError:
    """EKS's error for an invalid parameter."""
    return AwsError("InvalidParameterException", message)


def check(simulator: Any, params: dict[str, Any]) -> list[str]:
    """Validate the call. Returns the subnets: the given ones, or the private subnets of the cluster."""
    check_name(params["fargateProfileName"])
    check_selectors(params.get("selectors") or [])
    eks_tags.check(params.get("tags") or {})
    check_role(simulator, params["podExecutionRoleArn"])
    return check_subnets(simulator, params.get("subnets") or [])


def check_name(name: str) -> None:
    """Check the name of a profile."""
    if len(name) > 100:
        raise invalid_parameter("The Fargate profile name parameter should not be greater than 100 characters.")
    if not NAME.fullmatch(name):
        raise invalid_parameter(
            "The fargateProfileName parameter contains invalid characters. It should conform to the regular expression "
            '"^[0-9A-Za-z][A-Za-z0-9-_]*"In other words, it should start with a number or letter, and can contain numbers, '
            "letters, dashes, and underscores."
        )
    if name.startswith("eks-"):
        raise invalid_parameter("The fargate profile name starts with the reserved prefix: 'eks-'.")


def check_selectors(selectors: list[dict[str, Any]]) -> None:
    """Check selectors: one to five, each with a namespace and at most five labels, which may have wildcards."""
    if not selectors:
        raise invalid_parameter("Fargate Profile requires at least one selector.")
    if len(selectors) > 5:
        raise invalid_parameter("Fargate Profile can have at most 5 selectors.")
    for selector in selectors:
        namespace, labels = selector.get("namespace"), selector.get("labels") or {}
        if not namespace:
            raise invalid_parameter("Fargate Profile must have at least one selector with at least one namespace value.")
        if not NAMESPACE.fullmatch(namespace):
            raise invalid_parameter(f"Selector namespace {namespace} is invalid")
        if len(labels) > 5:
            raise invalid_parameter("Request contains Selector with more than 5 Label pairs")
        for key, value in labels.items():
            if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
                raise invalid_parameter(f"Selector label {key}={value} is invalid")


def find_role(simulator: Any, arn: str) -> Any:
    """The role with that ARN, or None."""
    return next((role for role in simulator.iam.roles.values() if role.arn == arn), None)


def check_role(simulator: Any, arn: str) -> None:
    """Check the pod execution role. A role that has not propagated yet gets the error for a wrong trust policy."""
    role = find_role(simulator, arn)
    if role is None or not simulator.role_propagated(role) or not trusts_fargate(simulator, role):
        raise invalid_parameter(TRUST)


def trusts_fargate(simulator: Any, role: Any) -> bool:
    """Whether the role's trust policy allows Fargate pods of this cluster."""
    settings = simulator.settings
    source = f"arn:aws:eks:{settings.region}:{settings.account}:fargateprofile/{settings.cluster_name}/any"
    document = role.assume_role_policy_document
    statements = as_list((json.loads(document) if isinstance(document, str) else document)["Statement"])
    return any(statement_trusts_fargate(statement, source) for statement in statements)


def statement_trusts_fargate(statement: dict[str, Any], source: str) -> bool:
    """Whether a statement allows Fargate to assume the role for that profile. Only aws:SourceArn conditions count."""
    principal = statement.get("Principal")
    services = as_list(principal.get("Service", [])) if isinstance(principal, dict) else []
    conditions = [pair for condition in statement.get("Condition", {}).values() for pair in condition.items()]
    sources = [pattern for key, value in conditions if key.lower() == "aws:sourcearn" for pattern in as_list(value)]
    return statement["Effect"] == "Allow" and SERVICE in services and (not sources or any(matches_wildcards(p, source) for p in sources))


def check_subnets(simulator: Any, given: list[str]) -> list[str]:
    """Check that the subnets are private subnets of the cluster's VPC."""
    cluster_subnets = simulator.eks.clusters[simulator.settings.cluster_name].resources_vpc_config["subnetIds"]
    vpc = simulator.ec2.get_subnet(cluster_subnets[0]).vpc_id
    found = given or [identifier for identifier in cluster_subnets if not is_public(simulator, simulator.ec2.get_subnet(identifier))]
    if not found:
        raise invalid_parameter("The cluster has no private subnet: at least one is needed for a Fargate profile")
    for identifier in found:
        try:
            subnet = simulator.ec2.get_subnet(identifier)
        except InvalidSubnetIdError:
            raise invalid_parameter(f"The subnet ID '{identifier}' does not exist") from None
        if subnet.vpc_id != vpc:
            raise invalid_parameter(f"Subnet {identifier} provided in Fargate Profile is not in the VPC of the cluster")
        if is_public(simulator, subnet):
            raise invalid_parameter(f"Subnet {identifier} provided in Fargate Profile is not a private subnet")
    return found
