"""AMIs and how nodes that they start behave."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.ec2.models.amis import Ami

BEHAVIORS = ("ok", "never-joins", "not-ready", "dies")
FAMILIES = ("amazonlinux2", "amazonlinux2023", "bottlerocket", "windows")
DATES = ("20250101", "20250601", "20251001")


@dataclass
class Image:
    """How nodes of an AMI behave. A family of None accepts user data of every family."""

    id: str
    family: str | None
    architecture: str = "x86_64"
    behavior: str = "ok"
    after: float = 2.0


def add_image(simulator: Any, image: Image, name: str) -> str:
    """Register an AMI in moto under the given id."""
    ami = Ami(
        simulator.ec2,
        image.id,
        name=name,
        description=name,
        owner_alias="amazon",
        public=True,
        architecture=image.architecture,
        virtualization_type="hvm",
        root_device_type="ebs",
        root_device_name="/dev/sda1" if image.family == "windows" else "/dev/xvda",
        hypervisor="xen",
        creation_date=datetime.now(UTC),
        region_name=simulator.settings.region,
    )
    windows = image.family == "windows"
    ami.platform = "windows" if windows else None
    ami.platform_details, ami.usage_operation = ("Windows", "RunInstances:0002") if windows else ("Linux/UNIX", "RunInstances")
    simulator.ec2.amis[image.id] = ami
    simulator.images[image.id] = image
    return image.id


def create_images(simulator: Any) -> dict[str, Any]:
    """Create three releases of each family and architecture, and three broken AMIs."""
    result: dict[str, Any] = {}
    for f, family in enumerate(FAMILIES, 1):
        for a, architecture in enumerate(("x86_64",) if family == "windows" else ("x86_64", "arm64"), 1):
            name = family if architecture == "x86_64" else f"{family}-arm64"
            result[name] = []
            for r, date in enumerate(DATES, 1):
                identifier = f"ami-0{f}{a}0000000000000{r}"
                result[name].append(add_image(simulator, Image(identifier, family, architecture), f"{family}-{architecture}-v{date}"))
    for number, behavior in enumerate(BEHAVIORS[1:], 1):
        identifier = f"ami-0900000000000000{number}"
        key = f"broken_{behavior.replace('-', '_')}"
        result[key] = add_image(simulator, Image(identifier, None, "x86_64", behavior), key)
    return result
