"""Virtual interfaces: what of networks a server was asked to have, and what it has.

Nova's name of what is kept with a server is network info: one VIF for each port, with all that a host has to plug and
that a guest is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from skep.domain.networking import HostRoute
from skep.domain.patterns import Pattern

NETWORKS_NAMED = "named"
"""Value of `RequestedServer.networks`, beside `auto` and `none`: `requested_networks` says which."""


Wiring: TypeAlias = Literal["none", "done", "awaited", "failed"]
"""Whether what a guest sends through an interface arrives. `none`: its network service never says. `awaited`: it will
say when its agents are done on the host that the port is bound to. `failed`: they cannot.
"""


class RequestedNetwork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One interface that a server is to have: on a network, perhaps with an address, or by a port of the user's."""

    network_id: str | None = None
    fixed_ip: str | None = None
    port_id: str | None = None
    tag: str | None = None
    """By which the guest finds the device."""


class VifAddress(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fixed address of an interface, and the floating addresses that lead to it."""

    address: str
    floating: tuple[str, ...] = ()


class VifSubnet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an interface has of one subnet."""

    id: str
    cidr: str
    version: int
    """4 or 6."""
    gateway: str | None = None
    dns: tuple[str, ...] = ()
    routes: tuple[HostRoute, ...] = ()
    dhcp: bool = True
    ipv6_address_mode: str | None = None
    addresses: tuple[VifAddress, ...] = ()


class SubnetFacts(Protocol):
    """What is told of a subnet, whichever service has it."""

    @property
    def id(self) -> str: ...
    @property
    def cidr(self) -> str: ...
    @property
    def ip_version(self) -> int: ...
    @property
    def gateway_ip(self) -> str | None: ...
    @property
    def dns_nameservers(self) -> tuple[str, ...]: ...
    @property
    def host_routes(self) -> tuple[HostRoute, ...]: ...
    @property
    def enable_dhcp(self) -> bool: ...
    @property
    def ipv6_address_mode(self) -> str | None: ...


def vif_subnet(subnet: SubnetFacts, addresses: tuple[VifAddress, ...]) -> VifSubnet:
    """Return what a port has of a subnet."""
    return VifSubnet(
        id=subnet.id,
        cidr=subnet.cidr,
        version=subnet.ip_version,
        gateway=subnet.gateway_ip,
        dns=subnet.dns_nameservers,
        routes=subnet.host_routes,
        dhcp=subnet.enable_dhcp,
        ipv6_address_mode=subnet.ipv6_address_mode,
        addresses=addresses,
    )


class VifGroup(msgspec.Struct, frozen=True):
    """A security group of an interface."""

    id: str
    name: str


class VifDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What hosts read of how a port is plugged on the host that it is bound to: by Neutron's names, of its
    `binding:vif_details`."""

    bridge_name: str | None = None
    ovs_hybrid_plug: bool = False
    """Rules are kept at a bridge between the guest and the switch."""
    datapath_type: str | None = None
    macvtap_source: str | None = None
    """The link of the host on which a guest has one of its own."""
    macvtap_mode: str | None = None
    vhostuser_socket: str | None = None
    vhostuser_mode: str | None = None
    """Who listens at the socket: `server`: QEMU, `client`: the switch."""
    vhostuser_ovs_plug: bool = False
    """The switch behind the socket is an Open vSwitch."""


class VifBeside(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a port is plugged on a host to which it is bound besides that of its server: it may go there live."""

    host: str
    type: str = "tap"
    details: VifDetails | None = None


class Vif(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An interface of a server: a port, and what was true of its network when it was last looked at."""

    id: str
    """Of the port."""
    mac_address: str
    network_id: str
    network_name: str
    mtu: int
    """Bytes."""
    type: str = "tap"
    """How it is plugged (Neutron's `binding:vif_type`)."""
    details: VifDetails | None = None
    """None: the network service says none that a host reads."""
    vnic_type: str = "normal"
    made: bool = True
    """Made for the server, and deleted with it; else it is a user's port."""
    tag: str | None = None
    subnets: tuple[VifSubnet, ...] = ()
    groups: tuple[VifGroup, ...] = ()
    wiring: Wiring = "none"
    leaving: bool = False
    """Whether it is taken from the server: the row has decided it, and the network service has yet to release the
    port."""
    beside: VifBeside | None = None
    """On the target of the latest live migration; None: the network service has not said it."""

    @property
    def device_name(self) -> str:
        """The name of the interface on its host (Nova's and Neutron's form)."""
        return f"tap{self.id}"[:14]


class LostPort(msgspec.Struct, frozen=True, kw_only=True):
    """An interface that a server has lost: its network service has no such port any more, and cannot make it again."""

    id: str
    addresses: tuple[str, ...]
    why: str
    """As the owner of the server may read it."""
    holder: str = ""
    """The port, and its server, that has what the port needs: for operators alone. Empty: there is none."""

    @property
    def for_owner(self) -> str:
        """A sentence without what is another project's."""
        return f"Interface {self.id} ({', '.join(self.addresses) or 'no address'}) is lost: {self.why}."

    @property
    def for_operator(self) -> str:
        """The same, with what is in the way."""
        held = f" ({self.holder})" if self.holder else ""
        return f"interface {self.id} ({', '.join(self.addresses) or 'no address'}) is lost: {self.why}{held}"


class PlugInterface(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of what gives a guest an interface, and of what takes it away."""

    vif: Vif


def staying(vifs: tuple[Vif, ...]) -> tuple[Vif, ...]:
    """Return the interfaces that a server has as its users see it: without those that leave it."""
    return tuple(one for one in vifs if not one.leaving) if any(one.leaving for one in vifs) else vifs


def vifs_at(vifs: tuple[Vif, ...], host: str) -> tuple[Vif, ...]:
    """Return interfaces as they are plugged on a host to which they may be bound besides; others are as they were."""
    return tuple(
        msgspec.structs.replace(vif, type=vif.beside.type, details=vif.beside.details)
        if vif.beside is not None and vif.beside.host == host
        else vif
        for vif in vifs
    )


class Unwired(msgspec.Struct, frozen=True, omit_defaults=True):
    """Interfaces through which nothing goes yet, by the ids of their ports."""

    awaited: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """Nothing ever will, as far as the network service knows."""

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self.awaited or self.failed)


def unwired(vifs: Sequence[Vif], *, bound: bool) -> Unwired:
    """Return those interfaces of which the network service has yet to say that they are wired on their host.

    Not `bound`: the ports are bound to another host than the server's, and what is said of them is of that one.
    """
    if not bound:
        return Unwired(awaited=tuple(vif.id for vif in vifs if vif.wiring != "none"))
    return Unwired(
        awaited=tuple(vif.id for vif in vifs if vif.wiring == "awaited"),
        failed=tuple(vif.id for vif in vifs if vif.wiring == "failed"),
    )


def wireless(vifs: Sequence[Vif]) -> tuple[Vif, ...]:
    """Return interfaces without what is said of their wires: that changes whenever a host or a guest comes and goes."""
    return tuple(msgspec.structs.replace(vif, wiring="none") for vif in vifs)


class ShownAddress(msgspec.Struct, frozen=True):
    """An address of a server, as its users see it."""

    address: str
    version: int
    kind: str
    """`fixed` or `floating`."""
    mac_address: str


def fixed_addresses(vifs: Sequence[Vif]) -> Iterator[tuple[Vif, VifSubnet, VifAddress]]:
    """Yield the fixed addresses of interfaces, each with its interface and subnet."""
    for vif in vifs:
        for subnet in vif.subnets:
            for one in subnet.addresses:
                yield vif, subnet, one


def addresses_of(vifs: Sequence[Vif]) -> dict[str, list[ShownAddress]]:
    """Return the addresses by the names of their networks: of each first the fixed ones of all interfaces (Nova's
    order).
    """
    found: dict[str, list[ShownAddress]] = {vif.network_name: [] for vif in vifs}
    floating: list[tuple[str, ShownAddress]] = []
    for vif in vifs:
        shown = found[vif.network_name]
        for subnet in vif.subnets:
            for fixed in subnet.addresses:
                shown.append(_shown(fixed.address, "fixed", vif))
                floating += [(vif.network_name, _shown(address, "floating", vif)) for address in fixed.floating]
    for network_name, one in floating:
        found[network_name].append(one)
    return found


def has_fixed_address(vifs: Sequence[Vif], patterns: Mapping[int, Pattern]) -> bool:
    """Tell whether a fixed address is found by the pattern for its IP version."""
    return any(
        subnet.version in patterns and patterns[subnet.version].found_in(one.address)
        for _, subnet, one in fixed_addresses(vifs)
    )


def _shown(address: str, kind: str, vif: Vif) -> ShownAddress:
    return ShownAddress(address, 6 if ":" in address else 4, kind, vif.mac_address)
