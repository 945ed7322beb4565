"""What a process keeps when it begins to serve is never looked at again, and an answer is over before a look."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from skep.processes import collector


@pytest.fixture
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("_as_before")
def test_a_long_answer_is_made_without_a_look() -> None:
    gc.set_threshold(700, 10, 10)
    collector.settle()
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (collector.YOUNG, 10, 10)
    looks = gc.get_stats()[0]["collections"]
    answer: list[object] = [{"server": {"addresses": [[], []]}} for _ in range(collector.YOUNG // 10)]
    assert gc.get_stats()[0]["collections"] == looks
    assert len(answer) == collector.YOUNG // 10
