"""Request parameters as plain Python values."""

from __future__ import annotations

from typing import Any


def to_plain(params: Any) -> Any:
    """Parsed parameters as plain dictionaries, lists and strings."""
    if isinstance(params, dict):
        return {key: to_plain(value) for key, value in params.items()}
    if isinstance(params, list):
        return [to_plain(item) for item in params]
    return str(params) if type(params).__name__ == "Base64EncodedString" else params
