"""The ports towards networks, answered by the network service of the same API database without HTTP between."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from ipaddress import ip_network

import msgspec
from msgspec import UNSET

from skep.database import Connection
from skep.database.api import instance_mappings, network_rows, port_addresses, server_ports
from skep.database.api.network_rows import NETWORKS, PORTS, SECURITY_GROUP_RULES, SECURITY_GROUPS, SUBNETS
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound, QuotaExceeded
from skep.domain.ids import InstanceUuid
from skep.domain.invalid_input import invalid_field
from skep.domain.networking import Network, Port, SecurityGroup, SecurityGroupRule
from skep.domain.subnet_addresses import BadSubnet, IpAddress, address_of, is_usable
from skep.domain.vifs import NETWORKS_NAMED, RequestedNetwork, Vif
from skep.neighbours.networks.base import (
    AskedNetworks,
    ChosenNetworks,
    GroupChange,
    GroupOfServer,
    PortsRefused,
    WantedPorts,
)
from skep.standalone.networks import default_groups, groups_of_servers, many_ports, ports, quotas, subnets, topologies
from skep.standalone.networks.bodies import NewPort, WantedIp
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.refusals import InTheWay, Missing
from skep.standalone.networks.resources import changed, find, fresh, store
from skep.standalone.networks.settings import UNLIMITED, NetworksSettings

DEFAULT_GROUP = default_groups.NAME

AMBIGUOUS = "More than one possible network found. Specify network ID(s) to select which one(s) to connect to."
"""Nova's text, as those of the other refusals that name no field."""


class EmbeddedNetworks:
    """A `NetworksOfUsers` and `NetworkPorts`, over the tables of the embedded network service."""

    def __init__(self, settings: NetworksSettings, database: Database, clock: Clock) -> None:
        self._settings = settings
        self._database = database
        self._clock = clock

    async def choose(self, asked: AskedNetworks, context: RequestContext, _token: str) -> ChosenNetworks:
        """Return what the servers of a create are to have."""
        caller = NetworkCaller(project_id=context.project_id, is_admin=context.is_admin)

        def unit(connection: Connection) -> ChosenNetworks:
            return _chosen(self._work(connection, caller), asked)

        return await self._database.read(unit)

    async def security_groups(self, ids: Sequence[str], context: RequestContext, _token: str) -> list[GroupOfServer]:
        """Return security groups with their rules."""
        seen_by = None if context.is_admin else context.project_id

        def unit(connection: Connection) -> list[GroupOfServer]:
            found = network_rows.by_id(connection, SECURITY_GROUPS, list(ids))
            mine = [one for one in found.values() if seen_by in (None, one.project_id)]
            rules = network_rows.where(connection, SECURITY_GROUP_RULES, security_group_id=[one.id for one in mine])
            remote = sorted({rule.remote_group_id for rule in rules if rule.remote_group_id is not None})
            names = {one.id: one.name for one in network_rows.by_id(connection, SECURITY_GROUPS, remote).values()}
            return [_group_of_server(one, rules, names) for one in mine]

        return await self._database.read(unit)

    async def set_group(self, change: GroupChange, context: RequestContext, _token: str) -> None:
        """Give a group to the ports of a server, or take it from them."""
        caller = NetworkCaller(project_id=context.project_id, is_admin=context.is_admin)

        def unit(connection: Connection) -> None:
            groups_of_servers.change(self._work(connection, caller), change)

        await self._database.write(unit)

    async def allocate(self, wanted: Sequence[WantedPorts]) -> list[tuple[Vif, ...] | PortsRefused]:
        """Make the ports of servers: what is plain at once, the others each in a unit of its own."""

        def unit(connection: Connection) -> many_ports.Made:
            return many_ports.make(connection, self._settings, self._clock.now(), wanted)

        made = await self._database.write(unit) if wanted else {}
        return list(await asyncio.gather(*(self._unless_made(one, made) for one in wanted)))

    async def _unless_made(self, wanted: WantedPorts, made: many_ports.Made) -> tuple[Vif, ...] | PortsRefused:
        there = made.get(wanted.instance)
        return await self._allocate(wanted) if there is None else there

    async def release(self, held: Sequence[tuple[InstanceUuid, int]]) -> None:
        """Delete the ports that were made for servers without a host, and give those of users back."""

        def unit(connection: Connection) -> None:
            found = instance_mappings.get_many(connection, [instance for instance, _ in held])
            mine = [one for one, attempt in held if one in found and found[one].attempt == attempt]
            server_ports.release(connection, [one for one in mine if found[one].cell is None], self._clock.now())

        await self._database.write(unit)

    async def bind(self, hosts: Mapping[InstanceUuid, str]) -> None:
        """Bind the ports of servers to their hosts."""
        await self._database.write(partial(server_ports.bind, hosts=hosts, now=self._clock.now()))

    async def of_servers(self, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, tuple[Vif, ...]]:
        """Return the interfaces of servers."""
        return await self._database.read(partial(server_ports.vifs_of, instances=servers))

    async def _allocate(self, wanted: WantedPorts) -> tuple[Vif, ...] | PortsRefused:
        caller = NetworkCaller(project_id=wanted.project_id, is_admin=wanted.is_admin)

        def unit(connection: Connection) -> tuple[Vif, ...]:
            return _allocated(self._work(connection, caller), wanted)

        if wanted.networks == "none":
            return ()
        try:
            return await self._database.write(unit)
        except (BadRequest, Forbidden, NotFound, Conflict) as error:
            return PortsRefused(str(error))

    def _work(self, connection: Connection, caller: NetworkCaller) -> NetworkWork:
        return NetworkWork(connection=connection, caller=caller, settings=self._settings, now=self._clock.now())


