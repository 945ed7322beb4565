"""How Neutron's API shows resources, as types and by functions that make them of rows."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType, field

from skep.domain.clock import isoformat
from skep.domain.networking import (
    AddressPair,
    AllocationPool,
    Direction,
    EtherType,
    FixedIp,
    FloatingIp,
    HostRoute,
    Ipv6Mode,
    Network,
    NetworkResource,
    Port,
    PortBinding,
    SecurityGroup,
    SecurityGroupRule,
    Subnet,
    VirtualRouter,
)

Status = Literal["ACTIVE", "DOWN", "BUILD", "ERROR"]
PLUGGED = "tap"
"""How a port is plugged on the host that it is bound to (Neutron's `vif_type`)."""


class ShownResource(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown of each."""

    id: str
    name: str
    description: str
    project_id: str
    tenant_id: str
    created_at: str
    updated_at: str
    revision_number: int
    tags: list[str]


class ShownNetwork(ShownResource, frozen=True, kw_only=True):
    """A network."""

    admin_state_up: bool
    status: Status
    shared: bool
    external: bool = field(name="router:external")
    is_default: bool
    mtu: int
    port_security_enabled: bool
    subnets: list[str]
    availability_zone_hints: list[str]
    availability_zones: list[str]
    ipv4_address_scope: None = None
    ipv6_address_scope: None = None


class ShownSubnet(ShownResource, frozen=True, kw_only=True):
    """A subnet."""

    network_id: str
    ip_version: int
    cidr: str
    gateway_ip: str | None
    enable_dhcp: bool
    ipv6_ra_mode: Ipv6Mode | None
    ipv6_address_mode: Ipv6Mode | None
    allocation_pools: tuple[AllocationPool, ...]
    dns_nameservers: tuple[str, ...]
    host_routes: tuple[HostRoute, ...]
    subnetpool_id: None = None


class ShownPort(ShownResource, frozen=True, kw_only=True):
    """A port. Where it is bound to is for admins."""

    network_id: str
    admin_state_up: bool
    status: Status
    mac_address: str
    fixed_ips: list[FixedIp]
    device_id: str
    device_owner: str
    security_groups: list[str]
    port_security_enabled: bool
    allowed_address_pairs: list[AddressPair]
    vnic_type: str = field(name="binding:vnic_type")
    host_id: str | UnsetType = field(name="binding:host_id", default=UNSET)
    profile: dict[str, Any] | UnsetType = field(name="binding:profile", default=UNSET)
    vif_type: str | UnsetType = field(name="binding:vif_type", default=UNSET)
    vif_details: dict[str, Any] | UnsetType = field(name="binding:vif_details", default=UNSET)


class ShownBinding(msgspec.Struct, frozen=True, kw_only=True):
    """A binding of a port to a host."""

    host: str
    vif_type: str
    vif_details: dict[str, Any]
    vnic_type: str
    profile: dict[str, Any]
    status: Literal["ACTIVE", "INACTIVE"]
    project_id: str


class ShownSecurityGroupRule(ShownResource, frozen=True, kw_only=True):
    """A rule of a security group."""

    security_group_id: str
    direction: Direction
    ethertype: EtherType
    protocol: str | None
    port_range_min: int | None
    port_range_max: int | None
    remote_ip_prefix: str | None
    remote_group_id: str | None


class ShownSecurityGroup(ShownResource, frozen=True, kw_only=True):
    """A security group with its rules."""

    stateful: bool
    shared: bool
    security_group_rules: list[ShownSecurityGroupRule]


class ShownGateway(msgspec.Struct, frozen=True, kw_only=True):
    """By what a router reaches the outside."""

    network_id: str
    enable_snat: bool
    external_fixed_ips: list[FixedIp]


class ShownRouter(ShownResource, frozen=True, kw_only=True):
    """A router."""

    admin_state_up: bool
    status: Status
    external_gateway_info: ShownGateway | None
    routes: tuple[HostRoute, ...]
    availability_zone_hints: list[str]
    availability_zones: list[str]


class ShownLeadsTo(msgspec.Struct, frozen=True, kw_only=True):
    """The port that a floating address leads to."""

    id: str
    name: str
    network_id: str
    mac_address: str
    admin_state_up: bool
    status: Status
    device_id: str
    device_owner: str


class ShownFloatingIp(ShownResource, frozen=True, kw_only=True):
    """A floating address."""

    floating_network_id: str
    floating_ip_address: str
    router_id: str | None
    port_id: str | None
    fixed_ip_address: str | None
    status: Status
    port_details: ShownLeadsTo | None


def _common(resource: NetworkResource, tags: list[str]) -> dict[str, Any]:
    return {
        "id": resource.id,
        "name": resource.name,
        "description": resource.description,
        "project_id": resource.project_id,
        "tenant_id": resource.project_id,
        "created_at": isoformat(resource.created_at),
        "updated_at": isoformat(resource.updated_at),
        "revision_number": resource.revision_number,
        "tags": tags,
    }


def network(value: Network, tags: list[str], subnets: list[str]) -> ShownNetwork:
    """Show a network with the ids of its subnets."""
    return ShownNetwork(
        **_common(value, tags),
        admin_state_up=value.admin_state_up,
        status="ACTIVE",
        shared=value.shared,
        external=value.external,
        is_default=value.is_default,
        mtu=value.mtu,
        port_security_enabled=value.port_security_enabled,
        subnets=subnets,
        availability_zone_hints=[],
        availability_zones=[],
    )


def subnet(value: Subnet, tags: list[str]) -> ShownSubnet:
    """Show a subnet."""
    return ShownSubnet(
        **_common(value, tags),
        network_id=value.network_id,
        ip_version=value.ip_version,
        cidr=value.cidr,
        gateway_ip=value.gateway_ip,
        enable_dhcp=value.enable_dhcp,
        ipv6_ra_mode=value.ipv6_ra_mode,
        ipv6_address_mode=value.ipv6_address_mode,
        allocation_pools=value.allocation_pools,
        dns_nameservers=value.dns_nameservers,
        host_routes=value.host_routes,
    )


def status_of(value: Port) -> Status:
    """Return the status of a port: one that is on a host, or of a router, works."""
    works = value.admin_state_up and (value.binding_host_id != "" or value.device_owner.startswith("network:"))
    return "ACTIVE" if works else "DOWN"


def port(value: Port, tags: list[str], addresses: list[FixedIp], groups: list[str], *, to_admin: bool) -> ShownPort:
    """Show a port with its addresses and security groups."""
    pairs = [
        AddressPair(pair.ip_address, pair.mac_address or value.mac_address) for pair in value.allowed_address_pairs
    ]
    shown = ShownPort(
        **_common(value, tags),
        network_id=value.network_id,
        admin_state_up=value.admin_state_up,
        status=status_of(value),
        mac_address=value.mac_address,
        fixed_ips=addresses,
        device_id=value.device_id,
        device_owner=value.device_owner,
        security_groups=groups,
        port_security_enabled=value.port_security_enabled,
        allowed_address_pairs=pairs,
        vnic_type=value.binding_vnic_type,
    )
    if not to_admin:
        return shown
    return msgspec.structs.replace(
        shown,
        host_id=value.binding_host_id,
        profile=value.binding_profile,
        vif_type=PLUGGED if value.binding_host_id else "unbound",
        vif_details={},
    )


def binding(value: Port, bound: PortBinding, status: Literal["ACTIVE", "INACTIVE"]) -> ShownBinding:
    """Show a binding of a port."""
    return ShownBinding(
        host=bound.host,
        vif_type=PLUGGED,
        vif_details={},
        vnic_type=bound.vnic_type,
        profile=bound.profile,
        status=status,
        project_id=value.project_id,
    )


def security_group_rule(value: SecurityGroupRule, tags: list[str]) -> ShownSecurityGroupRule:
    """Show a rule."""
    return ShownSecurityGroupRule(
        **_common(value, tags),
        security_group_id=value.security_group_id,
        direction=value.direction,
        ethertype=value.ethertype,
        protocol=value.protocol,
        port_range_min=value.port_range_min,
        port_range_max=value.port_range_max,
        remote_ip_prefix=value.remote_ip_prefix,
        remote_group_id=value.remote_group_id,
    )


def security_group(value: SecurityGroup, tags: list[str], rules: list[ShownSecurityGroupRule]) -> ShownSecurityGroup:
    """Show a security group with its rules."""
    return ShownSecurityGroup(**_common(value, tags), stateful=value.stateful, shared=False, security_group_rules=rules)


def router(value: VirtualRouter, tags: list[str], gateway: ShownGateway | None) -> ShownRouter:
    """Show a router."""
    return ShownRouter(
        **_common(value, tags),
        admin_state_up=value.admin_state_up,
        status="ACTIVE",
        external_gateway_info=gateway,
        routes=value.routes,
        availability_zone_hints=[],
        availability_zones=[],
    )


def floating_ip(value: FloatingIp, tags: list[str], leads_to: Port | None) -> ShownFloatingIp:
    """Show a floating address, and the port that it leads to."""
    details = None
    if leads_to is not None:
        details = ShownLeadsTo(
            id=leads_to.id,
            name=leads_to.name,
            network_id=leads_to.network_id,
            mac_address=leads_to.mac_address,
            admin_state_up=leads_to.admin_state_up,
            status=status_of(leads_to),
            device_id=leads_to.device_id,
            device_owner=leads_to.device_owner,
        )
    return ShownFloatingIp(
        **_common(value, tags),
        floating_network_id=value.floating_network_id,
        floating_ip_address=value.floating_ip_address,
        router_id=value.router_id,
        port_id=value.port_id,
        fixed_ip_address=value.fixed_ip_address,
        status="ACTIVE" if value.port_id is not None else "DOWN",
        port_details=details,
    )
