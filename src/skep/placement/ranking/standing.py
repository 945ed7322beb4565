"""What each host is worth to any request: the scores of weighers that look at the host alone, in their order.

Such scores are the same for every shape of request, so they are worked out once for each change, and one order serves
all shapes: each walks down from the best host and takes the first that its own filters let through.
"""

from __future__ import annotations

import numpy as np

from skep.placement.hosts.columns import Floats, Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.pipeline import Pipeline
from skep.placement.ranking.order import PartOrder, RowOrder
from skep.placement.ranking.ranking import Fitting
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import ScoreOfRow, Weigher, weighted

_FEW = 64
"""So many changes are taken one by one whatever the number of hosts."""
_TOGETHER = 32
"""More changes of amounts are worked out with NumPy."""
_MOST_PARTS = 16_384
"""So many rows have what each weigher gave them at hand."""
_PART = 8
"""To order all hosts anew costs about as much as to take changes of an eighth of them one by one."""


_MOST_OWN = 2048
"""So many of the best that fit are held in a shape's own order: each of them that changes is moved there, too."""


_Asked = tuple[Weigher, float, ScoreOfRow]


class OwnOrder:
    """An order of the best of those alone that fit one shape: for shapes whom few of the best hosts fit."""

    __slots__ = ("most", "order", "position")

    def __init__(self) -> None:
        self.order = PartOrder()
        self.position = -1
        """Up to where the table's log of changes is counted in."""
        self.most = 0
        """When there are more, some came: it begins again with fewer."""

    def begin_again(self) -> bool:
        """Have the next best take the place of those that are gone; False: most are there, or there are no others."""
        if not self.order.is_cut or len(self.order) > _MOST_OWN // 2:
            return False
        self.position = -1
        return True


class Standing:
    """The hosts that any request may get, ordered. Rows that no request can get have no place in the order."""

    def __init__(self, table: HostTable, pipeline: Pipeline) -> None:
        self._table = table
        self._order = RowOrder()
        self._filters = [entry for entry in pipeline.shared_filters if entry.of_host and entry.steady]
        self.filters = frozenset(entry.name for entry in self._filters)
        """Who is rejected by one of these has no place in the order."""
        self._weighers = pipeline.shared_weighers
        self.is_shared = all(weigher.of_row for weigher, _ in self._weighers)
        """Whether scores are the same for all requests."""
        self._asked: list[_Asked] = []
        """Each weigher as it is asked about one row; where scores are shared."""
        self._moved = -1
        """Of the table when that was made."""
        self._position = -1
        self._parts: dict[int, dict[str, float]] = {}
        """What each weigher gives rows that have not changed since it was asked."""

    def parts(self, rows: list[int]) -> dict[str, dict[str, float]]:
        """Return what each weigher gives the hosts of these rows, before its multiplier. Not to be changed."""
        table, known, found = self._table, self._parts, {}
        if self._position != table.log.position:
            known = {}
        elif len(known) >= _MOST_PARTS:
            known.clear()
        for row in rows:
            parts = known.get(row)
            if parts is None:
                parts = known[row] = {weigher.name: of_row(row) for weigher, _, of_row in self._bound()}
            found[table.hosts[row]] = parts
        return found

    def _bound(self) -> list[_Asked]:
        """Return each weigher with its multiplier and what it says of one row."""
        table = self._table
        if self._moved != table.moved:
            self._asked = [
                (weigher, multiplier, weigher.of_row(table)) for weigher, multiplier in self._weighers if weigher.of_row
            ]
            self._moved = table.moved
        return self._asked

    def order(self, request: PlacementRequest) -> RowOrder:
        """Return the order as of now. Nothing but hosts is looked at, so it is the same for every request."""
        table = self._table
        if self._position != table.log.position:
            marks = table.log.few_since(self._position, max(_FEW, table.size // _PART))
            if marks is None:
                self._begin(request)
                self._parts.clear()
            else:
                self._take(marks, request)
            self._position = table.position
        return self._order

    def order_of(self, own: OwnOrder, fitting: Fitting, request: PlacementRequest) -> RowOrder:
        """Return one shape's order as of now."""
        table, order = self._table, own.order
        if own.position != table.position:
            marks = table.log.few_since(own.position, _MOST_OWN)
            if marks is None or len(order) > own.most:
                order.begin_from(self.order(request), fitting.column, fitting.yes, _MOST_OWN)
                own.most = 2 * max(len(order), _MOST_OWN)
            else:
                rows_changed = {mark >> 1 for mark in marks}
                order.follow(self.order(request), rows_changed, fitting.column, fitting.yes)
            own.position = table.position
        return order

    def _begin(self, request: PlacementRequest) -> None:
        hosts = HostView(self._table)
        score = self._scores(hosts, request)
        rows = self._members(hosts, request).nonzero()[0]
        self._order.begin(rows, score[rows], self._table.node_hash[rows])

    def _take(self, marks: list[int], request: PlacementRequest) -> None:
        """Give changed rows their scores; marks of facts (odd) also say who comes and goes."""
        order, table = self._order, self._table
        amounts: set[int] = set()
        facts: set[int] = set()
        for mark in marks:
            row = mark >> 1
            (facts if mark & 1 else amounts).add(row)
            self._parts.pop(row, None)
        if facts:
            amounts -= facts
            chosen = np.array(sorted(facts), dtype=np.intp)
            members = self._members(HostView(table, chosen), request).tolist()
            for row, is_member in zip(chosen.tolist(), members, strict=True):
                if is_member:
                    order.set(row, self._score(row), table.node_hash.item(row))
                else:
                    order.discard(row)
        if len(amounts) > _TOGETHER:
            self._move_all(amounts, request)
            return
        for row in amounts:
            if row in order:
                order.move(row, self._score(row))

    def _move_all(self, changed: set[int], request: PlacementRequest) -> None:
        """Give rows of which nothing but amounts changed their scores."""
        rows = self._order.held(changed)
        self._order.move_all(rows, self._scores(HostView(self._table, np.array(rows, dtype=np.intp)), request))

    def _members(self, hosts: HostView, request: PlacementRequest) -> Mask:
        mask = hosts.mapped.copy()
        for entry in self._filters:
            mask &= entry.passes(hosts, request)
        return mask

    def _scores(self, hosts: HostView, request: PlacementRequest) -> Floats:
        score = np.zeros(len(hosts), dtype=np.float64)
        for weigher, multiplier in self._weighers:
            score += weighted(hosts, request, weigher, multiplier)
        return score

    def _score(self, row: int) -> float:
        """Return the weighted sum of what weighers give a row."""
        multipliers, score = self._table.multipliers, 0.0
        if not multipliers.names:
            for _, multiplier, of_row in self._bound():
                score += multiplier * of_row(row)
            return score
        for weigher, multiplier, of_row in self._bound():
            score += multipliers.of_row(weigher.multiplier, row, multiplier) * of_row(row)
        return score
