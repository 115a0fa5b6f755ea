"""The Node objects that a kubelet and its cloud provider register."""

from __future__ import annotations

from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from localcloud.aws.ec2.images import Image
from localcloud.aws.nodes.user_data import NodeSpec

KUBELET_LABEL = "local.instance-manager/kubelet"
OS_IMAGE = {
    "amazonlinux2": "Amazon Linux 2",
    "amazonlinux2023": "Amazon Linux 2023",
    "bottlerocket": "Bottlerocket OS 1.40.0 (aws-k8s)",
    "windows": "Windows Server 2019 Datacenter",
}
WINDOWS_BUILD = "10.0.17763"
WINDOWS_PODS = 110
ARCHITECTURE = {"x86_64": "amd64", "arm64": "arm64"}


def node_name(instance: Any, region: str) -> str:
    """The node's name: the private DNS name of the instance."""
    domain = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return f"ip-{instance.private_ip.replace('.', '-')}.{domain}"


def default_max_pods(instance_type: dict[str, Any]) -> int:
    """The number of pods to which the VPC CNI can assign addresses."""
    network = instance_type["NetworkInfo"]
    return network["MaximumNetworkInterfaces"] * (network["Ipv4AddressesPerInterface"] - 1) + 2


def devices(instance_type: dict[str, Any], drivers: tuple[str, ...]) -> dict[str, str]:
    """The accelerators that the device plugins of NVIDIA and AWS Neuron advertise. They need the drivers of the image."""
    gpus = [gpu for gpu in instance_type.get("GpuInfo", {}).get("Gpus", []) if gpu["Manufacturer"] == "NVIDIA"]
    chips = instance_type.get("NeuronInfo", {}).get("NeuronDevices", [])
    counts = {"nvidia.com/gpu": ("nvidia", gpus), "aws.amazon.com/neuron": ("neuron", chips)}
    return {name: str(sum(d["Count"] for d in found)) for name, (driver, found) in counts.items() if found and driver in drivers}


def capacity(instance_type: dict[str, Any], spec: NodeSpec, drivers: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Capacity and allocatable resources."""
    cpus, memory = instance_type["VCpuInfo"]["DefaultVCpus"], instance_type["MemoryInfo"]["SizeInMiB"]
    windows = spec.family == "windows"
    pods = str(spec.max_pods or (WINDOWS_PODS if windows else default_max_pods(instance_type)))
    capacity_resources = {"cpu": str(cpus), "memory": f"{memory}Mi", "pods": pods, "ephemeral-storage": "32Gi"}
    usable_memory = max(memory - 600, memory // 2)
    allocatable = {"cpu": f"{cpus * 1000 - 80}m", "memory": f"{usable_memory}Mi", "pods": pods, "ephemeral-storage": "28Gi"}
    if windows:
        # The VPC resource controller assigns the secondary addresses of the first interface to pods.
        addresses = {"vpc.amazonaws.com/PrivateIPv4Address": str(instance_type["NetworkInfo"]["Ipv4AddressesPerInterface"] - 1)}
        capacity_resources, allocatable = capacity_resources | addresses, allocatable | addresses
    accelerators = devices(instance_type, drivers)
    return capacity_resources | accelerators, allocatable | accelerators


def build_node(instance: Any, spec: NodeSpec, image: Image, region: str, version: str, address: str) -> dict[str, Any]:
    """The Node of an instance, not ready yet."""
    zone, name = instance.placement.zone, node_name(instance, region)
    instance_type = INSTANCE_TYPES[instance.instance_type]
    cpu_architecture, windows = ARCHITECTURE[image.architecture], spec.family == "windows"
    operating_system = "windows" if windows else "linux"
    well_known_labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": operating_system,
        "kubernetes.io/arch": cpu_architecture,
        "beta.kubernetes.io/os": operating_system,
        "beta.kubernetes.io/arch": cpu_architecture,
        "node.kubernetes.io/instance-type": instance.instance_type,
        "beta.kubernetes.io/instance-type": instance.instance_type,
        "topology.kubernetes.io/region": region,
        "topology.kubernetes.io/zone": zone,
        "failure-domain.beta.kubernetes.io/region": region,
        "failure-domain.beta.kubernetes.io/zone": zone,
        KUBELET_LABEL: "starting",
        **({"node.kubernetes.io/windows-build": WINDOWS_BUILD} if windows else {}),
    }
    capacity_resources, allocatable = capacity(instance_type, spec, image.drivers)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**spec.labels, **well_known_labels}, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"providerID": f"aws:///{zone}/{instance.id}", "taints": [{k: v for k, v in taint.items() if v} for taint in spec.taints]},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": address},
                {"type": "InternalDNS", "address": name},
                {"type": "Hostname", "address": name},
            ],
            "capacity": capacity_resources,
            "allocatable": allocatable,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "False",
                    "reason": "KubeletNotReady",
                    "message": "container runtime network not ready: cni plugin not initialized",
                }
            ],
            "nodeInfo": {
                "architecture": cpu_architecture,
                "operatingSystem": operating_system,
                "osImage": OS_IMAGE[spec.family],
                "kubeletVersion": f"v{version}.0-eks-local",
                "kubeProxyVersion": "",
                "containerRuntimeVersion": "containerd://1.7.27",
                "kernelVersion": f"{WINDOWS_BUILD}.6893" if windows else "5.10.0",
                "machineID": instance.id,
                "systemUUID": instance.id,
                "bootID": instance.id,
            },
        },
    }


def build_fargate_node(uid: str, address: str, zone: str, region: str, version: str, taint: dict[str, str]) -> dict[str, Any]:
    """The Node of a Fargate pod, not ready yet."""
    domain = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    name = f"fargate-ip-{address.replace('.', '-')}.{domain}"
    labels = {
        taint["key"]: taint["value"],
        "kubernetes.io/hostname": name.partition(".")[0].removeprefix("fargate-") + f".{domain}",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "topology.kubernetes.io/region": region,
        "topology.kubernetes.io/zone": zone,
        "failure-domain.beta.kubernetes.io/region": region,
        "failure-domain.beta.kubernetes.io/zone": zone,
        KUBELET_LABEL: "starting",
    }
    resources = {"cpu": "2", "memory": "4Gi", "pods": "1", "ephemeral-storage": "20Gi"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        "spec": {"providerID": f"aws:///{zone}/{uid}/{name.partition('.')[0]}", "taints": [taint]},
        "status": {
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "InternalDNS", "address": name}],
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "starting"}],
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": OS_IMAGE["amazonlinux2"],
                "kubeletVersion": f"v{version}.0-eks-local",
                "kubeProxyVersion": "",
                "containerRuntimeVersion": "containerd://1.7.27",
                "kernelVersion": "5.10.0",
                "machineID": uid,
                "systemUUID": uid,
                "bootID": uid,
            },
        },
    }
