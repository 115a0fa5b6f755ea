"""Lookup of instance profiles in moto's IAM backend."""

from __future__ import annotations

from typing import Any


def find_profile(simulator: Any, wanted: dict[str, str]) -> Any:
    """The instance profile with an ARN or a name, or None."""
    arn = wanted.get("Arn")
    # An ARN is made each time that it is asked for, and ends with the name.
    name = arn.rpartition("/")[2] if arn else wanted.get("Name")
    named = (profile for profile in simulator.iam.instance_profiles.values() if profile.name == name)
    return next((profile for profile in named if not arn or profile.arn == arn), None)
