"""Filters and pages of the EC2 Describe operations.

Follows the Amazon EC2 User Guide, "List and filter using the CLI and API".
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from typing import Any

from localcloud.aws.errors import AwsError

PAGE = 200


def matches(value: str, patterns: list[str]) -> bool:
    """Whether a value matches one of a filter's values.

    `*` matches zero or more characters, `?` zero or one. A backslash escapes the next character.
    """
    return any(filter_pattern(pattern).fullmatch(value) for pattern in patterns)


@functools.cache
def filter_pattern(pattern: str) -> re.Pattern[str]:
    """A filter's value as a regular expression."""
    characters = re.findall(r"\\.|.", pattern, re.DOTALL)
    return re.compile("".join({"*": ".*", "?": ".?"}.get(character) or re.escape(character[-1]) for character in characters), re.DOTALL)


def check_filters(filters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Reject more filter values than EC2 accepts in one call."""
    if sum(len(condition.get("Values", [])) for condition in filters) > PAGE:
        raise AwsError("FilterLimitExceeded", "The maximum number of filter values specified on a single call is 200")
    return filters


def page(items: list[Any], token: str | None, limit: int) -> tuple[list[Any], str | None]:
    """Return one page of a list, and the token of the next page."""
    try:
        start = int(base64.b64decode(token)) if token else 0
    except (ValueError, binascii.Error):
        raise AwsError("InvalidNextToken", "The token is invalid.") from None
    end = start + limit
    following = base64.b64encode(str(end).encode()).decode() if end < len(items) else None
    return items[start:end], following
