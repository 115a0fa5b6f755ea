"""AMIs and how nodes that they start behave."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.ec2.models.amis import Ami

BEHAVIORS = ("ok", "never-joins", "not-ready", "dies")
FAMILIES = ("amazonlinux2", "amazonlinux2023", "bottlerocket", "windows")
DATES = ("20250101", "20250601", "20251001")
KINDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "amazonlinux2": ("amazonlinux2", "x86_64", ()),
    "amazonlinux2-arm64": ("amazonlinux2", "arm64", ()),
    "amazonlinux2-gpu": ("amazonlinux2", "x86_64", ("nvidia", "neuron")),
    "amazonlinux2023": ("amazonlinux2023", "x86_64", ()),
    "amazonlinux2023-arm64": ("amazonlinux2023", "arm64", ()),
    "amazonlinux2023-nvidia": ("amazonlinux2023", "x86_64", ("nvidia",)),
    "amazonlinux2023-nvidia-arm64": ("amazonlinux2023", "arm64", ("nvidia",)),
    "amazonlinux2023-neuron": ("amazonlinux2023", "x86_64", ("neuron",)),
    "bottlerocket": ("bottlerocket", "x86_64", ("neuron",)),
    "bottlerocket-arm64": ("bottlerocket", "arm64", ()),
    "bottlerocket-nvidia": ("bottlerocket", "x86_64", ("nvidia",)),
    "bottlerocket-nvidia-arm64": ("bottlerocket", "arm64", ("nvidia",)),
    "windows": ("windows", "x86_64", ()),
}
"""Family, architecture and drivers of each kind of image that AWS publishes, by a name of the simulator."""
VARIANTS = ("", "-arm64", "-gpu", "-nvidia", "-nvidia-arm64", "-neuron")


@dataclass
class Image:
    """How nodes of an AMI behave. A family of None accepts user data of every family.

    `drivers` are nvidia and neuron. `version` is that of the kubelet, or None for the cluster's.
    """

    id: str
    family: str | None
    architecture: str = "x86_64"
    behavior: str = "ok"
    after: float = 2.0
    drivers: tuple[str, ...] = ()
    version: str | None = None


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
    """Create three releases of each kind of image, and three broken AMIs."""
    result: dict[str, Any] = {}
    for kind in KINDS:
        result[kind] = [add_release(simulator, kind, f"{prefix(kind)}0000000000000{r}", date) for r, date in enumerate(DATES, 1)]
    for number, behavior in enumerate(BEHAVIORS[1:], 1):
        identifier = f"ami-0900000000000000{number}"
        key = f"broken_{behavior.replace('-', '_')}"
        result[key] = add_image(simulator, Image(identifier, None, "x86_64", behavior), key)
    return result


def create_images_of_version(simulator: Any, version: str) -> dict[str, list[str]]:
    """Create one release of each kind of image for another Kubernetes version than the cluster's."""
    number = version.partition(".")[2]
    return {kind: [add_release(simulator, kind, f"{prefix(kind)}{number}000000000001", DATES[0], version)] for kind in KINDS}


def add_release(simulator: Any, kind: str, identifier: str, date: str, version: str | None = None) -> str:
    """Register a release of a kind of image."""
    family, architecture, drivers = KINDS[kind]
    image = Image(identifier, family, architecture, drivers=drivers, version=version)
    return add_image(simulator, image, "-".join(filter(None, (kind, version, architecture, f"v{date}"))))


def prefix(kind: str) -> str:
    """The first part of the ids of a kind of image."""
    family = KINDS[kind][0]
    return f"ami-0{FAMILIES.index(family) + 1}{VARIANTS.index(kind.removeprefix(family)) + 1}"
