"""What clients send, as types; an error of a body names the field. Keys that are not here are refused by name.

Numbers and truth values may be written as text: Neutron takes them, and clients rely on it.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType, field

from skep.domain.networking import AddressPair, AllocationPool, Direction, EtherType, HostRoute, Ipv6Mode
from skep.standalone.networks.refusals import InvalidInput
from skep.standalone.texts import TEXT

Name = Annotated[str, Meta(max_length=255, pattern=TEXT)]
Text = Annotated[str, Meta(max_length=255, pattern=TEXT)]
Id = Annotated[str, Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")]
Address = Annotated[str, Meta(max_length=64, pattern=TEXT)]
Project = Annotated[str, Meta(min_length=1, max_length=255, pattern=TEXT)]
Mac = Annotated[str, Meta(pattern=r"^([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\Z")]
Tag = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^,/\x00]+\Z")]
Mtu = Annotated[int, Meta(ge=0, le=65_535)]


class NewResource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be said of any resource that is made."""

    name: Name = ""
    description: Text = ""
    project_id: Project | UnsetType = UNSET
    tenant_id: Project | UnsetType = UNSET


class ResourceChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be said of any resource that is changed."""

    name: Name | UnsetType = UNSET
    description: Text | UnsetType = UNSET


class NewNetwork(NewResource, frozen=True, kw_only=True):
    """A network to be made."""

    admin_state_up: bool = True
    shared: bool = False
    external: bool = field(name="router:external", default=False)
    is_default: bool = False
    mtu: Mtu | UnsetType = UNSET
    port_security_enabled: bool = True


class NetworkChanges(ResourceChanges, frozen=True, kw_only=True):
    """What changes of a network."""

    admin_state_up: bool | UnsetType = UNSET
    shared: bool | UnsetType = UNSET
    external: bool | UnsetType = field(name="router:external", default=UNSET)
    is_default: bool | UnsetType = UNSET
    mtu: Mtu | UnsetType = UNSET
    port_security_enabled: bool | UnsetType = UNSET


class NewSubnet(NewResource, frozen=True, kw_only=True):
    """A subnet to be made."""

    network_id: Id
    ip_version: Annotated[int, Meta(ge=4, le=6)]
    cidr: Address
    gateway_ip: Address | UnsetType | None = UNSET
    """Null: there is none; absent: the first address."""
    enable_dhcp: bool = True
    ipv6_ra_mode: Ipv6Mode | None = None
    ipv6_address_mode: Ipv6Mode | None = None
    allocation_pools: tuple[AllocationPool, ...] | UnsetType | None = UNSET
    dns_nameservers: tuple[Address, ...] | None = ()
    host_routes: tuple[HostRoute, ...] | None = ()


class SubnetChanges(ResourceChanges, frozen=True, kw_only=True):
    """What changes of a subnet."""

    gateway_ip: Address | UnsetType | None = UNSET
    enable_dhcp: bool | UnsetType = UNSET
    allocation_pools: tuple[AllocationPool, ...] | UnsetType = UNSET
    dns_nameservers: tuple[Address, ...] | UnsetType | None = UNSET
    host_routes: tuple[HostRoute, ...] | UnsetType | None = UNSET


class WantedIp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An address that a port is to have: any of a subnet, or this one."""

    subnet_id: Id | None = None
    ip_address: Address | None = None


Profile = Annotated[dict[str, Any], Meta(max_length=100)]


class NewPort(NewResource, frozen=True, kw_only=True):
    """A port to be made."""

    network_id: Id
    admin_state_up: bool = True
    mac_address: Mac | UnsetType = UNSET
    fixed_ips: tuple[WantedIp, ...] | UnsetType | None = UNSET
    """Empty: none; absent: as the subnets of the network give them."""
    device_id: Text = ""
    device_owner: Text = ""
    security_groups: tuple[Id, ...] | UnsetType | None = UNSET
    port_security_enabled: bool | UnsetType = UNSET
    allowed_address_pairs: tuple[AddressPair, ...] | None = ()
    host_id: Text | UnsetType | None = field(name="binding:host_id", default=UNSET)
    vnic_type: Text = field(name="binding:vnic_type", default="normal")
    profile: Profile | UnsetType | None = field(name="binding:profile", default=UNSET)


