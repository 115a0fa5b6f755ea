"""Whether a role may join nodes: by its IAM policies, by access entries and by aws-auth.

Follows "Amazon EKS node IAM role", "Grant IAM users access to Kubernetes with a ConfigMap", "Create access entries",
"Migrating existing aws-auth ConfigMap entries to access entries" and "Deploy Windows nodes on EKS clusters" (Amazon EKS
User Guide).
"""

from __future__ import annotations

import functools
from typing import Any

import yaml

USERNAME = "system:node:{{EC2PrivateDNSName}}"
FARGATE_USERNAME = "system:node:{{SessionName}}"
GROUPS = {"system:bootstrappers", "system:nodes"}
PROXIER_GROUP = "system:node-proxier"
WINDOWS_GROUP = "eks:kube-proxy-windows"
"""The additional group of Windows nodes. Without it, kube-proxy and the node's network do not work."""

AUTHORIZATION_PROBLEMS = ("kube-system/aws-auth", "mapRoles", "the entry", "the access entry", "there is no access entry")
"""The prefixes of the reasons that `authorization_problem` returns."""
ACCEPTED_ENTRY_TYPES = {"EC2_LINUX": ("EC2_LINUX", "EC2_WINDOWS"), "EC2_WINDOWS": ("EC2_WINDOWS",), "FARGATE_LINUX": ("FARGATE_LINUX",)}
"""The types of access entries that authorize each kind of node. EC2_WINDOWS has all groups of EC2_LINUX."""
WORKER_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy")


def node_role_problem(role: Any) -> str | None:
    """Why a node with this role cannot start, or None. Customer-managed policies are assumed to be sufficient."""
    if role is None:
        return "the instance has no role"
    if "ec2.amazonaws.com" not in role.assume_role_policy_document:
        return f"the role {role.name} does not trust ec2.amazonaws.com"
    has_other_policies = role.policies or any(":iam::aws:policy/" not in arn for arn in role.managed_policies)
    if not has_other_policies and not any(arn.endswith("/" + name) for arn in role.managed_policies for name in WORKER_POLICIES):
        return f"the role {role.name} may not call ec2:DescribeInstances: it lacks {WORKER_POLICIES[0]}"
    return None


def authorization_problem(simulator: Any, role: Any, kind: str = "EC2_LINUX", cluster: str | None = None) -> str | None:
    """Why a node with this role cannot authenticate, or None. An access entry overrides aws-auth. All clusters share the
    aws-auth of the one API server.
    """
    mode, access_entries = simulator.access_of(cluster or simulator.settings.cluster_name)
    map_roles = simulator.kubelets.map_roles
    if mode == "CONFIG_MAP":
        return aws_auth_problem(map_roles, role.arn, kind)
    found = access_entries.effective_entry(role)
    if found is None:
        missing = f"there is no access entry for {role.arn}"
        if mode == "API":
            return missing
        reason = aws_auth_problem(map_roles, role.arn, kind)
        return f"{missing}, and {reason}" if reason else None
    if found.type not in ACCEPTED_ENTRY_TYPES[kind]:
        return f"the access entry for {role.arn} is of type {found.type}, not {kind}"
    return None


def arn_without_path(role_arn: str) -> str:
    """A role's ARN without its path, as aws-auth requires it."""
    prefix, _, path = role_arn.partition(":role/")
    return f"{prefix}:role/{path.rsplit('/', 1)[-1]}"


def aws_auth_entry(role_arn: str, kind: str) -> dict[str, Any]:
    """The aws-auth entry that corresponds to an access entry of that type."""
    fargate = kind == "FARGATE_LINUX"
    extra_groups = {PROXIER_GROUP} if fargate else {WINDOWS_GROUP} if kind == "EC2_WINDOWS" else set()
    username = FARGATE_USERNAME if fargate else USERNAME
    return {"rolearn": arn_without_path(role_arn), "username": username, "groups": sorted(GROUPS | extra_groups)}


@functools.lru_cache(maxsize=16)
def entries_by_role(map_roles: str) -> dict[str, list[dict[str, Any]]]:
    """The entries of each role, by its ARN in lower case. Each change of aws-auth is looked at once for every node, so the
    last results are cached. Raises ValueError with the reason if aws-auth cannot be read.
    """
    try:
        entries = yaml.load(map_roles, yaml.CSafeLoader) or []
    except yaml.YAMLError as error:
        raise ValueError("mapRoles of kube-system/aws-auth is not YAML") from error
    if not isinstance(entries, list) or not all(isinstance(found, dict) for found in entries):
        raise ValueError("mapRoles of kube-system/aws-auth is not a list of mappings")
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        found.setdefault(str(entry.get("rolearn", "")).lower(), []).append(entry)
    return found


def aws_auth_problem(map_roles: str | None, role_arn: str, kind: str) -> str | None:
    """Why aws-auth does not authorize a role, or None. Entries must contain the ARN without the role's path."""
    wanted = aws_auth_entry(role_arn, kind)
    if map_roles is None:
        return "kube-system/aws-auth does not exist"
    arn = wanted["rolearn"]
    try:
        entries = entries_by_role(map_roles)
    except ValueError as error:
        return str(error)
    reason = f"kube-system/aws-auth has no entry for {arn}"
    for found in entries.get(arn.lower(), []):
        missing = set(wanted["groups"]) - set(found.get("groups") or [])
        if found.get("username") != wanted["username"]:
            reason = f"the entry for {arn} has username {found.get('username')!r}, not {wanted['username']!r}"
        elif missing:
            reason = f"the entry for {arn} lacks the groups {', '.join(sorted(missing))}"
        else:
            return None
    return reason
