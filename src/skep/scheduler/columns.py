"""Columns that grow: one value per row of the host table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = slice | NDArray[np.intp]


def grown(column: NDArray[Any], length: int) -> NDArray[Any]:
    """Return a column of `length` rows that begins with `column`; the rest is zero."""
    larger = np.zeros(length, dtype=column.dtype)
    larger[: len(column)] = column
    return larger


class Amounts:
    """One resource class: what each row has, what is used, claimed, and so what is free."""

    def __init__(self, length: int) -> None:
        self.capacity: Ints = np.zeros(length, dtype=np.int64)
        self.used: Ints = np.zeros(length, dtype=np.int64)
        self.claimed: Ints = np.zeros(length, dtype=np.int64)
        self.free: Ints = np.zeros(length, dtype=np.int64)
        self.share: Floats = np.zeros(length, dtype=np.float64)
        """Free part of the row's own capacity; 0 where there is none. Negative where a host is over its capacity."""

    def grow(self, length: int) -> None:
        """Make room for `length` rows."""
        self.capacity = grown(self.capacity, length)
        self.used = grown(self.used, length)
        self.claimed = grown(self.claimed, length)
        self.free = grown(self.free, length)
        self.share = grown(self.share, length)

    def set_usage(self, row: int, capacity: int, used: int) -> None:
        """Set what the host reported."""
        self.capacity[row] = capacity
        self.used[row] = used
        self._derive(row)

    def set_claimed(self, row: int, claimed: int) -> None:
        """Set the sum of the claims on the host."""
        self.claimed[row] = claimed
        self._derive(row)

    def _derive(self, row: int) -> None:
        capacity = int(self.capacity[row])
        free = capacity - int(self.used[row]) - int(self.claimed[row])
        self.free[row] = free
        self.share[row] = free / capacity if capacity > 0 else 0.0


class BitSets:
    """A set of names for each row: one bit per name, 64 names to a column."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._words: list[NDArray[np.uint64]] = []
        self._bit_of: dict[object, int] = {}

    def grow(self, length: int) -> None:
        """Make room for `length` rows."""
        self._length = length
        self._words = [grown(word, length) for word in self._words]

    def set_row(self, row: int, names: Iterable[object]) -> None:
        """Make `names` the set of this row."""
        values = [0] * len(self._words)
        for name in names:
            word, bit = divmod(self._number(name), 64)
            if word == len(values):
                values.append(0)
            values[word] |= 1 << bit
        for word, value in enumerate(values):
            self._words[word][row] = value

    def having(self, name: object, rows: Rows) -> Mask:
        """Return which of `rows` have `name`."""
        number = self._bit_of.get(name)
        if number is None:
            return np.zeros(self._length, dtype=np.bool_)[rows]
        word, bit = divmod(number, 64)
        mask: Mask = (self._words[word][rows] & np.uint64(1 << bit)) != 0
        return mask

    def _number(self, name: object) -> int:
        number = self._bit_of.get(name)
        if number is None:
            number = self._bit_of[name] = len(self._bit_of)
            if number // 64 == len(self._words):
                self._words.append(np.zeros(self._length, dtype=np.uint64))
        return number
