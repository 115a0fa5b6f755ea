"""Instance types and the zones that offer them: moto's data, with AWS's paging.

Follows the Amazon EC2 API Reference, DescribeInstanceTypes and DescribeInstanceTypeOfferings.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.ec2.models.instance_types import (
    INSTANCE_TYPE_OFFERINGS,
    INSTANCE_TYPES,
    InstanceType,
    InstanceTypeBackend,
)
from moto.ec2.responses.instances import InstanceResponse

from localcloud.aws.ec2.filters import check_filters, matches, page
from localcloud.aws.errors import AwsError
from localcloud.aws.parameters import to_plain

INSTANCE_TYPE_NAME = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


class InstanceTypeCatalog:
    """Which instance types each zone of the region offers. The types themselves are in moto's lists."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.zones: dict[str, set[str]] = {}
        self.zone_ids = {zone.name: zone.zone_id for zone in RegionsAndZonesBackend.zones[region]}
        for offering in INSTANCE_TYPE_OFFERINGS["availability-zone"][region]:
            self.zones.setdefault(offering["Location"], set()).add(offering["InstanceType"])

    def unsupported_reason(self, instance_type: str, zone: str) -> str | None:
        """The error with which EC2 refuses this type in this zone, or None if the zone offers it."""
        if instance_type in self.zones[zone]:
            return None
        others = sorted(name for name, kinds in self.zones.items() if instance_type in kinds)
        advice = "not specifying an Availability Zone" + (f" or choosing {', '.join(others)}" if others else "")
        start = f"Your requested instance type ({instance_type}) is not supported in your requested Availability Zone ({zone})."
        return f"{start} Please retry your request by {advice}."

    def set_offered(self, instance_type: str, zone: str, offered: bool) -> None:
        """Set whether a zone offers a type."""
        if instance_type not in INSTANCE_TYPES or zone not in self.zones:
            raise ValueError(f"{instance_type} in {zone}: unknown instance type or zone")
        (self.zones[zone].add if offered else self.zones[zone].discard)(instance_type)

    def add_instance_type(self, name: str, like: str, zones: list[str] | None) -> None:
        """Add a type with the attributes of an existing one. Without zones, every zone offers it."""
        if not INSTANCE_TYPE_NAME.fullmatch(name) or name in INSTANCE_TYPES:
            raise ValueError(f"{name!r} is not a valid name for a new instance type")
        INSTANCE_TYPES[name] = copy.deepcopy(INSTANCE_TYPES[like]) | {"InstanceType": name}
        InstanceTypeBackend.instance_types.append(InstanceType(name))
        for zone in zones or self.zones:
            self.set_offered(name, zone, True)

    def offerings(self, location_type: str) -> list[dict[str, str]]:
        """The offered types, by location and type."""
        match location_type:
            case "availability-zone":
                locations = self.zones
            case "availability-zone-id":
                locations = {self.zone_ids[zone]: kinds for zone, kinds in self.zones.items()}
            case "region":
                locations = {self.region: set().union(*self.zones.values())}
            case _:
                raise AwsError("InvalidParameterValue", f"Value ({location_type}) for parameter locationType is invalid.")
        return [
            {"InstanceType": instance_type, "LocationType": location_type, "Location": location}
            for location in sorted(locations)
            for instance_type in sorted(locations[location])
        ]


def page_size(value: int | None, limit: int) -> int:
    """Check MaxResults. Without it, EC2 returns as many items as possible."""
    if value is not None and not 5 <= value <= limit:
        message = f"Value ( {value} ) for parameter maxResults is invalid. Expecting a value between 5 and {limit}."
        raise AwsError("InvalidParameterValue", message)
    return value or limit


def install(simulator: Any) -> None:
    """Replace moto's operations on instance types."""

    def describe_instance_types(self: Any) -> ActionResult:
        params = to_plain(self._get_params())
        names, size = params.get("InstanceTypes", []), page_size(params.get("MaxResults"), 100)
        if len(names) > 100:
            raise AwsError("InvalidParameterValue", "The maximum number of instance types that may be passed in is 100")
        unknown = [name for name in names if name not in INSTANCE_TYPES]
        if unknown:
            raise AwsError("InvalidInstanceType", f"The following supplied instance types do not exist: [{', '.join(unknown)}]")
        filters = self._filters_from_querystring()
        patterns = filters.pop("instance-type", None)
        found = self.ec2_backend.describe_instance_types(names, filters)
        found = [instance_type for instance_type in found if patterns is None or matches(instance_type["InstanceType"], patterns)]
        found, token = page(found, params.get("NextToken"), size)
        return ActionResult({"InstanceTypes": found, "NextToken": token})

    def describe_instance_type_offerings(self: Any) -> ActionResult:
        params = to_plain(self._get_params())
        size = page_size(params.get("MaxResults"), 1000)
        found = simulator.instance_type_catalog.offerings(params.get("LocationType") or "region")
        keys = {"instance-type": "InstanceType", "location": "Location"}
        for condition in check_filters(params.get("Filters", [])):
            if condition["Name"] not in keys:
                raise AwsError("InvalidParameterValue", f"The filter '{condition['Name']}' is invalid")
            found = [item for item in found if matches(item[keys[condition["Name"]]], condition.get("Values", []))]
        found, token = page(found, params.get("NextToken"), size)
        return ActionResult({"InstanceTypeOfferings": found, "NextToken": token})

    InstanceResponse.describe_instance_types = describe_instance_types
    InstanceResponse.describe_instance_type_offerings = describe_instance_type_offerings
