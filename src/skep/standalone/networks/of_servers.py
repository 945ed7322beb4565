"""The ports towards networks, answered by the network service of the same API database without HTTP between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

from skep.database import Connection
from skep.database.api import instance_mappings, lost_ports, network_changes, network_rows, server_ports
from skep.database.api.network_rows import SECURITY_GROUPS
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound
from skep.domain.host_networks import HostLook, HostNetworkChanges
from skep.domain.ids import InstanceUuid, ProjectId
from skep.domain.instances import Instance
from skep.domain.vifs import LostPort, Vif, VifBeside
from skep.neighbours.networks.base import (
    NO_PROVIDERS_OF_SERVERS,
    NOT_BESIDE,
    AskedNetworks,
    ChosenNetworks,
    GroupChange,
    GroupOfServer,
    PortsOfServers,
    PortsOutcome,
    PortsRefused,
    ProvidersOfServers,
    WantedInterface,
    WantedPorts,
)
from skep.standalone.networks import attachments, choices, groups_of_servers, hosts, many_ports, taking
from skep.standalone.networks.callers import NetworkCaller, NetworkWork
from skep.standalone.networks.proxies import EmbeddedProxies, caller_of, with_rules

T = TypeVar("T")

_SKEP = NetworkCaller(project_id=ProjectId(""), is_admin=True)
"""In whose name ports go without a user who asks for it."""


class EmbeddedNetworks(EmbeddedProxies):
    """A `NetworksOfUsers` and `NetworkPorts`, over the tables of the embedded network service."""

    elsewhere = False

    async def choose(self, asked: AskedNetworks, context: RequestContext, _token: str) -> ChosenNetworks:
        """Return what the servers of a create are to have."""
        return await self._look(context, lambda work: choices.chosen(work, asked))

    async def security_groups(self, ids: Sequence[str], context: RequestContext, _token: str) -> list[GroupOfServer]:
        """Return security groups with their rules."""
        seen_by = None if context.is_admin else context.project_id

        def unit(connection: Connection) -> list[GroupOfServer]:
            found = network_rows.by_id(connection, SECURITY_GROUPS, list(ids))
            return with_rules(connection, [one for one in found.values() if seen_by in (None, one.project_id)])

        return await self._database.read(unit)

    async def attach(self, wanted: WantedInterface, context: RequestContext, _token: str) -> Vif:
        """Give a server an interface."""
        caller = NetworkCaller(project_id=wanted.project_id, is_admin=context.is_admin)

        def unit(connection: Connection) -> Vif:
            return attachments.attach(self._work(connection, caller), wanted)

        return await self._database.write(unit)

    async def detach(self, instance: InstanceUuid, port_id: str, context: RequestContext, _token: str) -> None:
        """Take an interface from a server."""
        await self._change(context, lambda work: attachments.detach(work, instance, port_id))

    async def set_group(self, change: GroupChange, context: RequestContext, _token: str) -> tuple[Vif, ...]:
        """Give a group to the ports of a server, or take it from them."""

        def unit(connection: Connection) -> tuple[Vif, ...]:
            groups_of_servers.change(self._work(connection, caller_of(context)), change)
            return server_ports.vifs_of(connection, [change.instance])[change.instance]

        return await self._database.write(unit)

    async def allocate(self, wanted: Sequence[WantedPorts]) -> list[PortsOutcome]:
        """Make the ports of servers: what is plain at once, the others each in a unit of its own."""

        def unit(connection: Connection) -> many_ports.Made:
            return many_ports.make(connection, self._settings, self._clock.now(), wanted)

        made = await self._database.write(unit) if wanted else {}
        return list(await asyncio.gather(*(self._unless_made(one, made) for one in wanted)))

    async def _unless_made(self, wanted: WantedPorts, made: many_ports.Made) -> tuple[Vif, ...] | PortsRefused:
        there = made.get(wanted.instance)
        return await self._allocate(wanted) if there is None else there

    async def renew(self, wanted: WantedPorts, kept: Collection[str]) -> PortsOutcome | None:
        """Make the ports of a server anew, all in one unit: where any is refused nothing is changed."""
        return await self._given(wanted, lambda work: taking.renewed(work, wanted, kept))

    async def release(self, held: Sequence[tuple[InstanceUuid, int]]) -> None:
        """Delete the ports that were made for servers without a host, and give those of users back."""

        def unit(connection: Connection) -> None:
            found = instance_mappings.get_many(connection, [instance for instance, _ in held])
            mine = [one for one, attempt in held if one in found and found[one].attempt == attempt]
            server_ports.release(connection, [one for one in mine if found[one].cell is None], self._clock.now())

        await self._database.write(unit)

    async def release_ended(self, _servers: Mapping[InstanceUuid, bool]) -> None:
        """They go in the transaction that notes the end."""

    async def release_port(self, instance: InstanceUuid, port_id: str) -> None:
        """Take an interface from a server."""

        def unit(connection: Connection) -> None:
            with contextlib.suppress(NotFound):
                attachments.detach(self._work(connection, _SKEP), instance, port_id)

        await self._database.write(unit)

    async def bind(
        self,
        hosts: Mapping[InstanceUuid, str],
        beside: Mapping[InstanceUuid, str] = NOT_BESIDE,
        _providers: ProvidersOfServers = NO_PROVIDERS_OF_SERVERS,
    ) -> None:
        """Bind the ports of servers to their hosts."""
        unit = partial(server_ports.bind, hosts=hosts, beside=beside, now=self._clock.now())
        await self._database.write(unit)

    async def bind_beside(
        self, hosts: Mapping[InstanceUuid, str], _providers: ProvidersOfServers = NO_PROVIDERS_OF_SERVERS
    ) -> dict[InstanceUuid, str]:
        """Bind the ports of servers to one more host."""
        await self._database.write(partial(server_ports.bind_beside, hosts=hosts, now=self._clock.now()))
        return {}

    async def plugged_beside(self, hosts: Mapping[InstanceUuid, str]) -> dict[InstanceUuid, dict[str, VifBeside]]:
        """Return how ports of servers are plugged on hosts that may get them: as on all hosts."""
        bound = await self.bound_to(list(hosts), hosts)
        return {
            one: {port: VifBeside(host=hosts[one]) for port, of_port in ports.items() if hosts[one] in of_port}
            for one, ports in bound.items()
        }

    async def bound_to(
        self, servers: Sequence[InstanceUuid], several: Collection[InstanceUuid]
    ) -> dict[InstanceUuid, dict[str, tuple[str, ...]]]:
        """Return to which hosts the ports of servers are bound."""
        return await self._database.read(partial(server_ports.bound_to, instances=servers, several=several))

    async def of_servers(self, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, tuple[Vif, ...]]:
        """Return the interfaces of servers."""
        return await self._database.read(partial(server_ports.vifs_of, instances=servers))

    async def look_at(
        self, servers: Sequence[InstanceUuid], bound: Collection[InstanceUuid], several: Collection[InstanceUuid]
    ) -> PortsOfServers:
        """Return the interfaces of servers, and the hosts of the ports of some, in one view of the database."""

        def unit(connection: Connection) -> PortsOfServers:
            return PortsOfServers(
                vifs=server_ports.vifs_of(connection, servers),
                hosts=server_ports.bound_to(connection, list(bound), several),
            )

        return await self._database.read(unit)

    async def drop_doubles(self, _servers: Sequence[InstanceUuid]) -> None:
        """Nothing is made twice: all ports of a server are made in one transaction."""

    async def remake(self, server: Instance) -> list[LostPort]:
        """Make the ports anew that only a living server's row knows."""

        def unit(connection: Connection) -> list[LostPort]:
            if not instance_mappings.is_living(connection, server.uuid):
                return []
            return lost_ports.remake(connection, server, self._clock.now())

        return await self._database.write(unit)

    async def orphans(self) -> dict[InstanceUuid, list[str]]:
        """Return the ids of the ports of servers that do not live."""
        return await self._database.read(server_ports.orphans)

    async def release_orphans(self, server: InstanceUuid) -> bool:
        """Release the ports of a server that does not live."""

        def unit(connection: Connection) -> bool:
            lives = instance_mappings.is_living(connection, server)
            if lives or not server_ports.ports_of(connection, [server]):
                return False
            server_ports.release(connection, [server], self._clock.now())
            return True

        return await self._database.write(unit)

    async def look_at_host(self, host: str, tunnel_address: str | None) -> HostLook | None:
        """Return what a host has to bring."""
        return await hosts.look(self._database, self._clock, host, tunnel_address)

    async def host_changes(self, since: int) -> HostNetworkChanges | None:
        """Return what changed since."""
        return await self._database.read(partial(network_changes.since, before=since))

    async def _allocate(self, wanted: WantedPorts) -> tuple[Vif, ...] | PortsRefused:
        if wanted.networks == "none":
            return ()
        return await self._given(wanted, lambda work: taking.allocated(work, wanted))

    async def _given(self, wanted: WantedPorts, gives: Callable[[NetworkWork], T]) -> T | PortsRefused:
        """Do something for a server in one unit; what is refused changes nothing."""
        caller = NetworkCaller(project_id=wanted.project_id, is_admin=wanted.is_admin)

        def unit(connection: Connection) -> T:
            return gives(self._work(connection, caller))

        try:
            return await self._database.write(unit)
        except (BadRequest, Forbidden, NotFound, Conflict) as error:
            return PortsRefused(str(error))
