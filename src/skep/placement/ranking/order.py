"""Hosts in the order of their scores, kept sorted while scores change: who looks for one walks down from the best.

Hosts with equal scores are ordered by a hash of their node, and each server begins at another place of that order and
goes round. So the order is the same whenever hosts became known, a crowd of equal servers spreads over a crowd of
equal hosts, and the next of many equal hosts is found by bisection.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, MutableSequence
from itertools import chain
from typing import cast

import numpy as np
from numpy.typing import NDArray

from skep.placement.hosts.columns import Floats, Hashes

_LONGEST = 1024
"""Keys of a chunk before it is halved."""
_MANY = 24
"""More keys than that are taken out of a chunk, or put into it, together."""
_ROW_BITS = 32
_HASH_BITS = 64
_TIE = 1 << (_ROW_BITS + _HASH_BITS)
"""Keys that differ by less than this bit have equal scores."""
_ROW = (1 << _ROW_BITS) - 1
_SIGN = 1 << 63
_ALL = (1 << 64) - 1
_AT_ONCE = 1 << 16
"""Keys that are made together, with some hundred bytes each meanwhile."""
_NO_KEY = -1
"""Of a row that has no place in an order."""


def ranks(scores: Floats) -> Hashes:
    """Return whole numbers that are ordered as the scores are; the two zeros are one."""
    bits = (scores + 0.0).view(np.uint64)
    ordered: Hashes = np.where(bits & np.uint64(_SIGN), ~bits, bits | np.uint64(_SIGN))
    return ordered


class _FewKeys(dict[int, int]):
    """Keys of some rows, read as if all rows had one."""

    def __missing__(self, row: int) -> int:
        return _NO_KEY


def of_one_cell(passing: Iterable[int], met: list[int], cell: memoryview, others: int) -> list[int]:
    """Return the first of the rows that pass and the next `others` of its cell; fewer where no more pass.

    Who passes until then is added to `met`.
    """
    found: list[int] = []
    home = -1
    for row in passing:
        met.append(row)
        if not found:
            home = cell[row]
        elif cell[row] != home:
            continue
        found.append(row)
        if len(found) > others:
            break
    return found


class RowOrder:
    """Rows by score, then by hash. A key is one number: the score's bits, the hash, the row."""

    def __init__(self) -> None:
        self._chunks: list[list[int]] = []
        """Ascending keys; no chunk is empty."""
        self._firsts: list[int] = []
        """The first key of each chunk."""
        self._by_row: list[int] = []
        self._key_of: list[int] | _FewKeys = self._by_row
        self._held = 0
        """Rows that have a place."""
        number = memoryview(bytearray(8))
        self._float = cast("MutableSequence[float]", number.cast("d"))
        self._bits = number.cast("Q")
        """The bits of what was put into `_float`."""

    def __len__(self) -> int:
        return self._held

    def __contains__(self, row: int) -> bool:
        keys = self._by_row
        return row < len(keys) and keys[row] != _NO_KEY

    def held(self, rows: Iterable[int]) -> list[int]:
        """Return those of the rows that have a place."""
        keys = self._by_row
        size = len(keys)
        return [row for row in rows if row < size and keys[row] != _NO_KEY]

    def begin(self, rows: NDArray[np.intp], scores: Floats, hashes: Hashes) -> None:
        """Hold these rows and no others."""
        ranked = ranks(scores)
        ordered = np.lexsort((rows, hashes, ranked))
        keys: list[int] = []
        for start in range(0, len(ordered), _AT_ONCE):
            part = ordered[start : start + _AT_ONCE]
            keys += [
                rank << 96 | low << _ROW_BITS | row
                for rank, low, row in zip(
                    ranked[part].tolist(), hashes[part].tolist(), rows[part].tolist(), strict=True
                )
            ]
        self._by_row.clear()
        self._make_room(int(rows.max(initial=-1)))
        for key in keys:
            self._by_row[key & _ROW] = key
        self._hold(keys)

    def _make_room(self, row: int) -> None:
        self._by_row.extend([_NO_KEY] * (row + 1 - len(self._by_row)))

    def _hold(self, keys: list[int]) -> None:
        """Hold rows by their keys, which ascend."""
        self._held = len(keys)
        length = _LONGEST // 2
        self._chunks = [keys[start : start + length] for start in range(0, len(keys), length)]
        self._firsts = [chunk[0] for chunk in self._chunks]

    def set(self, row: int, score: float, node_hash: int) -> None:
        """Give a row its score, its first or another."""
        if row >= len(self._by_row):
            self._make_room(row)
        self._put(row, self._rank(score) | node_hash << _ROW_BITS | row)

    def move(self, row: int, score: float) -> None:
        """Give a row another score."""
        before = self._key_of[row]
        key = self._rank(score) | before & _TIE - 1
        if key != before:
            self._remove(before)
            self._key_of[row] = key
            self._add(key)

    def move_all(self, rows: Iterable[int], scores: Floats) -> None:
        """Give many rows other scores."""
        key_of, gone, new = self._key_of, [], []
        for row, rank in zip(rows, ranks(scores).tolist(), strict=True):
            before = key_of[row]
            key = rank << 96 | before & _TIE - 1
            if key != before:
                gone.append(before)
                new.append(key)
                key_of[row] = key
        self._remove_all(sorted(gone))
        self._add_all(sorted(new))

    def _rank(self, score: float) -> int:
        """Return the first bits of keys, ordered as scores are."""
        self._float[0] = score + 0.0  # of the two zeros the positive one
        bits = self._bits[0]
        return (bits ^ _ALL if bits & _SIGN else bits | _SIGN) << 96

    def places(self, rows: Iterable[int], salt: int) -> list[tuple[int, int]]:
        """Return by what rows are met on the way down from a server's hash: the lower the earlier."""
        keys = map(self._key_of.__getitem__, rows)
        return [(-(key >> 96), (key >> _ROW_BITS) - salt & _ALL) for key in keys]

    def _put(self, row: int, key: int) -> None:
        before = self._key_of[row]
        if before == key:
            return
        if before == _NO_KEY:
            self._held += 1
        else:
            self._remove(before)
        self._key_of[row] = key
        self._add(key)

    def discard(self, row: int) -> None:
        """Hold a row no longer."""
        if row in self:
            self._held -= 1
            self._remove(self._by_row[row])
            self._by_row[row] = _NO_KEY

    def walk(self, salt: int, fits: memoryview, yes: int, longest: int) -> Iterator[int]:
        """Yield the rows at which `fits` is `yes`, best first, of the `longest` many best that there are.

        The order must not be changed meanwhile.
        """
        chunks = self._chunks
        number = len(chunks) - 1
        place = len(chunks[-1]) - 1 if chunks else -1
        while number >= 0:
            chunk = chunks[number]
            while place >= 0:
                key = chunk[place]
                below = chunk[place - 1] if place else chunks[number - 1][-1] if number else key ^ _TIE
                if key ^ below >= _TIE:
                    place -= 1
                    row = key & _ROW
                    if fits[row] == yes:
                        yield row
                    longest -= 1
                    if not longest:
                        return
                    continue
                keys, number, place = self._tied(number, place, salt, longest)
                chunk = chunks[number]
                for key in keys:
                    row = key & _ROW
                    if fits[row] == yes:
                        yield row
                    longest -= 1
                    if not longest:
                        return
            number -= 1
            place = len(chunks[number]) - 1

    def first(
        self, salt: int, fits: memoryview, yes: int, cell: memoryview, others: int, count: int, longest: int
    ) -> list[int] | None:
        """Return the best row at which `fits` is `yes`, and after it the best `others` of the same cell, if there are.

        `count` rows fit in all. None where not enough of them are among the `longest` many best of all rows.
        """
        met: list[int] = []
        found = of_one_cell(self.walk(salt, fits, yes, longest), met, cell, others)
        return found if len(found) > others or len(met) == count else None

    def _tied(self, number: int, place: int, salt: int, longest: int) -> tuple[Iterable[int], int, int]:
        """Return the keys that have the score of the key at a place, from the server's hash on and round to it.

        Of them `longest` at least, if there are; and the place before the first of them.
        """
        chunk = self._chunks[number]
        lowest = chunk[place] >> 96 << 96
        start = lowest | salt << _ROW_BITS
        begin = bisect_left(chunk, lowest, 0, place)
        if begin or not number:
            middle = bisect_left(chunk, start, begin, place + 1)
            keys = chunk[middle : min(place + 1, middle + longest)]
            keys += chunk[begin : min(middle, begin + longest)]
            return keys, number, begin - 1
        number, place = self._find(lowest)
        return chain(self._between(start, lowest + _TIE), self._between(lowest, start)), number, place - 1

    def _between(self, first: int, end: int) -> Iterator[int]:
        """Yield the keys from `first` on that are below `end`."""
        number, place = self._find(first)
        while number < len(self._chunks):
            chunk = self._chunks[number]
            for at in range(place, len(chunk)):
                key = chunk[at]
                if key >= end:
                    return
                yield key
            number, place = number + 1, 0

    def _find(self, key: int) -> tuple[int, int]:
        """Return the chunk and the place of the first key that is not below `key`."""
        number = max(bisect_left(self._firsts, key + 1) - 1, 0)
        chunk = self._chunks[number]
        place = bisect_left(chunk, key)
        return (number, place) if place < len(chunk) else (number + 1, 0)

    def _add(self, key: int) -> None:
        if not self._chunks:
            self._chunks, self._firsts = [[key]], [key]
            return
        number = max(bisect_left(self._firsts, key) - 1, 0)
        chunk = self._chunks[number]
        insort(chunk, key)
        self._firsts[number] = chunk[0]
        if len(chunk) > _LONGEST:
            half = chunk[_LONGEST // 2 :]
            del chunk[_LONGEST // 2 :]
            self._chunks.insert(number + 1, half)
            self._firsts.insert(number + 1, half[0])

    def _remove_all(self, keys: list[int]) -> None:
        """Remove keys, which ascend and are all there."""
        for chunk, mine in self._by_chunk(keys):
            if len(mine) > _MANY:
                gone = set(mine)
                chunk[:] = [key for key in chunk if key not in gone]
            else:
                for key in mine:
                    del chunk[bisect_left(chunk, key)]
        self._hold_chunks(chunk for chunk in self._chunks if chunk)

    def _add_all(self, keys: list[int]) -> None:
        """Add keys, which ascend."""
        if not self._chunks:
            self._hold_chunks([keys] if keys else [])
            return
        for chunk, mine in self._by_chunk(keys):
            if len(mine) > _MANY:
                chunk.extend(mine)
                chunk.sort()
            else:
                for key in mine:
                    insort(chunk, key)
        self._hold_chunks(self._chunks)

    def _by_chunk(self, keys: list[int]) -> Iterator[tuple[list[int], list[int]]]:
        """Yield each chunk with those of the keys, which ascend, that have their place in it."""
        firsts, at = self._firsts, 0
        while at < len(keys):
            number = max(bisect_left(firsts, keys[at] + 1) - 1, 0)
            end = bisect_left(keys, firsts[number + 1], at) if number + 1 < len(firsts) else len(keys)
            yield self._chunks[number], keys[at:end]
            at = end

    def _hold_chunks(self, chunks: Iterable[list[int]]) -> None:
        """Hold these chunks, those that are too long in parts."""
        self._chunks = [
            part
            for chunk in chunks
            for part in (
                (chunk,)
                if len(chunk) <= _LONGEST
                else (chunk[start : start + _LONGEST // 2] for start in range(0, len(chunk), _LONGEST // 2))
            )
        ]
        self._firsts = [chunk[0] for chunk in self._chunks]

    def _remove(self, key: int) -> None:
        number = bisect_left(self._firsts, key + 1) - 1
        chunk = self._chunks[number]
        del chunk[bisect_left(chunk, key)]
        if chunk:
            self._firsts[number] = chunk[0]
        else:
            del self._chunks[number], self._firsts[number]


class PartOrder(RowOrder):
    """The best of some rows of another order, with the scores that they have there."""

    def __init__(self) -> None:
        super().__init__()
        self._few = self._key_of = _FewKeys()
        self._lowest = 0
        """Rows with lower keys have no place here; 0: all have."""

    def __contains__(self, row: int) -> bool:
        return row in self._few

    def held(self, rows: Iterable[int]) -> list[int]:
        """Return those of the rows that have a place."""
        return [row for row in rows if row in self._few]

    @property
    def is_cut(self) -> bool:
        """Whether there are rows that would have a place here if they were better."""
        return self._lowest > 0

    def begin_from(self, other: RowOrder, fits: memoryview, yes: int, most: int) -> None:
        """Hold the best `most` rows at which `fits` is `yes` and those with the score of the last, and no others.

        Where there is no row beyond these, this holds whoever comes to fit later, too.
        """
        keys: list[int] = []
        self._lowest = lowest = 0
        for key in chain.from_iterable(map(reversed, reversed(other._chunks))):
            if key < lowest:
                self._lowest = lowest
                break
            if fits[key & _ROW] == yes:
                keys.append(key)
                if len(keys) == most:
                    lowest = key >> 96 << 96
        keys.reverse()
        self._few = self._key_of = _FewKeys((key & _ROW, key) for key in keys)
        self._hold(keys)

    def follow(self, other: RowOrder, rows: Iterable[int], fits: memoryview, yes: int) -> None:
        """Hold, of `rows`, those at which `fits` is `yes` and that are good enough."""
        mine, theirs, lowest = self._few, other._by_row, self._lowest
        for row in rows:
            key = theirs[row] if fits[row] == yes else _NO_KEY
            if key >= lowest:
                if mine.get(row) != key:
                    self._put(row, key)
            elif row in mine:
                self.discard(row)

    def discard(self, row: int) -> None:
        """Hold a row no longer."""
        before = self._few.pop(row, _NO_KEY)
        if before != _NO_KEY:
            self._held -= 1
            self._remove(before)
