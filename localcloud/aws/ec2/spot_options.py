"""Validation of Spot options at launch.

Follows the Amazon EC2 API Reference, InstanceMarketOptionsRequest, and the Amazon EC2 Auto Scaling User Guide, "Create
a launch template using advanced settings", Purchasing option.
"""

from __future__ import annotations

import re
from typing import Any

MARKETS = ("spot", "capacity-block")
LOWEST_PRICE = 0.001


def market_problem(market: dict[str, Any]) -> str | None:
    """Why these market options are rejected, or None. A group's Spot requests are one-time, without an end date."""
    if not market:
        return None
    if market.get("MarketType") not in MARKETS:
        return f"Value ({market.get('MarketType')}) for parameter MarketType is invalid. Valid values: {', '.join(MARKETS)}"
    options = market.get("SpotOptions") or {}
    if options.get("MaxPrice") and not is_price(options["MaxPrice"]):
        return f"Value ({options['MaxPrice']}) for parameter MaxPrice is invalid."
    if options.get("SpotInstanceType", "one-time") != "one-time" or options.get("ValidUntil"):
        return "Spot Instances of an Auto Scaling group must be requested by a one-time request with no end date."
    return None


def is_price(text: Any) -> bool:
    """Whether the text is a valid maximum price per hour."""
    return bool(re.fullmatch(r"\d+(\.\d+)?", str(text))) and float(text) >= LOWEST_PRICE