def _group_of_server(group: SecurityGroup, rules: Sequence[SecurityGroupRule], names: dict[str, str]) -> GroupOfServer:
    return GroupOfServer(
        id=group.id,
        name=group.name,
        description=group.description,
        project_id=group.project_id,
        rules=tuple(rule for rule in rules if rule.security_group_id == group.id),
        names=names,
    )


def _chosen(work: NetworkWork, asked: AskedNetworks) -> ChosenNetworks:
    groups = tuple(_group(work, index, name) for index, name in enumerate(asked.security_groups))
    named = asked.named if asked.networks == NETWORKS_NAMED else _only_network(work, asked)
    networks = NETWORKS_NAMED if named else "none" if asked.networks != "auto" else "auto"
    if networks == "auto":
        _check_topology(work)
    _check_named(work, asked, named)
    new = 1 if networks == "auto" else sum(one.port_id is None for one in named)
    return ChosenNetworks(
        networks=networks,  # type: ignore[arg-type]
        named=named,
        security_groups=() if groups == (DEFAULT_GROUP,) else groups,
        count=_count(work, asked, new),
    )


def _group(work: NetworkWork, index: int, name: str) -> str:
    """Return the id of a security group that a create names; the default group may not be there yet.

    Raises BadRequest, or Conflict where several have the name.
    """
    if name == DEFAULT_GROUP:
        return name
    found = network_rows.get(work.connection, SECURITY_GROUPS, name, work.caller.project_id)
    found = found or groups_of_servers.only_named(work, name)
    if found is None:
        expected = "the name or the id of a security group of the project"
        raise invalid_field(f"server.security_groups[{index}].name", name, expected)
    return found.id


def _only_network(work: NetworkWork, asked: AskedNetworks) -> tuple[RequestedNetwork, ...]:
    """Return the one network that the project can use, which has a subnet, where there is one.

    Raises Conflict where there are several.
    """
    if asked.networks == "none":
        return ()
    mine = network_rows.where(work.connection, NETWORKS, project_id=work.caller.project_id, shared=False)
    usable = [one for one in (*mine, *network_rows.where(work.connection, NETWORKS, shared=True)) if one.admin_state_up]
    of_them = network_rows.where(work.connection, SUBNETS, network_id=[one.id for one in usable])
    found = [one for one in usable if any(subnet.network_id == one.id for subnet in of_them)]
    if len(found) > 1:
        raise Conflict(AMBIGUOUS)
    return tuple(RequestedNetwork(network_id=one.id) for one in found)


def _check_topology(work: NetworkWork) -> None:
    """Refuse a project that has no network and can get none. Raises BadRequest."""
    try:
        topologies.check(work, work.caller.project_id)
    except InTheWay as error:
        text = f"Unable to automatically allocate a network for project {work.caller.project_id}: {error}"
        raise BadRequest(text) from error


def _check_named(work: NetworkWork, asked: AskedNetworks, named: Sequence[RequestedNetwork]) -> None:
    """Refuse interfaces that cannot be. Raises BadRequest, Conflict, Forbidden."""
    seen: set[str] = set()
    addresses: set[tuple[str, IpAddress]] = set()
    for index, one in enumerate(named):
        where = f"server.networks[{index}]"
        if one.port_id is not None:
            if asked.max_count > 1:
                raise invalid_field(f"{where}.port", one.port_id, "no port where several servers are created")
            if one.port_id in seen:
                raise invalid_field(f"{where}.port", one.port_id, "each port once")
            seen.add(one.port_id)
            _check_port(work, where, one.port_id)
            continue
        if one.network_id is None:
            raise invalid_field(where, {}, "a 'uuid' or a 'port'")
        network = _network(work, f"{where}.uuid", one.network_id)
        if one.fixed_ip is not None:
            if asked.max_count > 1:
                raise invalid_field(f"{where}.fixed_ip", one.fixed_ip, "none where several servers are created")
            address = _check_address(work, f"{where}.fixed_ip", network, one.fixed_ip)
            if (network.id, address) in addresses:
                raise invalid_field(f"{where}.fixed_ip", one.fixed_ip, "each address once")
            addresses.add((network.id, address))


