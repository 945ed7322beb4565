"""The ports towards networks: what a create may ask for, and the interfaces that servers have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

import msgspec

from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest
from skep.domain.ids import InstanceUuid, ProjectId, is_uuid
from skep.domain.instances import Instance
from skep.domain.invalid_input import invalid_field
from skep.domain.nested.wanted import PortsWanted
from skep.domain.networking import EtherType, SecurityGroupRule
from skep.domain.subnet_addresses import BadSubnet, block_of
from skep.domain.vifs import LostPort, RequestedNetwork, Vif, VifBeside
from skep.neighbours.networks.hosts import NetworksOfHosts

NOT_BESIDE: Mapping[InstanceUuid, str] = MappingProxyType({})
"""No server has another host soon."""

NO_PROVIDERS: Mapping[str, str] = MappingProxyType({})
"""Ports ask for no resources."""

ProvidersOfServers: TypeAlias = Mapping[InstanceUuid, Mapping[str, str]]
"""By server: by the groups of resources that its ports ask for, the UUIDs of the providers that serve them."""

NO_PROVIDERS_OF_SERVERS: ProvidersOfServers = MappingProxyType({})

NORMAL = "normal"
"""The kind of a port that needs a virtual switch only."""


class AskedNetworks(msgspec.Struct, frozen=True, kw_only=True):
    """What a create asks for of networks, as its body says it."""

    networks: Literal["auto", "none", "absent", "named"]
    """`absent`: nothing is said, and the only network that the project can use is taken if there is one. `auto`: the
    same, and where there is none one is made.
    """
    named: tuple[RequestedNetwork, ...] = ()
    security_groups: tuple[str, ...] = ()
    """Names or ids; none: the default group."""
    min_count: int = 1
    max_count: int = 1
    """Servers."""


class ChosenNetworks(msgspec.Struct, frozen=True, kw_only=True):
    """What servers are to have, once it was looked up."""

    networks: Literal["auto", "none", "named"]
    """`auto`: the network that is made for a project that has none."""
    named: tuple[RequestedNetwork, ...] = ()
    security_groups: tuple[str, ...] = ()
    """Ids."""
    count: int
    """Servers for which there is quota, at least the minimum."""
    ports: PortsWanted = PortsWanted()
    """What the ports that are named ask of the host."""
    asking: int | None = None
    """The place in `named` of the first port that asks for something."""


class GroupOfServer(msgspec.Struct, frozen=True, kw_only=True):
    """A security group with its rules."""

    id: str
    name: str
    description: str
    project_id: str
    rules: tuple[SecurityGroupRule, ...]
    names: dict[str, str]
    """Of the groups that its rules name, by id."""


class GroupChange(msgspec.Struct, frozen=True, kw_only=True):
    """A security group that every port of a server is to get, or to lose."""

    instance: InstanceUuid
    group: str
    """Id or name."""
    added: bool


class WantedInterface(msgspec.Struct, frozen=True, kw_only=True):
    """An interface that a server is to get besides those that it has."""

    instance: InstanceUuid
    project_id: ProjectId
    """The server's: a port that is made is this project's, and a port that is brought has to be."""
    host: str
    zone: str
    network: RequestedNetwork
    """Without a network and a port: on the only network that the project can use."""


class WantedRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of what comes in, that a security group is to get."""

    group: str
    protocol: str | None
    """`tcp`, `udp` or `icmp`; None: any."""
    ports: tuple[int | None, int | None]
    """The first and the last one; of ICMP the type and the code. None: all."""
    cidr: str | None
    remote_group: str | None
    """Of whose ports it lets in what they send, instead of the addresses of `cidr`."""

    @property
    def ethertype(self) -> EtherType:
        """The version of its addresses; without addresses: IPv4. Raises BadRequest for what is no block of them."""
        if self.cidr is None:
            return "IPv4"
        try:
            return "IPv4" if block_of(self.cidr).version == 4 else "IPv6"
        except BadSubnet as error:
            raise BadRequest(f"Invalid cidr {self.cidr[:80]}.") from error


def id_said(said: str) -> str:
    """Return the id of a group or a rule. Raises BadRequest for what is none."""
    if not is_uuid(said):
        raise BadRequest(f"Invalid id {said[:80]}: id should be UUID")
    return said.lower()


def check_kind(where: str, port_id: str, vnic_type: str) -> None:
    """Refuse a port of a kind (Neutron's `binding:vnic_type`) that needs a device of its host.

    `where` names it in the body. Raises BadRequest.
    """
    if vnic_type != NORMAL:
        expected = f"a port whose binding:vnic_type is '{NORMAL}': no host has devices for '{vnic_type}'"
        raise invalid_field(where, port_id, expected)


