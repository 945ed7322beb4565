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
_FIRST_WIDTH = 8
_REBUILD_ROWS = 256
_WIDTHS = (32, 512)
"""So many buckets are looked into; then, where most hosts may not be chosen, at all rows."""
_LAST = (1 << 64) - 1
_ODD = np.uint64(0xBF58476D1CE4E5B9)

Hashes = NDArray[np.uint64]
Numbers = NDArray[np.intp]


def _bucket_hashes() -> Hashes:
    return mixed(np.arange(BUCKETS, dtype=np.uint64), 0x9E3779B97F4A7C15)


_HASH_OF_BUCKET = _bucket_hashes()


class Buckets:
    """Which rows are in which bucket. Rows are only ever added."""

    def __init__(self) -> None:
        self.size = 0
        self.of_row: Numbers = np.zeros(0, dtype=np.intp)
        self.members: Numbers = np.full((BUCKETS, _FIRST_WIDTH), -1, dtype=np.intp)
        """The rows of each bucket, -1 where there are no more."""
        self._filled: Numbers = np.zeros(BUCKETS, dtype=np.intp)

    def follow(self, node_hash: Hashes, size: int) -> None:
        """Take rows that are new; `node_hash` has at least `size` of them."""
        if size == self.size:
            return
        before, self.size = self.size, size
        self.of_row = (node_hash[:size] >> _SHIFT).astype(np.intp)
        if size - before > _REBUILD_ROWS:
            self._rebuild()
            return
        for row in range(before, size):
            bucket = int(self.of_row[row])
            place = int(self._filled[bucket])
            if place == self.members.shape[1]:
                self._rebuild()
                return
            self.members[bucket, place] = row
            self._filled[bucket] = place + 1

    def _rebuild(self) -> None:
        self._filled = np.bincount(self.of_row, minlength=BUCKETS).astype(np.intp)
        width = max(_FIRST_WIDTH, int(self._filled.max()) + 4)
        self.members = np.full((BUCKETS, width), -1, dtype=np.intp)
        order = np.argsort(self.of_row, kind="stable")
        ordered = self.of_row[order]
        starts = np.concatenate((np.zeros(1, dtype=np.intp), np.cumsum(self._filled)[:-1]))
        self.members[ordered, np.arange(len(order)) - starts[ordered]] = order


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

    def __init__(
        self, score: Floats, peaks: Floats | None, buckets: Buckets, node_hash: Hashes, cell: NDArray[np.int32]
    ) -> None:
        """`score` ends with a NOBODY, that of the row -1. `peaks`: the highest of each bucket; None: not known."""
        self._score = score
        self._peaks = peaks
        self._buckets = buckets
        self._node_hash = node_hash
        self._cell = cell
        self._first: list[tuple[int, list[int]]] = []
        """The first rows of all, by salt, as far as they were looked for: a decision asks for its host and then for
        the alternates."""

    def has(self, row: int) -> bool:
        """Tell whether a row has a score at all."""
        return self._score.item(row) > NOBODY

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

    def _first_rows(self, peaks: Floats, width: int, salt: int) -> list[int]:
        """Return the first rows in their order: those that no row outside of the `width` best buckets can precede."""
        chosen = np.argpartition(peaks, BUCKETS - width)[BUCKETS - width :]
        floor = peaks[chosen].min()
        last = _LAST
        if floor > NOBODY:
            ties = (peaks == floor).nonzero()[0]
            above = chosen[peaks[chosen] > floor]
            room = width - len(above)
            if len(ties) > room:
                order = _order(ties, salt)
                nearest = order.argpartition(room - 1)[:room]
                last = order[nearest].max()
                chosen = np.concatenate((above, ties[nearest]))
        rows = self._buckets.members[chosen].ravel()
        scores = self._score[rows]
        certain = (scores >= floor if floor > NOBODY else scores > NOBODY).nonzero()[0]
        rows, scores = rows[certain], scores[certain]
        order = _order(self._buckets.of_row[rows], salt)
        ranks = np.lexsort((mixed(self._node_hash[rows], salt), order, -scores))
        if last != _LAST:
            ranks = ranks[(scores[ranks] > floor) | (order[ranks] <= last)]
        first: list[int] = rows[ranks].tolist()
        return first

    def _best_of_all(self, salt: int, most: int, among: Among, without: tuple[int, ...]) -> list[int]:
        """Look at all rows."""
        size = self._buckets.size
        score = self._score[:size].copy()
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
                order = _order(self._buckets.of_row[ties], salt)
                ties = ties[order == order.min()]
                ties = ties[[mixed(self._node_hash[ties], salt).argmin()]]
            found.append(int(ties[0]))
            score[found[-1]] = NOBODY
        return found


def _order(buckets: Numbers, salt: int) -> Hashes:
    """Return which bucket comes first for this salt, where scores are equal: the lowest."""
    order: Hashes = (_HASH_OF_BUCKET[buckets] ^ np.uint64(salt)) * _ODD
    return order
