"""An agent says that the clock of its host is off, and that it is right again, once each."""

from __future__ import annotations

from structlog.testing import capture_logs

from skep.compute.own_clock import ASK_AGAIN_SECONDS, OwnClock
from skep.domain.clock import SECOND, Clock, Timestamp

HOUR = 3600


class HostClock(Clock):
    """The clock of a host, `ahead` by so many seconds of the database's."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.steady = 100.0

    def now(self) -> Timestamp:
        return Timestamp(self.right() + round(self.ahead * SECOND))

    def elapsed(self) -> float:
        return self.steady

    def right(self) -> int:
        return round((10_000 + self.steady) * SECOND)


def watched() -> tuple[HostClock, OwnClock, list[float]]:
    clock, told = HostClock(), list[float]()
    return clock, OwnClock(clock, "h1", "cell1", told.append), told


def hear(clock: HostClock, own: OwnClock) -> bool:
    return own.hear(clock.right(), clock.elapsed())


def test_it_says_each_change_once_and_reports_it() -> None:
    clock, own, told = watched()
    with capture_logs() as logs:
        assert not hear(clock, own)
        clock.ahead = HOUR
        assert hear(clock, own)
        assert own.seconds_ahead == HOUR
        clock.ahead = HOUR + 0.5
        assert not hear(clock, own)
        clock.ahead = -HOUR
        assert hear(clock, own)
        assert own.seconds_ahead == -HOUR
        clock.ahead = 0.1
        assert hear(clock, own)
        assert own.seconds_ahead == 0
        assert not hear(clock, own)
    assert [(one["event"], one["host"]) for one in logs] == [
        ("the clock of this process is off", "h1"),
        ("the clock of this process is right again", "h1"),
    ]
    assert [round(ahead, 1) for ahead in told] == [0, HOUR, HOUR + 0.5, -HOUR, 0.1, 0.1]


def test_an_answer_that_took_long_changes_nothing() -> None:
    clock, own, _ = watched()
    said, asked_at = clock.right(), clock.elapsed()
    clock.steady += 8
    assert not own.hear(said, asked_at)
    assert own.seconds_ahead == 0


def test_conductors_of_before_do_not_say_the_time() -> None:
    clock, own, told = watched()
    clock.ahead = HOUR
    assert not own.hear(None, clock.elapsed())
    assert not own.must_ask()
    assert told == []


def test_a_clock_that_was_set_has_the_time_asked_for_but_not_always() -> None:
    clock, own, _ = watched()
    hear(clock, own)
    assert not own.must_ask()
    clock.ahead = HOUR
    assert own.must_ask()
    assert not own.must_ask()
    clock.steady += ASK_AGAIN_SECONDS
    assert own.must_ask()
    hear(clock, own)
    assert not own.must_ask()
    clock.ahead, clock.steady = 0.0, clock.steady + ASK_AGAIN_SECONDS
    assert own.must_ask()
