"""Evaluated columns by request shape: equal requests share them, and only changed hosts are judged again.

What a claim changes is little: how much a host has free, and seldom whether that is enough. So filters that do not look
at it are asked again only for hosts whose facts changed, and those that compare it with an amount only where the very
amount that a shape asks for went or came (`levels.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from skep.domain.builds import StageCount
from skep.placement.hosts.changelog import KEPT_PART, Changed, ChangeLog
from skep.placement.hosts.columns import Floats, Mask
from skep.placement.hosts.levels import Crossed
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.pipeline import Pipeline
from skep.placement.ranking.narrowing import Narrowing
from skep.placement.ranking.order import RowOrder
from skep.placement.ranking.ranking import NOBODY, Fitting, Listed, Ranking, best_of_one_cell
from skep.placement.ranking.shape_plan import ShapePlan, plan_of
from skep.placement.ranking.standing import OwnOrder, Standing
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import weighted

NOT_MAPPED = 0
"""In the stage column: the row is no host that the operator knows."""
PASSED = 255
"""In the stage column: no shared filter rejected the host."""
_FEW = 32
"""Up to so many changes are judged one by one: two calls of NumPy cost more."""

Stages = NDArray[np.uint8]
Rows = NDArray[np.int64]


class Evaluated:
    """What the shared filters and weighers say of each row for one shape. Columns have room for rows to come."""

    __slots__ = (
        "_stages",
        "counts",
        "crossed",
        "fits",
        "judged",
        "log",
        "own",
        "own_helps",
        "plan",
        "position",
        "score",
        "scored",
        "stage",
        "steady",
    )

    def __init__(self, plan: ShapePlan, room: int, crossed: Crossed, log: ChangeLog) -> None:
        self.plan = plan
        self.log = log
        """Of the changes to look at beside."""
        self.crossed = crossed
        """Rows to judge again because of claims, where amounts are only compared with the request's."""
        self.steady: Stages = np.full(room, NOT_MAPPED, dtype=np.uint8)
        """The first filter that rejected the row, of those that do not look at what is free."""
        self.stage: Stages = np.full(room, NOT_MAPPED, dtype=np.uint8)
        """The first filter that rejected the row."""
        self.fits = self.stage.data
        """The same, for who looks at single rows: PASSED where the host fits."""
        self.counts: list[int] = [0] * 256
        """Rows of each stage."""
        self.judged = 0
        """Rows that are counted. One that is new counts as not mapped before: it takes from that count what it adds."""
        self.position = -1
        """Up to where the log of changes is counted in."""
        self.own: OwnOrder | None = None
        """Made when too few of the best hosts fitted, and given up if that did not help."""
        self.own_helps = True
        self.score: Floats | None = None
        """Weighted sum, where it was needed of all rows."""
        self.scored = -1
        """Up to where the table's log of changes is counted into the scores."""
        self._stages: tuple[StageCount, ...] | None = None

    def stages(self) -> tuple[StageCount, ...]:
        """Return how many hosts each stage left, of those worth showing: that removed somebody, or were asked for."""
        if self._stages is None or self.plan.words_now:
            self._stages = self.stages_of(self.counts)
        return self._stages

    def stages_of(self, counts: list[int]) -> tuple[StageCount, ...]:
        """Return the same where so many rows of each stage were rejected."""
        left, shown, words_now = self.considered, [], self.plan.words_now
        for number, words, asked in self.plan.stages:
            removed = counts[number]
            left -= removed
            if removed or asked:
                shown.append(StageCount(words_now[number]() if number in words_now else words, left))
        return tuple(shown)

    def count(self, stages: Stages) -> None:
        """Count anew how many rows each stage rejected."""
        self.counts = np.bincount(stages, minlength=256).tolist()
        self.judged = len(stages)
        self._stages = None

    def move(self, row: int, stage: int) -> None:
        """Note that another filter is the first to reject a row now, or none."""
        before = self.fits[row]
        if stage != before:
            self.counts[before] -= 1
            self.counts[stage] += 1
            self.fits[row] = stage
            self._stages = None

    @property
    def considered(self) -> int:
        """Hosts that the operator knows."""
        return self.judged - self.counts[NOT_MAPPED]

    @property
    def left(self) -> int:
        """Hosts that fit."""
        return self.counts[PASSED]


