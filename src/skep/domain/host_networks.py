"""What a host has to bring to its guests of networks, all of it at one moment.

The network service says it, an agent asks for it, and a driver that plugs ports into networks of the host makes the
host so. Nothing in it is a change: a host that missed any number of them ends in the same state.
"""

from __future__ import annotations

import hashlib
import zlib

import msgspec

from skep.domain.decoding import json_decoder
from skep.domain.networking import AddressPair, Direction, EtherType, HostRoute, Ipv6Mode

LEAST_SEGMENT, MOST_SEGMENT = 1, (1 << 24) - 1
"""Numbers of networks on the wire: those of VXLAN (RFC 7348)."""
PACKED_ABOVE = 256 * 1024
"""Bytes as JSON above which networks are sent compressed. NATS carries 1 MiB in a message, as it is set by default."""
MOST_UNPACKED = 64 * 1024 * 1024
"""So many bytes compressed networks may have at most as JSON."""


class SegmentSubnet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A subnet of a network, and what guests are told with its addresses."""

    id: str
    cidr: str
    ip_version: int
    gateway_ip: str | None = None
    enable_dhcp: bool = True
    ipv6_ra_mode: Ipv6Mode | None = None
    ipv6_address_mode: Ipv6Mode | None = None
    dns_nameservers: tuple[str, ...] = ()
    host_routes: tuple[HostRoute, ...] = ()


class PluggedPort(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A port that is bound to the host."""

    id: str
    server: str
    """The UUID of the server that has it."""
    project: str = ""
    """The project of that server. Empty: it is not known, as of a server that is gone."""
    mac_address: str
    addresses: tuple[str, ...] = ()
    """Its fixed addresses, of both versions."""
    host_name: str = ""
    """By which DHCP names the guest."""
    admin_state_up: bool = True
    """Otherwise nothing goes through it."""
    port_security_enabled: bool = True
    """Otherwise it may send as any other, and its groups have no effect."""
    allowed_address_pairs: tuple[AddressPair, ...] = ()
    groups: tuple[str, ...] = ()
    """Ids of its security groups, all of which are in `HostNetworks.groups`."""


class Segment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A network that has a port on the host."""

    network: str
    number: int
    """On the wire, unique among the networks of a cloud: `LEAST_SEGMENT` to `MOST_SEGMENT`."""
    mtu: int
    """Bytes."""
    admin_state_up: bool = True
    subnets: tuple[SegmentSubnet, ...] = ()
    ports: tuple[PluggedPort, ...] = ()
    peers: tuple[str, ...] = ()
    """Addresses of the tunnels of other hosts with ports on this network."""


class GroupRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a security group lets through."""

    direction: Direction
    ethertype: EtherType
    protocol: str | None = None
    """Its name or its number, as Neutron takes them. None: each."""
    port_range_min: int | None = None
    """First port, or the type of ICMP."""
    port_range_max: int | None = None
    """Last port, or the code of ICMP."""
    remote_ip_prefix: str | None = None
    remote_group: str | None = None
    """The id of a group that is in `HostNetworks.groups`: its members' addresses."""


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A security group that a port of the host has, or that a rule of such a group names."""

    id: str
    stateful: bool = True
    rules: tuple[GroupRule, ...] = ()
    members: tuple[str, ...] = ()
    """Addresses of all its ports, on whichever host; filled where a rule names the group."""


class FloatingAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address of the outside that leads to a port of this host."""

    address: str
    fixed_address: str
    port: str


class RouterLeg(msgspec.Struct, frozen=True, kw_only=True):
    """An address of a router in one of its networks."""

    network: str
    subnet: str
    address: str
    mac_address: str


class HostRouter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A router with a leg in a network that has a port on the host. Each such host has all of it."""

    id: str
    admin_state_up: bool = True
    legs: tuple[RouterLeg, ...] = ()
    """In all networks of the router, those that are not on this host included: `HostNetworks.segments` has all of
    them."""
    outside: bool = False
    """Whether it leads to the outside."""
    enable_snat: bool = True
    """Whether guests without a floating address reach the outside, by an address of the host."""
    floating: tuple[FloatingAddress, ...] = ()
    routes: tuple[HostRoute, ...] = ()


class HostNetworks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of the networks of a host."""

    version: str = ""
    """Of all the rest: equal where that is equal. Empty: nothing was said yet."""
    segments: tuple[Segment, ...] = ()
    """Networks with ports on this host, and those that a router of it leads to."""
    groups: tuple[Group, ...] = ()
    routers: tuple[HostRouter, ...] = ()


_decoder = json_decoder(HostNetworks)


class HostLook(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the networks of a host found, and what tells that it is still so."""

    networks: HostNetworks
    subjects: tuple[str, ...]
    """As long as none of them is in `HostNetworkChanges`, another look finds the same."""
    change: int
    """The last change that it has seen."""


class HostNetworkChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What has changed since another change."""

    change: int
    """The last one. Less than the one before: the database went back in time, and whatever was seen may not be so."""
    subjects: tuple[str, ...] = ()
    """What it concerns, of all changes since."""
    many: bool = False
    """There were too many to say: anything may have changed."""


def versioned(networks: HostNetworks) -> HostNetworks:
    """Return the same with the version that belongs to it: a digest."""
    content = msgspec.json.encode(msgspec.structs.replace(networks, version=""))
    return msgspec.structs.replace(networks, version=hashlib.sha256(content).hexdigest()[:32])


def packed(networks: HostNetworks) -> bytes | None:
    """Return networks compressed, where they are large: a group of 20,000 ports. None: they are not."""
    content = msgspec.json.encode(networks)
    return zlib.compress(content) if len(content) > PACKED_ABOVE else None


def unpacked(content: bytes) -> HostNetworks:
    """Return what was compressed. Raises ValueError for what is something else, or too large."""
    taking = zlib.decompressobj()
    try:
        found = taking.decompress(content, MOST_UNPACKED)
    except zlib.error as error:
        raise ValueError(f"compressed networks: {error}") from error
    if not taking.eof:
        raise ValueError(f"compressed networks: they are cut, or have more than {MOST_UNPACKED} bytes")
    return _decoder.decode(found)


def subject_of_host(host: str) -> str:
    """Return the subject that changes when a host gets or loses a port."""
    return f"host {host}"
