"""Which rows changed, in order, so that whoever holds something derived brings only those up to date.

Two kinds of change are told apart: of what is free on a host, which each claim and each report changes, and of
anything else (its facts), which changes seldom and concerns more filters.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KEPT_PART = 4
"""One mark is kept for so many rows: to look at more changes than that is more work than to look at all rows."""
_FIRST_LENGTH = 1024

RowNumbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Changed:
    """Rows that changed after a position, each once in either set; one in both stands in both."""

    facts: RowNumbers
    amounts: RowNumbers


class ChangeLog:
    """A ring of marks, `2 x row`, one more where the facts changed. The oldest are overwritten."""

    def __init__(self) -> None:
        self.position = 0
        """Number of marks ever made."""
        self._floor = 0
        self._hold(np.zeros(_FIRST_LENGTH, dtype=np.int64))

    def _hold(self, marks: RowNumbers) -> None:
        self._marks = marks
        self._length = len(marks)
        # Few marks are read and written through this: a third of what an array asks for it.
        self._few = marks.data

    def grow(self, rows: int) -> None:
        """Keep as many marks as readers of so many rows want: a quarter; who missed more takes all rows.

        Marks of before are forgotten.
        """
        length = rows // KEPT_PART
        if length > self._length:
            self._hold(np.zeros(length, dtype=np.int64))
            self._floor = self.position

    def amounts(self, row: int) -> None:
        """Note that something was taken or freed on a row."""
        self._few[self.position % self._length] = 2 * row
        self.position += 1

    def facts(self, row: int) -> None:
        """Note that a row changed in any way."""
        self._few[self.position % self._length] = 2 * row + 1
        self.position += 1

    def all_amounts(self, rows: RowNumbers) -> None:
        """Note that something was taken or freed on many rows."""
        self._note(2 * rows)

    def all_facts(self, rows: RowNumbers) -> None:
        """Note that many rows changed in any way."""
        self._note(2 * rows + 1)

    def few_since(self, position: int, most: int) -> list[int] | None:
        """Return the marks made after `position`, repeated ones too; None: more than `most`, or they are lost."""
        new, length = self.position - position, self._length
        if position < self._floor or not 0 <= new <= most or new > length:
            return None
        start = position % length
        marks = self._few[start : start + new].tolist()
        return marks if len(marks) == new else marks + self._few[: new - len(marks)].tolist()

    def since(self, position: int, most: int) -> Changed | None:
        """Return what changed after `position`; None: more than `most` marks, or they are overwritten."""
        new, length = self.position - position, self._length
        if position < self._floor or not 0 <= new <= min(most, length):
            return None
        start = position % length
        marks = self._marks[start : start + new]
        if len(marks) < new:
            marks = np.concatenate((marks, self._marks[: new - len(marks)]))
        marks = _distinct(marks)
        odd = (marks & 1).astype(np.bool_)
        rows = marks >> 1
        return Changed(facts=rows[odd], amounts=rows[~odd])

    def _note(self, marks: RowNumbers) -> None:
        length = self._length
        if len(marks) > length:
            self._floor = self.position = self.position + len(marks)
            return
        start = self.position % length
        fitting = length - start
        self._marks[start : start + len(marks)] = marks[:fitting]
        self._marks[: max(0, len(marks) - fitting)] = marks[fitting:]
        self.position += len(marks)


class HostLog(ChangeLog):
    """All that changed; and beside it, twice, only what may have changed what filters say."""

    def __init__(self) -> None:
        super().__init__()
        self.verdicts = ChangeLog()
        """Facts, reports, and claims that crossed a level (`levels.py`)."""
        self.told = ChangeLog()
        """Facts and reports: all but claims."""
        self.facts_noted = 0
        """How often facts of rows were noted: while it is the same nothing but amounts changed."""

    def grow(self, rows: int) -> None:
        """Keep marks for so many rows, in each."""
        super().grow(rows)
        self.verdicts.grow(rows)
        self.told.grow(rows)

    def claimed(self, row: int, *, crossed: bool) -> None:
        """Note that something was taken or freed; `crossed`: so much that it may decide about a request."""
        self._few[self.position % self._length] = 2 * row
        self.position += 1
        if crossed:
            self.verdicts.amounts(row)

    def all_claimed(self, rows: RowNumbers, crossed: RowNumbers) -> None:
        """Note the same of many rows; `crossed` are some of them."""
        super().all_amounts(rows)
        self.verdicts.all_amounts(crossed)

    def facts(self, row: int) -> None:
        """Note that a row changed in any way."""
        self.facts_noted += 1
        super().facts(row)
        self.verdicts.facts(row)
        self.told.facts(row)

    def all_amounts(self, rows: RowNumbers) -> None:
        """Note that what is used changed on many rows."""
        super().all_amounts(rows)
        self.verdicts.all_amounts(rows)
        self.told.all_amounts(rows)

    def all_facts(self, rows: RowNumbers) -> None:
        """Note that many rows changed in any way."""
        self.facts_noted += 1
        super().all_facts(rows)
        self.verdicts.all_facts(rows)
        self.told.all_facts(rows)


def _distinct(numbers: RowNumbers) -> RowNumbers:
    """Return the numbers in order, each once."""
    ordered = np.sort(numbers)
    if len(ordered) < 2:
        return ordered
    kept = np.empty(len(ordered), dtype=np.bool_)
    kept[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=kept[1:])
    return ordered[kept]