class Shapes:
    """A bounded cache of evaluated shapes."""

    def __init__(self, table: HostTable, pipeline: Pipeline, limit: int) -> None:
        self._table = table
        self._pipeline = pipeline
        self._limit = limit
        self._cache: OrderedDict[tuple[object, ...], Evaluated] = OrderedDict()
        self._standing = Standing(table, pipeline)

    def evaluate(self, request: PlacementRequest) -> Evaluated:
        """Return the columns of the request's shape as of now. Callers must not change them."""
        known = self._cache.get(request.shape)
        if known is None or len(known.stage) != len(self._table.mapped):
            known = self._add(request)
        else:
            if known.position != known.log.position:
                self._refresh(known, request)
            if known.crossed.rows:
                self._judge_crossed(known, request)
        self._cache.move_to_end(request.shape)
        return known

    @property
    def is_shared(self) -> bool:
        """Whether all weighers that every request has look at the host alone."""
        return self._standing.is_shared

    def parts(self, rows: list[int]) -> dict[str, dict[str, float]]:
        """Return what each of these gives the hosts of these rows, before its multiplier. Not to be changed."""
        return self._standing.parts(rows)

    def best(self, shared: Evaluated, request: PlacementRequest, salt: int) -> list[int] | None:
        """Return the best row and the request's alternates after it; empty: nobody fits.

        None where that is not known before all rows are ranked.
        """
        if not shared.left:
            return []
        if not shared.plan.in_order:
            return None
        cell = self._table.cell.data
        while True:
            order = self._order(shared, request)
            rows = best_of_one_cell(order, shared.fits, PASSED, shared.left, cell, request.alternates, salt)
            if rows is not None or shared.own is None or not shared.own.begin_again():
                return rows

    def order(self, shared: Evaluated, request: PlacementRequest) -> RowOrder | None:
        """Return an order in which every row has a place that fits, if there is one. Callers must not change it."""
        return self._order(shared, request) if shared.plan.in_order else None

    def ranking(
        self, shared: Evaluated, request: PlacementRequest, salt: int, narrowing: Narrowing | None = None
    ) -> Ranking:
        """Rank hosts by what was evaluated; with `narrowing` those alone that are left."""
        fitting = Fitting(shared.fits, PASSED, shared.left)
        return self._ranking(shared, request, salt, fitting, lambda: self._scores_far_down(shared, request), narrowing)

    def ranking_few(self, shared: Evaluated, request: PlacementRequest, salt: int, rows: list[int]) -> Listed:
        """Rank these rows alone; all of them were evaluated to fit."""
        table = self._table
        if len(rows) > 1:
            if shared.plan.in_order:
                keys = self._standing.order(request).places(rows, salt)
                rows = [row for _, row in sorted(zip(keys, rows, strict=True))]
            else:
                chosen = np.array(rows, dtype=np.intp)
                score = self._score(HostView(table, chosen), request)
                rows = chosen[np.lexsort((table.node_hash[chosen] - np.uint64(salt), -score))].tolist()
        return Listed(rows, table.cell)

    def ranking_of(self, shared: Evaluated, request: PlacementRequest, salt: int, mask: Mask) -> Ranking:
        """Rank the hosts of `mask` alone; all of them were evaluated to fit."""
        fitting = Fitting.of(mask)
        return self._ranking(
            shared, request, salt, fitting, lambda: np.where(mask, self.scores(shared, request), NOBODY)
        )

    def ranking_by(self, score: Floats, salt: int) -> Ranking:
        """Rank hosts by a score of each row."""
        table = self._table
        return Ranking(table.node_hash, table.cell, salt, Fitting.of(score > NOBODY), lambda: score)

    def _ranking(
        self,
        shared: Evaluated,
        request: PlacementRequest,
        salt: int,
        fitting: Fitting,
        score: Callable[[], Floats],
        narrowing: Narrowing | None = None,
    ) -> Ranking:
        table = self._table
        order = None
        if shared.plan.in_order and fitting.count:
            order = self._order(shared, request)
        return Ranking(table.node_hash, table.cell, salt, fitting, score, order, narrowing)

    def _order(self, shared: Evaluated, request: PlacementRequest) -> RowOrder:
        """Return an order in which every row has a place that fits."""
        if shared.own is None:
            return self._standing.order(request)
        return self._standing.order_of(shared.own, Fitting(shared.fits, PASSED, shared.left), request)

    def _scores_far_down(self, shared: Evaluated, request: PlacementRequest) -> Floats:
        """Return the scores of all rows where the way down was too long, so that the next time it is shorter."""
        if shared.own is None or not shared.own.begin_again():
            shared.own_helps = shared.own is None and shared.own_helps
            shared.own = OwnOrder() if shared.own_helps and shared.plan.in_order else None
        scores = self.scores(shared, request)
        if shared.own is not None:
            shared.score = None  # the order of its own will hardly need them again
        return scores

    def scores(self, shared: Evaluated, request: PlacementRequest) -> Floats:
        """Return the scores of all rows, NOBODY where a filter rejected the host. Callers must not change them."""
        table = self._table
        size = table.size
        if shared.score is None:
            shared.score = np.zeros(len(shared.stage), dtype=np.float64)
            shared.scored = -1
        if shared.scored != table.position:
            changed = table.log.since(shared.scored, _worth(size))
            rows = slice(0, size) if changed is None else np.concatenate((changed.facts, changed.amounts))
            shared.score[rows] = self._score(HostView(table, rows), request)
            shared.scored = table.position
        return np.where(shared.stage[:size] == PASSED, shared.score[:size], NOBODY)

    def _score(self, hosts: HostView, request: PlacementRequest) -> Floats:
        score = np.zeros(len(hosts), dtype=np.float64)
        for weigher, multiplier in self._pipeline.shared_weighers:
            score += weighted(hosts, request, weigher, multiplier)
        for weigher, multiplier in self._pipeline.occasional_weighers:
            if weigher.applies(request):
                score += weighted(hosts, request, weigher, multiplier)
        return score

    def _add(self, request: PlacementRequest) -> Evaluated:
        former = self._cache.pop(request.shape, None)
        if former is None and len(self._cache) == self._limit:
            _, former = self._cache.popitem(last=False)
        if former is not None:
            self._forget(former)
        plan, table = plan_of(self._pipeline, self._standing, request), self._table
        crossed = table.levels.watch(plan.resources) if plan.by_level else Crossed()
        log = table.log.told if plan.by_level else table.log
        known = self._cache[request.shape] = Evaluated(plan, len(table.mapped), crossed, log)
        self._evaluate_all(known, request)
        return known

    def _forget(self, known: Evaluated) -> None:
        if known.plan.by_level:
            self._table.levels.forget(known.plan.resources, known.crossed)

    def close(self) -> None:
        """Look at no changes any longer."""
        for known in self._cache.values():
            self._forget(known)
        self._cache.clear()

    def _refresh(self, known: Evaluated, request: PlacementRequest) -> None:
        log = known.log
        marks = log.few_since(known.position, _FEW) if known.plan.one_by_one else None
        if marks is not None and not any(mark & 1 for mark in marks):
            self._judge_few(known, request, {mark >> 1 for mark in marks})
        else:
            changed = log.since(known.position, _worth(self._table.size))
            if changed is None:
                self._evaluate_all(known, request)
            else:
                self._judge_changed(known, request, changed)
        known.position = log.position

    def _judge_crossed(self, known: Evaluated, request: PlacementRequest) -> None:
        """Judge rows on which one of the request's own amounts came or went."""
        crossed = known.crossed
        if crossed.too_many:
            self._evaluate_all(known, request)
        elif known.plan.one_by_one and len(crossed.rows) <= _FEW:
            self._judge_few(known, request, crossed.rows)
        else:
            rows = np.array(sorted(crossed.rows), dtype=np.int64)
            self._judge_changed(known, request, Changed(facts=rows[:0], amounts=rows))
        crossed.clear()

    def _judge_few(self, known: Evaluated, request: PlacementRequest, rows: set[int]) -> None:
        """Judge rows of which only what is free changed, one by one."""
        for row in rows:
            stage: int = known.steady.item(row)
            for number, entry in known.plan.varying:
                if number < stage and entry.fits is not None and not entry.fits(self._table, request, row):
                    stage = number
            known.move(row, stage)

    def _judge_changed(self, known: Evaluated, request: PlacementRequest, changed: Changed) -> None:
        rows = changed.amounts
        if len(changed.facts):
            known.steady[changed.facts] = self._judge_facts(known.plan, HostView(self._table, changed.facts), request)
            rows = np.union1d(rows, changed.facts)
        stage = self._judge(known.plan, known.steady[rows], rows, request)
        different = (stage != known.stage[rows]).nonzero()[0]
        for row, number in zip(rows[different].tolist(), stage[different].tolist(), strict=True):
            known.move(row, number)

    def _evaluate_all(self, known: Evaluated, request: PlacementRequest) -> None:
        size = self._table.size
        known.steady[:size] = self._judge_facts(known.plan, HostView(self._table), request)
        known.stage[:size] = self._judge(known.plan, known.steady[:size], slice(0, size), request)
        known.count(known.stage[:size])
        known.position = known.log.position
        known.crossed.clear()
        known.score = None

    def _judge_facts(self, plan: ShapePlan, hosts: HostView, request: PlacementRequest) -> Stages:
        alive = hosts.mapped.copy()
        stage = np.where(alive, np.uint8(PASSED), np.uint8(NOT_MAPPED))
        for number, entry in plan.steady:
            passed = alive & entry.passes(hosts, request)
            stage[alive & ~passed] = number
            alive = passed
        return stage

    def _judge(self, plan: ShapePlan, steady: Stages, rows: Rows | slice, request: PlacementRequest) -> Stages:
        hosts = HostView(self._table, rows)
        stage = steady
        for number, entry in plan.varying:
            passed = entry.passes(hosts, request)
            stage = np.where(passed, stage, np.minimum(stage, np.uint8(number)))
        return stage


def _worth(rows: int) -> int:
    """Return how many changes are less work than all rows."""
    return max(16, rows // KEPT_PART)
