"""Many more stories of engines than `tests/property` tells, and some with the bounds that the engine really has."""

from __future__ import annotations

import pytest

from tests.support.long_stories import bounds, story


@pytest.mark.sampled(15)
@pytest.mark.parametrize("seed", range(11, 71))
def test_an_engine_with_a_story_decides_as_one_without(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in bounds.small(seed):
        monkeypatch.setattr(*bound)
    story.tell(seed, steps=60)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(100, 110))
def test_an_engine_as_it_is_decides_as_one_without_a_story(seed: int) -> None:
    story.tell(seed, steps=60)
