"""The ports towards networks, answered by the network service of the same API database without HTTP between."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from skep.database import Connection
from skep.database.api import instance_mappings, network_rows, server_ports
from skep.database.api.network_rows import SECURITY_GROUP_RULES, SECURITY_GROUPS
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound
from skep.domain.ids import InstanceUuid
from skep.domain.networking import SecurityGroup, SecurityGroupRule
from skep.domain.vifs import Vif
from skep.neighbours.networks.base import (
    AskedNetworks,
    ChosenNetworks,
    GroupChange,
    GroupOfServer,
    PortsRefused,
    WantedInterface,
    WantedPorts,
)
from skep.standalone.networks import attachments, choices, groups_of_servers, many_ports, taking
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.settings import NetworksSettings


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
            return choices.chosen(self._work(connection, caller), asked)

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

    async def attach(self, wanted: WantedInterface, context: RequestContext, _token: str) -> Vif:
        """Give a server an interface."""
        caller = NetworkCaller(project_id=wanted.project_id, is_admin=context.is_admin)

        def unit(connection: Connection) -> Vif:
            return attachments.attach(self._work(connection, caller), wanted)

        return await self._database.write(unit)

    async def detach(self, instance: InstanceUuid, port_id: str, context: RequestContext, _token: str) -> None:
        """Take an interface from a server."""
        caller = NetworkCaller(project_id=context.project_id, is_admin=context.is_admin)

        def unit(connection: Connection) -> None:
            attachments.detach(self._work(connection, caller), instance, port_id)

        await self._database.write(unit)

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
            return taking.allocated(self._work(connection, caller), wanted)

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
