"""Instance types and where they are offered: moto's 1,395 real ones, with AWS's paging, and the zones of the simulated region.

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

from localcloud.aws.ec2.operations import plain
from localcloud.aws.errors import Refused
from localcloud.aws.ec2.launch_templates import check_filters, matches, page

LAUNCHABLE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")


class Catalogue:
    """Which types the zones of the region offer; the types themselves live in moto's lists."""

    def __init__(self, region: str) -> None:
        self.region = region
        self.zones: dict[str, set[str]] = {}
        self.ids = {zone.name: zone.zone_id for zone in RegionsAndZonesBackend.zones[region]}
        for offering in INSTANCE_TYPE_OFFERINGS["availability-zone"][region]:
            self.zones.setdefault(offering["Location"], set()).add(offering["InstanceType"])

    def problem(self, kind: str, zone: str) -> str | None:
        """Why EC2 would not launch this type in this zone."""
        if kind in self.zones[zone]:
            return None
        others = sorted(name for name, kinds in self.zones.items() if kind in kinds)
        advice = "not specifying an Availability Zone" + (f" or choosing {', '.join(others)}" if others else "")
        start = f"Your requested instance type ({kind}) is not supported in your requested Availability Zone ({zone})."
        return f"{start} Please retry your request by {advice}."

    def offer(self, kind: str, zone: str, offered: bool) -> None:
        """Say whether a zone offers a type from now on."""
        if kind not in INSTANCE_TYPES or zone not in self.zones:
            raise ValueError(f"{kind} in {zone}: no such type or no such zone")
        (self.zones[zone].add if offered else self.zones[zone].discard)(kind)

    def launch(self, name: str, like: str, zones: list[str] | None) -> None:
        """AWS launches a type with the facts of another; without zones, every zone offers it."""
        if not LAUNCHABLE.fullmatch(name) or name in INSTANCE_TYPES:
            raise ValueError(f"{name!r} is no name for a new instance type")
        INSTANCE_TYPES[name] = copy.deepcopy(INSTANCE_TYPES[like]) | {"InstanceType": name}
        InstanceTypeBackend.instance_types.append(InstanceType(name))
        for zone in zones or self.zones:
            self.offer(name, zone, True)

    def offerings(self, location_type: str) -> list[dict[str, str]]:
        """What is offered where, by location and type."""
        match location_type:
            case "availability-zone":
                places = self.zones
            case "availability-zone-id":
                places = {self.ids[zone]: kinds for zone, kinds in self.zones.items()}
            case "region":
                places = {self.region: set().union(*self.zones.values())}
            case _:
                raise Refused("InvalidParameterValue", f"Value ({location_type}) for parameter locationType is invalid.")
        return [
            {"InstanceType": kind, "LocationType": location_type, "Location": place}
            for place in sorted(places)
            for kind in sorted(places[place])
        ]


def page_size(value: int | None, limit: int) -> int:
    """Check MaxResults; without it EC2 gives as many as it may."""
    if value is not None and not 5 <= value <= limit:
        message = f"Value ( {value} ) for parameter maxResults is invalid. Expecting a value between 5 and {limit}."
        raise Refused("InvalidParameterValue", message)
    return value or limit


def mend(world: Any) -> None:
    """Put the mended answers into moto."""

    def describe_instance_types(self: Any) -> ActionResult:
        params = plain(self._get_params())
        names, size = params.get("InstanceTypes", []), page_size(params.get("MaxResults"), 100)
        if len(names) > 100:
            raise Refused("InvalidParameterValue", "The maximum number of instance types that may be passed in is 100")
        unknown = [name for name in names if name not in INSTANCE_TYPES]
        if unknown:
            raise Refused("InvalidInstanceType", f"The following supplied instance types do not exist: [{', '.join(unknown)}]")
        filters = self._filters_from_querystring()
        patterns = filters.pop("instance-type", None)
        found = self.ec2_backend.describe_instance_types(names, filters)
        found = [kind for kind in found if patterns is None or matches(kind["InstanceType"], patterns)]
        found, token = page(found, params.get("NextToken"), size)
        return ActionResult({"InstanceTypes": found, "NextToken": token})

    def describe_instance_type_offerings(self: Any) -> ActionResult:
        params = plain(self._get_params())
        size = page_size(params.get("MaxResults"), 1000)
        found = world.catalogue.offerings(params.get("LocationType") or "region")
        keys = {"instance-type": "InstanceType", "location": "Location"}
        for condition in check_filters(params.get("Filters", [])):
            if condition["Name"] not in keys:
                raise Refused("InvalidParameterValue", f"The filter '{condition['Name']}' is invalid")
            found = [item for item in found if matches(item[keys[condition["Name"]]], condition.get("Values", []))]
        found, token = page(found, params.get("NextToken"), size)
        return ActionResult({"InstanceTypeOfferings": found, "NextToken": token})

    InstanceResponse.describe_instance_types = describe_instance_types
    InstanceResponse.describe_instance_type_offerings = describe_instance_type_offerings