class ProxiedGroups(Protocol):
    """Security groups for clients that ask the compute API for them. `token` is the caller's own.

    Each raises Forbidden where the caller may not, and Unavailable when the service does not answer; those that are
    told the id of a group or a rule raise BadRequest for what is no id, and NotFound for one that the caller does not
    see.
    """

    async def list_groups(self, context: RequestContext, token: str, *, of_all: bool) -> list[GroupOfServer]:
        """Return the groups of the caller's project, the default one among them; of all projects, for an admin."""
        ...

    async def group(self, group: str, context: RequestContext, token: str) -> GroupOfServer:
        """Return a group."""
        ...

    async def create_group(self, name: str, description: str, context: RequestContext, token: str) -> GroupOfServer:
        """Make a group.

        Raises QuotaExceeded; BadRequest for a name that it cannot have.
        """
        ...

    async def update_group(
        self, group: str, name: str, description: str, context: RequestContext, token: str
    ) -> GroupOfServer:
        """Give a group another name and description.

        Raises BadRequest for a name that it cannot have.
        """
        ...

    async def delete_group(self, group: str, context: RequestContext, token: str) -> None:
        """Delete a group with its rules.

        Raises BadRequest while ports have it, and for the default one.
        """
        ...

    async def create_rule(self, rule: WantedRule, context: RequestContext, token: str) -> tuple[str, GroupOfServer]:
        """Make a rule; return its id, and the group as it is then.

        Raises QuotaExceeded; BadRequest for what cannot be, and for a rule that the group has.
        """
        ...

    async def delete_rule(self, rule: str, context: RequestContext, token: str) -> None:
        """Delete a rule."""
        ...


class FloatingOfServer(msgspec.Struct, frozen=True, kw_only=True):
    """A floating address, and the server that it leads to."""

    id: str
    address: str
    pool: str
    """The name of the external network."""
    fixed_address: str | None = None
    instance: str | None = None


class ProxiedFloatingIps(Protocol):
    """Floating addresses for clients that ask the compute API for them. `token` is the caller's own.

    Each raises Forbidden where the caller may not, and Unavailable when the service does not answer.
    """

    async def floating_pools(self, context: RequestContext, token: str) -> list[str]:
        """Return the names of the networks from which floating addresses come."""
        ...

    async def floating_ips(self, context: RequestContext, token: str) -> list[FloatingOfServer]:
        """Return the floating addresses of the caller's project."""
        ...

    async def floating_ip(self, floating: str, context: RequestContext, token: str) -> FloatingOfServer:
        """Return one by its id.

        Raises NotFound for one that the caller does not see.
        """
        ...

    async def take_floating_ip(self, pool: str | None, context: RequestContext, token: str) -> FloatingOfServer:
        """Take an address from a pool, named by name or id; None: from the default one, or the only one.

        Raises NotFound where there is no such pool or it has none left, QuotaExceeded, BadRequest for a pool that has
        none ever.
        """
        ...

    async def give_floating_ip_back(self, floating: str, context: RequestContext, token: str) -> None:
        """Give one back, wherever it leads.

        Raises NotFound for one that the caller does not see.
        """
        ...

    async def lead_floating_ip(
        self, instance: InstanceUuid, address: str, fixed_address: str | None, context: RequestContext, token: str
    ) -> tuple[Vif, ...]:
        """Lead one, by its address, to a server: to its fixed address, or to the first IPv4 one; return its interfaces.

        Raises NotFound for an address that the caller does not have; BadRequest where the server has no such fixed
        address, where it has a floating one, or where no router leads there.
        """
        ...

    async def loosen_floating_ip(
        self, instance: InstanceUuid, address: str, context: RequestContext, token: str
    ) -> tuple[Vif, ...]:
        """Lead one, by its address, nowhere; return the interfaces of the server.

        Raises NotFound for an address that the caller does not have, Conflict for one that leads not to this server.
        """
        ...


class NamedNetwork(msgspec.Struct, frozen=True):
    """A network, and what its owner calls it."""

    id: str
    name: str


class ProxiedNetworks(Protocol):
    """Networks and fixed addresses for clients that ask the compute API for them. `token` is the caller's own.

    Each raises Forbidden where the caller may not, and Unavailable when the service does not answer.
    """

    async def list_networks(self, context: RequestContext, token: str) -> list[NamedNetwork]:
        """Return the networks that the caller sees."""
        ...

    async def network(self, network: str, context: RequestContext, token: str) -> NamedNetwork:
        """Return one by its id.

        Raises NotFound for one that the caller does not see.
        """
        ...

    async def add_fixed_ip(
        self, instance: InstanceUuid, network: str, context: RequestContext, token: str
    ) -> tuple[Vif, ...]:
        """Give a server one more address on a network on which it has a port; return its interfaces.

        Raises NotFound where it has none there, BadRequest where no address is free or the port has no room.
        """
        ...

    async def remove_fixed_ip(
        self, instance: InstanceUuid, address: str, context: RequestContext, token: str
    ) -> tuple[Vif, ...]:
        """Take an address from a server; floating ones that lead to it lead nowhere then. Return its interfaces.

        Raises BadRequest for an address that it does not have.
        """
        ...


