"""Launches an EC2 instance from a group's launch source, or returns the reason why EC2 refuses it."""

from __future__ import annotations

from typing import Any

from moto.core.types import Base64EncodedString
from moto.ec2.exceptions import InvalidSubnetIdError
from moto.ec2.models.instance_types import INSTANCE_TYPES

from localcloud.aws.autoscaling.model import Group
from localcloud.aws.ec2.launch_templates import LaunchTemplate, LaunchTemplateVersion
from localcloud.aws.ec2.launch_validation import device_problem, option_problem, tag_key_problem
from localcloud.aws.errors import AwsError, validation_error
from localcloud.aws.iam.instance_profiles import find_profile

PREFIX = "You must use a valid fully-formed launch template. "


def resolve(simulator: Any, specification: dict[str, Any]) -> tuple[LaunchTemplate, LaunchTemplateVersion]:
    """The template and version that a LaunchTemplateSpecification refers to now."""
    try:
        template = simulator.templates.get(specification.get("LaunchTemplateId"), specification.get("LaunchTemplateName"))
    except AwsError as error:
        if error.code in ("InvalidParameterCombination", "MissingParameter"):
            raise validation_error("Valid requests must contain either launchTemplateId or LaunchTemplateName") from None
        raise validation_error(PREFIX + error.message) from None
    wanted = specification.get("Version") or "$Default"
    version = template.find(str(wanted))
    if version is None:
        message = f"The specified launch template version, {wanted}, for launch template ID {template.id}, does not exist."
        raise validation_error(PREFIX + message)
    return template, version


def instance_type_of(data: dict[str, Any]) -> str:
    """The instance type of template data. m1.small is EC2's default."""
    return data.get("InstanceType") or "m1.small"


def launch_problem(simulator: Any, data: dict[str, Any], subnets: list[str]) -> str | None:
    """Why EC2 refuses to run an instance from this template data in these subnets, or None."""
    image = simulator.ec2.amis.get(data.get("ImageId", ""))
    if not data.get("ImageId"):
        return "The request must contain the parameter ImageId"
    if image is None:
        return f"The image id '[{data['ImageId']}]' does not exist"
    instance_type = INSTANCE_TYPES.get(instance_type_of(data))
    if instance_type is None:
        return f"Invalid value '{data['InstanceType']}' for InstanceType."
    architectures = instance_type["ProcessorInfo"]["SupportedArchitectures"]
    if image.architecture not in architectures:
        return (
            f"The architecture '{','.join(architectures)}' of the specified instance type does not match the architecture "
            f"'{image.architecture}' of the specified AMI. Specify an instance type and an AMI that have matching architectures, and try again."
        )
    return (
        zone_problem(simulator, data, subnets)
        or key_problem(simulator, data)
        or group_problem(simulator, data, subnets)
        or device_problem(simulator, data.get("BlockDeviceMappings", []))
        or option_problem(data)
        or profile_problem(simulator, data.get("IamInstanceProfile"))
    )


def key_problem(simulator: Any, data: dict[str, Any]) -> str | None:
    """Check that the key pair exists."""
    name = data.get("KeyName")
    return f"The key pair '{name}' does not exist" if name and name not in simulator.ec2.key_pairs else None


def group_problem(simulator: Any, data: dict[str, Any], subnets: list[str]) -> str | None:
    """Check that the security groups exist in the VPC of the subnets."""
    identifiers = list(data.get("SecurityGroupIds", []))
    for nic in data.get("NetworkInterfaces", []):
        identifiers += nic.get("Groups", [])
    vpc = simulator.ec2.get_subnet(subnets[0]).vpc_id if subnets else None
    for identifier in identifiers:
        group = simulator.ec2.get_security_group_from_id(identifier)
        if group is None:
            return f"The security group '{identifier}' does not exist"
        if group.vpc_id != vpc:
            return f"Security group {identifier} and subnet {subnets[0]} belong to different networks."
    return None


def profile_problem(simulator: Any, wanted: dict[str, str] | None) -> str | None:
    """Check that the instance profile has propagated to EC2 and has a role."""
    if not wanted:
        return None
    field, word = ("arn", "ARN") if wanted.get("Arn") else ("name", "name")
    value = wanted.get("Arn") or wanted.get("Name")
    profile = find_profile(simulator, wanted)
    if profile is None or not simulator.profile_propagated(profile):
        return f"Value ({value}) for parameter iamInstanceProfile.{field} is invalid. Invalid IAM Instance Profile {word}"
    if not profile.roles:
        start = f"Value ({value}) for parameter iamInstanceProfile.{field} is invalid."
        return f'{start} IAM Instance Profile "{profile.arn}" has no associated IAM Roles'
    return None


def zone_problem(simulator: Any, data: dict[str, Any], subnets: list[str]) -> str | None:
    """EC2's error for the first zone, if no zone of these subnets offers the instance type."""
    catalog, zones = simulator.instance_type_catalog, [simulator.ec2.get_subnet(subnet).availability_zone for subnet in subnets]
    reasons = [catalog.unsupported_reason(instance_type_of(data), zone) for zone in zones]
    return reasons[0] if reasons and all(reasons) else None


