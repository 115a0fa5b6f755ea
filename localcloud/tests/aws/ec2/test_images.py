"""AMIs: what DescribeImages says of those that Amazon publishes, and of a customer's own."""

import pytest

NAMES = {
    "amazonlinux2": "amazon-eks-node-1.32-v20250101",
    "amazonlinux2-arm64": "amazon-eks-arm64-node-1.32-v20250101",
    "amazonlinux2-gpu": "amazon-eks-gpu-node-1.32-v20250101",
    "amazonlinux2023": "amazon-eks-node-al2023-x86_64-standard-1.32-v20250101",
    "amazonlinux2023-arm64": "amazon-eks-node-al2023-arm64-standard-1.32-v20250101",
    "amazonlinux2023-nvidia": "amazon-eks-node-al2023-x86_64-nvidia-1.32-v20250101",
    "amazonlinux2023-neuron": "amazon-eks-node-al2023-x86_64-neuron-1.32-v20250101",
    "bottlerocket": "bottlerocket-aws-k8s-1.32-x86_64-v1.40.0-2c32ed44",
    "bottlerocket-arm64": "bottlerocket-aws-k8s-1.32-aarch64-v1.40.0-2c32ed44",
    "bottlerocket-nvidia": "bottlerocket-aws-k8s-1.32-nvidia-x86_64-v1.40.0-2c32ed44",
    "windows": "Windows_Server-2019-English-Core-EKS_Optimized-1.32-2025.01.01",
}


def image_of(aws, identifier):
    """The image with that id."""
    (image,) = aws.ec2.describe_images(ImageIds=[identifier])["Images"]
    return image


@pytest.mark.parametrize("kind", NAMES)
def test_published_images_say_their_family_by_name_owner_and_platform(aws, simulator, kind):
    """Amazon EKS User Guide, "Retrieve recommended Amazon Linux AMI IDs" and "Retrieve Windows AMI version information"; Amazon
    EC2 API Reference, Image: Name, ImageOwnerAlias, OwnerId, Platform. The names of AMIs with drivers are those that eksctl
    (pkg/ami/auto_resolver.go) and Karpenter (pkg/providers/amifamily) look for."""
    assert simulator.cluster_version == "1.32"
    image = image_of(aws, simulator.amis[kind][0])
    assert (image["Name"], image["ImageOwnerAlias"], image["Public"]) == (NAMES[kind], "amazon", True)
    assert image["OwnerId"] != simulator.account
    assert image.get("Platform") == ("windows" if kind == "windows" else None)


@pytest.mark.patched
def test_a_customers_image_has_no_owner_alias(aws, control):
    """Amazon EC2 API Reference, Image, ImageOwnerAlias: amazon, aws-backup-vault or aws-marketplace; a customer's has none."""
    image = image_of(aws, control.post("ami", id="ami-0bbbbbbbbbbbbbbbb", family="bottlerocket")["id"])
    assert "ImageOwnerAlias" not in image and image["Public"] is False
