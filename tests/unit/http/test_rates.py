from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.domain.errors import TooManyRequests
from skep.http.rates import Concurrency, Rate, RateSettings


class Watch:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def passes(rate: Rate, name: str) -> bool:
    try:
        rate.take(name)
    except TooManyRequests:
        return False
    return True


def test_a_burst_and_then_the_even_rate() -> None:
    watch = Watch()
    rate = Rate(RateSettings(per_second=2, burst=5), watch)
    assert [passes(rate, "p") for _ in range(7)] == [True] * 5 + [False] * 2
    watch.seconds += 1
    assert [passes(rate, "p") for _ in range(3)] == [True, True, False]
    assert passes(rate, "other"), "what one asks takes nothing from another"
    watch.seconds += 60
    assert [passes(rate, "p") for _ in range(6)] == [True] * 5 + [False]


def test_the_refused_hear_when_the_next_one_passes() -> None:
    watch = Watch()
    rate = Rate(RateSettings(per_second=0.1, burst=1), watch)
    rate.take("p")
    with pytest.raises(TooManyRequests) as refused:
        rate.take("p")
    assert refused.value.retry_after == 10
    watch.seconds += refused.value.retry_after
    assert passes(rate, "p")


@given(
    gaps=st.lists(st.floats(0, 3), min_size=1, max_size=60),
    per_second=st.floats(0.2, 50),
    burst=st.integers(1, 20),
)
def test_no_stretch_of_time_has_more_than_burst_and_rate(gaps: list[float], per_second: float, burst: int) -> None:
    watch = Watch()
    rate = Rate(RateSettings(per_second=per_second, burst=burst), watch)
    times: list[float] = []
    for gap in gaps:
        watch.seconds += gap
        if passes(rate, "p"):
            times.append(watch.seconds)
    for first in range(len(times)):
        for last in range(first, len(times)):
            assert last - first + 1 <= burst + (times[last] - times[first]) * per_second + 1e-6


def test_memory_is_bounded_and_those_silent_for_longest_are_forgotten() -> None:
    rate = Rate(RateSettings(per_second=1, burst=1), Watch(), names=3)
    for name in ("a", "b", "c", "d"):
        assert passes(rate, name)
    assert len(rate) == 3
    assert not passes(rate, "d")
    assert passes(rate, "a")


def test_nothing_is_counted_without_a_limit() -> None:
    rate = Rate(RateSettings(per_second=0, burst=1), Watch())
    assert all(passes(rate, "p") for _ in range(100))
    assert len(rate) == 0


def test_so_many_at_once_and_none_is_remembered_when_all_are_over() -> None:
    at_once = Concurrency(2)
    at_once.begin("p")
    at_once.begin("p")
    with pytest.raises(TooManyRequests):
        at_once.begin("p")
    at_once.begin("other")
    at_once.end("p")
    at_once.begin("p")
    for name in ("p", "p", "other"):
        at_once.end(name)
    assert len(at_once) == 0


def test_any_number_at_once() -> None:
    at_once = Concurrency(0)
    for _ in range(1000):
        at_once.begin("p")
    assert len(at_once) == 1
