"""Evaluated columns by request shape: equal requests share them, and only changed hosts are judged again."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from skep.scheduler.columns import Floats, Ints
from skep.scheduler.registry import Pipeline
from skep.scheduler.request import PlacementRequest
from skep.scheduler.table import HostTable
from skep.scheduler.view import HostView

PASSED = 254
"""In the stage column: no shared filter rejected the host."""
NOT_MAPPED = 255
"""In the stage column: the row is no host that the operator knows."""


class Evaluated:
    """What the shared filters and weighers say of each row for one shape."""

    __slots__ = ("counts", "position", "score", "stage")

    def __init__(self, stage: NDArray[np.uint8], score: Floats, position: int) -> None:
        self.stage = stage
        """Number of the first filter that rejected the row."""
        self.score = score
        """Weighted sum; minus infinity where a filter rejected the host."""
        self.counts: Ints = np.bincount(stage, minlength=256)
        self.position = position
        """Up to where the table's log of changes is counted in."""

    def left_after(self, filters: int) -> list[int]:
        """Return how many hosts each of the first `filters` stages left."""
        left = len(self.stage) - int(self.counts[NOT_MAPPED])
        result = []
        for count in self.counts[:filters].tolist():
            left -= count
            result.append(left)
        return result

    @property
    def considered(self) -> int:
        """Hosts that the operator knows."""
        return len(self.stage) - int(self.counts[NOT_MAPPED])


class Shapes:
    """A bounded cache of evaluated shapes."""

    def __init__(self, table: HostTable, pipeline: Pipeline, limit: int) -> None:
        self._table = table
        self._pipeline = pipeline
        self._limit = limit
        self._cache: OrderedDict[tuple[object, ...], Evaluated] = OrderedDict()

    def evaluate(self, request: PlacementRequest) -> Evaluated:
        """Return the columns of the request's shape as of now. Callers must not change them."""
        self._table.forget_old_changes()
        known = self._cache.get(request.shape)
        if known is not None and len(known.stage) == self._table.size:
            self._cache.move_to_end(request.shape)
            if known.position == self._table.position:
                return known
            rows = self._table.changed_since(known.position)
            if rows is not None:
                return self._refresh(known, request, np.fromiter(rows, dtype=np.intp))
        fresh = Evaluated(*self._judge(HostView(self._table), request), self._table.position)
        self._cache[request.shape] = fresh
        self._cache.move_to_end(request.shape)
        if len(self._cache) > self._limit:
            self._cache.popitem(last=False)
        return fresh

    def _refresh(self, known: Evaluated, request: PlacementRequest, rows: NDArray[np.intp]) -> Evaluated:
        stage, score = self._judge(HostView(self._table, rows), request)
        known.counts -= np.bincount(known.stage[rows], minlength=256)
        known.counts += np.bincount(stage, minlength=256)
        known.stage[rows] = stage
        known.score[rows] = score
        known.position = self._table.position
        return known

    def _judge(self, hosts: HostView, request: PlacementRequest) -> tuple[NDArray[np.uint8], Floats]:
        alive = hosts.mapped.copy()
        stage = np.where(alive, np.uint8(PASSED), np.uint8(NOT_MAPPED))
        for number, entry in enumerate(self._pipeline.shared_filters):
            if not entry.applies(request) or (request.is_forced and not entry.when_forced):
                continue
            passed = alive & entry.passes(hosts, request)
            stage[alive & ~passed] = number
            alive = passed
        score = np.zeros(len(hosts), dtype=np.float64)
        for weigher, multiplier in self._pipeline.shared_weighers:
            score += multiplier * weigher.scores(hosts, request)
        score[~alive] = -np.inf
        return stage, score