class NetworksOfUsers(ProxiedGroups, ProxiedFloatingIps, ProxiedNetworks, Protocol):
    """Looks up what users name of networks, with their rights. `token` is the caller's own."""

    async def choose(self, asked: AskedNetworks, context: RequestContext, token: str) -> ChosenNetworks:
        """Return what the servers of a create are to have. Nothing is made.

        Raises BadRequest for what is not there or does not fit together, naming the key; Conflict where several
        networks could be meant, or a port is in use; Forbidden for what the caller may not, or has no quota for;
        Unavailable when the service does not answer.
        """
        ...

    async def attach(self, wanted: WantedInterface, context: RequestContext, token: str) -> Vif:
        """Make a port for a server that is there, or give it one of the user's, and return its new interface.

        Whether the caller may change the server was asked before. Raises NotFound for a server that goes, and for a
        network or a port that the project does not see; BadRequest where no network or several could be meant, for one
        without a free address, and for what does not fit together, naming the field; Conflict for a port or an address
        in use; Forbidden for what the caller may not, or has no quota for; Unavailable when the service does not
        answer.
        """
        ...

    async def detach(self, instance: InstanceUuid, port_id: str, context: RequestContext, token: str) -> None:
        """Take an interface from a server: the port that was made for it is deleted, a user's is given back.

        Raises NotFound for a port that is no interface of the server; Unavailable when the service does not answer.
        """
        ...

    async def set_group(self, change: GroupChange, context: RequestContext, token: str) -> tuple[Vif, ...]:
        """Give a group to every port of a server, or take it from all that have it; all of it or nothing.

        Return the interfaces of the server as they are then.

        Whether the caller may change the server was asked before. Raises NotFound for a group that the caller does not
        see, where the server has no port, and where none has the group that is to be taken; Conflict where several
        groups have the name, and where one that keeps state would stand beside one that does not; BadRequest for a
        port that cannot have groups; Unavailable when the service does not answer.
        """
        ...

    async def security_groups(self, ids: Sequence[str], context: RequestContext, token: str) -> list[GroupOfServer]:
        """Return those of these security groups that the caller sees.

        Raises Unavailable when the service does not answer.
        """
        ...


class WantedPorts(msgspec.Struct, frozen=True, kw_only=True):
    """The interfaces that an attempt of a server's build is to have."""

    instance: InstanceUuid
    attempt: int
    """Of its mapping: what is wanted for a lower one is not made any more."""
    project_id: ProjectId
    is_admin: bool
    """Whether an admin asked for it: he may use what other projects own."""
    host: str
    zone: str
    networks: str
    named: tuple[RequestedNetwork, ...]
    security_groups: tuple[str, ...]
    providers: Mapping[str, str] = NO_PROVIDERS
    """By the groups of resources that ports of the user ask for, the UUIDs of the providers that serve them."""


class PortsRefused(msgspec.Struct, frozen=True):
    """There will be no interfaces, whichever host the server has: a word for its user."""

    message: str


class PortsAwaited(msgspec.Struct, frozen=True):
    """The service did not answer for this server: it may have ports by now, and they are asked for again."""

    message: str


PortsOutcome: TypeAlias = tuple[Vif, ...] | PortsRefused | PortsAwaited
"""The interfaces of a server, or why it has none."""


class PortsOfServers(msgspec.Struct, frozen=True, kw_only=True):
    """What servers have of ports, by one look."""

    vifs: dict[InstanceUuid, tuple[Vif, ...]]
    """As `NetworkPorts.of_servers` returns them."""
    hosts: dict[InstanceUuid, dict[str, tuple[str, ...]]]
    """As `NetworkPorts.bound_to` returns them."""


