"""What the embedded network service is told."""

from __future__ import annotations

import msgspec

EXTERNAL_CIDR = "203.0.113.0/24"
"""Addresses for documentation (RFC 5737): they are nobody's, so that no real network is taken for this one."""
UNLIMITED = -1
"""As a quota: none."""


class NetworksSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the embedded network service. Quotas are those of projects for which an admin set none."""

    identity_url: str
    """Address of the identity service, named in 401 answers."""
    mtu: int = 1500
    """Bytes: the largest a network may have, and what it has by default (Neutron's `global_physnet_mtu`)."""
    quotas: dict[str, int] = msgspec.field(default_factory=dict)
    """Resource -> most of them in a project."""
    auto_allocated_cidr: str = "10.100.0.0/22"
    """Addresses of the network that a project gets without asking for one; those of projects do not meet."""
    external_cidr: str = EXTERNAL_CIDR
    """Addresses of the external network with which a new cloud begins."""
    pagination_max_limit: int = 1000
    """Most resources in one answer (Neutron's name)."""
    max_fixed_ips_per_port: int = 5
    max_allowed_address_pair: int = 10
    max_dns_nameservers: int = 5
    max_subnet_host_routes: int = 20
    max_routes: int = 30
    """Of a router. (Neutron's names and defaults, as the three before.)"""
