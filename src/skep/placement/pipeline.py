"""The filters and weighers of one configuration, in their order."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields

from skep.placement.filters.abilities import (
    CountsRoom,
    JudgesDomains,
    JudgesRecords,
    JudgesRows,
    Named,
    NamesRows,
    Recorded,
    TellsCauses,
)
from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Ints
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.spreading import Domains
from skep.placement.weighers.base import Weigher

ShapePart = Callable[[HostTable, PlacementRequest], Hashable]


@dataclass(frozen=True, slots=True)
class Stage(Filter):
    """A filter in a pipeline, with what it can do beyond its question (`abilities.py`): None where it cannot."""

    fits: Callable[[HostTable, PlacementRequest, int], bool] | None = None
    named: Callable[[HostTable, PlacementRequest], Named] | None = None
    domains: Callable[[PlacementRequest], Domains | None] | None = None
    room: Callable[[HostView, PlacementRequest], Ints] | None = None
    still: Callable[[HostTable, PlacementRequest, Recorded], bool] | None = None
    cause: Callable[[HostTable, int], str] | None = None


def stage_of(entry: Filter) -> Stage:
    """Look up what a filter can do."""
    question: object = entry.passes
    return Stage(
        **{one.name: getattr(entry, one.name) for one in fields(entry)},
        fits=question.fits if isinstance(question, JudgesRows) else None,
        named=question.named if isinstance(question, NamesRows) else None,
        domains=question.domains if isinstance(question, JudgesDomains) else None,
        room=question.room if isinstance(question, CountsRoom) else None,
        still=question.still if isinstance(question, JudgesRecords) else None,
        cause=question.cause if isinstance(question, TellsCauses) else None,
    )


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages and scores of one configuration. Per-request stages follow those that a shape shares."""

    shared_filters: tuple[Stage, ...]
    request_filters: tuple[Stage, ...]
    shared_weighers: tuple[tuple[Weigher, float], ...]
    request_weighers: tuple[tuple[Weigher, float], ...]
    occasional_weighers: tuple[tuple[Weigher, float], ...] = ()
    """Those that have something to say of some shapes of requests only."""
    shape_parts: tuple[ShapePart, ...] = ()
    """What the chosen filters add to the shapes of requests."""

    @property
    def filters(self) -> tuple[Stage, ...]:
        """All stages in their order."""
        return self.shared_filters + self.request_filters
