"""The clock of a database, by which leases and deadlines in its rows are judged, whatever the clocks of processes say.

A process reads it now and then and counts on from there by a clock of its own that nobody sets. A SQLite file has no
clock: there the process' own one serves, which all processes of the machine share.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.domain.clock import SECOND, Clock, Timestamp

_NOW = sa.text("SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)")


def read(connection: sa.Connection) -> int | None:
    """Return what the database's clock says, microseconds since the epoch; None when it has none."""
    if connection.dialect.name != "postgresql":
        return None
    return int(connection.execute(_NOW).scalar_one())


def now(connection: sa.Connection, own: Clock) -> int:
    """Return the time by the database's clock, or by the process' own where the database has none."""
    at = read(connection)
    return own.now() if at is None else at


class DatabaseClock(Clock):
    """Tells the time of one database, as it was read last and counted on since."""

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._known: tuple[int, float] | None = None
        """What the database's clock said, and when that was by `Clock.elapsed`."""
        self.ahead = 0.0
        """Seconds by which this process' clock was ahead of the database's at the last look; negative: behind."""

    def look(self, connection: sa.Connection) -> None:
        """Read the database's clock."""
        before = self._own.elapsed()
        at = read(connection)
        if at is None:
            return
        after = self._own.elapsed()
        self._known = (at, (before + after) / 2)
        self.ahead = (self._own.now() - self.now()) / SECOND

    def now(self) -> Timestamp:
        """Return the database's time; before it was ever read, the process' own."""
        if self._known is None:
            return self._own.now()
        at, elapsed = self._known
        return Timestamp(at + round((self._own.elapsed() - elapsed) * SECOND))

    def elapsed(self) -> float:
        """Return seconds of the process' steady clock."""
        return self._own.elapsed()
