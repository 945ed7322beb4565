"""The story of servers' interfaces: their rows are told what becomes of them, and their ports follow their hosts.

What changes of a port is noted above the cells, in the transaction that changes it. The row of the server is told, and
then the note goes, unless something changed since. A server has another host after a reschedule or a move; its row
says to which host its ports are bound, so that no such change is missed whoever made it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from skep.database import Connection
from skep.database.api import instance_mappings as mappings
from skep.database.api import port_holders, server_ports
from skep.database.api.holders import Holder
from skep.database.api.server_ports import ChangedServer
from skep.database.cell import interfaces, live_moves, renewals, second_bindings
from skep.database.cell.second_bindings import SecondBinding
from skep.domain.actions import Over
from skep.domain.clock import SECOND
from skep.domain.errors import SkepError
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.vifs import VifBeside
from skep.neighbours.at_once import at_once
from skep.neighbours.networks.base import ProvidersOfServers
from skep.super_conductor.parts import CellAccess, Parts
from skep.super_conductor.renewals import renew
from skep.telemetry import endings
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

BATCH = 200


class Interfaces:
    """Keeps rows and bindings true to the ports of servers."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def tell(self) -> bool:
        """Tell rows of changed interfaces."""
        parts = self._parts
        changed = await parts.api.read(partial(server_ports.changed, without=parts.silent, limit=BATCH))
        if not changed:
            return False
        found = await parts.api.read(partial(mappings.get_many, instances=[one.instance for one in changed]))
        by_cell: dict[CellUuid, list[ChangedServer]] = {}
        gone: list[ChangedServer] = []
        for one in changed:
            mapping = found.get(one.instance)
            if mapping is None or mapping.deleted_at is not None:
                gone.append(one)
            elif mapping.cell is not None:
                by_cell.setdefault(mapping.cell, []).append(one)
        told = await asyncio.gather(*(self._tell_in(cell, servers) for cell, servers in by_cell.items()))
        if gone:
            await parts.api.write(partial(server_ports.told, servers=gone))
        return len(changed) >= BATCH and any((*told, bool(gone)))

    async def _tell_in(self, cell: CellUuid, servers: list[ChangedServer]) -> bool:
        """Tell rows of one cell; False where it could not be done: the notes stay."""
        parts = self._parts
        try:
            access, named = parts.cell(cell), [one.instance for one in servers]
            known = await access.read(partial(interfaces.stored, uuids=named))
            vifs = await parts.networks.of_servers(named)
            unit = partial(interfaces.tell_unchanged, vifs=vifs, known=known, now=parts.clock.now())
            left = set(await access.write(unit))
            told = [one for one in servers if one.instance not in left]
            await parts.api.write(partial(server_ports.told, servers=told))
        except SkepError as error:
            log.warning("rows not told of their interfaces", cell=str(cell), members=len(servers), error=str(error))
            return False
        return True

    async def look(self) -> bool:
        """Look at servers that may have ports of a service that is not Skep's own: those that are gone lose theirs."""
        parts, now = self._parts, self._parts.clock.now()
        if not parts.networks.elsewhere:
            return False
        due = await parts.api.write(partial(port_holders.take_due, now=now, limit=BATCH))
        if not due:
            return False
        living, gone = [one for one in due if one.lives], [one for one in due if not one.lives]
        looked_at = [
            *await self._looked_at(living, parts.networks.drop_doubles([one.instance for one in living])),
            *await self._looked_at(gone, parts.networks.release([(one.instance, one.attempt) for one in gone])),
        ]

        def unit(connection: Connection) -> None:
            for one in looked_at:
                if one.lives:
                    server_ports.note_server(connection, now, one.instance)
            port_holders.looked_at(connection, looked_at, now, parts.after(parts.look_seconds))

        await parts.api.write(unit)
        return len(looked_at) >= BATCH

    async def _looked_at(self, holders: list[Holder], look: Awaitable[None]) -> list[Holder]:
        """Return those that were looked at: all, or none where the look failed."""
        try:
            await look
        except SkepError as error:
            log.warning("interfaces not looked at", members=len(holders), error=str(error))
            return []
        return holders

    async def bind(self) -> bool:
        """Bind ports to the hosts that their servers have."""
        return await self._parts.in_each_cell("bindings of ports", self._bind_in)

    async def _bind_in(self, access: CellAccess) -> bool:
        if access.cell.is_cell0:
            return False
        (beside_noted, anew_noted), misbound = await access.read(lambda found: (_noted(found), _misbound(found)))
        if anew_noted:
            await renew(self._parts, access)
        if beside_noted:
            await self._bind_beside(access)
            await access.write(partial(second_bindings.look_again, limit=BATCH))
        if anew_noted or beside_noted:
            misbound = await access.read(_misbound)
        hosts, beside, providers = misbound
        if not hosts:
            return False
        left = await self._released(access, list(hosts))
        # Their rows say now whether others are to be bound, and the next round finds it. A port that is not released
        # keeps none of the others from its server.
        hosts = {one: host for one, host in hosts.items() if not left.get(one)}
        if not hosts:
            return True
        await access.write(partial(interfaces.doubt_bindings, uuids=list(hosts)))
        bound = await self._bound(hosts, beside, providers)
        await access.write(await self._noting(access, bound))
        await self._parts.nudge(access.cell.uuid, "steps")
        log.info("ports follow their servers", cell=access.cell.name, members=len(bound))
        return len(bound) >= BATCH or any(left.values())

    async def _released(self, access: CellAccess, servers: list[InstanceUuid]) -> dict[InstanceUuid, bool]:
        """Have the ports of interfaces released that leave their servers; return of which servers, and if it was done.

        Their guests have them no more (`plug_interface`, `unplug_interface`).
        """
        leaving = await access.read(partial(interfaces.leaving, uuids=servers))
        done = await at_once(self._are_released(access, one, ports) for one, ports in leaving.items())
        return dict(zip(leaving, done, strict=True))

    async def _are_released(self, access: CellAccess, instance: InstanceUuid, ports: tuple[str, ...]) -> bool:
        """Have these ports of a server released, and its row lose them; False where that is to be tried again."""
        try:
            for port in ports:
                still = await access.read(partial(interfaces.leaving, uuids=[instance]))
                if port not in still.get(instance, ()):
                    # Another process has had it released; it may be the server's again.
                    continue
                await self._parts.networks.release_port(instance, port)
                unit = partial(interfaces.left, uuid=instance, port_id=port, now=self._parts.clock.now())
                await access.write(unit)
                log.info("interface has left its server", instance=instance, port=port)
        except SkepError as error:
            log.warning("port not released yet", instance=instance, error=str(error))
            return False
        return True

    async def _bound(
        self, hosts: Mapping[InstanceUuid, str], beside: Mapping[InstanceUuid, str], providers: ProvidersOfServers
    ) -> Mapping[InstanceUuid, str]:
        """Bind the ports of servers; return those that are bound. A port that is refused holds up its server alone.

        Raises what holds up all of them.
        """
        try:
            await self._parts.networks.bind(hosts, beside, providers)
        except SkepError:
            if len(hosts) == 1:
                raise
            done = await at_once(self._is_bound(one, host, beside, providers) for one, host in hosts.items())
            bound = {one: host for (one, host), is_done in zip(hosts.items(), done, strict=True) if is_done}
            if not bound:
                raise
            return bound
        return hosts

    async def _is_bound(
        self,
        instance: InstanceUuid,
        host: str,
        beside: Mapping[InstanceUuid, str],
        providers: ProvidersOfServers,
    ) -> bool:
        """Bind the ports of one server; False where that is to be tried again."""
        other = {one: where for one, where in beside.items() if one == instance}
        try:
            await self._parts.networks.bind({instance: host}, other, providers)
        except SkepError as error:
            log.warning("ports do not follow their server yet", instance=instance, host=host, error=str(error))
            return False
        return True

    async def _noting(self, access: CellAccess, hosts: Mapping[InstanceUuid, str]) -> Callable[[Connection], None]:
        """Return what writes that ports are bound. A service that wires them on each host is asked how they are now:
        what a row says of wires is of the host before.
        """
        if not self._parts.networks.elsewhere:
            return partial(interfaces.note_bound, hosts=hosts)
        named = list(hosts)
        known = await access.read(partial(interfaces.stored, uuids=named))
        vifs = await self._parts.networks.of_servers(named)
        now = self._parts.clock.now()
        return partial(interfaces.tell_bound, hosts=hosts, vifs=vifs, known=known, now=now)

    async def _bind_beside(self, access: CellAccess) -> None:
        """Bind the ports of servers that migrate live to their targets, too, and have those told of it."""
        parts = self._parts
        waiting = await access.write(partial(second_bindings.take, limit=BATCH))
        if not waiting:
            return
        outcomes = await at_once(self._bound_beside(one) for one in waiting)
        found = list(zip(waiting, outcomes, strict=True))
        bound = [one.move for one, outcome in found if isinstance(outcome, Mapping)]
        beside = {one.instance: outcome for one, outcome in found if isinstance(outcome, Mapping)}
        refused = [(one, outcome) for one, outcome in found if isinstance(outcome, str)]

        def unit(connection: Connection) -> list[Over]:
            second_bindings.made(connection, bound, beside)
            ended = (live_moves.refuse_binding(connection, one.move, why, parts.clock.now()) for one, why in refused)
            return [over for overs in ended for over in overs]

        endings.ended(parts.steps.metrics, parts.notifier, await access.write(unit))
        for one, why in refused:
            log.warning("live migration ended: its ports cannot be bound", instance=one.instance, error=why)
        await parts.nudge(access.cell.uuid, "steps", "deletes")

    async def _bound_beside(self, wanted: SecondBinding) -> Mapping[str, VifBeside] | str | None:
        """Bind the ports of one server; return how they are plugged there, why not, or None where that is not known
        yet."""
        networks, instance = self._parts.networks, wanted.instance
        try:
            providers = {instance: wanted.providers}
            refused = await networks.bind_beside({instance: wanted.host}, providers)
            if instance in refused:
                return refused[instance]
            return (await networks.plugged_beside({instance: wanted.host})).get(instance, {})
        except SkepError as error:
            log.warning("ports not bound to a target yet", instance=instance, error=str(error))
            since = wanted.since + int(self._parts.settings.not_ready_deadline * SECOND)
            return str(error) if self._parts.clock.now() > since else None


def _noted(connection: Connection) -> tuple[bool, bool]:
    """Tell whether servers are to have second bindings, and whether builds wait for ports that are made anew."""
    return second_bindings.are_noted(connection), renewals.are_noted(connection)


def _misbound(
    connection: Connection,
) -> tuple[dict[InstanceUuid, str], dict[InstanceUuid, str], ProvidersOfServers]:
    """Return servers whose ports are not bound to their host alone, to which other host they are to be bound, and which
    providers of their host serve them.
    """
    hosts = interfaces.misbound(connection, BATCH)
    named = list(hosts)
    if not named:
        return {}, {}, {}
    return hosts, second_bindings.beside(connection, named), interfaces.providers_of(connection, named)
