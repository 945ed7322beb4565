"""The engine agrees with the naive reference: what each filter says, stage counts, chosen hosts, alternates."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from skep.domain.hosts import HostUsage
from skep.placement.settings import SchedulerSettings
from tests.support.reference_stories import stories


@given(stories.settings, stories.beginnings, stories.histories)
def test_engine_and_reference_agree(
    settings: SchedulerSettings, reports: tuple[HostUsage, ...], story: list[tuple[str, Any]]
) -> None:
    pair = stories.begin(settings, reports)
    for event in story:
        stories.tell(pair, event)
        pair.check()
