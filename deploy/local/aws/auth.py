"""Whether aws-auth lets the nodes of a role in.

Follows "Grant IAM users access to Kubernetes with a ConfigMap" (Amazon EKS User Guide).
"""

from __future__ import annotations

import yaml

USERNAME = "system:node:{{EC2PrivateDNSName}}"
GROUPS = {"system:bootstrappers", "system:nodes"}


def refusal(map_roles: str | None, role_arn: str) -> str | None:
    """Why a role is not let in; None lets it in. The role's path does not count, and is not to be in the entry."""
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
        missing = GROUPS - set(entry.get("groups") or [])
        if entry.get("username") != USERNAME:
            reason = f"the entry for {bare} has username {entry.get('username')!r}, not {USERNAME!r}"
        elif missing:
            reason = f"the entry for {bare} lacks the groups {', '.join(sorted(missing))}"
        else:
            return None
    return reason
