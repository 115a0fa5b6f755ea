"""Whether a role may make nodes: by what IAM gives it, and by aws-auth.

Follows "Amazon EKS node IAM role", "Grant IAM users access to Kubernetes with a ConfigMap" and "Deploy Windows nodes on
EKS clusters" (Amazon EKS User Guide).
"""

from __future__ import annotations

from typing import Any

import yaml

USERNAME = "system:node:{{EC2PrivateDNSName}}"
GROUPS = {"system:bootstrappers", "system:nodes"}
WINDOWS_GROUP = "eks:kube-proxy-windows"
"""What kube-proxy needs on a Windows node beside these: its node's network works only with it."""


WORKER_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEKSWorkerNodeMinimalPolicy")


def role_problem(role: Any) -> str | None:
    """Why a node of this role cannot start; policies that are not AWS's own are trusted to allow what it needs."""
    if role is None:
        return "the instance has no role"
    if "ec2.amazonaws.com" not in role.assume_role_policy_document:
        return f"the role {role.name} does not trust ec2.amazonaws.com"
    own = role.policies or any(":iam::aws:policy/" not in arn for arn in role.managed_policies)
    if not own and not any(arn.endswith("/" + name) for arn in role.managed_policies for name in WORKER_POLICIES):
        return f"the role {role.name} may not call ec2:DescribeInstances: it lacks {WORKER_POLICIES[0]}"
    return None


def refusal(map_roles: str | None, role_arn: str, windows: bool = False) -> str | None:
    """Why a role is not let in, with a Windows node or another; None lets it in. The role's path does not count, and is not to be in the entry."""
    if map_roles is None:
        return "kube-system/aws-auth does not exist"
    try:
        entries = yaml.safe_load(map_roles) or []
    except yaml.YAMLError:
        return "mapRoles of kube-system/aws-auth is not YAML"
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return "mapRoles of kube-system/aws-auth is not a list of mappings"
    prefix, _, path = role_arn.partition(":role/")
    bare = f"{prefix}:role/{path.rsplit('/', 1)[-1]}"
    reason = f"kube-system/aws-auth has no entry for {bare}"
    for entry in entries:
        if str(entry.get("rolearn", "")).lower() != bare.lower():
            continue
        missing = (GROUPS | {WINDOWS_GROUP} if windows else GROUPS) - set(entry.get("groups") or [])
        if entry.get("username") != USERNAME:
            reason = f"the entry for {bare} has username {entry.get('username')!r}, not {USERNAME!r}"
        elif missing:
            reason = f"the entry for {bare} lacks the groups {', '.join(sorted(missing))}"
        else:
            return None
    return reason
