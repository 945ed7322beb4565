"""Explanations of requests that no host fits, at hand for each shape: the next of a crowd costs what changed since."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from skep.domain.builds import Explanation, StageCount
from skep.scheduler.explain.changes import smallest_changes
from skep.scheduler.explain.failures import Failures, RowNumbers, ShapeFailures, with_request_filters
from skep.scheduler.explain.misses import Nearest, near_misses, nearest
from skep.scheduler.explain.stages import runs
from skep.scheduler.registry import Pipeline
from skep.scheduler.request import PlacementRequest
from skep.scheduler.settings import SchedulerSettings
from skep.scheduler.table import HostTable
from skep.scheduler.view import HostView

_MOST_SHAPES = 32
"""So many refused shapes are kept: each costs two bytes for each host."""
_CAPACITY = "CapacityFilter"
_ANY_ROW = 2**62


class _Refused:
    """What is known of one shape."""

    __slots__ = ("failures", "nearest", "rejected", "shared")

    def __init__(self, shared: object, failures: ShapeFailures, near: Nearest) -> None:
        self.shared = shared
        """The evaluated shape, which sees to it that changes are noted that decide about it."""
        self.failures = failures
        self.nearest = near
        self.rejected: tuple[dict[str, str], int] | None = None
        """Host -> the stage that rejected it; and up to which row that may depend on a host."""


class Refusals:
    """Explains why no host fits."""

    def __init__(self, table: HostTable, pipeline: Pipeline, settings: SchedulerSettings) -> None:
        self._table = table
        self._pipeline = pipeline
        self._most_rejected = settings.max_rejected_hosts
        self._most_near = settings.max_near_misses
        self._limit = min(settings.cached_shapes, _MOST_SHAPES)
        self._known: OrderedDict[tuple[object, ...], _Refused] = OrderedDict()

    def explain(
        self, request: PlacementRequest, shared: object, stages: tuple[StageCount, ...], considered: int
    ) -> Explanation:
        """Explain that no host fits, as of now; `stages` and `considered` are those of the decision.

        `shared`: the shape's evaluated columns as of now. Another object than the last time means that the shape had
        been forgotten in between.
        """
        refused = self._refused(request, shared)
        running = [entry for entry in self._pipeline.request_filters if runs(entry, request)]
        failures: Failures = refused.failures
        if running:
            failures = with_request_filters(refused.failures, self._table, running, request)
            rejected, _ = self._rejected(failures, request)
        else:
            rejected, _ = refused.rejected = refused.rejected or self._rejected(failures, request)
        by_capacity = self._by_capacity(refused, failures, request)
        last = stages[-1].stage if stages else ""
        return Explanation(
            considered=considered,
            stages=stages,
            nearest=near_misses(self._table, request, failures, by_capacity, last, self._most_near),
            rejected=rejected,
            verdict="" if not considered else "not_now" if refused.failures.could_hold else "never",
            could_hold=refused.failures.could_hold,
            changes=smallest_changes(self._table, request, failures, by_capacity),
        )

    def _refused(self, request: PlacementRequest, shared: object) -> _Refused:
        known = self._known.get(request.shape)
        if known is None or known.shared is not shared:
            filters = [entry for entry in self._pipeline.shared_filters if runs(entry, request)]
            failures = ShapeFailures(self._table, filters, request)
            known = self._known[request.shape] = _Refused(shared, failures, Nearest(self._table, self._most_near))
            if len(self._known) > self._limit:
                self._known.popitem(last=False)
        else:
            changed = known.failures.refresh(request)
            if known.rejected is not None and (changed is None or (changed <= known.rejected[1]).any()):
                known.rejected = None
        self._known.move_to_end(request.shape)
        return known

    def _by_capacity(self, refused: _Refused, failures: Failures, request: PlacementRequest) -> RowNumbers:
        """Return the nearest of the hosts that fail on capacity alone."""
        failed = failures.bit(_CAPACITY)
        if not failures.counts.get(failed):
            return np.zeros(0, dtype=np.intp)
        if failures is refused.failures:
            return refused.nearest.rows(failures, failed, request)
        return nearest(self._table, request, failures.rows(failed))[: self._most_near]

    def _rejected(self, failures: Failures, request: PlacementRequest) -> tuple[dict[str, str], int]:
        """Return the stage that rejected each of the first hosts, and up to which row that may depend on a host."""
        table = self._table
        rows = np.flatnonzero(table.mapped[: table.size])[: self._most_rejected]
        hosts, first = HostView(table, rows), np.full(len(rows), -1)
        for number, entry in reversed(list(enumerate(failures.filters))):
            first[~entry.passes(hosts, request)] = number
        words = [entry.stage(request) for entry in failures.filters]
        found = {
            table.hosts[row]: words[number]
            for row, number in zip(rows.tolist(), first.tolist(), strict=True)
            if number >= 0
        }
        return found, int(rows[-1]) if len(rows) == self._most_rejected else _ANY_ROW
