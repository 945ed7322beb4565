"""Columns that grow: one value per row of the host table."""

from __future__ import annotations

import heapq
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Rows = slice | NDArray[np.intp]
Hashes = NDArray[np.uint64]
Names = tuple[object, ...]

MOST_AMOUNT = 2**53
"""Largest amount that columns hold: beyond it shares would not be exact."""
SCALAR_ROWS = 12
"""Up to so many rows are cheaper to set one by one than as an array."""
_WIDTH = 4
"""Numbers of one row of a resource class."""


def grown(column: NDArray[Any], length: int) -> NDArray[Any]:
    """Return a column of `length` rows that begins with `column`; the rest is zero."""
    larger = np.zeros(length, dtype=column.dtype)
    larger[: len(column)] = column
    return larger


class Amounts:
    """One resource class: what each row has, what is used, claimed, and so what is free.

    The numbers of one row lie side by side in memory: whoever looks at a few rows among very many looks at them all.
    """

    def __init__(self, length: int) -> None:
        self._show(np.zeros((length, _WIDTH), dtype=np.int64))

    def _show(self, block: NDArray[np.int64]) -> None:
        self._block = block
        self.capacity: Ints = block[:, 0]
        self.used: Ints = block[:, 1]
        self.free: Ints = block[:, 2]
        self.share: Floats = block[:, 3].view(np.float64)
        """Free part of the row's own capacity; 0 where there is none. Negative where a host is over its capacity."""
        # Single numbers are read and written through these: a third of what an array asks for it.
        flat = block.reshape(-1)
        self._numbers = flat.data
        self._shares = cast("MutableSequence[float]", flat.view(np.float64).data)
        self.free_of: Callable[[int], int] = self.free.data.__getitem__
        """What is free on one row."""
        self.share_of: Callable[[int], float] = self.share.data.__getitem__
        """The free part of one row's capacity."""

    def grow(self, length: int) -> None:
        """Make room for `length` rows."""
        block = np.zeros((length, _WIDTH), dtype=np.int64)
        block[: len(self._block)] = self._block
        self._show(block)

    @property
    def claimed(self) -> Ints:
        """Sum of the claims on each row's host: what is neither used nor free."""
        return self.capacity - self.used - self.free

    @property
    def is_empty(self) -> bool:
        """Whether no row has, uses or claims anything of the class."""
        return not (self.capacity.any() or self.used.any() or self.free.any())

    def set_usage(self, rows: Sequence[int], capacity: Sequence[int], used: Sequence[int]) -> None:
        """Set what the hosts of these rows reported."""
        chosen = np.array(rows, dtype=np.intp)
        self.free[chosen] += np.array(capacity, dtype=np.int64) - self.capacity[chosen]
        self.capacity[chosen] = capacity
        self._use(chosen, used)

    def set_used(self, rows: Sequence[int], used: Sequence[int]) -> None:
        """Set what the hosts of these rows use, their capacity being the same."""
        if len(rows) <= SCALAR_ROWS:
            for row, amount in zip(rows, used, strict=True):
                self._use_row(row, amount)
            return
        self._use(np.array(rows, dtype=np.intp), used)

    def add_claimed(self, row: int, amount: int) -> int:
        """Claim so much on the host, or so much less where it is negative. Return what is free now."""
        at, numbers = _WIDTH * row, self._numbers
        free = numbers[at + 2] = numbers[at + 2] - amount
        capacity = numbers[at]
        self._shares[at + 3] = free / capacity if capacity > 0 else 0.0
        return free

    def add_all_claimed(self, rows: NDArray[np.int64], amounts: Ints) -> Ints:
        """Do the same for many rows, each named once."""
        capacity, free = self.capacity[rows], self.free[rows] - amounts
        self.free[rows] = free
        self.share[rows] = np.where(capacity > 0, free / np.maximum(capacity, 1), 0.0)
        return free

    def _use(self, rows: NDArray[np.intp], used: Sequence[int]) -> None:
        capacity, before = self.capacity[rows], self.used[rows]
        self.used[rows] = used
        free = self.free[rows] + (before - self.used[rows])
        self.free[rows] = free
        self.share[rows] = np.where(capacity > 0, free / np.maximum(capacity, 1), 0.0)

    def _use_row(self, row: int, used: int) -> None:
        at, numbers = _WIDTH * row, self._numbers
        capacity = numbers[at]
        free = numbers[at + 2] = numbers[at + 2] + numbers[at + 1] - used
        numbers[at + 1] = used
        self._shares[at + 3] = free / capacity if capacity > 0 else 0.0


