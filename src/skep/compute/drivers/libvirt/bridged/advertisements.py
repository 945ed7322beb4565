"""The configuration of the dnsmasq of a router: what it advertises in subnets of IPv6, and leases of this host's ports.

Who is asked is the router: each host has it, with an address of the link of its own, which its guests know alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv6Address, IPv6Network

import msgspec

from skep.compute.drivers.libvirt.bridged.leases import ALWAYS, LEASE_SECONDS, lease
from skep.compute.drivers.libvirt.bridged.names import address
from skep.domain.host_networks import Segment, SegmentSubnet
from skep.domain.networking import Ipv6Mode

MODES: dict[Ipv6Mode, str] = {"slaac": "ra-only", "dhcpv6-stateless": "ra-stateless", "dhcpv6-stateful": "static"}
"""How guests have addresses, as dnsmasq says it."""
WHOLE = 64
"""Bits of a prefix to which guests add as many of their own."""
ADVERTISED_SECONDS, ROUTER_SECONDS = 200, 1800
"""So often routers advertise themselves unasked, and so long guests believe it."""


class AdvertisedLeg(msgspec.Struct, frozen=True, kw_only=True):
    """A leg of a router in a subnet of IPv6."""

    link: str
    """In the namespace of the router."""
    segment: Segment
    subnet: SegmentSubnet
    leads: bool
    """Whether the router is the subnet's gateway: another one is no way out for its guests, whose it may not be."""

    @property
    def mode(self) -> Ipv6Mode | None:
        """How guests of the subnet have addresses; None: they are told nothing, as of a block that dnsmasq refuses."""
        length = IPv6Network(self.subnet.cidr).prefixlen
        mode = self.subnet.ipv6_ra_mode if self.subnet.enable_dhcp else None
        fits = length >= WHOLE if mode == "dhcpv6-stateful" else length == WHOLE
        return mode if fits else None


def advertisements(legs: Sequence[AdvertisedLeg]) -> str | None:
    """Return the configuration; None where nothing is to be advertised. Raises ValueError for what is no address."""
    told = [leg for leg in legs if leg.mode is not None]
    if not told:
        return None
    lines = ["port=0", *ALWAYS, *dict.fromkeys(f"interface={leg.link}" for leg in told)]
    if any(leg.mode == "dhcpv6-stateful" for leg in told):
        # The other modes bring it for their own subnets.
        lines.append("enable-ra")
    leading = {leg.link for leg in told if leg.leads}
    for place, leg in enumerate(told):
        lines += _leg(f"v{place}", leg, ROUTER_SECONDS if leg.link in leading else 0)
    return "\n".join([*lines, ""])


def _leg(tag: str, leg: AdvertisedLeg, seconds: int) -> Iterator[str]:
    cidr = IPv6Network(leg.subnet.cidr)
    assert leg.mode is not None
    yield f"dhcp-range=set:{tag},{cidr.network_address},{MODES[leg.mode]},{cidr.prefixlen},{LEASE_SECONDS}"
    yield f"ra-param={leg.link},mtu:{leg.segment.mtu:d},{ADVERTISED_SECONDS},{seconds}"
    servers = [one for one in map(address, leg.subnet.dns_nameservers) if isinstance(one, IPv6Address)]
    yield f"dhcp-option=tag:{tag},option6:dns-server" + "".join(f",[{one}]" for one in servers)
    if leg.mode == "dhcpv6-stateful":
        for port in leg.segment.ports:
            own = (one for one in map(address, port.addresses) if isinstance(one, IPv6Address) and one in cidr)
            yield from (lease(port, f"[{one}]") for one in own)
