"""Tags of EKS resources. moto can tag clusters only.

Follows the Amazon EKS API Reference, TagResource, UntagResource, ListTagsForResource, and the User Guide, "Organize
Amazon EKS resources with tags".
"""

from __future__ import annotations

from typing import Any

from moto.core.responses import ActionResult, EmptyResult

from localcloud.aws.eks.operations import add_operations, request_params
from localcloud.aws.errors import AwsError


def check(tags: dict[str, str]) -> dict[str, str]:
    """Reject tags that EKS rejects."""
    for key, value in tags.items():
        if not 1 <= len(key) <= 128 or len(value) > 256:
            raise AwsError("InvalidParameterException", f"the tag {key!r} is longer than 128 characters, or its value than 256")
        if key.lower().startswith("aws:"):
            raise AwsError("InvalidParameterException", f"the tag {key!r} begins with the reserved prefix aws:")
    if len(tags) > 50:
        raise AwsError("InvalidParameterException", "a resource has at most 50 tags")
    return dict(tags)


def tags_of(simulator: Any, arn: str) -> dict[str, str]:
    """The tags of the resource with that ARN. Changes to them are effective."""
    for list_resources in simulator.taggable_resources:
        for resource in list_resources():
            if resource.arn == arn:
                return resource.tags
    raise AwsError("NotFoundException", f"Resource was not found: {arn}")


def install(simulator: Any) -> None:
    """Add the operations to moto."""

    class Operations:
        """Methods for moto's response class. `self` is an instance of that class."""

        def tag_resource(self) -> EmptyResult:
            params = request_params(self)
            tags = tags_of(simulator, params["resourceArn"])
            tags |= check(tags | params["tags"])
            return EmptyResult()

        def untag_resource(self) -> EmptyResult:
            params = request_params(self)
            tags = tags_of(simulator, params["resourceArn"])
            for key in params["tagKeys"]:
                tags.pop(key, None)
            return EmptyResult()

        def list_tags_for_resource(self) -> ActionResult:
            return ActionResult({"tags": tags_of(simulator, request_params(self)["resourceArn"])})

    add_operations(Operations)
