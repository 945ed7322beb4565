"""The filters and weighers of one configuration, in their order."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from skep.placement.filters.base import Filter
from skep.placement.hosts.table import HostTable
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Weigher

ShapePart = Callable[[HostTable, PlacementRequest], Hashable]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages and scores of one configuration. Per-request stages follow those that a shape shares."""

    shared_filters: tuple[Filter, ...]
    request_filters: tuple[Filter, ...]
    shared_weighers: tuple[tuple[Weigher, float], ...]
    request_weighers: tuple[tuple[Weigher, float], ...]
    occasional_weighers: tuple[tuple[Weigher, float], ...] = ()
    """Those that have something to say of some shapes of requests only."""
    shape_parts: tuple[ShapePart, ...] = ()
    """What the chosen filters add to the shapes of requests."""

    @property
    def filters(self) -> tuple[Filter, ...]:
        """All stages in their order."""
        return self.shared_filters + self.request_filters
