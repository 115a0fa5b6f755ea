"""Lookup of instance profiles in moto's IAM backend."""

from __future__ import annotations

from typing import Any


def find_profile(simulator: Any, wanted: dict[str, str]) -> Any:
    """The instance profile with an ARN or a name, or None."""
    for profile in simulator.iam.instance_profiles.values():
        if wanted.get("Arn") == profile.arn or (not wanted.get("Arn") and wanted.get("Name") == profile.name):
            return profile
    return None