@dataclass(slots=True)
class _NameSet:
    """One set of names that rows have."""

    names: Names
    code: int
    """What stands for it in the column of rows."""
    words: tuple[int, ...]
    rows: int = 0


class BitSets:
    """A set of names for each row: one bit per name, 64 names to a column.

    Most rows share a few sets, so a set is worked out once. The bit of a name that nobody has any more is given to the
    next new name: there are never more columns than the names of one moment need.
    """

    def __init__(self, length: int, most: int | None = None) -> None:
        """`most`: how many names there may be at one moment; None: any number."""
        self.most = most
        self._length = length
        self._words: list[NDArray[np.uint64]] = []
        self._bit_of: dict[object, int] = {}
        self._sets_with: dict[object, int] = {}
        """In how many sets each name is."""
        self._free_bits: list[int] = []
        """A heap: low bits first, so that columns stay few."""
        nothing = _NameSet((), 0, ())
        self._sets: dict[Names, _NameSet] = {(): nothing}
        self._coded: list[_NameSet] = [nothing]
        """By code. Those that nobody has any more are given to the next new sets."""
        self._free_codes: list[int] = []
        self._codes: NDArray[np.int32] = np.zeros(length, dtype=np.int32)

    @property
    def names(self) -> int:
        """How many names there are now."""
        return len(self._bit_of)

    def grow(self, length: int) -> None:
        """Make room for `length` rows."""
        self._length = length
        self._codes = grown(self._codes, length)
        self._words = [grown(word, length) for word in self._words]

    def names_of(self, row: int) -> Names:
        """Return the set of this row, as it was set."""
        return self._coded[self._codes.item(row)].names

    def new_names(self, names: Names) -> int:
        """Return how many of `names` no row has."""
        if names in self._sets:
            return 0
        return sum(name not in self._bit_of for name in set(names))

    def set_row(self, row: int, names: Names) -> None:
        """Make `names` the set of this row.

        Raises ValueError when there would be more names than may be; `new_names` tells before.
        """
        former = self.names_of(row)
        if former == names:
            return
        if self.most is not None and self.names + self.new_names(names) > self.most:
            raise ValueError(f"more than {self.most} names")
        chosen = self._sets.get(names)
        if chosen is None:
            chosen = self._sets[names] = self._worked_out(names)
        chosen.rows += 1
        self._codes[row] = chosen.code
        for number, column in enumerate(self._words):
            column[row] = chosen.words[number] if number < len(chosen.words) else 0
        self._leave(former)

    def having(self, name: object, rows: Rows) -> Mask:
        """Return which of `rows` have `name`."""
        number = self._bit_of.get(name)
        if number is None:
            return np.zeros(self._length, dtype=np.bool_)[rows]
        word, bit = divmod(number, 64)
        mask: Mask = (self._words[word][rows] & np.uint64(1 << bit)) != 0
        return mask

    def _worked_out(self, names: Names) -> _NameSet:
        values: list[int] = []
        for name in set(names):
            word, bit = divmod(self._number(name), 64)
            values.extend([0] * (word + 1 - len(values)))
            values[word] |= 1 << bit
            self._sets_with[name] += 1
        code = self._free_codes.pop() if self._free_codes else len(self._coded)
        made = _NameSet(names, code, tuple(values))
        self._coded[code : code + 1] = [made]
        return made

    def _leave(self, names: Names) -> None:
        """Note that one row has this set no longer."""
        if not names:
            return
        left = self._sets[names]
        left.rows -= 1
        if left.rows:
            return
        del self._sets[names]
        self._free_codes.append(left.code)
        for name in set(names):
            self._sets_with[name] -= 1
            if not self._sets_with[name]:
                del self._sets_with[name]
                heapq.heappush(self._free_bits, self._bit_of.pop(name))

    def _number(self, name: object) -> int:
        number = self._bit_of.get(name)
        if number is None:
            number = heapq.heappop(self._free_bits) if self._free_bits else len(self._bit_of)
            self._bit_of[name] = number
            self._sets_with[name] = 0
            if number // 64 == len(self._words):
                self._words.append(np.zeros(self._length, dtype=np.uint64))
        return number
