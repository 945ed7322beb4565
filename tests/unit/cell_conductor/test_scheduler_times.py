"""A conductor tells each scheduler that answered lately what the time was then, as exactly as it knows."""

from __future__ import annotations

from skep.cell_conductor.scheduler_times import KEPT_SECONDS, MOST, SchedulerTimes
from skep.domain.clock import SECOND, Clock, Timestamp
from skep.domain.heard_time import SchedulerTime
from skep.messages.to_scheduler_liveness import BeatReply


class Steady(Clock):
    """A clock that goes on when it is told."""

    seconds = 100.0

    def now(self) -> Timestamp:
        return Timestamp(round(self.seconds * SECOND))

    def elapsed(self) -> float:
        return self.seconds


def reply(run: str, elapsed: float = 7.0) -> BeatReply:
    return BeatReply(epoch="e", asserted=True, run=run, elapsed=elapsed)


def test_it_is_as_of_the_middle_of_the_way_and_as_wrong_as_half_of_it() -> None:
    clock = Steady()
    times = SchedulerTimes(clock)
    assert times.told() == ()
    clock.seconds = 104.0
    times.answered(reply("one"), asked_at=100.0)
    assert times.told() == (SchedulerTime(run="one", elapsed=7.0, now=102 * SECOND, within=2.0),)
    times.answered(reply("one", 8.0), asked_at=104.0)
    assert times.told() == (SchedulerTime(run="one", elapsed=8.0, now=104 * SECOND, within=0.0),)


def test_who_does_not_say_who_answers_or_is_gone_is_told_nothing() -> None:
    clock = Steady()
    times = SchedulerTimes(clock)
    times.answered(reply(""), asked_at=clock.seconds)
    times.answered(reply("one"), asked_at=clock.seconds)
    clock.seconds += KEPT_SECONDS + 1
    times.answered(reply("two"), asked_at=clock.seconds)
    assert [one.run for one in times.told()] == ["two"]
    for number in range(2 * MOST):
        times.answered(reply(f"more {number}"), asked_at=clock.seconds)
    assert [one.run for one in times.told()] == [f"more {number}" for number in range(MOST, 2 * MOST)]
