"""What Neutron says of its resources, as far as Skep reads it."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import field

from skep.domain.decoding import convert
from skep.domain.networking import Direction, EtherType, FixedIp, HostRoute
from skep.domain.vifs import VifDetails, Wiring

FormT = TypeVar("FormT", bound="Resource")

LABEL = "skep"
"""Key of `binding:profile`, which only admins change, that says what of a server a port is."""

DEFERRED = "deferred"
UNBOUND = "unbound"
"""How a port is plugged that no host has yet."""


def details_of(said: dict[str, Any] | None) -> VifDetails | None:
    """Return what a host reads of a binding; None: nothing that a host could read."""
    try:
        found = convert(said or {}, VifDetails)
    except msgspec.ValidationError:
        return None
    return None if found == VifDetails() else found


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """What all have."""

    id: str
    project_id: str = ""


class NeutronNetwork(Resource, frozen=True, kw_only=True):
    """A network."""

    name: str
    subnets: tuple[str, ...]
    shared: bool = False
    external: bool = field(name="router:external", default=False)
    is_default: bool = False
    """Of external ones: whether it is taken where none is named."""
    mtu: int = 1500


class NeutronSubnet(Resource, frozen=True, kw_only=True):
    """A subnet."""

    network_id: str
    ip_version: int
    cidr: str
    gateway_ip: str | None = None
    enable_dhcp: bool = True
    ipv6_address_mode: str | None = None
    dns_nameservers: tuple[str, ...] = ()
    host_routes: tuple[HostRoute, ...] = ()


class Label(msgspec.Struct, frozen=True, kw_only=True):
    """What of a server a port is."""

    server: str
    """As the port's `device_id`, which its owner may change: then the port is the server's no more."""
    made: bool
    attempt: int = 0
    """Of the build that has it; 0: it was attached later."""
    request: str = ""
    """Of one that was attached: which request made it."""
    position: int
    tag: str | None = None


class LabelledPort(Resource, frozen=True, kw_only=True):
    """What of a server a port is, as far as admins see it."""

    device_id: str
    profile: dict[str, Any] | None = field(name="binding:profile", default=None)

    @property
    def label(self) -> Label | None:
        """What of a server it is; None: nothing."""
        try:
            found = convert((self.profile or {}).get(LABEL), Label)
        except msgspec.ValidationError:
            return None
        return found if found.server == self.device_id else None


class NeutronPort(LabelledPort, frozen=True, kw_only=True):
    """A port. Where it is bound to, and what it needs of its host, is shown to admins only."""

    network_id: str
    mac_address: str
    fixed_ips: tuple[FixedIp, ...]
    security_groups: tuple[str, ...] = ()
    port_security_enabled: bool = True
    created_at: str = ""
    revision_number: int | None = None
    vnic_type: str = field(name="binding:vnic_type", default="normal")
    vif_type: str = field(name="binding:vif_type", default=UNBOUND)
    vif_details: dict[str, Any] | None = field(name="binding:vif_details", default=None)
    host_id: str | None = field(name="binding:host_id", default=None)
    status: str = "ACTIVE"
    admin_state_up: bool = True
    resource_request: dict[str, Any] | None = None
    """What the placement of its server would have to consider."""
    numa_affinity_policy: str | None = None
    ip_allocation: str = "immediate"
    """`deferred`: its address depends on the segment of its host, so it has one once it is bound (routed networks)."""

    @property
    def has_address(self) -> bool:
        """Whether it has an address, or gets one with its host."""
        return bool(self.fixed_ips) or self.ip_allocation == DEFERRED

    @property
    def details(self) -> VifDetails | None:
        """What a host reads of how it is plugged; None: nothing that a host could read."""
        return details_of(self.vif_details)

    @property
    def wiring(self) -> Wiring:
        """Whether its network is wired up to it. One that its owner has put down never is, and is not waited for."""
        if self.status == "ACTIVE" or not self.admin_state_up:
            return "done"
        return "failed" if self.status == "ERROR" else "awaited"


class NeutronRule(Resource, frozen=True, kw_only=True):
    """A rule of a security group."""

    security_group_id: str
    direction: Direction
    ethertype: EtherType = "IPv4"
    description: str | None = None
    protocol: str | None = None
    port_range_min: int | None = None
    port_range_max: int | None = None
    remote_ip_prefix: str | None = None
    remote_group_id: str | None = None
    revision_number: int = 0
    created_at: str | None = None
    updated_at: str | None = None


class NeutronGroup(Resource, frozen=True, kw_only=True):
    """A security group."""

    name: str
    description: str | None = None
    stateful: bool = True
    rules: tuple[NeutronRule, ...] = field(name="security_group_rules", default=())


class NeutronFloating(Resource, frozen=True, kw_only=True):
    """A floating address."""

    floating_ip_address: str
    floating_network_id: str
    fixed_ip_address: str | None = None
    port_id: str | None = None


class NeutronKind(msgspec.Struct, Generic[FormT], frozen=True):
    """Resources of one kind."""

    noun: str
    """As errors call one."""
    path: str
    form: type[FormT]

    @property
    def members(self) -> str:
        """The key of many, in bodies."""
        return self.path.replace("-", "_")

    @property
    def member(self) -> str:
        """The key of one, in bodies."""
        return self.members.removesuffix("s")


NETWORKS = NeutronKind("network", "networks", NeutronNetwork)
SUBNETS = NeutronKind("subnet", "subnets", NeutronSubnet)
PORTS = NeutronKind("port", "ports", NeutronPort)
LABELLED_PORTS = NeutronKind("port", "ports", LabelledPort)
COUNTED_NETWORKS = NeutronKind("network", "networks", Resource)
COUNTED_SUBNETS = NeutronKind("subnet", "subnets", Resource)
COUNTED_PORTS = NeutronKind("port", "ports", Resource)
GROUPS = NeutronKind("security group", "security-groups", NeutronGroup)
RULES = NeutronKind("security group rule", "security-group-rules", NeutronRule)
FLOATING = NeutronKind("floating address", "floatingips", NeutronFloating)
