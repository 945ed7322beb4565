"""A clock is off only when it differs by more than the way of the answer can explain."""

from __future__ import annotations

import pytest

from skep.domain.clock import SECOND, Clock, Timestamp
from skep.domain.heard_time import ClockDifference, HeardTime


class SetClock(Clock):
    """A clock that a test sets; what is steady goes on by itself."""

    def __init__(self) -> None:
        self.at = Timestamp(1_000 * SECOND)
        self.steady = 50.0

    def now(self) -> Timestamp:
        return self.at

    def elapsed(self) -> float:
        return self.steady

    def go_on(self, seconds: float) -> None:
        self.at = Timestamp(self.at + round(seconds * SECOND))
        self.steady += seconds


def test_nothing_is_known_before_the_other_is_heard() -> None:
    assert HeardTime(SetClock()).difference() is None


@pytest.mark.parametrize("said_after", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_the_truth_is_within_half_of_the_round_trip(ahead: float, said_after: float) -> None:
    clock = SetClock()
    heard, asked_at = HeardTime(clock), clock.elapsed()
    said = clock.now() - round((ahead - said_after) * SECOND)
    clock.go_on(1.0)
    heard.hear(said, asked_at)
    found = heard.difference()
    assert found is not None
    assert found.within == 0.5
    assert abs(found.ahead - ahead) <= found.within
    assert found.is_off is bool(ahead)


def test_it_counts_on_by_the_steady_clock_so_a_clock_that_is_set_is_noticed() -> None:
    clock = SetClock()
    heard = HeardTime(clock)
    heard.hear(clock.now(), clock.elapsed())
    clock.go_on(500.0)
    assert heard.difference() == ClockDifference(0.0, 0.0)
    clock.at = Timestamp(clock.at - 60 * SECOND)
    assert heard.difference() == ClockDifference(-60.0, 0.0)


@pytest.mark.parametrize(
    ("difference", "off"),
    [
        (ClockDifference(2.0, 0.0), True),
        (ClockDifference(-2.0, 0.0), True),
        (ClockDifference(1.9, 0.0), False),
        (ClockDifference(4.0, 3.0), None),
        (ClockDifference(1.0, 3.0), None),
        (ClockDifference(-6.0, 3.0), True),
    ],
)
def test_what_is_uncertain_is_no_verdict(difference: ClockDifference, off: bool | None) -> None:
    assert difference.is_off is off
