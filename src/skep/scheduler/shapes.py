"""Evaluated columns by request shape: equal requests share them, and only changed hosts are judged again.

What a claim changes is little: how much a host has free. So filters that do not look at that are asked again only for
hosts whose facts changed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skep.scheduler.columns import Floats, Ints
from skep.scheduler.filters.base import Filter
from skep.scheduler.ranking import BUCKETS, NOBODY, Buckets, Peaks, Ranking
from skep.scheduler.registry import Pipeline
from skep.scheduler.request import PlacementRequest
from skep.scheduler.table import HostTable
from skep.scheduler.view import HostView

NOT_MAPPED = 0
"""In the stage column: the row is no host that the operator knows."""
FIRST_FILTER = 1
"""In the stage column: rejected by the first shared filter; the others follow."""
PASSED = 255
"""In the stage column: no shared filter rejected the host."""

Stages = NDArray[np.uint8]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What of the pipeline concerns one shape."""

    steady: tuple[tuple[int, Filter], ...]
    """With their number in the stage column."""
    varying: tuple[tuple[int, Filter], ...]


class Evaluated:
    """What the shared filters and weighers say of each row for one shape. Columns have room for rows to come."""

    __slots__ = ("counts", "judged", "layout", "peaks", "plan", "position", "score", "stage", "steady")

    def __init__(self, plan: _Plan, room: int) -> None:
        self.plan = plan
        self.layout = -1
        """Of the places by which scores are kept."""
        self.steady: Stages = np.full(room, NOT_MAPPED, dtype=np.uint8)
        """The first filter that rejected the row, of those that do not look at what is free."""
        self.stage: Stages = np.full(room, NOT_MAPPED, dtype=np.uint8)
        """The first filter that rejected the row."""
        self.score: Floats = np.full(0, NOBODY)
        """Weighted sum by place (`ranking.Buckets`); NOBODY where a filter rejected the host."""
        self.peaks = Peaks(self.score)
        self.counts: Ints = np.zeros(256, dtype=np.int64)
        self.judged = 0
        """Rows that are counted. One that is new counts as not mapped before: it takes from that count what it adds."""
        self.position = -1
        """Up to where the table's log of changes is counted in."""

    def left_after(self, filters: int) -> list[int]:
        """Return how many hosts each of the first `filters` stages left."""
        left = self.considered
        result = []
        for count in self.counts[FIRST_FILTER : FIRST_FILTER + filters].tolist():
            left -= count
            result.append(left)
        return result

    @property
    def considered(self) -> int:
        """Hosts that the operator knows."""
        return self.judged - self.counts.item(NOT_MAPPED)


class Shapes:
    """A bounded cache of evaluated shapes."""

    def __init__(self, table: HostTable, pipeline: Pipeline, limit: int) -> None:
        self._table = table
        self._pipeline = pipeline
        self._limit = limit
        self._cache: OrderedDict[tuple[object, ...], Evaluated] = OrderedDict()
        self._buckets = Buckets()

    def evaluate(self, request: PlacementRequest) -> Evaluated:
        """Return the columns of the request's shape as of now. Callers must not change them."""
        table = self._table
        room = len(table.mapped)
        known = self._cache.get(request.shape)
        if known is None or len(known.stage) != room:
            known = self._cache[request.shape] = Evaluated(self._plan(request), room)
            if len(self._cache) > self._limit:
                self._cache.popitem(last=False)
        if known.position != table.position:
            self._buckets.follow(table.node_hash, table.size)
            self._refresh(known, request)
        self._cache.move_to_end(request.shape)
        return known

    def ranking(self, shared: Evaluated) -> Ranking:
        """Rank hosts by what was evaluated."""
        table = self._table
        return Ranking.of_places(self._buckets, table.node_hash, table.cell, shared.score, shared.peaks)

    def ranking_by(self, score: Floats) -> Ranking:
        """Rank hosts by a score of each row."""
        return Ranking(self._buckets, self._table.node_hash, self._table.cell, score)

    def scores(self, shared: Evaluated) -> Floats:
        """Return what was evaluated, as a score of each row."""
        return shared.score[self._buckets.place_of_row]

    def _plan(self, request: PlacementRequest) -> _Plan:
        running = [
            (number, entry)
            for number, entry in enumerate(self._pipeline.shared_filters, FIRST_FILTER)
            if entry.applies(request) and (entry.when_forced or not request.is_forced)
        ]
        return _Plan(
            steady=tuple(item for item in running if item[1].steady),
            varying=tuple(item for item in running if not item[1].steady),
        )

    def _refresh(self, known: Evaluated, request: PlacementRequest) -> None:
        changed = self._table.changes_since(known.position) if known.layout == self._buckets.layout else None
        if changed is None:
            self._evaluate_all(known, request)
            return
        rows = changed.amounts
        if len(changed.facts):
            known.steady[changed.facts] = self._judge_facts(known.plan, HostView(self._table, changed.facts), request)
            rows = np.union1d(rows, changed.facts)
        stage, score = self._judge(known.plan, known.steady[rows], rows, request)
        before = known.stage[rows]
        if (stage != before).any():
            known.counts += np.bincount(stage, minlength=256) - np.bincount(before, minlength=256)
            known.stage[rows] = stage
        self._move_peaks(known, rows, score)
        known.position = self._table.position

    def _evaluate_all(self, known: Evaluated, request: PlacementRequest) -> None:
        size = self._table.size
        known.steady[:size] = self._judge_facts(known.plan, HostView(self._table), request)
        stage, score = self._judge(known.plan, known.steady[:size], slice(0, size), request)
        known.stage[:size] = stage
        known.counts = np.bincount(stage, minlength=256)
        known.judged = size
        known.score = np.full(len(self._buckets.row_at), NOBODY)
        known.score[self._buckets.place_of_row] = score
        known.peaks = Peaks(known.score.reshape(BUCKETS, -1).max(axis=1))
        known.layout = self._buckets.layout
        known.position = self._table.position

    def _move_peaks(self, known: Evaluated, rows: Rows, score: Floats) -> None:
        """Set the scores of some rows, and the highest scores of their buckets."""
        places = self._buckets.place_of_row[rows]
        before = known.score[places]
        known.score[places] = score
        buckets = self._buckets.of_row[rows]
        highest = known.peaks.highest
        peaks = highest[buckets]
        higher = (score > peaks).nonzero()[0]
        if len(higher):
            np.maximum.at(highest, buckets[higher], score[higher])
        fallen = buckets[(before == peaks) & (score < before)]
        if len(fallen):
            highest[fallen] = known.score.reshape(BUCKETS, -1)[fallen].max(axis=1)

    def _judge_facts(self, plan: _Plan, hosts: HostView, request: PlacementRequest) -> Stages:
        alive = hosts.mapped.copy()
        stage = np.where(alive, np.uint8(PASSED), np.uint8(NOT_MAPPED))
        for number, entry in plan.steady:
            passed = alive & entry.passes(hosts, request)
            stage[alive & ~passed] = number
            alive = passed
        return stage

    def _judge(
        self, plan: _Plan, steady: Stages, rows: Rows | slice, request: PlacementRequest
    ) -> tuple[Stages, Floats]:
        hosts = HostView(self._table, rows)
        stage = steady
        for number, entry in plan.varying:
            passed = entry.passes(hosts, request)
            stage = np.where(passed, stage, np.minimum(stage, np.uint8(number)))
        score = np.zeros(len(hosts), dtype=np.float64)
        for weigher, multiplier in self._pipeline.shared_weighers:
            score += multiplier * weigher.scores(hosts, request)
        score[stage != PASSED] = NOBODY
        return stage, score
