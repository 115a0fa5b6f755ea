"""The public SSM parameters that name AMIs.

Follows "Retrieve recommended Amazon Linux AMI IDs", "Retrieve recommended Bottlerocket AMI IDs" and "Retrieve recommended
Microsoft Windows AMI IDs" (Amazon EKS User Guide). The releases and the variants with drivers are named as Karpenter asks
for them (aws/karpenter-provider-aws, pkg/providers/amifamily).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from moto.ssm.models import Parameter, ssm_backends

from localcloud.aws.ec2.images import BOTTLEROCKET, DATES, KINDS, LAST_AL2, create_images_of_version, image_name

OLDEST, NEWEST = 30, 36
"""The minor versions for which there are images (aws/karpenter-provider-aws, pkg/providers/version: up to 1.36)."""


def set_parameter(simulator: Any, name: str, value: str) -> None:
    """Set a public parameter. PutParameter rejects names of public parameters."""
    parameters = ssm_backends[simulator.settings.account][simulator.settings.region]._parameters
    before = list.__len__(dict.get(parameters, name) or [])
    parameter = Parameter(
        account_id=simulator.settings.account,
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


def create_parameters(simulator: Any, amis: dict[str, Any]) -> None:
    """Create the parameters of all versions. The cluster's version and its neighbors share the AMIs of tests, and every
    other version has its own. `recommended` and `latest` name the first release.
    """
    own = int(simulator.settings.cluster_version.split(".")[1])
    for minor in range(min(OLDEST, own - 1), max(NEWEST, own + 1) + 1):
        version = f"1.{minor}"
        known = amis if abs(minor - own) <= 1 else create_images_of_version(simulator, version)
        for name, ami in parameters(known, minor).items():
            set_parameter(simulator, f"/aws/service/{name}/image_id", ami)


def parameters(amis: dict[str, Any], minor: int) -> dict[str, str]:
    """The parameters of one version, without the parts that all have."""
    version, found = f"1.{minor}", {}
    # eksctl-io/eksctl, pkg/ami/ssm_resolver.go: Windows Server 2025 since Kubernetes 1.35.
    years = ("2019", "2022", "2025") if minor >= 35 else ("2019", "2022")
    for year in years:
        for edition in ("Core", "Full"):
            found[f"ami-windows-latest/Windows_Server-{year}-English-{edition}-EKS_Optimized-{version}"] = amis["windows"][0]
    for kind, (family, architecture, _) in KINDS.items():
        variant = kind.removeprefix(family).removesuffix("-arm64").removeprefix("-")
        releases = tuple(image_name(kind, version, number) for number in range(len(DATES)))
        match family:
            case "amazonlinux2" if minor <= LAST_AL2:
                suffix = kind.removeprefix(family)
                path, latest = f"eks/optimized-ami/{version}/amazon-linux-2{suffix}", "recommended"
                names = releases
            case "amazonlinux2023":
                variant = variant or "standard"
                path, latest = f"eks/optimized-ami/{version}/amazon-linux-2023/{architecture}/{variant}", "recommended"
                names = releases
            case "bottlerocket":
                path, latest = f"bottlerocket/aws-k8s-{version}{variant and '-' + variant}/{architecture}", "latest"
                names = tuple(release.partition("-")[0] for release in BOTTLEROCKET)
            case _:
                continue
        found[f"{path}/{latest}"] = amis[kind][0]
        found |= {f"{path}/{name}": ami for name, ami in zip(names, amis[kind], strict=False)}
    return found
