"""Keeps the lease of one process in one database."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from skep.database import Connection, once, timelines
from skep.database import leases as lease_rows
from skep.database.clocks import DatabaseClock
from skep.database.engine import Database
from skep.database.leases import Leases
from skep.domain.clock import SECOND
from skep.domain.heard_time import ClockDifference
from skep.domain.ids import Incarnation
from skep.domain.timelines import Moment, later
from skep.reconciler.loop import Loop
from skep.telemetry.clock_watch import ClockWatch, Told, ignore
from skep.telemetry.logs import get_logger

log = get_logger(__name__)


BeginIfLost = Callable[[Connection, Moment, str, int], bool]
"""Begins a recovery of a database that has lost a moment which somebody saw; see `database/cell/recovery.py`."""


class Time:
    """The time of a database as one process sees it: it raises the tick, and sees if the database has lost that."""

    def __init__(self, tables: timelines.TimelineTables, database: str, begin_if_lost: BeginIfLost) -> None:
        self.moment: Moment | None = None
        """The latest that this process raised."""
        self.judges = False
        """Whether this process has heard all who may remember later moments: it says so with each tick."""
        self._tables = tables
        self._database = database
        self._begin_if_lost = begin_if_lost

    def advance(self, connection: Connection, owner: Incarnation, now: int) -> Moment:
        """Raise the tick, once it is sure that the database did not go back under this process.

        Units that are committed together have one moment: a database without one of them lacks them all.
        """
        return once.made(connection, self, lambda: self._advance(connection, owner, now))

    def _advance(self, connection: Connection, owner: Incarnation, now: int) -> Moment:
        if self.moment is not None and self._begin_if_lost(connection, self.moment, "a process", now):
            log.error("the database went back in time", database=self._database, seen=self.moment.order)
        if self.moment is None:
            timelines.forget_runs(connection, self._tables)
        moment = timelines.advance(connection, self._tables, self._database, owner)
        if self.judges:
            timelines.note_judged(connection, self._tables)
        return moment

    def holds(self, seen: Moment) -> bool:
        """Tell whether this process raised a moment that somebody saw: then the database held it."""
        mine = self.moment
        return (
            mine is not None and (seen.owner, seen.timeline) == (mine.owner, mine.timeline) and seen.tick <= mine.tick
        )


class Lease:
    """Says in a database, every second, that its owner lives. Owned work is taken over a few seconds after the last."""

    def __init__(
        self,
        database: Database,
        table: Leases,
        owner: Incarnation,
        role: str,
        clock: DatabaseClock,
        *,
        seconds: float,
        host: str = "",
        on_clock: Told = ignore,
        time: Time | None = None,
        understands: str | None = None,
    ) -> None:
        self._database = database
        self._table = table
        self._owner = owner
        self._role = role
        self._host = host
        self._clock = clock
        self._time = time
        self._understands = understands
        self._lapse = round(seconds * SECOND)
        self._watch = ClockWatch(database.name, on_clock)
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
        def unit(connection: Connection) -> Moment | None:
            self._clock.look(connection)
            now = self._clock.now()
            lease_rows.renew(
                connection,
                self._table,
                self._owner,
                self._role,
                now + self._lapse,
                self._host,
                length=self._lapse,
                ahead=self._clock.ahead,
                understands=self._understands,
            )
            lease_rows.remove_lapsed(connection, self._table, now - 100 * self._lapse)
            return self._time.advance(connection, self._owner, now) if self._time is not None else None

        moment = await self._database.write(unit)
        if self._time is not None:
            self._time.moment = later(self._time.moment, moment)
        self._watch.say(ClockDifference(self._clock.ahead, 0.0))
        return False