def check_subnets(simulator: Any, text: str) -> tuple[list[str], list[str]]:
    """The subnets of a VPCZoneIdentifier and their zones."""
    subnets = [part.strip() for part in text.split(",") if part.strip()]
    zones = []
    for subnet in subnets:
        try:
            zones.append(simulator.ec2.get_subnet(subnet).availability_zone)
        except InvalidSubnetIdError:
            raise validation_error(f"The subnet ID '{subnet}' does not exist") from None
    if len({simulator.ec2.get_subnet(subnet).vpc_id for subnet in subnets}) > 1:
        raise validation_error("The subnets must all belong to the same VPC")
    return subnets, sorted(set(zones))


def run(simulator: Any, group: Group, source: Any, subnet: str) -> Any:
    """Create the EC2 instance of a :class:`localcloud.aws.autoscaling.launch_source.Source`, in the state `pending`."""
    data = source.data
    reason = zone_problem(simulator, data, [subnet])
    if reason:
        raise AwsError("Unsupported", f"{reason} Launching EC2 instance failed.")
    tags = {"aws:autoscaling:groupName": group.name}
    if source.template:
        tags["aws:ec2launchtemplate:id"] = source.template["LaunchTemplateId"]
        tags["aws:ec2launchtemplate:version"] = source.template["Version"]
    tags |= specified_tags(data, "instance")
    tags |= {key: tag["Value"] for key, tag in group.tags.items() if tag["PropagateAtLaunch"]}
    options = metadata_options(simulator, data)
    if refusal := tag_key_problem(options, tags):
        raise AwsError("InvalidParameterValue", f"{refusal}. Launching EC2 instance failed.")
    devices = [mapping for mapping in data.get("BlockDeviceMappings", []) if {"VolumeSize", "SnapshotId"} & set(mapping.get("Ebs", {}))]
    user_data, placement = data.get("UserData"), data.get("Placement") or {}
    groups = list(data.get("SecurityGroupIds", []))
    for nic in data.get("NetworkInterfaces", []):
        groups += nic.get("Groups", [])
    reservation = simulator.ec2.run_instances(
        data["ImageId"],
        1,
        Base64EncodedString(user_data) if user_data else None,
        [],
        instance_type=instance_type_of(data),
        is_instance_type_default=False,
        security_group_ids=groups,
        key_name=data.get("KeyName"),
        subnet_id=subnet,
        region_name=simulator.settings.region,
        tags={"instance": tags, "volume": specified_tags(data, "volume")},
        **({"block_device_mappings": [strip_iops(mapping) for mapping in devices]} if devices else {}),
        iam_instance_profile=resolve_profile(simulator, data.get("IamInstanceProfile")),
        metadata_options=options,
    )
    instance = reservation.instances[0]
    set_volume_performance(simulator, instance, devices)
    instance.placement.tenancy = placement.get("Tenancy") or ("host" if placement.get("HostResourceGroupArn") else "default")
    instance.placement.host_resource_group_arn = placement.get("HostResourceGroupArn")
    instance.licenses = data.get("LicenseSpecifications", [])
    if source.spot:
        instance.instance_lifecycle, instance.spot_instance_request_id = "spot", f"sir-{instance.id[-8:]}"
    instance._state.name, instance._state.code = "pending", 0
    return instance


def metadata_options(simulator: Any, data: dict[str, Any]) -> dict[str, Any]:
    """The metadata options of an instance. The account's default decides each one that the launch does not specify.

    Amazon EC2 User Guide, "Configure the Instance Metadata Service options", Order of precedence.
    """
    return simulator.metadata_defaults | {name: value for name, value in (data.get("MetadataOptions") or {}).items() if value is not None}


def strip_iops(mapping: dict[str, Any]) -> dict[str, Any]:
    """A block device mapping that moto can launch. moto drops Iops, but requires them for io1 and io2."""
    ebs = mapping["Ebs"]
    return {**mapping, "Ebs": {**ebs, "VolumeType": "gp2"}} if ebs.get("VolumeType") in ("io1", "io2") else mapping


def set_volume_performance(simulator: Any, instance: Any, devices: list[dict[str, Any]]) -> None:
    """Set the requested type, Iops and Throughput on the volumes of an instance."""
    attached = dict(instance.get_block_device_mapping)
    for mapping in devices:
        ebs, volume = mapping["Ebs"], simulator.ec2.volumes[attached[mapping["DeviceName"]].volume_id]
        volume.volume_type = ebs.get("VolumeType") or volume.volume_type
        volume.iops = ebs.get("Iops") or volume.iops
        volume.throughput = ebs.get("Throughput") or volume.throughput


def forget_instance(simulator: Any, instance: Any) -> None:
    """Remove a terminated instance from EC2's responses."""
    for identifier, reservation in list(simulator.ec2.reservations.items()):
        if instance in reservation.instances:
            del simulator.ec2.reservations[identifier]
    simulator.instances.pop(instance.id, None)


def specified_tags(data: dict[str, Any], resource_type: str) -> dict[str, str]:
    """The tags that a template defines for one type of resource."""
    matching = [s for s in data.get("TagSpecifications", []) if s.get("ResourceType") == resource_type]
    return {tag["Key"]: tag.get("Value", "") for specification in matching for tag in specification["Tags"]}


def resolve_profile(simulator: Any, wanted: dict[str, str] | None) -> Any:
    """The instance profile as DescribeInstances returns it."""
    return find_profile(simulator, wanted) if wanted else None