class NetworkPorts(NetworksOfHosts, Protocol):
    """Makes the ports of servers in Skep's own name, keeps them bound to the right host, and tells what they are."""

    elsewhere: bool
    """Whether ports are in a service that is not Skep's own: servers are noted before they get some, and looked at."""

    async def allocate(self, wanted: Sequence[WantedPorts]) -> list[PortsOutcome]:
        """Make the ports of servers, all of a server or none, and return what each has, in the order of `wanted`.

        Repeating it for a server returns what it has, bound to the host that is named now. A server that is gone, or
        whose attempt was raised, gets nothing. Raises Unavailable when the service does not answer: then there may be
        such ports, and it is to be asked again, or they are released.
        """
        ...

    async def renew(self, wanted: WantedPorts, kept: Collection[str]) -> PortsOutcome | None:
        """Make the ports of a server anew that cannot be kept on its next host, and return what it has then.

        Of the ports with these ids (`kept` by its row) those that were made for it are deleted, those of its user are
        bound as `wanted` says, and what is missing is made. So a repeat deletes nothing that it has made before. None:
        the server is gone, or its attempt was raised; nothing is done. Raises Unavailable when the service does not
        answer: then it is to be asked again.
        """
        ...

    async def release(self, held: Sequence[tuple[InstanceUuid, int]]) -> None:
        """Delete the ports that were made for servers that no host takes, and give back those of users.

        Each server comes with the attempt of its mapping that found so; where that was raised, nothing is done. A
        server that is gone loses its ports whatever the attempt. A repeat changes nothing. Raises Unavailable when the
        service does not answer.
        """
        ...

    async def release_ended(self, servers: Mapping[InstanceUuid, bool]) -> None:
        """Release the ports of servers that their cells have deleted, before their end is noted above the cells.

        Each server comes with whether its row has interfaces: a database above that went back in time may not know of
        them. A service whose ports go with that note has nothing to do. Raises Unavailable when the service does not
        answer.
        """
        ...

    async def release_port(self, instance: InstanceUuid, port_id: str) -> None:
        """Take an interface from a server, as `NetworksOfUsers.detach` does, for Skep: its guest has it no more.

        One that is none of the server's is no error. Raises Unavailable when the service does not answer.
        """
        ...

    async def bind(
        self,
        hosts: Mapping[InstanceUuid, str],
        beside: Mapping[InstanceUuid, str] = NOT_BESIDE,
        providers: ProvidersOfServers = NO_PROVIDERS_OF_SERVERS,
    ) -> None:
        """Bind the ports of servers to the hosts that have them now; empty: to none.

        A binding that was made for the host before becomes the active one. All others go, but for those to the hosts
        that are named `beside`. `providers`: of servers whose ports ask for resources, those that serve them on these
        hosts. Raises Unavailable when the service does not answer.
        """
        ...

    async def bind_beside(
        self, hosts: Mapping[InstanceUuid, str], providers: ProvidersOfServers = NO_PROVIDERS_OF_SERVERS
    ) -> dict[InstanceUuid, str]:
        """Bind the ports of servers to hosts that are to have them soon, besides those that have them.

        Return why not, of those servers of which it is refused. A service that binds a port to one host only does
        nothing. What was made stays until `bind`; a repeat changes nothing. `providers`: as `bind`, of the hosts that
        are named here. Raises Unavailable when the service does not answer: then there may be such bindings.
        """
        ...

    async def plugged_beside(self, hosts: Mapping[InstanceUuid, str]) -> dict[InstanceUuid, dict[str, VifBeside]]:
        """Return how ports of servers, by their ids, are plugged on hosts to which `bind_beside` has bound them.

        Those that are not bound there are left out. Raises Unavailable when the service does not answer.
        """
        ...

    async def bound_to(
        self, servers: Sequence[InstanceUuid], several: Collection[InstanceUuid]
    ) -> dict[InstanceUuid, dict[str, tuple[str, ...]]]:
        """Return to which hosts the ports of servers are bound, by the ids of ports; every server has an entry.

        The first host of a port is the one that has it, empty: none. The others are told of the servers of `several`
        only: a service may tell of those port by port. Raises Unavailable when the service does not answer.
        """
        ...

    async def of_servers(self, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, tuple[Vif, ...]]:
        """Return the interfaces of servers as they are now; every server has an entry.

        Raises Unavailable when the service does not answer.
        """
        ...

    async def look_at(
        self, servers: Sequence[InstanceUuid], bound: Collection[InstanceUuid], several: Collection[InstanceUuid]
    ) -> PortsOfServers:
        """Return the interfaces of servers, and of those that are `bound` the hosts of their ports, by one look.

        `several`: as for `bound_to`. Both of `bound` and `several` are among the servers. Raises Unavailable when the
        service does not answer.
        """
        ...

    async def drop_doubles(self, servers: Sequence[InstanceUuid]) -> None:
        """Delete what builds made twice, because a request was slow and was not waited for.

        Raises Unavailable when the service does not answer.
        """
        ...

    async def remake(self, server: Instance) -> list[LostPort]:
        """Make the ports anew that only a server's row knows, where the service has forgotten them and can.

        Return those that it has forgotten and cannot make. Raises Unavailable when the service does not answer.
        """
        ...

    async def orphans(self) -> dict[InstanceUuid, list[str]]:
        """Return the ids of the ports that are interfaces of servers that do not live, by those servers.

        Raises Unavailable when the service does not answer.
        """
        ...

    async def release_orphans(self, server: InstanceUuid) -> bool:
        """Release the ports of a server that does not live; False where that cannot be said, or it has none.

        Raises Unavailable when the service does not answer.
        """
        ...
