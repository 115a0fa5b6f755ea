"""The EKS operations on access entries and access policies.

Follows the Amazon EKS API Reference. The functions are named after the API operations.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult, EmptyResult

from localcloud.aws.eks import tags as eks_tags
from localcloud.aws.eks.access_entries import AccessEntries, AccessEntry
from localcloud.aws.eks.access_entry_validation import (
    check_identity,
    check_mode,
    check_principal,
    check_scope,
    check_type,
    invalid_parameter,
)
from localcloud.aws.eks.operations import add_operations, find_repeated_call, get_cluster, page, request_params
from localcloud.aws.errors import AwsError

POLICY = "arn:aws:eks::aws:cluster-access-policy/"
POLICIES = ("AmazonEKSAdminPolicy", "AmazonEKSAdminViewPolicy", "AmazonEKSClusterAdminPolicy", "AmazonEKSEditPolicy", "AmazonEKSViewPolicy")


def cluster_params(simulator: Any, response: Any) -> dict[str, Any]:
    """The parameters of a call. The cluster must exist, and its authentication mode must include access entries."""
    params = request_params(response)
    get_cluster(simulator, params["clusterName"])
    check_mode(simulator, params["clusterName"])
    return params


def entries_of(simulator: Any, params: dict[str, Any]) -> AccessEntries:
    """The entries of the cluster that a call names."""
    return simulator.access_of(params["clusterName"])[1]


def get_entry(simulator: Any, params: dict[str, Any]) -> AccessEntry:
    """The entry of the call. Raises EKS's error if it does not exist."""
    entry = entries_of(simulator, params).entries.get(params["principalArn"])
    if entry is None:
        message = "The specified principalArn could not be found. You can view your available access entries with 'list-access-entries'."
        raise AwsError("ResourceNotFoundException", message)
    return entry


def association(arn: str, made: dict[str, Any]) -> dict[str, Any]:
    """An AssociatedAccessPolicy."""
    return {"policyArn": arn, **made}


def install(simulator: Any) -> None:
    """Add the operations to moto, which lacks them."""
    add_operations(entry_operations(simulator))
    add_operations(policy_operations(simulator))


def entry_operations(simulator: Any) -> type:
    """The operations on entries."""

    class Operations:
        """Methods for moto's response class. `self` is an instance of that class."""

        def create_access_entry(self) -> ActionResult:
            params = cluster_params(simulator, self)
            existing = find_repeated_call(entries_of(simulator, params).entries.values(), params)
            if existing:
                return ActionResult({"accessEntry": existing.describe()})
            kind, principal = check_type(params.get("type", "STANDARD")), params["principalArn"]
            check_identity(kind, params.get("username"), params.get("kubernetesGroups"))
            eks_tags.check(params.get("tags") or {})
            identifier = check_principal(simulator, principal, kind)
            if principal in entries_of(simulator, params).entries:
                raise AwsError("ResourceInUseException", "The specified access entry resource is already in use on this cluster.")
            return ActionResult({"accessEntry": entries_of(simulator, params).add(principal, identifier, kind, params).describe()})

        def describe_access_entry(self) -> ActionResult:
            return ActionResult({"accessEntry": get_entry(simulator, cluster_params(simulator, self)).describe()})

        def list_access_entries(self) -> ActionResult:
            params = cluster_params(simulator, self)
            policy = params.get("associatedPolicyArn")
            found = [arn for arn, entry in sorted(entries_of(simulator, params).entries.items()) if policy is None or policy in entry.policies]
            arns, token = page(found, params)
            return ActionResult({"accessEntries": arns, "nextToken": token})

        def update_access_entry(self) -> ActionResult:
            params = cluster_params(simulator, self)
            entry = get_entry(simulator, params)
            check_identity(entry.type, params.get("username"), params.get("kubernetesGroups"))
            entry.username = params.get("username", entry.username)
            entry.groups = list(params.get("kubernetesGroups", entry.groups))
            entry.modified = datetime.now(UTC)
            entries_of(simulator, params).on_change(entry.principal)
            return ActionResult({"accessEntry": entry.describe()})

        def delete_access_entry(self) -> EmptyResult:
            params = cluster_params(simulator, self)
            entries_of(simulator, params).remove(get_entry(simulator, params).principal)
            return EmptyResult()

    return Operations


def policy_operations(simulator: Any) -> type:
    """The operations on access policies. Policies are stored, but grant no permissions."""

    class Operations:
        """Methods for moto's response class. `self` is an instance of that class."""

        def associate_access_policy(self) -> ActionResult:
            params = cluster_params(simulator, self)
            entry, arn = get_entry(simulator, params), params["policyArn"]
            if not arn.startswith(POLICY) or arn.removeprefix(POLICY) not in POLICIES:
                raise invalid_parameter("The specified policyArn is invalid: invalid policy")
            if entry.type != "STANDARD":
                raise AwsError("InvalidRequestException", f"Access policies can't be associated with an access entry of type {entry.type}")
            check_scope(params["accessScope"])
            now = datetime.now(UTC)
            existing = entry.policies.get(arn, {"associatedAt": now})
            entry.policies[arn] = existing | {"accessScope": params["accessScope"], "modifiedAt": now}
            shown = association(arn, entry.policies[arn])
            return ActionResult({"clusterName": entry.cluster, "principalArn": entry.principal, "associatedAccessPolicy": shown})

        def disassociate_access_policy(self) -> EmptyResult:
            params = cluster_params(simulator, self)
            if get_entry(simulator, params).policies.pop(params["policyArn"], None) is None:
                raise AwsError("ResourceNotFoundException", "The specified policyArn is not associated with the access entry")
            return EmptyResult()

        def list_associated_access_policies(self) -> ActionResult:
            params = cluster_params(simulator, self)
            entry = get_entry(simulator, params)
            shown, token = page([association(arn, made) for arn, made in sorted(entry.policies.items())], params, lambda p: p["policyArn"])
            more = {"associatedAccessPolicies": shown, "nextToken": token}
            return ActionResult({"clusterName": entry.cluster, "principalArn": entry.principal, **more})

        def list_access_policies(self) -> ActionResult:
            shown, token = page([{"name": name, "arn": POLICY + name} for name in POLICIES], request_params(self), lambda p: p["arn"])
            return ActionResult({"accessPolicies": shown, "nextToken": token})

    return Operations
