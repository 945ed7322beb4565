"""Which host is the best: the highest score, and of equal ones the first in the order of the server's hash.

Two ways lead to the same rows. `walk` goes down the order that all shapes share and takes whom the request's filters
let through; that is enough where most of the best hosts fit. Else all rows are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from skep.placement.hosts.columns import Floats, Hashes, Mask
from skep.placement.ranking.narrowing import Narrowing
from skep.placement.ranking.order import RowOrder, of_one_cell

NOBODY = -np.inf
"""The score of a host that does not fit."""
_LONGEST_WALK = 256
"""So many hosts are passed on the way down before all are looked at instead."""
_FEW = 64
"""So many of the best rows are ordered at once when all are looked at."""


class Among(msgspec.Struct, frozen=True, eq=False):
    """Which rows may be chosen, beside having a score."""

    mask: Mask | None = None
    """A value for each row of the table; None: all."""
    cell: int | None = None
    """Only rows with this code in their cell column."""


ANY = Among()


class Fitting(msgspec.Struct, frozen=True, eq=False):
    """Which rows fit: those at which the column has the value `yes`, so many in all."""

    column: memoryview
    yes: int
    count: int

    def __contains__(self, row: int) -> bool:
        return bool(self.column[row] == self.yes)

    @classmethod
    def of(cls, mask: Mask) -> Fitting:
        """Return what a mask of all rows says."""
        return cls(mask.data, 1, int(np.count_nonzero(mask)))


def best_of_one_cell(
    order: RowOrder, fits: memoryview, yes: int, count: int, cell: memoryview, others: int, salt: int
) -> list[int] | None:
    """Return the best row and the best `others` of its cell; None where the way is too long. As `Order.first`."""
    return order.first(salt, fits, yes, cell, others, count, _LONGEST_WALK)


class RankingWalk:
    """The way down from the best host, as far as it was gone: a decision asks for its host, then for alternates."""

    __slots__ = ("_count", "_passing", "_rows")

    def __init__(self, rows: list[int], passing: Iterator[int], count: int) -> None:
        """`rows` are met already; `passing` yields the others, best first, and may end before all `count` were met."""
        self._rows = rows
        self._passing = passing
        self._count = count

    @classmethod
    def down(cls, order: RowOrder, fitting: Fitting, salt: int, narrowing: Narrowing | None) -> RankingWalk:
        """Go down an order in which all that fit have a place. It must not be changed while the walk is used."""
        if narrowing is None:
            return cls([], order.walk(salt, fitting.column, fitting.yes, _LONGEST_WALK), fitting.count)
        passing = order.walk(salt, fitting.column, fitting.yes, _LONGEST_WALK + len(narrowing.barred))
        return cls([], narrowing.those_left(passing), narrowing.left)

    @property
    def is_complete(self) -> bool:
        """Whether everybody who fits was met."""
        return len(self._rows) == self._count

    def first(self, most: int, cell: memoryview, among: Among, without: tuple[int, ...]) -> list[int]:
        """Return at most so many that may be chosen, best first; fewer also where the way was too long."""
        found: list[int] = []
        rows, passing, wanted, mask = self._rows, self._passing, among.cell, among.mask
        at = 0
        while True:
            if at == len(rows):
                following = next(passing, None)
                if following is None:
                    return found
                rows.append(following)
            row = rows[at]
            at += 1
            if (wanted is None or cell[row] == wanted) and (mask is None or mask.item(row)) and row not in without:
                found.append(row)
                if len(found) == most:
                    return found

    def of_one_cell(self, others: int, cell: memoryview) -> list[int] | None:
        """Return the best row and after it the best others of its cell; None where the way was too long.

        Only before anything else is asked.
        """
        found = of_one_cell(self._passing, self._rows, cell, others)
        return found if len(found) > others or self.is_complete else None


class Ranking:
    """Rows with scores, best first, for one server."""

    def __init__(
        self,
        hashes: Hashes,
        cell: NDArray[np.int32],
        salt: int,
        fitting: Fitting,
        score: Callable[[], Floats],
        order: RowOrder | None = None,
        narrowing: Narrowing | None = None,
    ) -> None:
        """`score`: of each row, NOBODY for those that do not fit; asked for when all must be looked at.

        `order`: of all rows, with those that fit among them, if there is one. `narrowing`: who of those that fit may
        be chosen; None: all of them.
        """
        self._hashes = hashes
        self._cell = cell
        self._salt = salt
        self._fitting = fitting
        self._look = score
        self._all: Floats | None = None
        self._narrowing = narrowing
        self._left = fitting.count if narrowing is None else narrowing.left
        self._walk = RankingWalk.down(order, fitting, salt, narrowing) if order is not None else None

    def has(self, row: int) -> bool:
        """Tell whether a row may be chosen at all."""
        return row in self._fitting and (self._narrowing is None or self._narrowing.lets(row))

    def best(self, most: int = 1, *, among: Among = ANY, without: tuple[int, ...] = ()) -> list[int]:
        """Return at most so many rows, best first, of those that may be chosen and are not `without`."""
        if most < 1 or not self._left:
            return []
        if self._walk is not None:
            found = self._walk.first(most, self._cell.data, among, without)
            if len(found) == most or self._walk.is_complete:
                return found
        return self._best_of_all(most, among, without)

    def first(self, others: int) -> list[int]:
        """Return the best row and after it the best others of its cell; empty where there is nobody."""
        if self._left and self._walk is not None:
            found = self._walk.of_one_cell(others, self._cell.data)
            if found is not None:
                return found
        return _first(self, self._cell, others)

    def _best_of_all(self, most: int, among: Among, without: tuple[int, ...]) -> list[int]:
        """Look at all rows."""
        if self._all is None:
            self._all = self._look()
        score = self._all
        size = len(score)
        may = score > NOBODY
        if among.cell is not None:
            may &= self._cell[:size] == among.cell
        if among.mask is not None:
            may &= among.mask[:size]
        if self._narrowing is not None:
            may = self._narrowing.of(may)
        may[list(without)] = False
        rows = may.nonzero()[0]
        return _best(rows, score[rows], self._hashes[rows] - np.uint64(self._salt), most)


def _best(rows: NDArray[np.intp], scores: Floats, places: Hashes, most: int) -> list[int]:
    """Return so many rows, best first; of equal ones those first whose places come first."""
    if len(rows) > max(most, _FEW):
        last = np.partition(scores, len(rows) - most)[len(rows) - most]
        best = (scores > last).nonzero()[0]
        tied, wanted = (scores == last).nonzero()[0], most - len(best)
        if len(tied) > wanted:
            tied = tied[np.argpartition(places[tied], wanted - 1)[:wanted]]
        best = np.concatenate((best, tied))
        rows, scores, places = rows[best], scores[best], places[best]
    ordered: list[int] = rows[np.lexsort((places, -scores))[:most]].tolist()
    return ordered


def _first(ranking: Ranked, cell: NDArray[np.int32], others: int) -> list[int]:
    """Return the best row and after it the best others of its cell; empty where there is nobody."""
    best = ranking.best()
    return best and [*best, *ranking.best(others, among=Among(cell=cell.item(best[0])), without=(best[0],))]


class Listed:
    """Few rows, all there are for one server, best first."""

    def __init__(self, rows: list[int], cell: NDArray[np.int32]) -> None:
        self._rows = rows
        self._cell = cell

    def has(self, row: int) -> bool:
        """Tell whether a row may be chosen at all."""
        return row in self._rows

    def first(self, others: int) -> list[int]:
        """Return the best row and after it the best others of its cell; empty where there is nobody."""
        return _first(self, self._cell, others)

    def best(self, most: int = 1, *, among: Among = ANY, without: tuple[int, ...] = ()) -> list[int]:
        """Return at most so many rows, best first, of those that may be chosen and are not `without`."""
        walk = RankingWalk(self._rows, iter(()), len(self._rows))
        return walk.first(most, self._cell.data, among, without) if most > 0 else []


class Scored:
    """Rows with a score each, all there are for one server."""

    def __init__(self, rows: NDArray[np.intp], scores: Floats, places: Hashes, cell: NDArray[np.int32]) -> None:
        """`rows` ascend; of equal ones those come first whose `places` come first. `cell`: of each row of the table."""
        self._rows, self._scores, self._places, self._cell = rows, scores, places, cell
        self._known = Listed([], cell)
        """The best of them, as far as they were put in order."""
        self._ordered = 0

    def has(self, row: int) -> bool:
        """Tell whether a row may be chosen at all."""
        at = int(np.searchsorted(self._rows, row))
        return at < len(self._rows) and bool(self._rows[at] == row)

    def first(self, others: int) -> list[int]:
        """Return the best row and after it the best others of its cell; empty where there is nobody."""
        return _first(self, self._cell, others)

    def best(self, most: int = 1, *, among: Among = ANY, without: tuple[int, ...] = ()) -> list[int]:
        """Return at most so many rows, best first, of those that may be chosen and are not `without`."""
        if most < 1:
            return []
        while True:
            found = self._known.best(most, among=among, without=without)
            if len(found) == most or self._ordered == len(self._rows):
                return found
            self._ordered = min(len(self._rows), max(_FEW, _FEW * self._ordered, most))
            self._known = Listed(_best(self._rows, self._scores, self._places, self._ordered), self._cell)


Ranked = Ranking | Listed | Scored
