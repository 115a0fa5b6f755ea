"""Errors in the shape in which AWS services return them."""

from __future__ import annotations

from moto.core.exceptions import ServiceException


class AwsError(ServiceException):
    """An error response of a service, with the service's own code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)


def validation_error(message: str) -> AwsError:
    """The ValidationError of services with a query API (Auto Scaling, IAM)."""
    return AwsError("ValidationError", message)


def too_long_error(value: str, name: str, limit: int) -> AwsError:
    """The ValidationError for a string that exceeds its maximum length."""
    return validation_error(
        f"1 validation error detected: Value '{value}' at '{name}' failed to satisfy constraint: "
        f"Member must have length less than or equal to {limit}"
    )
