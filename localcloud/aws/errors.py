"""Errors as the AWS services answer them."""

from __future__ import annotations

from moto.core.exceptions import ServiceException


class AwsError(ServiceException):
    """A call that AWS would refuse, with the service's own code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)


def validation_error(message: str) -> AwsError:
    """The plain ValidationError of the query services."""
    return AwsError("ValidationError", message)


def too_long_error(value: str, name: str, limit: int) -> AwsError:
    """What the query services answer to a string over its limit."""
    return validation_error(
        f"1 validation error detected: Value '{value}' at '{name}' failed to satisfy constraint: "
        f"Member must have length less than or equal to {limit}"
    )
