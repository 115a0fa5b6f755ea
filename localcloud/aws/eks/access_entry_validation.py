"""Validation of calls on access entries.

Follows the Amazon EKS API Reference, CreateAccessEntry, and the User Guide, "Create access entries". Messages are those
of AWS where they are known.
"""

from __future__ import annotations

import re
from typing import Any

from localcloud.aws.errors import AwsError

TYPES = ("STANDARD", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "EC2", "HYBRID_LINUX", "HYPERPOD_LINUX")
ARN = re.compile(r"arn:aws[\w-]*:iam::(\d{12}):(role|user)/(?:.*/)?([\w+=,.@-]+)", re.ASCII)
USERNAME_PREFIXES = ("system:", "eks:", "aws:", "amazon:", "iam:")
MODES = ("CONFIG_MAP", "API_AND_CONFIG_MAP", "API")


def invalid_parameter(message: str) -> AwsError:
    """EKS's error for an invalid parameter."""
    return AwsError("InvalidParameterException", message)


def check_mode(simulator: Any, cluster: str) -> None:
    """Check that the cluster's authentication mode includes access entries."""
    if simulator.access_of(cluster)[0] == "CONFIG_MAP":
        message = "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this operation."
        raise AwsError("InvalidRequestException", message)


def check_principal(simulator: Any, arn: str, kind: str) -> str:
    """The unique id of the principal, which must exist and have propagated.

    Only STANDARD entries accept users and principals of other accounts.
    """
    match = ARN.fullmatch(arn)
    if "/aws-service-role/" in arn:
        raise invalid_parameter("The caller is not allowed to modify access entries with a principalArn value of a Service Linked Role")
    if match and kind == "STANDARD" and match[1] != simulator.settings.account:
        return arn
    if match and not (kind != "STANDARD" and match[2] == "user"):
        candidates = simulator.iam.roles.values() if match[2] == "role" else simulator.iam.users.values()
        for principal in candidates:
            if principal.arn == arn and simulator.role_propagated(principal):
                return principal.id
    raise invalid_parameter("The specified principalArn is invalid: invalid principal.")


def check_type(kind: str) -> str:
    """Check the type of an entry."""
    if kind not in TYPES:
        raise invalid_parameter(f"The specified type {kind} is invalid, it must be one of {', '.join(TYPES)}")
    return kind


def check_identity(kind: str, username: str | None, groups: list[str] | None) -> None:
    """Check user name and groups, which only STANDARD entries may set."""
    for group in groups or []:
        if group.startswith("system:"):
            raise invalid_parameter(f"The kubernetes group name {group} is invalid, it cannot start with system:")
    for prefix in USERNAME_PREFIXES:
        if username and username.startswith(prefix):
            raise invalid_parameter(f"The username must not begin with {prefix}")
    if kind != "STANDARD" and (username or groups):
        field = "username" if username else "kubernetesGroups"
        raise invalid_parameter(f"The {field} can't be specified for an access entry of type {kind}")
    session = re.search(r"\{\{SessionName(Raw)?\}\}", username or "")
    if session and ":" not in username[: session.start()]:
        raise invalid_parameter("The username must include a colon before {{SessionName}}")


def check_change(before: str, after: str) -> None:
    """Check a change of the authentication mode. It goes one step forward, never back."""
    if after not in MODES:
        raise invalid_parameter(f"The specified authentication mode {after} is invalid")
    if (before, after) not in zip(MODES, MODES[1:], strict=False):
        raise invalid_parameter(f"Unsupported authentication mode update from {before} to {after}")


def check_scope(scope: dict[str, Any]) -> None:
    """Check the scope of an access policy. Only the namespace scope has namespaces."""
    if scope.get("type") not in ("cluster", "namespace"):
        raise invalid_parameter(f"The access scope type {scope.get('type')} is invalid")
    if (scope["type"] == "namespace") != bool(scope.get("namespaces")):
        raise invalid_parameter("Namespaces are given with the access scope type namespace, and only with it")