def _check_port(work: NetworkWork, where: str, port_id: str) -> Port:
    try:
        port = _own_port(work, work.caller.project_id, port_id)
    except Missing as error:
        raise invalid_field(f"{where}.port", port_id, "the id of a port of the project") from error
    if port.device_id:
        raise Conflict(f"Port {port.id} is still in use.")
    if not port_addresses.of_ports(work.connection, [port.id])[port.id]:
        raise invalid_field(f"{where}.port", port_id, "a port with a fixed IP address")
    return port


def _own_port(work: NetworkWork, project_id: str, port_id: str) -> Port:
    """Return a port of a project. Who owns a network sees the ports of others on it, but has no server use them.

    Raises Missing.
    """
    port = find(work, "Port", PORTS, port_id)
    if port.project_id != project_id:
        raise Missing("Port", port_id)
    return port


def _network(work: NetworkWork, where: str, network_id: str) -> Network:
    try:
        network = find(work, "Network", NETWORKS, network_id)
    except Missing as error:
        raise invalid_field(where, network_id, "the id of a network that the project can use") from error
    if network.external and not network.shared and not work.caller.is_admin:
        raise Forbidden(f"It is not allowed to create an interface on external network {network_id}")
    if not subnets.of_network(work.connection, network.id):
        raise invalid_field(where, network_id, "a network with a subnet")
    return network


def _check_address(work: NetworkWork, where: str, network: Network, text: str) -> IpAddress:
    if network.shared and not work.caller.owns(network.project_id):
        raise Forbidden(f"It is not allowed to choose an address of shared network {network.id}")
    of_network = subnets.of_network(work.connection, network.id)
    try:
        address = address_of(text)
    except BadSubnet as error:
        raise invalid_field(where, text, "an IP address") from error
    usable = [subnet for subnet in of_network if is_usable(ip_network(subnet.cidr), address)]
    if not usable:
        raise invalid_field(where, text, f"an address of a subnet of network {network.id}")
    if port_addresses.holder(work.connection, usable[0].id, address) is not None:
        raise invalid_field(where, text, "an address that no port has")
    return address


def _count(work: NetworkWork, asked: AskedNetworks, new: int) -> int:
    """Return for how many servers there is quota of ports. Raises QuotaExceeded below the minimum."""
    limit = quotas.limits(work, work.caller.project_id)["port"]
    if new == 0 or limit == UNLIMITED:
        return asked.max_count
    room = (limit - quotas.used(work, "port", work.caller.project_id)) // new
    if room < asked.min_count:
        raise QuotaExceeded("Maximum number of ports exceeded")
    return min(asked.max_count, room)


def _allocated(work: NetworkWork, wanted: WantedPorts) -> tuple[Vif, ...]:
    """Make the ports of one server, or bind those that an attempt before made; none for a server that is gone."""
    mapping = instance_mappings.get(work.connection, wanted.instance)
    if mapping is None or mapping.attempt != wanted.attempt or mapping.delete_intent_at or mapping.deleted_at:
        return ()
    if server_ports.ports_of(work.connection, [wanted.instance]):
        server_ports.bind(work.connection, {wanted.instance: wanted.host}, work.now)
    else:
        for position, one in enumerate(_wanted_networks(work, wanted)):
            _take(work, wanted, one, position)
    return server_ports.vifs_of(work.connection, [wanted.instance])[wanted.instance]


def _wanted_networks(work: NetworkWork, wanted: WantedPorts) -> Sequence[RequestedNetwork]:
    if wanted.networks == NETWORKS_NAMED:
        return wanted.named
    return (RequestedNetwork(network_id=topologies.ensure(work, wanted.project_id)),)


def _take(work: NetworkWork, wanted: WantedPorts, one: RequestedNetwork, position: int) -> None:
    """Make one port for a server, or take a user's."""
    if one.port_id is not None:
        port = _own_port(work, wanted.project_id, one.port_id)
        if port.device_id:
            raise InTheWay("PortInUse", f"Port {port.id} is still in use.")
        port = changed(work, port, device_id=wanted.instance, device_owner=f"compute:{wanted.zone}")
    else:
        assert one.network_id is not None, "it was chosen"
        port = _new(work, wanted, one.network_id, one.fixed_ip)
    values = {
        "binding_host_id": wanted.host,
        "server": wanted.instance,
        "server_position": position,
        "made_for_server": one.port_id is None,
        "device_tag": one.tag,
    }
    store(work, PORTS, msgspec.structs.replace(port, **values))


def _new(work: NetworkWork, wanted: WantedPorts, network_id: str, fixed_ip: str | None) -> Port:
    quotas.check(work, "port", wanted.project_id)
    groups = tuple(
        default_groups.ensure(work, wanted.project_id).id if one == DEFAULT_GROUP else one
        for one in wanted.security_groups
    )
    said = NewPort(
        network_id=network_id,
        fixed_ips=UNSET if fixed_ip is None else (WantedIp(ip_address=fixed_ip),),
        security_groups=groups or UNSET,
        device_id=wanted.instance,
        device_owner=f"compute:{wanted.zone}",
    )
    return ports.create(work, said, fresh(work, wanted.project_id))
