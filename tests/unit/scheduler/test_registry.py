"""The tables of filters and weighers: names, defaults, and that the page for users knows them all."""

from __future__ import annotations

from pathlib import Path

from skep.scheduler import registry
from skep.scheduler.settings import DEFAULT_FILTERS, DEFAULT_WEIGHERS, SchedulerSettings

PAGE = Path(__file__).parents[3] / "docs" / "placement.md"


def test_names_in_the_tables_are_the_names_of_what_they_hold() -> None:
    assert [(name, entry.name) for name, entry in registry.FILTERS.items() if name != entry.name] == []
    assert [(name, entry.name) for name, entry in registry.WEIGHERS.items() if name != entry.name] == []


def test_the_defaults_are_all_there_is() -> None:
    assert set(DEFAULT_FILTERS) == set(registry.FILTERS)
    assert set(DEFAULT_WEIGHERS) == set(registry.WEIGHERS)


def test_stages_that_a_shape_shares_come_before_those_of_one_request() -> None:
    pipeline = registry.pipeline(SchedulerSettings())
    assert [entry.per_request for entry in pipeline.filters] == sorted(entry.per_request for entry in pipeline.filters)
    assert {entry.name for entry in pipeline.filters} == {
        *registry.FILTERS,
        *(entry.name for entry in registry.FIRST + registry.LAST),
    }


def test_the_page_lists_all_filters_in_their_order_and_all_weighers() -> None:
    lines = PAGE.read_text().splitlines()
    rows = [
        line.split("|")[1].split(",")[0].strip() for line in lines if line.startswith("| ") and "Filter" in line[:45]
    ]
    assert rows == [entry.name for entry in registry.pipeline(SchedulerSettings()).filters]
    assert [name for name in registry.WEIGHERS if name not in PAGE.read_text()] == []
