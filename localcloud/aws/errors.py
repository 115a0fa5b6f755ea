"""Errors as the AWS services answer them."""

from __future__ import annotations

from moto.core.exceptions import ServiceException


class Refused(ServiceException):
    """A call that AWS would refuse, with the service's own code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)


def invalid(message: str) -> Refused:
    """The plain ValidationError of the query services."""
    return Refused("ValidationError", message)


def too_long(value: str, name: str, limit: int) -> Refused:
    """What the query services answer to a string over its limit."""
    return invalid(
        f"1 validation error detected: Value '{value}' at '{name}' failed to satisfy constraint: "
        f"Member must have length less than or equal to {limit}"
    )
