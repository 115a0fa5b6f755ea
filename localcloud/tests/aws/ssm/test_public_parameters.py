"""The public SSM parameters that name AMIs."""

import pytest

from localcloud.tests.aws.support import client_error


@pytest.mark.patched
@pytest.mark.parametrize(
    ("parameter", "family"),
    [
        ("/aws/service/eks/optimized-ami/{v}/amazon-linux-2/recommended/image_id", "amazonlinux2"),
        ("/aws/service/eks/optimized-ami/{v}/amazon-linux-2-arm64/recommended/image_id", "amazonlinux2-arm64"),
        ("/aws/service/eks/optimized-ami/{v}/amazon-linux-2023/x86_64/standard/recommended/image_id", "amazonlinux2023"),
        ("/aws/service/eks/optimized-ami/{v}/amazon-linux-2023/arm64/standard/recommended/image_id", "amazonlinux2023-arm64"),
        ("/aws/service/eks/optimized-ami/{v}/amazon-linux-2-gpu/recommended/image_id", "amazonlinux2-gpu"),
        ("/aws/service/eks/optimized-ami/{v}/amazon-linux-2023/x86_64/nvidia/recommended/image_id", "amazonlinux2023-nvidia"),
        ("/aws/service/eks/optimized-ami/{v}/amazon-linux-2023/arm64/nvidia/recommended/image_id", "amazonlinux2023-nvidia-arm64"),
        ("/aws/service/eks/optimized-ami/{v}/amazon-linux-2023/x86_64/neuron/recommended/image_id", "amazonlinux2023-neuron"),
        ("/aws/service/bottlerocket/aws-k8s-{v}-nvidia/x86_64/latest/image_id", "bottlerocket-nvidia"),
        ("/aws/service/bottlerocket/aws-k8s-{v}-nvidia/arm64/latest/image_id", "bottlerocket-nvidia-arm64"),
        ("/aws/service/bottlerocket/aws-k8s-{v}/x86_64/latest/image_id", "bottlerocket"),
        ("/aws/service/bottlerocket/aws-k8s-{v}/arm64/latest/image_id", "bottlerocket-arm64"),
        ("/aws/service/ami-windows-latest/Windows_Server-2019-English-Core-EKS_Optimized-{v}/image_id", "windows"),
    ],
)
def test_public_parameters_name_amis_of_the_right_architecture(aws, simulator, parameter, family):
    """Amazon EKS User Guide, "Retrieve recommended ... AMI IDs" for Amazon Linux, Bottlerocket and Microsoft Windows.

    Karpenter (pkg/providers/amifamily) and eksctl (pkg/ami/ssm_resolver.go) ask for the variants with drivers by these names.
    """
    value = aws.ssm.get_parameter(Name=parameter.format(v=simulator.cluster_version))["Parameter"]["Value"]
    assert value == simulator.amis[family][0]
    (image,) = aws.ec2.describe_images(ImageIds=[value])["Images"]
    assert image["Architecture"] == ("arm64" if family.endswith("arm64") else "x86_64")


@pytest.mark.patched
def test_amazon_linux_2_parameters_end_with_kubernetes_1_32(aws):
    """Amazon EKS User Guide, "EKS AL2 AMI deprecation"; Systems Manager API Reference, GetParameters, InvalidParameters."""
    there = "/aws/service/eks/optimized-ami/1.32/amazon-linux-2/recommended/image_id"
    gone = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2/recommended/image_id"
    assert client_error(aws.ssm.get_parameter, Name=gone)[0] == "ParameterNotFound"
    answer = aws.ssm.get_parameters(Names=[there, gone])
    assert ([p["Name"] for p in answer["Parameters"]], answer["InvalidParameters"]) == ([there], [gone])


@pytest.mark.patched
def test_the_control_endpoint_changes_a_public_parameter(aws, simulator, control):
    """Systems Manager User Guide, "Discovering public parameters": their values change with each release."""
    name = f"/aws/service/bottlerocket/aws-k8s-{simulator.cluster_version}/x86_64/latest/image_id"
    old, new = simulator.amis["bottlerocket"][:2]
    control.post("ssm", name=name, value=new)
    assert aws.ssm.get_parameter(Name=name)["Parameter"]["Value"] == new
    control.post("ssm", name=name, value=None)
    assert client_error(aws.ssm.get_parameter, Name=name)[0] == "ParameterNotFound"
    control.post("ssm", name=name, value=old)


@pytest.mark.patched
@pytest.mark.parametrize("missing", ["amazon-linux-2-gpu-arm64", "amazon-linux-2-arm64-gpu", "amazon-linux-2023/arm64/neuron"])
def test_drivers_are_not_published_for_every_architecture(aws, simulator, missing):
    """The same pages: "amazon-linux-2-gpu for AL2 hardware accelerated x86 based instances", neuron for x86_64 only."""
    path = f"/aws/service/eks/optimized-ami/{simulator.cluster_version}/amazon-linux-2"
    assert aws.ssm.get_parameter(Name=f"{path}-gpu/recommended/image_id")["Parameter"]["Value"] == simulator.amis["amazonlinux2-gpu"][0]
    name = f"/aws/service/eks/optimized-ami/{simulator.cluster_version}/{missing}/recommended/image_id"
    assert client_error(aws.ssm.get_parameter, Name=name)[0] == "ParameterNotFound"


@pytest.mark.patched
@pytest.mark.parametrize("version", ["1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36"])
def test_every_supported_version_has_images(aws, version):
    """aws/karpenter-provider-aws, "Compatibility": Kubernetes 1.30 to 1.36."""
    name = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/x86_64/standard/recommended/image_id"
    ami = aws.ssm.get_parameter(Name=name)["Parameter"]["Value"]
    assert aws.ec2.describe_images(ImageIds=[ami])["Images"][0]["Architecture"] == "x86_64"
    name = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2/recommended/image_id"
    published = aws.ssm.get_parameters(Names=[name])["Parameters"]
    assert bool(published) == (version <= "1.32")
