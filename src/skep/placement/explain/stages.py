"""How many hosts each stage left, of those worth showing."""

from __future__ import annotations

from collections.abc import Sequence

from skep.domain.builds import StageCount
from skep.placement.filters.base import Filter
from skep.placement.request import PlacementRequest


def runs(entry: Filter, request: PlacementRequest) -> bool:
    """Tell whether a filter judges this request at all."""
    return entry.applies(request) and (not request.is_forced or entry.when_forced)


def stage_counts(
    request: PlacementRequest, considered: int, left_after: Sequence[tuple[Filter, int]]
) -> tuple[StageCount, ...]:
    """Return the stages worth showing: those that removed somebody, or that the user asked for."""
    counts = []
    before = considered
    for entry, left in left_after:
        if left != before or (entry.asked and runs(entry, request)):
            counts.append(StageCount(entry.stage(request), left))
        before = left
    return tuple(counts)
