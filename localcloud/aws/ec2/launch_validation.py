"""Validation of block devices, metadata options, placement and licenses at launch.

Follows the Amazon EBS User Guide, "Amazon EBS volume types", and the Amazon EC2 API Reference, EbsBlockDevice,
InstanceMetadataOptionsRequest, Placement and LicenseConfigurationRequest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from localcloud.aws.ec2.spot_options import market_problem

VOLUME_SIZES = {
    "gp2": (1, 16384),
    "gp3": (1, 65536),
    "io1": (4, 16384),
    "io2": (4, 65536),
    "st1": (125, 16384),
    "sc1": (125, 16384),
    "standard": (1, 1024),
}
VOLUME_IOPS = {"gp3": (3000, 80000), "io1": (100, 64000), "io2": (100, 256000)}
THROUGHPUT = (125, 2000)
METADATA_OPTIONS = {
    "HttpTokens": ("optional", "required"),
    "HttpEndpoint": ("enabled", "disabled"),
    "InstanceMetadataTags": ("enabled", "disabled"),
}
METADATA_TAG_KEY = re.compile(r"[0-9a-zA-Z\-_+=,.@:]{1,255}")
RESERVED_TAG_KEYS = (".", "..", "_index")
HOST_GROUP = re.compile(r"arn:aws[\w-]*:resource-groups:[\w-]+:\d{12}:group/\S+")
LICENSE = re.compile(r"arn:aws[\w-]*:license-manager:[\w-]+:\d{12}:license-configuration[:/]lic-[0-9a-f]{32}")
TENANCIES = ("default", "dedicated", "host")


def device_problem(simulator: Any, mappings: list[dict[str, Any]]) -> str | None:
    """Why EC2 rejects these block device mappings, or None."""
    names = [mapping.get("DeviceName") for mapping in mappings]
    if len(set(names)) < len(names):
        return f"The device '{max(names, key=names.count)}' is used in more than one block-device mapping"
    for mapping in mappings:
        if "Ebs" in mapping:
            reason = volume_problem(simulator, mapping["Ebs"], mapping.get("DeviceName"))
            if reason:
                return reason
    return None


def volume_problem(simulator: Any, ebs: dict[str, Any], device: str | None) -> str | None:
    """Why EC2 rejects this EBS volume, or None."""
    kind, size, iops, throughput = ebs.get("VolumeType") or "gp2", ebs.get("VolumeSize"), ebs.get("Iops"), ebs.get("Throughput")
    if kind not in VOLUME_SIZES:
        return f"Invalid volume type: {kind}"
    low, high = VOLUME_SIZES[kind]
    if size is not None and not low <= size <= high:
        return f"Volume of {size}GiB is {'smaller' if size < low else 'larger'} than the limits of {low} to {high}GiB for {kind}"
    if iops is None and kind in ("io1", "io2"):
        return f"The parameter iops must be specified for {kind} volumes."
    if iops is not None and kind not in VOLUME_IOPS:
        return f"The parameter iops is not supported for {kind} volumes."
    if iops is not None and not VOLUME_IOPS[kind][0] <= iops <= VOLUME_IOPS[kind][1]:
        return f"Volume iops of {iops} is outside of {VOLUME_IOPS[kind][0]} to {VOLUME_IOPS[kind][1]} for {kind}"
    if throughput is not None and kind != "gp3":
        return f"The parameter throughput is not supported for {kind} volumes."
    if throughput is not None and not THROUGHPUT[0] <= throughput <= THROUGHPUT[1]:
        return f"Throughput of {throughput} is outside of {THROUGHPUT[0]} to {THROUGHPUT[1]}"
    snapshot = ebs.get("SnapshotId")
    if snapshot and snapshot not in simulator.ec2.snapshots:
        return f"The snapshot '{snapshot}' does not exist."
    if snapshot and ebs.get("Encrypted") is not None:
        return f"the encrypted flag cannot be specified since device {device} has a snapshot specified."
    return None


def option_problem(data: dict[str, Any]) -> str | None:
    """Why EC2 rejects the metadata options, placement or licenses, or None."""
    options = data.get("MetadataOptions") or {}
    for name, allowed in METADATA_OPTIONS.items():
        if options.get(name) not in (None, *allowed):
            return f"Value ({options[name]}) for parameter {name} is invalid. Valid values: {', '.join(allowed)}"
    limit = options.get("HttpPutResponseHopLimit")
    if limit is not None and not 1 <= limit <= 64:
        return f"Value ({limit}) for parameter HttpPutResponseHopLimit is invalid. Valid values: 1 to 64"
    return (
        placement_problem(data.get("Placement") or {})
        or license_problem(data.get("LicenseSpecifications") or [])
        or market_problem(data.get("InstanceMarketOptions") or {})
    )


def tag_key_problem(options: dict[str, Any], keys: Iterable[str]) -> str | None:
    """Why EC2 cannot show these tags of an instance in its metadata, or None.

    Amazon EC2 User Guide, "Work with instance tags in instance metadata". The wording is from the scaling activity in
    "AutoScalingGroup timeout: Status Reason" of terraform-aws-modules/terraform-aws-eks.
    """
    if options.get("InstanceMetadataTags") != "enabled":
        return None
    wrong = sorted(key for key in keys if not METADATA_TAG_KEY.fullmatch(key) or key in RESERVED_TAG_KEYS)
    rule = "Tag keys must match pattern ([0-9a-zA-Z\\\\-_+=,.@:]{1,255}), and must not be a reserved name ('.', '..', '_index')"
    return f"'{wrong[0]}' is not a valid tag key. {rule}" if wrong else None


def placement_problem(placement: dict[str, Any]) -> str | None:
    """Why EC2 rejects this placement, or None. A host resource group requires the tenancy host."""
    tenancy, group = placement.get("Tenancy"), placement.get("HostResourceGroupArn")
    if tenancy not in (None, *TENANCIES):
        return f"Value ({tenancy}) for parameter tenancy is invalid."
    if group and tenancy not in (None, "host"):
        return "The parameter hostResourceGroupArn cannot be used with a tenancy other than host"
    if group and not HOST_GROUP.fullmatch(group):
        return f"Value ({group}) for parameter hostResourceGroupArn is invalid."
    return None


def license_problem(specifications: list[dict[str, Any]]) -> str | None:
    """Why EC2 rejects these license configurations, or None."""
    for specification in specifications:
        arn = specification.get("LicenseConfigurationArn") or ""
        if not LICENSE.fullmatch(arn):
            return f"Value ({arn}) for parameter licenseConfigurationArn is invalid."
    return None
