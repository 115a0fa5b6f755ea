"""AMIs, how they behave, and the public SSM parameters that name them.

Follows "Retrieve recommended Amazon Linux AMI IDs" and "Retrieve recommended Microsoft Windows AMI IDs" (Amazon EKS User
Guide) and "Retrieve AMI IDs" (Bottlerocket).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from moto.ec2.models.amis import Ami
from moto.ssm.models import Parameter, ssm_backends

BEHAVIOURS = ("ok", "never-joins", "not-ready", "dies")
FAMILIES = ("amazonlinux2", "amazonlinux2023", "bottlerocket", "windows")
DATES = ("20250101", "20250601", "20251001")


@dataclass
class Image:
    """What an AMI does once it runs; a family of None understands every kind of user data."""

    id: str
    family: str | None
    architecture: str = "x86_64"
    behaviour: str = "ok"
    after: float = 2.0


def add_image(world: Any, image: Image, name: str) -> str:
    """Register an AMI in moto under a given id."""
    ami = Ami(
        world.ec2,
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
        region_name=world.settings.region,
    )
    windows = image.family == "windows"
    ami.platform = "windows" if windows else None
    ami.platform_details, ami.usage_operation = ("Windows", "RunInstances:0002") if windows else ("Linux/UNIX", "RunInstances")
    world.ec2.amis[image.id] = ami
    world.images[image.id] = image
    return image.id


def create_images(world: Any) -> dict[str, Any]:
    """Three releases of each family and architecture (Windows has one), and three broken AMIs."""
    result: dict[str, Any] = {}
    for f, family in enumerate(FAMILIES, 1):
        for a, architecture in enumerate(("x86_64",) if family == "windows" else ("x86_64", "arm64"), 1):
            name = family if architecture == "x86_64" else f"{family}-arm64"
            result[name] = []
            for r, date in enumerate(DATES, 1):
                identifier = f"ami-0{f}{a}0000000000000{r}"
                result[name].append(add_image(world, Image(identifier, family, architecture), f"{family}-{architecture}-v{date}"))
    for number, behaviour in enumerate(BEHAVIOURS[1:], 1):
        identifier = f"ami-0900000000000000{number}"
        key = f"broken_{behaviour.replace('-', '_')}"
        result[key] = add_image(world, Image(identifier, None, "x86_64", behaviour), key)
    return result


def set_parameter(world: Any, name: str, value: str) -> None:
    """Set a parameter as AWS does for its public ones; PutParameter refuses these names."""
    parameters = ssm_backends[world.settings.account][world.settings.region]._parameters
    before = list.__len__(dict.get(parameters, name) or [])
    parameter = Parameter(
        account_id=world.settings.account,
        name=name,
        value=value,
        parameter_type="String",
        description=None,
        allowed_pattern=None,
        keyid=None,
        last_modified_date=datetime.now(UTC),
        version=before + 1,
        data_type="text",
    )
    parameters[name].append(parameter)


def create_parameters(world: Any, amis: dict[str, Any]) -> None:
    """The parameters of the cluster's version and its neighbours: `recommended` and `latest` name the first release."""
    minor = int(world.settings.cluster_version.split(".")[1])
    for version in (f"1.{minor - 1}", f"1.{minor}", f"1.{minor + 1}"):
        if int(version.split(".")[1]) <= 32:
            fill_amazon_linux_2(world, amis, version)
        for edition in ("2019-English-Core", "2019-English-Full", "2022-English-Core", "2022-English-Full"):
            name = f"/aws/service/ami-windows-latest/Windows_Server-{edition}-EKS_Optimized-{version}/image_id"
            set_parameter(world, name, amis["windows"][0])
        for architecture, suffix in (("x86_64", ""), ("arm64", "-arm64")):
            path = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{architecture}/standard"
            releases = amis["amazonlinux2023" + suffix]
            set_parameter(world, f"{path}/recommended/image_id", releases[0])
            for date, ami in zip(DATES, releases, strict=True):
                set_parameter(world, f"{path}/amazon-eks-node-al2023-{architecture}-standard-{version}-v{date}/image_id", ami)
            path = f"/aws/service/bottlerocket/aws-k8s-{version}/{architecture}"
            releases = amis["bottlerocket" + suffix]
            set_parameter(world, f"{path}/latest/image_id", releases[0])
            for release, ami in zip(("1.40.0", "1.41.0", "1.42.0"), releases, strict=True):
                set_parameter(world, f"{path}/{release}/image_id", ami)


def fill_amazon_linux_2(world: Any, amis: dict[str, Any], version: str) -> None:
    """Amazon Linux 2, which ends with Kubernetes 1.32."""
    for suffix in ("", "-arm64"):
        path = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2{suffix}"
        releases = amis["amazonlinux2" + suffix]
        set_parameter(world, f"{path}/recommended/image_id", releases[0])
        for date, ami in zip(DATES, releases, strict=True):
            set_parameter(world, f"{path}/amazon-eks{suffix}-node-{version}-v{date}/image_id", ami)
