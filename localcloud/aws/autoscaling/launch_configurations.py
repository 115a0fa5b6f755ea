"""Launch configurations, the immutable predecessors of launch templates.

Follows the Amazon EC2 Auto Scaling API Reference: CreateLaunchConfiguration and data type LaunchConfiguration.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from localcloud.aws.autoscaling import run_instance
from localcloud.aws.ec2.launch_templates import check_user_data
from localcloud.aws.ec2.spot_options import is_price
from localcloud.aws.errors import AwsError, too_long_error, validation_error

CREATION_NOT_AVAILABLE = (
    "The Launch Configuration creation operation is not available in your account. "
    "Use launch templates to create configuration templates for your Auto Scaling groups."
)
COPIED_FIELDS = (
    "KernelId",
    "RamdiskId",
    "AssociatePublicIpAddress",
    "PlacementTenancy",
    "MetadataOptions",
    "SpotPrice",
    "IamInstanceProfile",
)


@dataclass(frozen=True)
class LaunchConfiguration:
    """A launch configuration, with the parameters of its creation."""

    name: str
    arn: str
    given: dict[str, Any]
    created: datetime

    def launch_data(self) -> dict[str, Any]:
        """The launch parameters, in the shape of a launch template's data."""
        given = self.given
        same = ("ImageId", "InstanceType", "KeyName", "UserData", "BlockDeviceMappings", "MetadataOptions")
        data = {key: given[key] for key in same if given.get(key)} | {"SecurityGroupIds": given.get("SecurityGroups", [])}
        profile = given.get("IamInstanceProfile")
        if profile:
            data["IamInstanceProfile"] = {"Arn" if profile.startswith("arn:") else "Name": profile}
        if given.get("PlacementTenancy"):
            data["Placement"] = {"Tenancy": given["PlacementTenancy"]}
        if given.get("SpotPrice"):
            data["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": {"MaxPrice": given["SpotPrice"]}}
        return data

    def describe(self) -> dict[str, Any]:
        """The launch configuration as DescribeLaunchConfigurations returns it."""
        given = self.given
        return {
            "LaunchConfigurationName": self.name,
            "LaunchConfigurationARN": self.arn,
            "ImageId": given["ImageId"],
            "InstanceType": given["InstanceType"],
            "KeyName": given.get("KeyName", ""),
            "SecurityGroups": given.get("SecurityGroups", []),
            "ClassicLinkVPCSecurityGroups": [],
            "UserData": given.get("UserData", ""),
            "BlockDeviceMappings": given.get("BlockDeviceMappings", []),
            "InstanceMonitoring": given.get("InstanceMonitoring", {"Enabled": True}),
            "EbsOptimized": bool(given.get("EbsOptimized", False)),
            "CreatedTime": self.created,
            **{key: given[key] for key in COPIED_FIELDS if given.get(key) is not None},
        }


class LaunchConfigurations:
    """All launch configurations of the region, and whether the account may create new ones."""

    def __init__(self) -> None:
        self.by_name: dict[str, LaunchConfiguration] = {}
        self.creation_allowed = False

    def get(self, name: str) -> LaunchConfiguration:
        """The launch configuration of that name. Raises Auto Scaling's error if it does not exist."""
        if name not in self.by_name:
            raise validation_error(f"Launch configuration name not found - A launch configuration with the name: {name} does not exist")
        return self.by_name[name]

    def create(self, simulator: Any, params: dict[str, Any]) -> None:
        """Create a launch configuration, if the account may do so."""
        if not self.creation_allowed:
            raise AwsError("UnsupportedOperation", CREATION_NOT_AVAILABLE)
        name = params.get("LaunchConfigurationName") or ""
        if not 1 <= len(name) <= 255:
            raise too_long_error(name, "launchConfigurationName", 255)
        if name in self.by_name:
            message = f"Launch Configuration by this name already exists - A launch configuration already exists with the name {name}"
            raise AwsError("AlreadyExists", message)
        validate(simulator, params)
        where = f"arn:aws:autoscaling:{simulator.settings.region}:{simulator.settings.account}:launchConfiguration"
        self.by_name[name] = LaunchConfiguration(name, f"{where}:{uuid4()}:launchConfigurationName/{name}", params, datetime.now(UTC))


def validate(simulator: Any, params: dict[str, Any]) -> None:
    """Reject parameters that Auto Scaling rejects."""
    if params.get("InstanceId"):
        raise AwsError("NotSimulated", "InstanceId of a launch configuration is not simulated")
    if not params.get("ImageId") or not params.get("InstanceType"):
        message = "Valid requests must contain either the InstanceID parameter or both the ImageId and InstanceType parameters."
        raise validation_error(message)
    if params["ImageId"] not in simulator.ec2.amis:
        raise validation_error(f"AMI {params['ImageId']} is invalid: The image id '[{params['ImageId']}]' does not exist")
    if params.get("SpotPrice") and not is_price(params["SpotPrice"]):
        raise validation_error(f"Invalid spot price: {params['SpotPrice']}")
    check_user_data(params.get("UserData"))
    for mapping in params.get("BlockDeviceMappings", []):
        if mapping.get("Ebs", {}).get("VolumeType") == "io2":
            raise validation_error("Invalid volume type: io2")
    reason = run_instance.key_problem(simulator, params)
    if reason:
        raise validation_error(reason)
