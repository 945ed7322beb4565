"""Says that a scheduler's clock is off. It has no database: the beats of cells bring the time of theirs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from functools import partial

from skep.domain.clock import Clock
from skep.domain.errors import BadRequest
from skep.domain.heard_time import HeardTime
from skep.domain.ids import CellUuid
from skep.messages.to_scheduler_liveness import Beat
from skep.telemetry.clock_watch import ClockWatch

LOOK_SECONDS = 1.0
"""How often the clock is compared: it may have been set since the last beat."""
FORGOTTEN_SECONDS = 120.0
"""A cell that has not told the time for so long is forgotten."""
MOST_TIMES = 1000
LONGEST_NAME = 255

OnClock = Callable[[str, float | None], None]
"""Is told by how many seconds the clock is ahead of a database's, named first; None: that is not known any more."""


def ignore(_database: str, _ahead: float | None) -> None:
    """Tell nobody."""


class _Told:
    """What one cell tells of the time."""

    def __init__(self, own: Clock, database: str, on_clock: OnClock) -> None:
        self.database = database
        self.heard = HeardTime(own)
        self.heard_at = 0.0
        """By `Clock.elapsed`."""
        self.watch = ClockWatch(database, partial(on_clock, database))


class Clocks:
    """Compares a scheduler's clock with the databases of the cells. Nothing is judged by it."""

    def __init__(self, own: Clock, run: str, on_clock: OnClock = ignore) -> None:
        """`run` is the life of the scheduler, as its answers name it."""
        self._own = own
        self._run = run
        self._on_clock = on_clock
        self._told: dict[CellUuid, _Told] = {}

    def take(self, beat: Beat) -> None:
        """Take what a beat says of the time. Conductors of before 0.6 say nothing. Raises BadRequest for nonsense."""
        _check(beat)
        for one in beat.times:
            if one.run == self._run:
                told = self._of(beat)
                told.heard.know(one.now, one.elapsed, one.within)
                told.heard_at = self._own.elapsed()

    def look(self) -> None:
        """Say of each database what the clock is like now."""
        forgotten = self._own.elapsed() - FORGOTTEN_SECONDS
        for cell, told in list(self._told.items()):
            found = told.heard.difference()
            if told.heard_at < forgotten or found is None:
                self._forget(cell)
            else:
                told.watch.say(found)

    async def live(self) -> None:
        """Look again and again."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def _of(self, beat: Beat) -> _Told:
        """Return what the cell tells; under another name it is another cell to people."""
        known = self._told.get(beat.cell)
        if known is not None and known.database != beat.database:
            self._forget(beat.cell)
            known = None
        if known is None:
            known = self._told[beat.cell] = _Told(self._own, beat.database, self._on_clock)
        return known

    def _forget(self, cell: CellUuid) -> None:
        self._on_clock(self._told.pop(cell).database, None)


def _check(beat: Beat) -> None:
    if len(beat.database) > LONGEST_NAME or len(beat.times) > MOST_TIMES:
        raise BadRequest(f"database, times: expected at most {LONGEST_NAME} characters and {MOST_TIMES} schedulers.")
    for one in beat.times:
        if not (math.isfinite(one.elapsed) and 0 <= one.within < math.inf and 0 <= one.now < 2**63):
            raise BadRequest("times: expected finite seconds, not negative, and microseconds since the epoch.")
