"""How long servers wait whose volumes are being made: those that began together are given back together."""

from __future__ import annotations

import pytest

from skep.super_conductor.build_volumes import (
    FIRST_POLL_SECONDS,
    LONGEST_RETRY_SECONDS,
    POLL_SECONDS,
    RETRY_SECONDS,
    pause,
)


@pytest.mark.parametrize(
    ("waited", "seconds"),
    [(0.0, 0.5), (1.9, 0.5), (2.0, 0.5), (2.1, 0.75), (2.9, 0.75), (3.1, 1.0), (19.9, 5.0), (600.0, 5.0)],
)
def test_a_quarter_of_the_time_that_has_passed(waited: float, seconds: float) -> None:
    assert pause(waited, FIRST_POLL_SECONDS, POLL_SECONDS) == seconds


def test_many_that_began_within_a_second_wait_for_few_different_times() -> None:
    pauses = {pause(7 + number / 100, FIRST_POLL_SECONDS, POLL_SECONDS) for number in range(100)}
    assert pauses == {1.75, 2.0}


@pytest.mark.parametrize(("waited", "seconds"), [(0.0, 1.0), (4.0, 1.0), (40.0, 10.0), (120.0, 30.0), (3600.0, 30.0)])
def test_a_service_that_does_not_answer_is_asked_ever_more_seldom(waited: float, seconds: float) -> None:
    assert pause(waited, RETRY_SECONDS, LONGEST_RETRY_SECONDS) == seconds
