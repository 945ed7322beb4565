"""Which filters and weighers there are, by the names that an operator writes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass

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
from skep.scheduler.options import PlacementOptions
from skep.scheduler.plugins.loading import load_filter, load_weigher
from skep.scheduler.request import PlacementRequest
from skep.scheduler.settings import SchedulerSettings
from skep.scheduler.table import HostTable
from skep.scheduler.weighers import build_failures, cpu, disk, ram, soft_affinity, soft_anti_affinity
from skep.scheduler.weighers.base import Weigher

ShapePart = Callable[[HostTable, PlacementRequest], Hashable]

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

CONFIGURED: dict[str, Callable[[PlacementOptions], tuple[Filter, ...]]] = {}
"""Those that options tell something."""

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

CONFIGURED_WEIGHERS: dict[str, Callable[[PlacementOptions], Weigher]] = {}
"""Those that options tell something."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages and scores of one configuration. Per-request stages follow those that a shape shares."""

    shared_filters: tuple[Filter, ...]
    request_filters: tuple[Filter, ...]
    shared_weighers: tuple[tuple[Weigher, float], ...]
    request_weighers: tuple[tuple[Weigher, float], ...]
    shape_parts: tuple[ShapePart, ...] = ()
    """What the chosen filters add to the shapes of requests."""

    @property
    def filters(self) -> tuple[Filter, ...]:
        """All stages in their order."""
        return self.shared_filters + self.request_filters


def pipeline(settings: SchedulerSettings, called: Collection[str] = ()) -> Pipeline:
    """Look up what `settings` name. `called`: keys of multipliers by which aggregates call weighers that have 0.

    A name that is not in the tables is looked for in other packages. Raises Misconfigured where there is none.
    """
    filters: dict[str, tuple[Filter, ...]] = {name: (entry,) for name, entry in FILTERS.items()}
    filters |= FAMILIES | {name: made(settings.options) for name, made in CONFIGURED.items()}
    chosen = [
        *FIRST,
        *(entry for name in settings.filters for entry in filters.get(name) or (load_filter(name, filters),)),
        *LAST,
    ]
    shared = tuple(entry for entry in chosen if not entry.per_request)
    known = WEIGHERS | {name: made(settings.options) for name, made in CONFIGURED_WEIGHERS.items()}
    weighed = [
        (known.get(name) or load_weigher(name, known), multiplier) for name, multiplier in settings.weighers.items()
    ]
    weighed = [entry for entry in weighed if entry[1] or entry[0].multiplier in called]
    return Pipeline(
        shared_filters=shared,
        request_filters=tuple(entry for entry in chosen if entry.per_request),
        shared_weighers=tuple(entry for entry in weighed if not entry[0].per_request),
        request_weighers=tuple(entry for entry in weighed if entry[0].per_request),
        shape_parts=tuple(entry.shaped_by for entry in shared if entry.shaped_by is not None),
    )
