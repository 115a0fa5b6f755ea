"""IAM validation, propagation delays and paging that moto lacks.

Follows the AWS Identity and Access Management API Reference. The functions are named after the API operations.
"""

from __future__ import annotations

import functools
import json
import re
import time
from typing import Any

from moto.core.responses import ActionResult
from moto.core.serialize import never_return
from moto.iam.models import AWSManagedPolicy, IAMBackend
from moto.iam.responses import IamResponse

from localcloud.aws.errors import AwsError, too_long_error, validation_error
from localcloud.aws.iam import callers, policy_simulation

NAME = re.compile(r"[\w+=,.@-]+", re.ASCII)
MAX_ROLE_POLICIES = 10
"""The default quota of managed policies of a role."""
POLICY_PREFIXES = (
    "AmazonEKS",
    "AmazonEC2",
    "AmazonSSM",
    "AmazonS3",
    "CloudWatch",
    "AmazonRoute53",
    "AmazonECR",
    "AutoScaling",
    "ReadOnlyAccess",
)


def load_policies(backend: Any) -> None:
    """Add the AWS managed policies that nodes use. Loading all 1,400 would make every write slow."""
    for name, data in managed_policies().items():
        policy = AWSManagedPolicy.from_data(name, backend.account_id, backend.region_name, data)
        backend.managed_policies[policy.arn] = policy


@functools.cache
def managed_policies() -> dict[str, Any]:
    """The AWS managed policies that nodes use, by name."""
    from moto.iam.aws_managed_policies import aws_managed_policies_data

    found = json.loads(aws_managed_policies_data)
    return {name: data for name, data in found.items() if name.startswith(POLICY_PREFIXES)}


def check_name(name: str, parameter: str, limit: int) -> None:
    """Reject a name that is too long, or contains invalid characters."""
    if len(name) > limit:
        raise too_long_error(name, parameter, limit)
    if not NAME.fullmatch(name):
        raise validation_error(
            f"The specified value for {parameter} is invalid. It must contain only alphanumeric characters and/or the following: +=,.@_-"
        )


def check_trust_policy(document: str) -> None:
    """Reject a malformed trust policy."""
    try:
        statements = json.loads(document)["Statement"]
        statements = statements if isinstance(statements, list) else [statements]
        effects = ("Allow", "Deny")
        invalid_statements = [s for s in statements if "Principal" not in s or s.get("Effect") not in effects or "Action" not in s]
    except (ValueError, KeyError, TypeError):
        raise AwsError("MalformedPolicyDocument", "This policy contains invalid Json") from None
    if invalid_statements or not statements:
        raise AwsError("MalformedPolicyDocument", "Has prohibited field or lacks Principal, Effect or Action")


def check_tags(tags: list[dict[str, str]] | None) -> None:
    """Reject reserved keys and more than 50 tags."""
    for tag in tags or []:
        if tag["Key"].lower().startswith("aws:"):
            raise AwsError("InvalidInput", "Tag keys with prefix 'aws:' are reserved")
    if len(tags or []) > 50:
        raise AwsError("LimitExceeded", "Cannot exceed quota for tags: 50")


def install(simulator: Any) -> None:
    """Replace moto's operations."""
    install_validation()
    install_propagation_delay(simulator)
    install_pagination()
    policy_simulation.install(simulator)
    callers.install(simulator)


