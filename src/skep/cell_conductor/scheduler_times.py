"""Tells schedulers what the time is by the cell's database, so that each can see whether its own clock is off."""

from __future__ import annotations

from skep.domain.clock import SECOND, Clock
from skep.domain.heard_time import SchedulerTime
from skep.messages.to_scheduler_liveness import BeatReply

KEPT_SECONDS = 60.0
"""A scheduler that has not answered for so long is not told any more."""
MOST = 32
"""Schedulers that one beat tells the time; those that answered last."""


class SchedulerTimes:
    """When each scheduler answered, by the clock of the cell's database and by its own steady one."""

    def __init__(self, clock: Clock) -> None:
        """`clock` tells the time of the cell's database."""
        self._clock = clock
        self._known: dict[str, tuple[float, SchedulerTime]] = {}
        """By run, the latest last: when its answer came, by `Clock.elapsed`, and what it is told."""

    def answered(self, reply: BeatReply, asked_at: float) -> None:
        """Take the answer to a beat that has just come. It was asked for at `asked_at`, by `Clock.elapsed`.

        Schedulers of before 0.6 do not say who answers.
        """
        if not reply.run:
            return
        came_at = self._clock.elapsed()
        within = max(0.0, came_at - asked_at) / 2
        now = self._clock.now() - round(within * SECOND)
        self._known.pop(reply.run, None)
        self._known[reply.run] = (
            came_at,
            SchedulerTime(run=reply.run, elapsed=reply.elapsed, now=now, within=within),
        )

    def told(self) -> tuple[SchedulerTime, ...]:
        """Return what the next beat tells."""
        since = self._clock.elapsed() - KEPT_SECONDS
        kept = [(run, one) for run, one in self._known.items() if one[0] >= since][-MOST:]
        self._known = dict(kept)
        return tuple(told for _, (_, told) in kept)
