"""Which processes of an installation live: conductors by their leases, schedulers as they know each other."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from uuid import NAMESPACE_OID, uuid5

from skep.api.services import RunningService
from skep.database import Connection, clocks
from skep.database import leases as lease_rows
from skep.database.api.tables import leases as leases_above
from skep.database.cell.tables import leases as leases_in_cell
from skep.database.engine import Database
from skep.database.leases import LeaseRow, Leases
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.errors import SkepError
from skep.domain.ids import CellUuid
from skep.messages.to_scheduler_liveness import ListSchedulers
from skep.transport.base import SCHEDULER, Transport

ANSWER_SECONDS = 0.7
"""Who has not answered after this time is left out: a list is answered within a second."""

ABOVE = "above the cells"
CONDUCTOR, SCHEDULER_BINARY = "nova-conductor", "nova-scheduler"


class Roster:
    """Reads who lives whenever it is asked."""

    def __init__(
        self,
        api: Database,
        cells: Mapping[CellUuid, Database],
        names: Mapping[CellUuid, Cell],
        transport: Transport,
        clock: Clock,
    ) -> None:
        self._api = api
        self._cells = cells
        self._names = names
        self._transport = transport
        self._clock = clock

    async def running(self) -> tuple[RunningService, ...]:
        """Return the schedulers and conductors that live, and conductors that did until a short while ago."""
        inside = [
            self._conductors(database, leases_in_cell, uuid)
            for uuid, database in self._cells.items()
            if uuid in self._names and not self._names[uuid].is_cell0
        ]
        found = await asyncio.gather(self._schedulers(), self._conductors(self._api, leases_above, ABOVE), *inside)
        return tuple(service for services in found for service in services)

    async def _schedulers(self) -> list[RunningService]:
        try:
            reply = await self._transport.call(SCHEDULER, ListSchedulers(), timeout=ANSWER_SECONDS)
        except SkepError:
            return []
        now = self._clock.now()
        return [
            RunningService(
                uuid=_identity(one.run, SCHEDULER_BINARY),
                binary=SCHEDULER_BINARY,
                host=one.host,
                alive=True,
                seen_at=now,
            )
            for one in reply.schedulers
        ]

    async def _conductors(self, database: Database, table: Leases, place: str) -> list[RunningService]:
        try:
            rows, now = await database.read(partial(self._leases, table=table), within=ANSWER_SECONDS)
        except SkepError:
            return []
        living = {row.host for row in rows if row.lapses_at > now}
        return [_shown(row, now, place) for row in rows if row.lapses_at > now or row.host not in living]

    def _leases(self, connection: Connection, table: Leases) -> tuple[list[LeaseRow], int]:
        rows = [row for row in lease_rows.every(connection, table) if row.role != lease_rows.API]
        return rows, clocks.now(connection, self._clock)


def _shown(row: LeaseRow, now: int, place: str) -> RunningService:
    alive = row.lapses_at > now
    return RunningService(
        uuid=_identity(row.owner, CONDUCTOR, place),
        binary=CONDUCTOR,
        host=row.host,
        alive=alive,
        seen_at=now if alive else row.lapses_at,
    )


def _identity(run: str, *what: str) -> str:
    """Return the id of one service of a process: a process that is several roles at once has one run for all."""
    return str(uuid5(NAMESPACE_OID, "/".join((run, *what))))
