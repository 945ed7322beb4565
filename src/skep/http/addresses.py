"""Addresses of clients, as limits count them."""

from __future__ import annotations

import ipaddress


def network_of(address: str) -> str:
    """Return the address itself, or its /64 for IPv6."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
    return str(found)
