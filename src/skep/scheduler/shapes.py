"""Evaluated columns by request shape: equal requests share them, and only changed hosts are judged again.

What a claim changes is little: how much a host has free. So filters that do not look at that are asked again only for
hosts whose facts changed, and scores that do not depend on the request are worked out once for all shapes.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skep.scheduler.columns import Floats, Ints
from skep.scheduler.filters.base import Filter
from skep.scheduler.ranking import NOBODY, Buckets, Ranking
from skep.scheduler.registry import Pipeline
from skep.scheduler.request import PlacementRequest
from skep.scheduler.table import HostTable
from skep.scheduler.view import HostView
from skep.scheduler.weighers.base import Weigher

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
    weighers: tuple[tuple[Weigher, float], ...]
    """Those that read the request."""


class Evaluated:
    """What the shared filters and weighers say of each row for one shape.

    All columns have room for rows to come. The score's last place stands for no row and is NOBODY.
    """

    __slots__ = ("_filters", "_ranking", "_size", "counts", "peaks", "plan", "position", "score", "stage", "steady")

    def __init__(self, plan: _Plan, room: int) -> None:
        self.plan = plan
        self.steady: Stages = np.full(room, NOT_MAPPED, dtype=np.uint8)
        """The first filter that rejected the row, of those that do not look at what is free."""
        self.stage: Stages = np.full(room, NOT_MAPPED, dtype=np.uint8)
        """The first filter that rejected the row."""
        self.score: Floats = np.full(room + 1, NOBODY)
        """Weighted sum; NOBODY where a filter rejected the host."""
        self.peaks: Floats = np.full(0, NOBODY)
        """The highest score of each bucket."""
        self.counts: Ints = np.zeros(256, dtype=np.int64)
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
        return int(self.counts[FIRST_FILTER:].sum())


class Shapes:
    """A bounded cache of evaluated shapes."""

    def __init__(self, table: HostTable, pipeline: Pipeline, limit: int) -> None:
        self._table = table
        self._pipeline = pipeline
        self._limit = limit
        self._cache: OrderedDict[tuple[object, ...], Evaluated] = OrderedDict()
        self._common = tuple(entry for entry in pipeline.shared_weighers if not entry[0].reads_request)
        self._common_score: Floats = np.zeros(0, dtype=np.float64)
        """Weighted sum of the scores that are the same for all requests."""
        self._common_position = -1
        self._buckets = Buckets()

    def evaluate(self, request: PlacementRequest) -> Evaluated:
        """Return the columns of the request's shape as of now. Callers must not change them."""
        table = self._table
        room = len(table.mapped)
        known = self._cache.get(request.shape)
        if known is not None and len(known.stage) == room:
            if known.position != table.position:
                self._follow(request)
                self._refresh(known, request)
        else:
            self._follow(request)
            known = self._cache[request.shape] = Evaluated(self._plan(request), room)
            self._evaluate_all(known, request)
            if len(self._cache) > self._limit:
                self._cache.popitem(last=False)
        self._cache.move_to_end(request.shape)
        return known

    def ranking(self, score: Floats, peaks: Floats | None) -> Ranking:
        """Rank the table's rows by `score`. `peaks` are those of an evaluated shape with this very score, else None."""
        return Ranking(score, peaks, self._buckets, self._table.node_hash, self._table.cell)

    def _plan(self, request: PlacementRequest) -> _Plan:
        running = [
            (number, entry)
            for number, entry in enumerate(self._pipeline.shared_filters, FIRST_FILTER)
            if entry.applies(request) and (entry.when_forced or not request.is_forced)
        ]
        return _Plan(
            steady=tuple(item for item in running if item[1].steady),
            varying=tuple(item for item in running if not item[1].steady),
            weighers=tuple(entry for entry in self._pipeline.shared_weighers if entry[0].reads_request),
        )

    def _follow(self, request: PlacementRequest) -> None:
        """Bring what all shapes share up to date."""
        table = self._table
        self._buckets.follow(table.node_hash, table.size)
        if self._common_position == table.position and len(self._common_score) == len(table.mapped):
            return
        changed = table.changes_since(self._common_position)
        if changed is None or len(self._common_score) != len(table.mapped):
            self._common_score = np.zeros(len(table.mapped), dtype=np.float64)
            self._common_score[: table.size] = _weighted(self._common, HostView(table), request)
        else:
            rows = np.concatenate((changed.facts, changed.amounts))
            self._common_score[rows] = _weighted(self._common, HostView(table, rows), request)
        self._common_position = table.position

    def _refresh(self, known: Evaluated, request: PlacementRequest) -> None:
        changed = self._table.changes_since(known.position)
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
        known.score[:size] = score
        known.peaks = known.score[self._buckets.members].max(axis=1)
        known.position = self._table.position

    def _move_peaks(self, known: Evaluated, rows: Rows, score: Floats) -> None:
        """Set the scores of some rows, and the highest scores of their buckets."""
        before = known.score[rows]
        known.score[rows] = score
        buckets = self._buckets.of_row[rows]
        peaks = known.peaks[buckets]
        higher = score > peaks
        np.maximum.at(known.peaks, buckets[higher], score[higher])
        fallen = buckets[(before == peaks) & (score < before)]
        if len(fallen):
            known.peaks[fallen] = known.score[self._buckets.members[fallen]].max(axis=1)

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
        score = self._common_score[rows]
        if plan.weighers:
            score = score + _weighted(plan.weighers, hosts, request)
        return stage, np.where(stage == PASSED, score, NOBODY)


def _weighted(weighers: tuple[tuple[Weigher, float], ...], hosts: HostView, request: PlacementRequest) -> Floats:
    total = np.zeros(len(hosts), dtype=np.float64)
    for weigher, multiplier in weighers:
        total += multiplier * weigher.scores(hosts, request)
    return total
