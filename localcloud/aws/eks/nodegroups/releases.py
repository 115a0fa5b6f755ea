"""The AMI types of managed node groups, and the AMI releases of each.

Follows the Amazon EKS API Reference, CreateNodegroup (amiType, version, releaseVersion), and the Amazon EKS User Guide,
"Amazon EKS optimized Amazon Linux AMI version information", "EKS AL2 AMI deprecation" and the same pages for
Bottlerocket and Windows.
"""

from __future__ import annotations

import re
from typing import Any

from moto.ssm.models import ssm_backends

from localcloud.aws.ec2.images import BOTTLEROCKET, DATES, LAST_AL2
from localcloud.aws.eks.nodegroups.model import invalid_parameter

AMI_TYPES = {
    "AL2_x86_64": "amazonlinux2",
    "AL2_x86_64_GPU": "amazonlinux2",
    "AL2_ARM_64": "amazonlinux2-arm64",
    "AL2023_x86_64_STANDARD": "amazonlinux2023",
    "AL2023_x86_64_NEURON": "amazonlinux2023",
    "AL2023_x86_64_NVIDIA": "amazonlinux2023",
    "AL2023_ARM_64_STANDARD": "amazonlinux2023-arm64",
    "AL2023_ARM_64_NVIDIA": "amazonlinux2023-arm64",
    "BOTTLEROCKET_x86_64": "bottlerocket",
    "BOTTLEROCKET_x86_64_FIPS": "bottlerocket",
    "BOTTLEROCKET_x86_64_NVIDIA": "bottlerocket",
    "BOTTLEROCKET_ARM_64": "bottlerocket-arm64",
    "BOTTLEROCKET_ARM_64_FIPS": "bottlerocket-arm64",
    "BOTTLEROCKET_ARM_64_NVIDIA": "bottlerocket-arm64",
    "WINDOWS_CORE_2019_x86_64": "windows",
    "WINDOWS_FULL_2019_x86_64": "windows",
    "WINDOWS_CORE_2022_x86_64": "windows",
    "WINDOWS_FULL_2022_x86_64": "windows",
}
"""The simulator's AMI family of each AMI type."""


def minor(version: str) -> int:
    """The minor number of a Kubernetes version."""
    match = re.fullmatch(r"1\.(\d+)", version)
    if not match:
        raise invalid_parameter(f"Kubernetes version {version!r} is not valid")
    return int(match[1])


def default_type(version: str) -> str:
    """EKS's default AMI type: AL2023 since Kubernetes 1.30."""
    return "AL2023_x86_64_STANDARD" if minor(version) >= 30 else "AL2_x86_64"


def architecture(ami_type: str) -> str:
    """The processor architecture of an AMI type."""
    return "arm64" if AMI_TYPES[ami_type].endswith("arm64") else "x86_64"


def releases(simulator: Any, ami_type: str, version: str) -> dict[str, str]:
    """The AMI of each release of an AMI type and Kubernetes version, oldest first."""
    family = AMI_TYPES[ami_type]
    if family.startswith("amazonlinux2") and "2023" not in family and minor(version) > LAST_AL2:
        raise invalid_parameter(f"AMI Type {ami_type} is only supported for kubernetes versions 1.{LAST_AL2} or earlier")
    if family.startswith("bottlerocket"):
        names = BOTTLEROCKET
    elif family == "windows":
        names = tuple(f"{version}-{date[:4]}.{date[4:6]}.{date[6:]}" for date in DATES)
    else:
        names = tuple(f"{version}.0-{date}" for date in DATES)
    return dict(zip(names, simulator.amis[family], strict=True))


def latest(simulator: Any, ami_type: str, version: str) -> str:
    """EKS's default release: the one whose AMI the public parameter recommends, or else the newest one."""
    known = releases(simulator, ami_type, version)
    parameters = ssm_backends[simulator.settings.account][simulator.settings.region]._parameters
    values = dict.get(parameters, parameter(ami_type, version))
    ami = values[-1].value if values else None
    return next((release for release, identifier in known.items() if identifier == ami), next(reversed(known)))


def parameter(ami_type: str, version: str) -> str:
    """The public parameter with the latest AMI of an AMI type."""
    family, processor = AMI_TYPES[ami_type], architecture(ami_type)
    if family == "windows":
        edition, year = re.match(r"WINDOWS_([A-Z]+)_(\d+)", ami_type).groups()
        return f"/aws/service/ami-windows-latest/Windows_Server-{year}-English-{edition.title()}-EKS_Optimized-{version}/image_id"
    if family.startswith("bottlerocket"):
        return f"/aws/service/bottlerocket/aws-k8s-{version}/{processor}/latest/image_id"
    if "2023" in family:
        return f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{processor}/standard/recommended/image_id"
    suffix = "-arm64" if processor == "arm64" else ""
    return f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2{suffix}/recommended/image_id"


def check_release(simulator: Any, ami_type: str, version: str, release: str | None) -> str:
    """The requested release, or the latest one. Raises EKS's error for a release of another version."""
    if release is None:
        return latest(simulator, ami_type, version)
    if release not in releases(simulator, ami_type, version):
        raise invalid_parameter(f"Requested release version {release} is not valid for kubernetes version {version}.")
    return release



def is_older(simulator: Any, ami_type: str, wanted: tuple[str, str], present: tuple[str, str]) -> bool:
    """Whether one pair of Kubernetes version and release is older than another."""
    if minor(wanted[0]) != minor(present[0]):
        return minor(wanted[0]) < minor(present[0])
    known = list(releases(simulator, ami_type, wanted[0]))
    return present[1] in known and known.index(wanted[1]) < known.index(present[1])
