"""The tables of filters and weighers: names, defaults, and that the page for users knows them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from skep.placement import registry
from skep.placement.options import PlacementOptions
from skep.placement.prefilters import PREFILTERS
from skep.placement.settings import DEFAULT_FILTERS, DEFAULT_WEIGHERS, SchedulerSettings

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "placement.md"
OPTIONS = PlacementOptions(
    metrics_weight_setting={"cpu.percent": -1.0},
    limit_tenants_to_placement_aggregate=True,
    enable_isolated_aggregate_filtering=True,
)
NESTED = {entry.name for entry in registry.NESTED}
ALL_FILTERS = {*registry.FILTERS, *registry.FAMILIES, *registry.CONFIGURED, *NESTED}
ALL_WEIGHERS = {*registry.WEIGHERS, *registry.CONFIGURED_WEIGHERS}
NOVAS_FILTERS = {
    "AggregateImagePropertiesIsolation",
    "AggregateInstanceExtraSpecsFilter",
    "AggregateIoOpsFilter",
    "AggregateMultiTenancyIsolation",
    "AggregateNumInstancesFilter",
    "AggregateTypeAffinityFilter",
    "AllHostsFilter",
    "ComputeCapabilitiesFilter",
    "ComputeFilter",
    "DifferentHostFilter",
    "ImagePropertiesFilter",
    "IoOpsFilter",
    "IsolatedHostsFilter",
    "JsonFilter",
    "MetricsFilter",
    "NUMATopologyFilter",
    "NumInstancesFilter",
    "PciPassthroughFilter",
    "SameHostFilter",
    "ServerGroupAffinityFilter",
    "ServerGroupAntiAffinityFilter",
    "SimpleCIDRAffinityFilter",
}
NOVAS_WEIGHERS = {
    "BuildFailureWeigher": 1_000_000.0,
    "CPUWeigher": 1.0,
    "CrossCellWeigher": 1_000_000.0,
    "DiskWeigher": 1.0,
    "HypervisorVersionWeigher": 1.0,
    "ImagePropertiesWeigher": 0.0,
    "IoOpsWeigher": -1.0,
    "MetricsWeigher": 1.0,
    "NumInstancesWeigher": 0.0,
    "PCIWeigher": 1.0,
    "RAMWeigher": 1.0,
    "ServerGroupSoftAffinityWeigher": 1.0,
    "ServerGroupSoftAntiAffinityWeigher": 1.0,
}


def rows_of(heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading of the page."""
    lines = PAGE.read_text().split(f"\n{heading}\n", 1)[1].splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = lines[first + 2 :]
    end = next((number for number, line in enumerate(table) if not line.startswith("|")), len(table))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[:end]]


def names_in(rows: list[list[str]]) -> list[str]:
    return [name.split(" (")[0].strip(" `") for row in rows for name in row[0].split(", ") if name != "always"]


def test_names_in_the_tables_are_the_names_of_what_they_hold() -> None:
    assert [(name, entry.name) for name, entry in registry.FILTERS.items() if name != entry.name] == []
    assert [(name, entry.name) for name, entry in registry.WEIGHERS.items() if name != entry.name] == []
    made = {name: [entry.name for entry in make(OPTIONS)] for name, make in registry.CONFIGURED.items()}
    assert made == {name: [name] for name in registry.CONFIGURED}
    weighers = {name: make(OPTIONS) for name, make in registry.CONFIGURED_WEIGHERS.items()}
    assert [(name, entry) for name, entry in weighers.items() if entry is None or entry.name != name] == []


def test_each_weigher_has_the_key_by_which_aggregates_change_its_multiplier() -> None:
    made = [make(OPTIONS) for make in registry.CONFIGURED_WEIGHERS.values()]
    keys = [entry.multiplier for entry in (*registry.WEIGHERS.values(), *made) if entry is not None]
    assert [key for key in keys if not key.endswith("_weight_multiplier")] == []
    assert len(keys) == len(set(keys))


def test_novas_filters_and_weighers_are_there_with_novas_defaults() -> None:
    assert [name for name in sorted(NOVAS_FILTERS) if name not in ALL_FILTERS] == []
    assert [name for name in NOVAS_WEIGHERS if name not in ALL_WEIGHERS] == []
    assert {name: DEFAULT_WEIGHERS.get(name) for name in NOVAS_WEIGHERS} == NOVAS_WEIGHERS


def test_the_defaults_are_names_of_the_tables() -> None:
    assert set(DEFAULT_FILTERS) <= ALL_FILTERS
    assert set(DEFAULT_WEIGHERS) <= ALL_WEIGHERS


def test_stages_that_a_shape_shares_come_before_those_of_one_request() -> None:
    pipeline = registry.pipeline(SchedulerSettings())
    assert [entry.per_request for entry in pipeline.filters] == sorted(entry.per_request for entry in pipeline.filters)
    always = {entry.name for entry in registry.FIRST + registry.LAST}
    assert always <= {entry.name for entry in pipeline.filters}


def test_the_page_lists_the_filters_that_run_by_default_in_their_order() -> None:
    stages = [entry.name for entry in registry.pipeline(SchedulerSettings()).filters]
    assert names_in(rows_of("## Filters")) == stages


@pytest.mark.parametrize(
    ("heading", "wanted"),
    [
        ("### Filters to choose", ALL_FILTERS - NESTED - set(DEFAULT_FILTERS)),
        ("## Weighers", ALL_WEIGHERS),
        ("## Pre-filters", {*PREFILTERS, "require_tenant_aggregate", "isolate_aggregates"}),
    ],
)
def test_the_page_lists_all_others(heading: str, wanted: set[str]) -> None:
    assert wanted - set(names_in(rows_of(heading))) == set()


@pytest.mark.parametrize("heading", ["## Filters", "### Filters to choose", "## Weighers", "## Pre-filters"])
def test_the_page_names_tests_that_exist(heading: str) -> None:
    tests = [row[-1].strip("`") for row in rows_of(heading)]
    folders = [ROOT / "tests" / "unit" / package for package in ("placement", "scheduler")]
    assert [name for name in tests if not any((folder / name).is_file() for folder in folders)] == []


def test_a_metric_that_counts_must_be_reported() -> None:
    names = [entry.name for entry in registry.pipeline(SchedulerSettings(options=OPTIONS)).filters]
    assert "MetricsFilter" in names
    lenient = SchedulerSettings(
        options=PlacementOptions(metrics_weight_setting={"cpu.percent": -1.0}, metrics_required=False)
    )
    assert "MetricsFilter" not in [entry.name for entry in registry.pipeline(lenient).filters]
