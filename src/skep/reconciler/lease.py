"""Keeps the lease of one process in one database."""

from __future__ import annotations

from functools import partial

import sqlalchemy as sa

from skep.database import leases as lease_rows
from skep.database.engine import Database
from skep.domain.clock import SECOND, Clock
from skep.domain.ids import Incarnation
from skep.reconciler.loop import Loop


class Lease:
    """Says in a database, every second, that its owner lives. Owned work is taken over a few seconds after the last."""

    def __init__(
        self,
        database: Database,
        table: sa.Table,
        owner: Incarnation,
        role: str,
        clock: Clock,
        *,
        seconds: float,
        host: str = "",
    ) -> None:
        self._database = database
        self._table = table
        self._owner = owner
        self._role = role
        self._host = host
        self._clock = clock
        self._lapse = round(seconds * SECOND)
        self._loop = Loop(f"lease-{role}", self._renew, every=min(1.0, seconds / 3))

    async def start(self) -> None:
        """Write the lease before any work is owned under it, and go on renewing."""
        await self._renew()
        self._loop.start()

    async def stop(self) -> None:
        """End the lease, so that others take over at once."""
        await self._loop.stop()
        await self._database.write(partial(lease_rows.drop, leases=self._table, owner=self._owner))

    async def _renew(self) -> bool:
        now = self._clock.now()

        def unit(connection: sa.Connection) -> None:
            lease_rows.renew(connection, self._table, self._owner, self._role, now + self._lapse, self._host)
            lease_rows.remove_lapsed(connection, self._table, now - 100 * self._lapse)

        await self._database.write(unit)
        return False
