"""How far a process' clock is from one that it only hears of: the other's time came with an answer to its question."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from skep.domain.clock import SECOND, Clock

OFF_SECONDS = 2.0
"""A clock that differs more from a database's is off."""


@dataclass(frozen=True, slots=True)
class ClockDifference:
    """By how many seconds the own clock is ahead (negative: behind); the truth is at most `within` seconds away."""

    ahead: float
    within: float

    @property
    def is_off(self) -> bool | None:
        """Whether the clock is off for sure. None: the answer was too long on its way to tell."""
        if abs(self.ahead) - self.within >= OFF_SECONDS:
            return True
        if abs(self.ahead) + self.within < OFF_SECONDS:
            return False
        return None


class SchedulerTime(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell's database said of the time when a scheduler answered a beat."""

    run: str
    """The life of the scheduler: as it said itself."""
    elapsed: float
    """What its steady clock read then, seconds: as it said itself."""
    now: int
    """What the clock of the cell's database said then, microseconds since the epoch."""
    within: float
    """By how many seconds `now` may be wrong: the answer was on its way for twice as long."""


class HeardTime:
    """The time of another process, as last received and counted on since by a monotonic clock."""

    def __init__(self, own: Clock) -> None:
        self._own = own
        self._known: tuple[int, float, float] | None = None
        """What the other's clock said; when that was by `Clock.elapsed`; how many seconds that may be wrong."""

    def hear(self, now: int, asked_at: float) -> None:
        """Take the other's time out of an answer that has just come. It was asked at `asked_at`, by `Clock.elapsed`.

        The other said its time between the question and now: half of that while is what remains uncertain.
        """
        came_at = self._own.elapsed()
        self.know(now, (asked_at + came_at) / 2, max(0.0, came_at - asked_at) / 2)

    def know(self, now: int, elapsed: float, within: float) -> None:
        """Take what the other's clock said when the own steady one read `elapsed`; `within`: how wrong it may be."""
        self._known = (now, elapsed, within)

    def difference(self) -> ClockDifference | None:
        """Compare the own clock as it goes now; None before the other was ever heard."""
        if self._known is None:
            return None
        at, elapsed, within = self._known
        other = at + (self._own.elapsed() - elapsed) * SECOND
        return ClockDifference((self._own.now() - other) / SECOND, within)