def install_validation() -> None:
    """Validate names, trust policies, tags and role removals."""
    create_role, create_profile, remove = (
        IAMBackend.create_role,
        IAMBackend.create_instance_profile,
        IAMBackend.remove_role_from_instance_profile,
    )
    tag_role, tag_profile = IAMBackend.tag_role, IAMBackend.tag_instance_profile

    def create_valid_role(self: Any, role_name: str, assume_role_policy_document: str, *args: Any, **kwargs: Any) -> Any:
        check_name(role_name, "roleName", 64)
        check_trust_policy(assume_role_policy_document)
        check_tags(kwargs.get("tags") or (args[3] if len(args) > 3 else None))
        return create_role(self, role_name, assume_role_policy_document, *args, **kwargs)

    def create_valid_profile(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        check_name(name, "instanceProfileName", 128)
        check_tags(kwargs.get("tags"))
        return create_profile(self, name, *args, **kwargs)

    def remove_attached_role(self: Any, profile_name: str, role_name: str) -> None:
        if self.get_role(role_name) not in self.get_instance_profile(profile_name).roles:
            raise AwsError("NoSuchEntity", f"Instance Profile {profile_name} does not contain role {role_name}.")
        remove(self, profile_name, role_name)

    def tag_role_validated(self: Any, role_name: str, tags: list[dict[str, str]]) -> None:
        check_tags(tags)
        tag_role(self, role_name, tags)

    def tag_profile_validated(self: Any, instance_profile_name: str, tags: list[dict[str, str]]) -> None:
        check_tags(tags)
        tag_profile(self, instance_profile_name=instance_profile_name, tags=tags)

    attach = IAMBackend.attach_role_policy

    def attach_within_quota(self: Any, policy_arn: str, role_name: str) -> None:
        held = self.get_role(role_name).managed_policies
        if policy_arn not in held and len(held) >= MAX_ROLE_POLICIES:
            raise AwsError("LimitExceeded", f"Cannot exceed quota for PoliciesPerRole: {MAX_ROLE_POLICIES}")
        attach(self, policy_arn, role_name)

    IAMBackend.attach_role_policy = attach_within_quota
    IAMBackend.create_role, IAMBackend.create_instance_profile = create_valid_role, create_valid_profile
    IAMBackend.remove_role_from_instance_profile = remove_attached_role
    IAMBackend.tag_role, IAMBackend.tag_instance_profile = tag_role_validated, tag_profile_validated


def install_propagation_delay(simulator: Any) -> None:
    """Make an instance profile visible to EC2 only after a delay, as IAM's eventual consistency does."""
    create, add = IAMBackend.create_instance_profile, IAMBackend.add_role_to_instance_profile

    def created(self: Any, *args: Any, **kwargs: Any) -> Any:
        profile = create(self, *args, **kwargs)
        simulator.changed_profiles[profile.id] = time.monotonic()
        return profile

    def added(self: Any, profile_name: str, role_name: str) -> None:
        add(self, profile_name, role_name)
        profile = self.get_instance_profile(profile_name)
        simulator.changed_profiles[profile.id] = time.monotonic()

    IAMBackend.create_instance_profile, IAMBackend.add_role_to_instance_profile = created, added


def paginate(response: Any, items: list[Any], default: int = 100) -> tuple[list[Any], dict[str, Any]]:
    """One page by MaxItems and Marker."""
    size, marker = response._get_int_param("MaxItems", default), response._get_param("Marker")
    if not 1 <= size <= 1000:
        raise validation_error(
            f"1 validation error detected: Value '{size}' at 'maxItems' failed to satisfy constraint: "
            f"Member must have value less than or equal to 1000"
        )
    start = int(marker) if marker and marker.isdigit() else 0
    end = start + size
    more = end < len(items)
    return items[start:end], {"IsTruncated": more} | ({"Marker": str(end)} if more else {})


def install_pagination() -> None:
    """Add paging to lists that moto returns as a whole, and ListEntitiesForPolicy."""

    def list_instance_profiles(self: Any) -> ActionResult:
        prefix = self._get_param("PathPrefix") or "/"
        profiles = [p for p in self.backend.get_instance_profiles() if p.path.startswith(prefix)]
        items, paging = paginate(self, sorted(profiles, key=lambda p: p.name))
        return ActionResult({"InstanceProfiles": items} | paging)

    def list_instance_profiles_for_role(self: Any) -> ActionResult:
        role = self.backend.get_role(self._get_param("RoleName"))
        items, paging = paginate(self, self.backend.get_instance_profiles_for_role(role_name=role.name))
        return ActionResult({"InstanceProfiles": items} | paging)

    def list_entities_for_policy(self: Any) -> ActionResult:
        arn, wanted = self._get_param("PolicyArn"), self._get_param("EntityFilter")
        self.backend.get_policy(arn)
        roles = [r for r in self.backend.get_roles() if arn in r.managed_policies] if wanted in (None, "Role") else []
        items, paging = paginate(self, sorted(roles, key=lambda r: r.name))
        shown = [{"RoleName": r.name, "RoleId": r.id} for r in items]
        return ActionResult({"PolicyRoles": shown, "PolicyUsers": [], "PolicyGroups": []} | paging)

    for operation in ("ListInstanceProfiles", "ListInstanceProfilesForRole"):
        IamResponse.RESPONSE_KEY_PATH_TO_TRANSFORMER[f"{operation}Response.InstanceProfiles.InstanceProfile.Tags"] = never_return
    IamResponse.list_instance_profiles = list_instance_profiles
    IamResponse.list_instance_profiles_for_role = list_instance_profiles_for_role
    IamResponse.list_entities_for_policy = list_entities_for_policy
