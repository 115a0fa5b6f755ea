"""EC2 launch templates: versions, client tokens, deletion and validation.

Follows the Amazon EC2 API Reference. The functions are named after the API operations.
"""

from __future__ import annotations

import base64
import binascii
import copy
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from localcloud.aws.errors import AwsError

NAME = re.compile(r"[a-zA-Z0-9().\-/_]{3,128}")
USER_DATA_LIMIT = 16384
TAGGABLE = ("instance", "volume", "network-interface", "spot-instances-request")


@dataclass
class LaunchTemplateVersion:
    """One immutable version of a launch template."""

    number: int
    data: dict[str, Any]
    description: str | None
    created: datetime


@dataclass
class LaunchTemplate:
    """A launch template. Its tags are in moto's EC2 tag store."""

    id: str
    name: str
    created: datetime
    versions: dict[int, LaunchTemplateVersion] = field(default_factory=dict)
    default: int = 1
    latest: int = 0

    def add(self, data: dict[str, Any], description: str | None) -> LaunchTemplateVersion:
        """Add a version. Version numbers are never reused."""
        self.latest += 1
        version = LaunchTemplateVersion(self.latest, data, description, datetime.now(UTC))
        self.versions[version.number] = version
        return version

    def find(self, wanted: str) -> LaunchTemplateVersion | None:
        """The version with that number, `$Latest` or `$Default`. None if it does not exist."""
        if wanted == "$Latest":
            return self.versions[max(self.versions)]
        if wanted == "$Default":
            return self.versions[self.default]
        return self.versions.get(int(wanted)) if wanted.isdigit() else None


def check_name(name: str | None) -> str:
    """Reject a name that EC2 rejects."""
    if not name:
        raise AwsError("MissingParameter", "The request must contain the parameter LaunchTemplateName")
    if not NAME.fullmatch(name):
        raise AwsError(
            "InvalidLaunchTemplateName.MalformedException",
            "A launch template name must be between 3 and 128 characters, and may contain letters, numbers, "
            "and the following characters: - ( ) . / _.",
        )
    return name


def check_data(data: dict[str, Any], description: str | None) -> dict[str, Any]:
    """Reject launch template data that EC2 rejects."""
    if description is not None and len(description) > 255:
        raise AwsError("InvalidParameterValue", "The version description must not be longer than 255 characters.")
    if not data:
        raise AwsError("MissingParameter", "The request must contain the parameter LaunchTemplateData")
    data = json.loads(json.dumps(data, default=str))
    check_user_data(data.get("UserData"))
    if data.get("SecurityGroupIds") and any("Groups" in nic for nic in data.get("NetworkInterfaces", [])):
        raise AwsError(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level security groups may not be specified on the same request",
        )
    for specification in data.get("TagSpecifications", []):
        if specification.get("ResourceType") not in TAGGABLE:
            message = f"'{specification.get('ResourceType')}' is not a valid taggable resource type for this operation."
            raise AwsError("InvalidParameterValue", message)
        check_tags(specification.get("Tags", []))
    return data


def check_user_data(text: str | None) -> None:
    """Reject user data that is not base64, or is too large."""
    if not text:
        return
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise AwsError("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from None
    if len(raw) > USER_DATA_LIMIT:
        raise AwsError("InvalidParameterValue", "User data is limited to 16384 bytes")


def check_tags(tags: list[dict[str, str]]) -> dict[str, str]:
    """Reject tags that EC2 rejects. Returns the tags by key."""
    for tag in tags:
        key, value = tag.get("Key", ""), tag.get("Value") or ""
        if key.lower().startswith("aws:"):
            raise AwsError("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
        if not 1 <= len(key) <= 127:
            raise AwsError("InvalidParameterValue", "Tag key exceeds the maximum length of 127 characters")
        if len(value) > 255:
            raise AwsError("InvalidParameterValue", "Tag value exceeds the maximum length of 255 characters")
    if len({tag["Key"] for tag in tags}) < len(tags):
        raise AwsError("InvalidParameterValue", "Duplicate tag key specified.")
    if len(tags) > 50:
        raise AwsError("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
    return {tag["Key"]: tag.get("Value") or "" for tag in tags}


class LaunchTemplates:
    """All launch templates of the region."""

    def __init__(self, by_id: dict[str, LaunchTemplate]) -> None:
        self.by_id = by_id
        self.tokens: dict[tuple[str, str], tuple[str, Any]] = {}

    def by_name(self, name: str) -> LaunchTemplate | None:
        """The template of that name, or None."""
        return next((t for t in self.by_id.values() if t.name == name), None)

    def get(self, identifier: str | None, name: str | None) -> LaunchTemplate:
        """The template of that id or name. Raises EC2's error if it does not exist."""
        if identifier and name:
            raise AwsError(
                "InvalidParameterCombination", "Either launch template ID or launch template name can be specified, but not both."
            )
        if not identifier and not name:
            raise AwsError("MissingParameter", "Either launch template ID or launch template name must be specified.")
        if identifier and not re.fullmatch(r"lt-[0-9a-f]{8,17}", identifier):
            raise AwsError("InvalidLaunchTemplateId.Malformed", f"The launch template ID '{identifier}' is malformed")
        template = self.by_id.get(identifier) if identifier else self.by_name(name)
        if template is None and identifier:
            message = f"The specified launch template, with template ID {identifier}, does not exist."
            raise AwsError("InvalidLaunchTemplateId.NotFound", message)
        if template is None:
            message = f"The specified launch template, with template name {name}, does not exist."
            raise AwsError("InvalidLaunchTemplateName.NotFoundException", message)
        return template

    def run_once(self, operation: str, token: str | None, params: Any, create: Any) -> Any:
        """Call `create` once per client token. Other parameters with the same token are an error."""
        if not token:
            return create()
        request = json.dumps(params, sort_keys=True, default=str)
        if (operation, token) in self.tokens:
            before, result = self.tokens[operation, token]
            if before != request:
                message = "The client token you have provided is associated with a resource that was created with different parameters."
                raise AwsError("IdempotentParameterMismatch", message)
            return result
        result = create()
        self.tokens[operation, token] = (request, copy.deepcopy(result))
        return result


def get_version(template: LaunchTemplate, wanted: str) -> LaunchTemplateVersion:
    """The version with that number. Raises EC2's error if it does not exist."""
    version = template.find(wanted)
    if version is None:
        message = f"Could not find the specified version {wanted} for the launch template with ID {template.id}."
        raise AwsError("InvalidLaunchTemplateId.VersionNotFound", message)
    return version