class PortChanges(ResourceChanges, frozen=True, kw_only=True):
    """What changes of a port."""

    admin_state_up: bool | UnsetType = UNSET
    mac_address: Mac | UnsetType = UNSET
    fixed_ips: tuple[WantedIp, ...] | UnsetType | None = UNSET
    device_id: Text | UnsetType = UNSET
    device_owner: Text | UnsetType = UNSET
    security_groups: tuple[Id, ...] | UnsetType | None = UNSET
    port_security_enabled: bool | UnsetType = UNSET
    allowed_address_pairs: tuple[AddressPair, ...] | UnsetType | None = UNSET
    host_id: Text | UnsetType | None = field(name="binding:host_id", default=UNSET)
    vnic_type: Text | UnsetType = field(name="binding:vnic_type", default=UNSET)
    profile: Profile | UnsetType | None = field(name="binding:profile", default=UNSET)


class NewBinding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A binding to be made, to a host that does not have the port."""

    host: Annotated[str, Meta(min_length=1, max_length=255, pattern=TEXT)]
    vnic_type: Text = "normal"
    profile: Profile | None = None


class BindingChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What changes of a binding."""

    vnic_type: Text | UnsetType = UNSET
    profile: Profile | UnsetType | None = UNSET


class NewBindingBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that makes a binding."""

    binding: NewBinding


class ChangedBindingBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that changes a binding."""

    binding: BindingChanges


class NewSecurityGroup(NewResource, frozen=True, kw_only=True):
    """A security group to be made."""

    stateful: bool = True


class SecurityGroupChanges(ResourceChanges, frozen=True, kw_only=True):
    """What changes of a security group."""

    stateful: bool | UnsetType = UNSET


class NewSecurityGroupRule(NewResource, frozen=True, kw_only=True):
    """A rule to be made."""

    security_group_id: Text
    direction: Direction
    ethertype: EtherType = "IPv4"
    protocol: Annotated[str, Meta(max_length=20)] | int | None = None
    port_range_min: int | None = None
    port_range_max: int | None = None
    remote_ip_prefix: Address | None = None
    remote_group_id: Text | None = None


class WantedGateway(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By what a router is to reach the outside; without a network by nothing."""

    network_id: Id | None = None
    enable_snat: bool | UnsetType = UNSET
    external_fixed_ips: tuple[WantedIp, ...] | UnsetType = UNSET


class NewRouter(NewResource, frozen=True, kw_only=True):
    """A router to be made."""

    admin_state_up: bool = True
    external_gateway_info: WantedGateway | None = None


class RouterChanges(ResourceChanges, frozen=True, kw_only=True):
    """What changes of a router."""

    admin_state_up: bool | UnsetType = UNSET
    external_gateway_info: WantedGateway | UnsetType | None = UNSET
    routes: tuple[HostRoute, ...] | UnsetType | None = UNSET


class NewFloatingIp(NewResource, frozen=True, kw_only=True):
    """A floating address to be made."""

    floating_network_id: Id
    floating_ip_address: Address | UnsetType | None = UNSET
    subnet_id: Id | UnsetType | None = UNSET
    port_id: Id | None = None
    fixed_ip_address: Address | None = None


class FloatingIpChanges(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What changes of a floating address: `port_id` alone leads it elsewhere, or nowhere."""

    description: Text | UnsetType = UNSET
    port_id: Id | UnsetType | None = UNSET
    fixed_ip_address: Address | UnsetType | None = UNSET


_SEPARATORS = re.compile("[:-]")


def mac_of(text: str) -> str:
    """Return a hardware address as it is stored.

    Raises InvalidInput for one of many, or of none.
    """
    octets = bytes.fromhex(_SEPARATORS.sub("", text))
    if octets[0] & 1 or not any(octets):
        raise InvalidInput(f"'{text}' is not a valid MAC address of one port")
    return octets.hex(":")
