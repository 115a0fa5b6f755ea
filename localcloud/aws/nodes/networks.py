"""Whether the network settings of a node fit its cluster.

Follows "Learn about IPv6 addresses to clusters, Pods, and services" (Amazon EKS User Guide), nodeadm's
internal/kubelet/config.go and bootstrap.sh of amazon-eks-ami. In life, a node with the wrong service range joins, and its pods
resolve no names. Here it does not join.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import Any

from localcloud.aws.nodes.user_data import NodeSpec


def network_problem(
    spec: NodeSpec,
    service_range: str,
    instance_type: dict[str, Any],
    ipv6_address: str | None,
    vpc_ranges: tuple[str, ...] = (),
) -> str | None:
    """Why a node with these settings cannot join a cluster with this service range, or None.

    A Windows node that is given the API server's endpoint and no range assumes one by the IPv4 ranges of its VPC.
    """
    if spec.family == "windows" and spec.endpoint and not spec.service_range:
        spec = dataclasses.replace(spec, service_range=windows_service_range(vpc_ranges))
    network = ipaddress.ip_network(service_range)
    family = f"ipv{network.version}"
    if spec.ip_family not in (None, family):
        return f"the node would use {spec.ip_family}, but the cluster has {family}"
    if spec.service_range and ipaddress.ip_network(spec.service_range, strict=False) != network:
        return f"the service range {spec.service_range} is not {network}"
    if spec.dns and any(ipaddress.ip_address(dns) not in network for dns in spec.dns.split(",")):
        return f"the DNS address {spec.dns} is not in the service range {network}"
    if family == "ipv6" and instance_type.get("Hypervisor") == "xen":
        return f"IPv6 needs a Nitro-based instance type, and {instance_type['InstanceType']} is none"
    if family == "ipv6" and ipv6_address is None:
        return "the instance has no IPv6 address"
    return None


def windows_service_range(vpc_ranges: tuple[str, ...]) -> str:
    """What Start-EKSBootstrap.ps1 assumes (its Initialize-DefaultValues, and -ServiceCIDR in "Create nodes with optimized
    Windows AMIs", Amazon EKS User Guide). Without the endpoint, the script asks EKS.
    """
    return "172.20.0.0/16" if any(each.startswith("10.") for each in vpc_ranges) else "10.100.0.0/16"


def vpc_ranges(vpc: Any) -> tuple[str, ...]:
    """The IPv4 ranges that the instance metadata names in vpc-ipv4-cidr-blocks."""
    blocks = vpc.get_cidr_block_association_set(ipv6=False)
    return tuple(each["cidr_block"] for each in blocks if each["cidr_block_state"]["state"] == "associated")


def ipv6_address(instance: Any, subnet: Any) -> str | None:
    """The IPv6 address that EC2 assigns at launch in a subnet with auto-assign IPv6 address. It ends like the IPv4 one."""
    blocks = [found["ipv6CidrBlock"] for found in subnet.ipv6_cidr_block_associations.values() if found["ipv6CidrBlockState"]["State"] == "associated"]
    if not blocks or str(subnet.assign_ipv6_address_on_creation).lower() != "true":
        return None
    return str(ipaddress.ip_network(blocks[0])[int(ipaddress.ip_address(instance.private_ip)) % 2**32])
