"""The public SSM parameters that name AMIs.

Follows "Retrieve recommended Amazon Linux AMI IDs" and "Retrieve recommended Microsoft Windows AMI IDs" (Amazon EKS User
Guide) and "Retrieve AMI IDs" (Bottlerocket).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from moto.ssm.models import Parameter, ssm_backends

from localcloud.aws.ec2.images import DATES


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
    """Create the parameters of the cluster's version and its neighbors. `recommended` and `latest` name the first
    release.
    """
    minor = int(simulator.settings.cluster_version.split(".")[1])
    for version in (f"1.{minor - 1}", f"1.{minor}", f"1.{minor + 1}"):
        if int(version.split(".")[1]) <= 32:
            fill_amazon_linux_2(simulator, amis, version)
        # eksctl-io/eksctl, pkg/ami/ssm_resolver.go: Windows Server 2025 since Kubernetes 1.35.
        years = ("2019", "2022", "2025") if int(version.split(".")[1]) >= 35 else ("2019", "2022")
        for edition in (f"{year}-English-{edition}" for year in years for edition in ("Core", "Full")):
            name = f"/aws/service/ami-windows-latest/Windows_Server-{edition}-EKS_Optimized-{version}/image_id"
            set_parameter(simulator, name, amis["windows"][0])
        for architecture, suffix in (("x86_64", ""), ("arm64", "-arm64")):
            path = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{architecture}/standard"
            releases = amis["amazonlinux2023" + suffix]
            set_parameter(simulator, f"{path}/recommended/image_id", releases[0])
            for date, ami in zip(DATES, releases, strict=True):
                set_parameter(simulator, f"{path}/amazon-eks-node-al2023-{architecture}-standard-{version}-v{date}/image_id", ami)
            path = f"/aws/service/bottlerocket/aws-k8s-{version}/{architecture}"
            releases = amis["bottlerocket" + suffix]
            set_parameter(simulator, f"{path}/latest/image_id", releases[0])
            for release, ami in zip(("1.40.0", "1.41.0", "1.42.0"), releases, strict=True):
                set_parameter(simulator, f"{path}/{release}/image_id", ami)


def fill_amazon_linux_2(simulator: Any, amis: dict[str, Any], version: str) -> None:
    """Create the parameters of Amazon Linux 2, which AWS publishes up to Kubernetes 1.32."""
    for suffix in ("", "-arm64"):
        path = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2{suffix}"
        releases = amis["amazonlinux2" + suffix]
        set_parameter(simulator, f"{path}/recommended/image_id", releases[0])
        for date, ami in zip(DATES, releases, strict=True):
            set_parameter(simulator, f"{path}/amazon-eks{suffix}-node-{version}-v{date}/image_id", ami)
