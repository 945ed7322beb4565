"""Multipliers of weighers that aggregates set for their hosts: `cpu_weight_multiplier` in the metadata, and its kind.

As in Nova: a host in several aggregates that name the same weigher gets the least of their numbers, and where one of
them is no number, the configured one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from skep.placement.hosts.columns import Floats, grown

SUFFIX = "_weight_multiplier"
MOST = 1e15
"""Larger ones, of either sign, are none: sums of scores must stay numbers that can be compared."""


class Multipliers:
    """What aggregates say, by row. There is a column for each key that some aggregate has."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        """The keys that some aggregate has. Another object whenever they change."""
        self.columns: dict[str, Floats] = {}
        """By key; NaN where the configured multiplier holds."""
        self._of_aggregate: dict[int, dict[str, float]] = {}

    def set_aggregate(self, number: int, metadata: Mapping[str, str], length: int) -> None:
        """Take what one aggregate says; the rows of its hosts must be set after that."""
        said = {key: _number(value) for key, value in metadata.items() if key.endswith(SUFFIX)}
        if said == self._of_aggregate.get(number, {}):
            return
        if said:
            self._of_aggregate[number] = said
        else:
            del self._of_aggregate[number]
        names = frozenset(key for one in self._of_aggregate.values() for key in one)
        if names != self.names:
            self.names = names
            self.columns = {key: self.columns.get(key, np.full(length, math.nan)) for key in sorted(names)}

    def set_row(self, row: int, aggregates: tuple[int, ...]) -> None:
        """Set which aggregates a row is in."""
        said = [self._of_aggregate[number] for number in aggregates if number in self._of_aggregate]
        for key, column in self.columns.items():
            numbers = [one[key] for one in said if key in one]
            column[row] = min(numbers) if numbers and not any(map(math.isnan, numbers)) else math.nan

    def of_row(self, key: str, row: int, default: float) -> float:
        """Return the multiplier of one row, `default` where its aggregates set none."""
        column = self.columns.get(key)
        number: float = math.nan if column is None else column.item(row)
        return default if math.isnan(number) else number

    def grow(self, length: int) -> None:
        """Make room for `length` rows."""
        for key, column in self.columns.items():
            larger = grown(column, length)
            larger[len(column) :] = math.nan
            self.columns[key] = larger


def _number(text: str) -> float:
    """Return the number; NaN where it is none."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if abs(number) <= MOST else math.nan
