"""Explanations of requests that no host fits, at hand for each shape: the next of a crowd costs what changed since."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

import numpy as np

from skep.domain.builds import Explanation, StageCount
from skep.placement.emptied import EmptyHosts, cannot_say, could_hold
from skep.placement.explain.amounts import nearest
from skep.placement.explain.changes import smallest_changes
from skep.placement.explain.failures import Failures, FilterSet, RowNumbers, ShapeFailures, with_request_filters
from skep.placement.explain.less import LOOKED_AT, by_one_filter, enough
from skep.placement.explain.misses import Nearest, near_in_all, near_misses
from skep.placement.explain.stages import runs
from skep.placement.filters.base import nobody_can_say, whatever_it_is
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.pipeline import Pipeline, Stage
from skep.placement.request import PlacementRequest
from skep.placement.settings import SchedulerSettings

_MOST_SHAPES = 32
"""So many refused shapes are kept: each costs two bytes for each host."""
_ANY_ROW = 2**62


class _Refused:
    """What is known of one shape."""

    __slots__ = ("failures", "nearest", "rejected", "shared")

    def __init__(self, shared: object, failures: ShapeFailures) -> None:
        self.shared = shared
        """The evaluated shape, which sees to it that changes are noted that decide about it."""
        self.failures = failures
        self.nearest: dict[FilterSet, Nearest] = {}
        """By the filters that reject them: capacity, alone or with another one that looks for the same."""
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
        by_one = by_one_filter(self._table, request, failures, self._by_capacity(refused, failures, request))
        holding, not_reported = self._holding(refused.failures, running, request)
        last = next((stage.stage for stage in stages if not stage.left), stages[-1].stage if stages else "")
        return Explanation(
            considered=considered,
            stages=stages,
            nearest=near_misses(self._table, request, failures, by_one, last, self._most_near),
            rejected=rejected,
            verdict="" if not considered else "not_now" if holding else "never",
            could_hold=holding,
            not_reported=not_reported,
            left_aside=self._left_aside(refused, running, request) if holding else (),
            changes=smallest_changes(self._table, request, failures, by_one),
            near=near_in_all(failures, by_one),
        )

    def _refused(self, request: PlacementRequest, shared: object) -> _Refused:
        known = self._known.get(request.shape)
        if known is None or known.shared is not shared:
            filters = [entry for entry in self._pipeline.shared_filters if runs(entry, request)]
            failures = ShapeFailures(self._table, filters, request)
            known = self._known[request.shape] = _Refused(shared, failures)
            if len(self._known) > self._limit:
                self._known.popitem(last=False)
        else:
            changed = known.failures.refresh(request)
            if known.rejected is not None and (changed is None or (changed <= known.rejected[1]).any()):
                known.rejected = None
        self._known.move_to_end(request.shape)
        return known

    def _holding(self, failures: ShapeFailures, running: list[Stage], request: PlacementRequest) -> tuple[int, int]:
        """Return how many hosts could hold it if empty, up and enabled; and how many of these have not reported."""
        judging = [entry for entry in running if entry.if_empty not in (None, whatever_it_is, nobody_can_say)]
        if not judging:
            return failures.could_hold, failures.not_reported
        rows = np.flatnonzero(failures.holding)
        rows = rows[could_hold(EmptyHosts(self._table, rows), judging, request)]
        return len(rows), int(np.count_nonzero(~self._table.reported[rows]))

    def _left_aside(self, refused: _Refused, running: list[Stage], request: PlacementRequest) -> tuple[str, ...]:
        return refused.failures.left_aside + cannot_say(self._table, running, request)

    def _by_capacity(self, refused: _Refused, failures: Failures, request: PlacementRequest) -> RowNumbers:
        """Return the nearest of the hosts that lack nothing but capacity, however many filters notice it."""
        if not failures.capacity:
            return np.zeros(0, dtype=np.intp)
        rows = self._nearest(refused, failures, failures.capacity, request, self._most_near)
        if not failures.perhaps_one_lack:
            return rows
        for failed in failures.perhaps_one_lack:
            near = self._nearest(refused, failures, failed, request, LOOKED_AT).tolist()
            alike = (row for row in near if enough(self._table, request, row) is not None)
            rows = np.concatenate((rows, np.array(list(islice(alike, self._most_near)), dtype=np.intp)))
        return nearest(self._table, request, rows)[: self._most_near]

    def _nearest(
        self, refused: _Refused, failures: Failures, failed: FilterSet, request: PlacementRequest, most: int
    ) -> RowNumbers:
        """Return the nearest of the hosts that exactly these filters reject."""
        if not failures.counts.get(failed):
            return np.zeros(0, dtype=np.intp)
        if failures is refused.failures:
            known = refused.nearest.get(failed)
            if known is None:
                known = refused.nearest[failed] = Nearest(self._table, most)
            return known.rows(failures, failed, request)
        return failures.let_through(nearest(self._table, request, failures.rows(failed)), failed)[:most]

    def _rejected(self, failures: Failures, request: PlacementRequest) -> tuple[dict[str, str], int]:
        """Return the stage that rejected each of the first hosts, and up to which row that may depend on a host."""
        table = self._table
        rows = np.flatnonzero(table.mapped[: table.size])[: self._most_rejected]
        first = np.full(len(rows), -1)
        for number, entry in enumerate(failures.filters):
            left = np.flatnonzero(first < 0)
            if len(left):
                first[left[~entry.passes(HostView(table, rows[left]), request)]] = number
        words = [entry.stage(request) for entry in failures.filters]
        causes = [entry.cause for entry in failures.filters]
        found = {
            table.hosts[row]: _with_cause(words[number], cause(table, row) if (cause := causes[number]) else "")
            for row, number in zip(rows.tolist(), first.tolist(), strict=True)
            if number >= 0
        }
        return found, int(rows[-1]) if len(rows) == self._most_rejected else _ANY_ROW


def _with_cause(words: str, cause: str) -> str:
    return f"{words} ({cause})" if cause else words
