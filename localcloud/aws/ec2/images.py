"""AMIs and how nodes that they start behave.

AMIs that AWS publishes have AWS's names, owners and platforms. The names follow the Amazon EKS User Guide, "Retrieve
recommended Amazon Linux AMI IDs" (sub-parameter `image_name`), "Retrieve Windows AMI version information", and
"Retrieve Bottlerocket AMI version information"; with drivers, eksctl-io/eksctl, pkg/ami/auto_resolver.go, and
bottlerocket-os/bottlerocket, README. All have the owner alias `amazon` (Amazon EC2 API Reference, Image, ImageOwnerAlias).
"""

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
OWNERS = {
    "amazonlinux2": "602401143452",
    "amazonlinux2023": "602401143452",
    "bottlerocket": "651937483462",
    "windows": "801119661308",
}
"""The accounts with which Amazon publishes the AMIs of each family in us-west-2."""
LAST_AL2 = 32
"""The last minor version of Kubernetes with Amazon Linux 2 (Amazon EKS User Guide, "EKS AL2 AMI deprecation")."""
BOTTLEROCKET = ("1.40.0-2c32ed44", "1.41.0-6ac5d4c5", "1.42.0-a8c4a0c3")
"""The releases of Bottlerocket, beside `DATES`: version and commit."""


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


def add_image(simulator: Any, image: Image, name: str, published: bool = False) -> str:
    """Register an AMI in moto under the given id: one that Amazon published, or one of this account."""
    owner = OWNERS[image.family] if published and image.family else None
    ami = Ami(
        simulator.ec2,
        image.id,
        name=name,
        description=name,
        owner_id=owner,
        owner_alias="amazon" if published else None,
        image_location=f"{'amazon' if published else simulator.settings.account}/{name}",
        public=published,
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
    version = simulator.settings.cluster_version
    for kind in KINDS:
        result[kind] = [
            add_release(simulator, kind, f"{prefix(kind)}0000000000000{number + 1}", version, number) for number in range(len(DATES))
        ]
    for number, behavior in enumerate(BEHAVIORS[1:], 1):
        identifier = f"ami-0900000000000000{number}"
        key = f"broken_{behavior.replace('-', '_')}"
        result[key] = add_image(simulator, Image(identifier, None, "x86_64", behavior), key)
    return result


def create_images_of_version(simulator: Any, version: str) -> dict[str, list[str]]:
    """Create one release of each kind of image for another Kubernetes version than the cluster's."""
    minor = version.partition(".")[2]
    found = {}
    for kind in KINDS:
        found[kind] = [add_release(simulator, kind, f"{prefix(kind)}{minor}000000000001", version, 0, kubelet=version)]
    return found


def add_release(simulator: Any, kind: str, identifier: str, version: str, number: int, kubelet: str | None = None) -> str:
    """Register a release of a kind of image. Its kubelet has the cluster's version unless `kubelet` is given."""
    family, architecture, drivers = KINDS[kind]
    image = Image(identifier, family, architecture, drivers=drivers, version=kubelet)
    return add_image(simulator, image, image_name(kind, version, number), published=True)


def image_name(kind: str, version: str, number: int) -> str:
    """The name of a release of a kind of image for a Kubernetes version. A Windows AMI is that of Server 2019 Core."""
    family, architecture, _ = KINDS[kind]
    variant, date = kind.removeprefix(family).removesuffix("-arm64").removeprefix("-"), DATES[number]
    match family:
        case "amazonlinux2":
            minor = min(int(version.partition(".")[2]), LAST_AL2)
            return f"amazon-eks{kind.removeprefix(family)}-node-1.{minor}-v{date}"
        case "amazonlinux2023":
            return f"amazon-eks-node-al2023-{architecture}-{variant or 'standard'}-{version}-v{date}"
        case "bottlerocket":
            processor = "aarch64" if architecture == "arm64" else architecture
            return "-".join(filter(None, ("bottlerocket-aws-k8s", version, variant, processor, f"v{BOTTLEROCKET[number]}")))
        case _:
            return f"Windows_Server-2019-English-Core-EKS_Optimized-{version}-{date[:4]}.{date[4:6]}.{date[6:]}"


def prefix(kind: str) -> str:
    """The first part of the ids of a kind of image."""
    family = KINDS[kind][0]
    return f"ami-0{FAMILIES.index(family) + 1}{VARIANTS.index(kind.removeprefix(family)) + 1}"
