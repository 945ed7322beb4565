"""Whatever its story, an engine decides as one that is made afresh of the same facts."""

from __future__ import annotations

import pytest

from tests.support.long_stories import bounds, story
from tests.support.samples import examples


@pytest.mark.parametrize("seed", range(examples(11)))
def test_an_engine_with_a_story_decides_as_one_without(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in bounds.small(seed):
        monkeypatch.setattr(*bound)
    story.tell(seed, steps=60)
