"""The nouns of the network service: networks, subnets, ports, groups of rules, routers, floating addresses."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Ipv6Mode = Literal["slaac", "dhcpv6-stateful", "dhcpv6-stateless"]
Direction = Literal["ingress", "egress"]
EtherType = Literal["IPv4", "IPv6"]

LEAST_MTU, LEAST_MTU_IPV6 = 68, 1280
"""Bytes that every network of a protocol carries (RFC 791, RFC 8200)."""

AUTO_ADDRESSES = frozenset({"slaac", "dhcpv6-stateless"})
"""Modes of IPv6 in which a port's address follows from its hardware address."""

ROUTER_INTERFACE, ROUTER_GATEWAY, FLOATING_IP = (
    "network:router_interface",
    "network:router_gateway",
    "network:floatingip",
)
"""Owners of ports that the service makes itself (Neutron's names of them)."""
OF_THE_SERVICE = frozenset({ROUTER_INTERFACE, ROUTER_GATEWAY, FLOATING_IP})


class NetworkResource(msgspec.Struct, frozen=True, kw_only=True):
    """What all of them have. Times are microseconds since the epoch."""

    id: str
    project_id: str
    name: str = ""
    description: str = ""
    created_at: int
    updated_at: int
    revision_number: int = 0
    """How often it was changed."""


class Network(NetworkResource, frozen=True, kw_only=True):
    """A segment on which ports reach each other."""

    admin_state_up: bool = True
    shared: bool = False
    """Whether all projects may use it."""
    external: bool = False
    """Whether routers reach the outside by it; all projects see it then."""
    is_default: bool = False
    mtu: int = 1500
    """Bytes."""
    port_security_enabled: bool = True
    """What its ports begin with."""


class AllocationPool(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Addresses from which the service chooses; both ends belong to it."""

    start: str
    end: str


class HostRoute(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A route that guests, or a router, are told."""

    destination: str
    nexthop: str


class Subnet(NetworkResource, frozen=True, kw_only=True):
    """Addresses of a network, and what guests are told with them."""

    network_id: str
    ip_version: int
    cidr: str
    gateway_ip: str | None = None
    enable_dhcp: bool = True
    ipv6_ra_mode: Ipv6Mode | None = None
    ipv6_address_mode: Ipv6Mode | None = None
    allocation_pools: tuple[AllocationPool, ...] = ()
    dns_nameservers: tuple[str, ...] = ()
    host_routes: tuple[HostRoute, ...] = ()


class FixedIp(msgspec.Struct, frozen=True):
    """An address of a port."""

    subnet_id: str
    ip_address: str


class AddressPair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another address from which a port may send."""

    ip_address: str
    mac_address: str = ""
    """Empty: the port's own."""


class PortBinding(msgspec.Struct, frozen=True, kw_only=True):
    """That a port is bound to a host, beside the one that has it (Neutron's extension `binding-extended`)."""

    host: str
    vnic_type: str = "normal"
    profile: dict[str, Any] = msgspec.field(default_factory=dict)


class Port(NetworkResource, frozen=True, kw_only=True):
    """A plug of a network with its addresses: of a server, or of the service itself."""

    network_id: str
    admin_state_up: bool = True
    mac_address: str
    device_id: str = ""
    device_owner: str = ""
    binding_host_id: str = ""
    binding_vnic_type: str = "normal"
    binding_profile: dict[str, Any] = msgspec.field(default_factory=dict)
    port_security_enabled: bool = True
    allowed_address_pairs: tuple[AddressPair, ...] = ()
    server: str | None = None
    """The server of which it is an interface. `device_id` says so too, but its owner may write what he likes there."""
    server_position: int = 0
    """Its place among the interfaces of the server."""
    made_for_server: bool = False
    """Made for the server, and deleted with it."""
    device_tag: str | None = None
    other_bindings: tuple[PortBinding, ...] = ()
    """To hosts that do not have it: inactive ones."""


class SecurityGroup(NetworkResource, frozen=True, kw_only=True):
    """Rules of what a port lets through. A project has one by default."""

    stateful: bool = True
    is_default: bool = False


class SecurityGroupRule(NetworkResource, frozen=True, kw_only=True):
    """One thing that a security group lets through."""

    security_group_id: str
    direction: Direction
    ethertype: EtherType = "IPv4"
    protocol: str | None = None
    port_range_min: int | None = None
    port_range_max: int | None = None
    remote_ip_prefix: str | None = None
    remote_group_id: str | None = None


class VirtualRouter(NetworkResource, frozen=True, kw_only=True):
    """Joins networks, and reaches the outside by an external one."""

    admin_state_up: bool = True
    gateway_port_id: str | None = None
    enable_snat: bool = True
    routes: tuple[HostRoute, ...] = ()


class FloatingIp(NetworkResource, frozen=True, kw_only=True):
    """An address of an external network that leads to one of a port."""

    floating_network_id: str
    floating_port_id: str
    floating_ip_address: str
    router_id: str | None = None
    port_id: str | None = None
    fixed_ip_address: str | None = None
