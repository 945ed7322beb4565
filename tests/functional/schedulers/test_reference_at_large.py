"""The engine and the naive reference over hundreds of clouds, or thousands; `tests/property` looks at some of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as profile

from skep.domain.hosts import HostUsage
from skep.placement.settings import SchedulerSettings
from tests.support import samples
from tests.support.reference_stories import stories


@pytest.mark.sampled
@pytest.mark.timeout(600)
@profile(max_examples=2000 if samples.everywhere() else 150)
@given(stories.settings, stories.beginnings, stories.histories)
def test_engine_and_reference_agree_in_many_clouds(
    settings: SchedulerSettings, reports: tuple[HostUsage, ...], story: list[tuple[str, Any]]
) -> None:
    pair = stories.begin(settings, reports)
    for event in story:
        stories.tell(pair, event)
        pair.check()
