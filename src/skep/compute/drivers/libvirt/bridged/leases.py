"""The configuration of the dnsmasq of a network: fixed leases of this host's ports, what guests are told, and DNS."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network

from skep.compute.drivers.libvirt.bridged.names import SERVICE, SERVICE_ADDRESS, address, block, host_name, mac
from skep.domain.host_networks import PluggedPort, Segment, SegmentSubnet

LEASE_SECONDS = 86400
NO_NAMES = re.compile(r"ignore|infinite|[0-9]+[smhdw]?")
"""What dnsmasq takes for something else than a name in the line of a port: for no lease at all, or for its length."""
ALWAYS = (
    "except-interface=lo",
    "bind-interfaces",
    "no-hosts",
    "no-resolv",
    "no-poll",
    "pid-file",
    "leasefile-ro",
    "dhcp-authoritative",
    "user=nobody",
)
"""What each dnsmasq of a host is told."""
_NAMES = (f"interface={SERVICE}", "cache-size=1000")


def configuration(segment: Segment, resolvers: Sequence[str]) -> str:
    """Return the configuration. Raises ValueError for what is no address."""
    lines = [*ALWAYS, *_NAMES, *(f"server={address(one)}" for one in resolvers)]
    subnets = [one for one in segment.subnets if one.ip_version == 4 and one.enable_dhcp]
    for place, subnet in enumerate(subnets):
        lines += _subnet(f"s{place}", subnet, segment.mtu)
    blocks = [IPv4Network(subnet.cidr) for subnet in subnets]
    lines += [line for port in segment.ports for line in _lease(port, blocks)]
    return "\n".join([*lines, ""])


def _subnet(tag: str, subnet: SegmentSubnet, mtu: int) -> Iterator[str]:
    cidr = IPv4Network(subnet.cidr)
    yield f"dhcp-range=set:{tag},{cidr.network_address},static,{cidr.netmask},{LEASE_SECONDS}"
    # The service has an address of the link itself, and none in the subnet.
    yield f"shared-network={SERVICE},{cidr.network_address}"
    gateway = None if subnet.gateway_ip is None else address(subnet.gateway_ip)
    yield f"dhcp-option=tag:{tag},option:router" + ("" if gateway is None else f",{gateway}")
    # Of those that have addresses of IPv6 DHCP of IPv4 cannot tell.
    told = [one for one in map(address, subnet.dns_nameservers) if isinstance(one, IPv4Address)]
    names = ",".join(map(str, told or [SERVICE_ADDRESS]))
    yield f"dhcp-option=tag:{tag},option:dns-server,{names}"
    yield f"dhcp-option=tag:{tag},option:mtu,{mtu:d}"
    routes = [f"{SERVICE_ADDRESS}/32,0.0.0.0"]
    routes += [f"{block(one.destination)},{address(one.nexthop)}" for one in subnet.host_routes]
    if gateway is not None:
        routes.append(f"0.0.0.0/0,{gateway}")
    yield f"dhcp-option=tag:{tag},option:classless-static-route,{','.join(routes)}"


def _lease(port: PluggedPort, blocks: Sequence[IPv4Network]) -> Iterator[str]:
    """Yield the line of a port with an address in a subnet that has DHCP."""
    for text in port.addresses:
        one = address(text)
        if isinstance(one, IPv4Address) and any(one in cidr for cidr in blocks):
            yield lease(port, str(one))
            return


def lease(port: PluggedPort, at: str) -> str:
    """Return the line by which a port has an address; it names the guest, unless dnsmasq would read something else."""
    name = host_name(port.host_name)
    named = f",{name}" if name and not NO_NAMES.fullmatch(name) else ""
    return f"dhcp-host={mac(port.mac_address)},{at}{named}"
