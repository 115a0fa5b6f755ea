"""Classification of subnets."""

from __future__ import annotations

from typing import Any


def is_public(simulator: Any, subnet: Any) -> bool:
    """Whether the subnet's route table, or else the main one of its VPC, has a route to an internet gateway."""
    tables = simulator.ec2.route_tables.values()
    own = [t for t in tables if any(a.get("SubnetId") == subnet.id for a in t.associations)]
    main = [t for t in tables if t.vpc_id == subnet.vpc_id and t.main_association_id]
    return any((route.gateway_id or "").startswith("igw-") for table in own or main for route in table.routes)
