"""Which filters and weighers there are, by the names that an operator writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from skep.domain.errors import Misconfigured
from skep.scheduler.filters import (
    aggregate_extra_specs,
    aggregate_membership,
    availability_zone,
    capacity,
    cell,
    compute,
    different_host,
    forced_host,
    group_affinity,
    group_anti_affinity,
    ignored_hosts,
    reports,
    requested_host,
    same_host,
    traits,
    volume,
)
from skep.scheduler.filters.base import Filter
from skep.scheduler.settings import SchedulerSettings
from skep.scheduler.weighers import build_failures, cpu, disk, ram, soft_affinity, soft_anti_affinity
from skep.scheduler.weighers.base import Weigher

T = TypeVar("T")

FIRST = (reports.FILTER, forced_host.FILTER, requested_host.FILTER, cell.FILTER)
"""Always run, before the chosen ones."""

FILTERS: dict[str, Filter] = {
    "ComputeFilter": compute.FILTER,
    "AvailabilityZoneFilter": availability_zone.FILTER,
    "AggregateInstanceExtraSpecsFilter": aggregate_extra_specs.FILTER,
    "ServerGroupAffinityFilter": group_affinity.FILTER,
    "ServerGroupAntiAffinityFilter": group_anti_affinity.FILTER,
    "SameHostFilter": same_host.FILTER,
    "DifferentHostFilter": different_host.FILTER,
}
"""Those that an operator may leave out."""

FAMILIES: dict[str, tuple[Filter, ...]] = {"VolumeFilter": volume.FILTERS}
"""Those that an operator may add: one name, several stages. They read what other services tell of hosts."""

LAST = (aggregate_membership.FILTER, traits.FILTER, capacity.FILTER, ignored_hosts.FILTER)
"""Always run, after the chosen ones of their kind."""

WEIGHERS: dict[str, Weigher] = {
    "CPUWeigher": cpu.WEIGHER,
    "RAMWeigher": ram.WEIGHER,
    "DiskWeigher": disk.WEIGHER,
    "BuildFailureWeigher": build_failures.WEIGHER,
    "ServerGroupSoftAffinityWeigher": soft_affinity.WEIGHER,
    "ServerGroupSoftAntiAffinityWeigher": soft_anti_affinity.WEIGHER,
}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages and scores of one configuration. Per-request stages follow those that a shape shares."""

    shared_filters: tuple[Filter, ...]
    request_filters: tuple[Filter, ...]
    shared_weighers: tuple[tuple[Weigher, float], ...]
    request_weighers: tuple[tuple[Weigher, float], ...]

    @property
    def filters(self) -> tuple[Filter, ...]:
        """All stages in their order."""
        return self.shared_filters + self.request_filters


def pipeline(settings: SchedulerSettings) -> Pipeline:
    """Look up what `settings` name.

    Raises Misconfigured for a name that is not in the tables.
    """
    families = {**{name: (entry,) for name, entry in FILTERS.items()}, **FAMILIES}
    chosen = [*FIRST, *(entry for name in settings.filters for entry in _named(families, name, "filter")), *LAST]
    weighed = [
        (_named(WEIGHERS, name, "weigher"), multiplier) for name, multiplier in settings.weighers.items() if multiplier
    ]
    return Pipeline(
        shared_filters=tuple(entry for entry in chosen if not entry.per_request),
        request_filters=tuple(entry for entry in chosen if entry.per_request),
        shared_weighers=tuple(entry for entry in weighed if not entry[0].per_request),
        request_weighers=tuple(entry for entry in weighed if entry[0].per_request),
    )


def _named(table: dict[str, T], name: str, kind: str) -> T:
    if name not in table:
        raise Misconfigured(f"scheduler: no {kind} is called {name}; there are {', '.join(table)}")
    return table[name]
