"""Which host is the best: the highest score, and of equal ones the one that this server's hash prefers.

Rows are divided into buckets by a hash of their node, so that the division does not depend on the order in which hosts
became known. Of each bucket only the highest score is kept; finding the best looks at these and at one bucket.

Equal hosts are ordered first by their bucket, then by themselves, each mixed with the server's salt: every server has
its own order, and it is the same whether it was found through buckets or by looking at all rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skep.scheduler.columns import Floats, Mask
from skep.scheduler.partition import mixed

BUCKETS = 4096
"""About so many scores are looked at to find the best; a bucket of 100,000 hosts has 24."""
NOBODY = -np.inf
"""The score of a host that does not fit."""
_SHIFT = np.uint64(64 - 12)
_FIRST_WIDTH = 2
_WIDTHS = (16, 64, 512)
"""So many buckets are looked into; then, where most hosts may not be chosen, at all rows."""
_MOST_TIMES = 4
"""So many times as many are no trouble."""
_LAST = (1 << 64) - 1
_ODD = np.uint64(0xBF58476D1CE4E5B9)

Hashes = NDArray[np.uint64]
Numbers = NDArray[np.intp]


def _bucket_hashes() -> Hashes:
    return mixed(np.arange(BUCKETS, dtype=np.uint64), 0x9E3779B97F4A7C15)


_HASH_OF_BUCKET = _bucket_hashes()


class Buckets:
    """Where each row has its place: its bucket, and one of the bucket's places. Rows are only ever added.

    Who keeps scores by place finds those of a bucket side by side.
    """

    def __init__(self) -> None:
        self.size = 0
        self.layout = 0
        """Raised whenever rows get other places."""
        self.width = _FIRST_WIDTH
        """Places of a bucket."""
        self.of_row: Numbers = np.zeros(0, dtype=np.intp)
        """The bucket of each row."""
        self.place_of_row: Numbers = np.zeros(0, dtype=np.intp)
        self.row_at: Numbers = np.full(BUCKETS * _FIRST_WIDTH, -1, dtype=np.intp)
        """The row at each place; -1: none."""
        self._filled: Numbers = np.zeros(BUCKETS, dtype=np.intp)

    def follow(self, node_hash: Hashes, size: int) -> None:
        """Take rows that are new; `node_hash` has at least `size` of them."""
        if size == self.size:
            return
        before, self.size = self.size, size
        fresh = (node_hash[before:size] >> _SHIFT).astype(np.intp)
        self.of_row = np.concatenate((self.of_row, fresh))
        filled = self._filled + np.bincount(fresh, minlength=BUCKETS)
        if filled.max() > self.width:
            self._lay_out(filled)
            return
        places = []
        for bucket in fresh.tolist():
            places.append(bucket * self.width + int(self._filled[bucket]))
            self._filled[bucket] += 1
        self.place_of_row = np.concatenate((self.place_of_row, np.array(places, dtype=np.intp)))
        self.row_at[places] = np.arange(before, size)

    def _lay_out(self, filled: Numbers) -> None:
        """Give each row another place, with some to spare in each bucket."""
        self.layout += 1
        self._filled = filled
        self.width = int(filled.max()) + 2
        order = np.argsort(self.of_row, kind="stable")
        ordered = self.of_row[order]
        starts = np.concatenate((np.zeros(1, dtype=np.intp), np.cumsum(filled)[:-1]))
        places = ordered * self.width + np.arange(len(order)) - starts[ordered]
        self.place_of_row = np.empty(len(order), dtype=np.intp)
        self.place_of_row[order] = places
        self.row_at = np.full(BUCKETS * self.width, -1, dtype=np.intp)
        self.row_at[places] = order


class Peaks:
    """The highest score of each bucket."""

    __slots__ = ("_floors", "highest")

    def __init__(self, highest: Floats) -> None:
        self.highest = highest
        self._floors: dict[int, float] = {}
        """By width, the lowest peak that was good enough the last time; mostly it still is."""

    def best(self, width: int) -> tuple[Numbers, float]:
        """Return at least so many buckets if there are, all with peaks of a score or more; and that score."""
        highest = self.highest
        floor = self._floors.get(width, np.inf)
        chosen: Numbers = (highest >= floor).nonzero()[0]
        tied = len(chosen) > _MOST_TIMES * width and np.count_nonzero(highest > floor) < width
        if not tied and not width <= len(chosen) <= _MOST_TIMES * width:
            floor = self._floors[width] = float(np.partition(highest, BUCKETS - 2 * width)[BUCKETS - 2 * width])
            chosen = (highest >= floor if floor > NOBODY else highest > NOBODY).nonzero()[0]
        return chosen, floor


@dataclass(frozen=True, slots=True)
class Among:
    """Which rows may be chosen, beside having a score."""

    mask: Mask | None = None
    """A value for each row of the table; None: all."""
    cell: int | None = None
    """Only rows with this code in their cell column."""


ANY = Among()


class Ranking:
    """Rows with scores, best first."""

    def __init__(self, buckets: Buckets, node_hash: Hashes, cell: NDArray[np.int32], score: Floats) -> None:
        """`score`: of each row."""
        self._buckets = buckets
        self._node_hash = node_hash
        self._cell = cell
        self._score = score
        self._peaks: Peaks | None = None
        self._first: list[tuple[int, list[int]]] = []
        """The first rows of all, by salt, as far as they were looked for: a decision asks for its host and then for
        the alternates."""

    @classmethod
    def of_places(
        cls, buckets: Buckets, node_hash: Hashes, cell: NDArray[np.int32], score: Floats, peaks: Peaks
    ) -> Ranking:
        """Rank by scores that are kept by place, with the highest of each bucket."""
        ranking = cls(buckets, node_hash, cell, score)
        ranking._peaks = peaks
        return ranking

    def has(self, row: int) -> bool:
        """Tell whether a row has a score at all."""
        place = row if self._peaks is None else self._buckets.place_of_row.item(row)
        return self._score.item(place) > NOBODY

    def best(self, salt: int, most: int = 1, *, among: Among = ANY, without: tuple[int, ...] = ()) -> list[int]:
        """Return at most so many rows, best first, of those that may be chosen and are not `without`."""
        if most < 1 or not self._buckets.size:
            return []
        if self._peaks is not None:
            for number, width in enumerate(_WIDTHS):
                if number == len(self._first) or self._first[number][0] != salt:
                    self._first[number:] = [(salt, self._first_rows(self._peaks, width, salt))]
                found = self._chosen(self._first[number][1], most, among, without)
                if len(found) == most:
                    return found
        return self._best_of_all(salt, most, among, without)

    def _chosen(self, ordered: list[int], most: int, among: Among, without: tuple[int, ...]) -> list[int]:
        found = []
        for row in ordered:
            if row in without or (among.cell is not None and self._cell.item(row) != among.cell):
                continue
            if among.mask is not None and not among.mask.item(row):
                continue
            found.append(row)
            if len(found) == most:
                break
        return found

    def _first_rows(self, peaks: Peaks, width: int, salt: int) -> list[int]:
        """Return the first rows in their order: those that no row outside of some `width` buckets can precede."""
        chosen, floor = peaks.best(width)
        last = _LAST
        if len(chosen) > _MOST_TIMES * width:
            chosen, last = _cut(peaks.highest, floor, width, salt)
        places = self._buckets.width
        scores = self._score.reshape(BUCKETS, places)[chosen].ravel()
        certain = (scores >= floor if floor > NOBODY else scores > NOBODY).nonzero()[0]
        scores = scores[certain]
        which = certain // places
        buckets = chosen[which]
        rows = self._buckets.row_at[(buckets - which) * places + certain]
        order = _order(_HASH_OF_BUCKET[buckets], salt)
        ranks = np.lexsort((_order(self._node_hash[rows], salt), order, -scores))
        if last != _LAST:
            ranks = ranks[(scores[ranks] > floor) | (order[ranks] <= last)]
        first: list[int] = rows[ranks].tolist()
        return first

    def _best_of_all(self, salt: int, most: int, among: Among, without: tuple[int, ...]) -> list[int]:
        """Look at all rows."""
        size = self._buckets.size
        score = self._score[:size].copy() if self._peaks is None else self._score[self._buckets.place_of_row]
        if among.cell is not None:
            score[self._cell[:size] != among.cell] = NOBODY
        if among.mask is not None:
            score[~among.mask[:size]] = NOBODY
        score[list(without)] = NOBODY
        found: list[int] = []
        while len(found) < most:
            top = score.max()
            if top == NOBODY:
                break
            ties = np.flatnonzero(score == top)
            if len(ties) > 1:
                order = _order(_HASH_OF_BUCKET[self._buckets.of_row[ties]], salt)
                ties = ties[order == order.min()]
                ties = ties[[_order(self._node_hash[ties], salt).argmin()]]
            found.append(int(ties[0]))
            score[found[-1]] = NOBODY
        return found


def _cut(peaks: Floats, floor: float, width: int, salt: int) -> tuple[Numbers, int]:
    """Leave out all but the first of the many buckets whose highest score is `floor`; return the order of the last."""
    above = (peaks > floor).nonzero()[0]
    ties = peaks == floor
    room = max(1, width - len(above))
    order = _order(_HASH_OF_BUCKET, salt)
    among = min(_LAST, 4 * room * (_LAST // int(np.count_nonzero(ties))))
    nearest = (ties & (order <= np.uint64(among))).nonzero()[0]
    if len(nearest) < room:
        nearest = ties.nonzero()[0]
    nearest = nearest[order[nearest].argpartition(room - 1)[:room]]
    return np.concatenate((above, nearest)), int(order[nearest].max())


def _order(hashes: Hashes, salt: int) -> Hashes:
    """Return what comes first for this salt, where scores are equal: the lowest."""
    order: Hashes = (hashes ^ np.uint64(salt)) * _ODD
    return order
