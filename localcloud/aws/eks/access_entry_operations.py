"""The operations on access entries and their policies, put into moto.

Follows the Amazon EKS API Reference; the actions are named by the functions.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult, EmptyResult

from localcloud.aws.eks import tags as eks_tags
from localcloud.aws.eks.access_entries import Entry
from localcloud.aws.eks.access_entry_validation import (
    check_identity,
    check_mode,
    check_principal,
    check_scope,
    check_type,
    refused,
)
from localcloud.aws.eks.operations import cluster_of, page, parameters, put, repeated
from localcloud.aws.errors import Refused

POLICY = "arn:aws:eks::aws:cluster-access-policy/"
POLICIES = ("AmazonEKSAdminPolicy", "AmazonEKSAdminViewPolicy", "AmazonEKSClusterAdminPolicy", "AmazonEKSEditPolicy", "AmazonEKSViewPolicy")


def opened(world: Any, response: Any) -> dict[str, Any]:
    """The parameters of a call about a cluster that is there and has access entries."""
    params = parameters(response)
    cluster_of(world, params["clusterName"])
    check_mode(world)
    return params


def entry_of(world: Any, params: dict[str, Any]) -> Entry:
    """The entry that a call names."""
    entry = world.access.entries.get(params["principalArn"])
    if entry is None:
        message = "The specified principalArn could not be found. You can view your available access entries with 'list-access-entries'."
        raise Refused("ResourceNotFoundException", message)
    return entry


def association(arn: str, made: dict[str, Any]) -> dict[str, Any]:
    """An AssociatedAccessPolicy."""
    return {"policyArn": arn, **made}


def mend(world: Any) -> None:
    """Put the operations into moto, which has none of them."""
    put(entries(world))
    put(policies(world))


def entries(world: Any) -> type:
    """The operations on entries."""

    class Operations:
        """Methods for moto's response class; `self` is that class's instance."""

        def create_access_entry(self) -> ActionResult:
            params = opened(world, self)
            before = repeated(world.access.entries.values(), params)
            if before:
                return ActionResult({"accessEntry": before.describe()})
            kind, principal = check_type(params.get("type", "STANDARD")), params["principalArn"]
            check_identity(kind, params.get("username"), params.get("kubernetesGroups"))
            eks_tags.check(params.get("tags") or {})
            identifier = check_principal(world, principal, kind)
            if principal in world.access.entries:
                raise Refused("ResourceInUseException", "The specified access entry resource is already in use on this cluster.")
            return ActionResult({"accessEntry": world.access.add(principal, identifier, kind, params).describe()})

        def describe_access_entry(self) -> ActionResult:
            return ActionResult({"accessEntry": entry_of(world, opened(world, self)).describe()})

        def list_access_entries(self) -> ActionResult:
            params = opened(world, self)
            policy = params.get("associatedPolicyArn")
            found = [arn for arn, entry in sorted(world.access.entries.items()) if policy is None or policy in entry.policies]
            arns, token = page(found, params)
            return ActionResult({"accessEntries": arns, "nextToken": token})

        def update_access_entry(self) -> ActionResult:
            params = opened(world, self)
            entry = entry_of(world, params)
            check_identity(entry.type, params.get("username"), params.get("kubernetesGroups"))
            entry.username = params.get("username", entry.username)
            entry.groups = list(params.get("kubernetesGroups", entry.groups))
            entry.modified = datetime.now(UTC)
            world.access.changed(entry.principal)
            return ActionResult({"accessEntry": entry.describe()})

        def delete_access_entry(self) -> EmptyResult:
            world.access.remove(entry_of(world, opened(world, self)).principal)
            return EmptyResult()

    return Operations


def policies(world: Any) -> type:
    """The operations on access policies, which are kept and grant nothing here."""

    class Operations:
        """Methods for moto's response class; `self` is that class's instance."""

        def associate_access_policy(self) -> ActionResult:
            params = opened(world, self)
            entry, arn = entry_of(world, params), params["policyArn"]
            if not arn.startswith(POLICY) or arn.removeprefix(POLICY) not in POLICIES:
                raise refused("The specified policyArn is invalid: invalid policy")
            if entry.type != "STANDARD":
                raise Refused("InvalidRequestException", f"Access policies can't be associated with an access entry of type {entry.type}")
            check_scope(params["accessScope"])
            now = datetime.now(UTC)
            before = entry.policies.get(arn, {"associatedAt": now})
            entry.policies[arn] = before | {"accessScope": params["accessScope"], "modifiedAt": now}
            shown = association(arn, entry.policies[arn])
            return ActionResult({"clusterName": entry.cluster, "principalArn": entry.principal, "associatedAccessPolicy": shown})

        def disassociate_access_policy(self) -> EmptyResult:
            params = opened(world, self)
            if entry_of(world, params).policies.pop(params["policyArn"], None) is None:
                raise Refused("ResourceNotFoundException", "The specified policyArn is not associated with the access entry")
            return EmptyResult()

        def list_associated_access_policies(self) -> ActionResult:
            params = opened(world, self)
            entry = entry_of(world, params)
            shown, token = page([association(arn, made) for arn, made in sorted(entry.policies.items())], params, lambda p: p["policyArn"])
            more = {"associatedAccessPolicies": shown, "nextToken": token}
            return ActionResult({"clusterName": entry.cluster, "principalArn": entry.principal, **more})

        def list_access_policies(self) -> ActionResult:
            shown, token = page([{"name": name, "arn": POLICY + name} for name in POLICIES], parameters(self), lambda p: p["arn"])
            return ActionResult({"accessPolicies": shown, "nextToken": token})

    return Operations
