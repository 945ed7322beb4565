"""Networks that hints name by an address and how much of it counts."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network

Network = IPv4Network | IPv6Network

DEFAULT_PREFIX = "/24"


def near(hints: Mapping[str, object]) -> Network | None:
    """Return the network around the hint `build_near_host_ip`, as wide as `cidr` says; None where it is not given.

    Raises ValueError where the two make no network.
    """
    address = hints.get("build_near_host_ip")
    if not address:
        return None
    return ip_network(f"{address}{hints.get('cidr', DEFAULT_PREFIX)}", strict=False)
