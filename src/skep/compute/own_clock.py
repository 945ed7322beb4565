"""Says that the clock of a host is off. Its agent has no database: the conductors' answers bring the time of theirs."""

from __future__ import annotations

from collections.abc import Callable

from skep.domain.clock import Clock
from skep.domain.heard_time import HeardTime
from skep.telemetry.clock_watch import ClockWatch

NEWS_SECONDS = 1.0
"""A clock that is off is reported anew when the difference changed so much."""
ASK_AGAIN_SECONDS = 10.0
"""How often the conductors are asked for the time at most, because the clock seems to have been set."""


class OwnClock:
    """Compares the host's clock with the cell database's. Nothing is judged by it, but times in logs mislead."""

    def __init__(self, clock: Clock, host: str, cell: str, told: Callable[[float], None]) -> None:
        """`told` is told by how many seconds the clock is ahead, whenever the conductors have said their time."""
        self._clock = clock
        self._watch = ClockWatch(cell, told, host=host)
        self._heard = HeardTime(clock)
        self._asked_at: float | None = None
        self.seconds_ahead = 0.0
        """What the host reports; 0 while the clock is right."""

    def hear(self, now: int | None, asked_at: float) -> bool:
        """Take the time out of a conductor's answer; tell whether there is something new to report.

        Conductors of before 0.6.0 do not say it. `asked_at` is when they were asked, by `Clock.elapsed`.
        """
        if now is None:
            return False
        self._heard.hear(now, asked_at)
        found = self._heard.difference()
        assert found is not None
        self._watch.say(found)
        if found.is_off is None:
            return False
        was = self.seconds_ahead
        if not found.is_off:
            self.seconds_ahead = 0.0
        elif abs(found.ahead - was) >= NEWS_SECONDS:
            self.seconds_ahead = round(found.ahead, 1)
        return self.seconds_ahead != was

    def must_ask(self) -> bool:
        """Tell whether the clock seems to have been set since the conductors said their time."""
        found = self._heard.difference()
        if found is None or found.is_off is None or found.is_off == bool(self.seconds_ahead):
            return False
        now = self._clock.elapsed()
        if self._asked_at is not None and now - self._asked_at < ASK_AGAIN_SECONDS:
            return False
        self._asked_at = now
        return True
