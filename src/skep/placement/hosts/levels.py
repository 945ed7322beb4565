"""Amounts that somebody asks for: while what is free on a host stays between two of them, nobody's answer changes.

A host with room for a hundred servers fits every request before and after each of them. So filters that only compare
what is free with what is asked for are asked again for few of the hosts that changed, and by few kinds of requests:
those whose very amount came or went.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from skep.domain.resources import Resources
from skep.placement.hosts.columns import Ints, Mask

_MOST_CROSSED = 4096
"""So many rows are remembered for one kind of request that nobody asks for meanwhile."""


class Crossed:
    """Rows on which an amount came or went that one kind of request asks for."""

    __slots__ = ("rows", "too_many")

    def __init__(self) -> None:
        self.rows: set[int] = set()
        self.too_many = False
        """Whether there are more than are remembered here."""

    def add(self, row: int) -> None:
        """Note a row."""
        if len(self.rows) < _MOST_CROSSED:
            self.rows.add(row)
        else:
            self.too_many = True

    def clear(self) -> None:
        """Note that whoever asks has looked at all rows that changed."""
        self.rows.clear()
        self.too_many = False


class _Class:
    """The different amounts that are asked for of one resource class."""

    __slots__ = ("amounts", "askers")

    def __init__(self) -> None:
        self.amounts: list[int] = []
        """Ascending."""
        self.askers: list[list[Crossed]] = []
        """Who asks for each."""

    def tell(self, first: int, last: int, row: int) -> None:
        """Tell who asks for the amounts from the first up to the last, in either direction."""
        for askers in self.askers[min(first, last) : max(first, last)]:
            for crossed in askers:
                crossed.add(row)


class Levels:
    """The different amounts that are asked for, of each resource class, and who asks for them."""

    __slots__ = ("_of", "highest")

    def __init__(self) -> None:
        self._of: dict[str, _Class] = {}
        self.highest: dict[str, int] = {}
        """The largest amount of each class. Above it nothing is crossed."""

    def watch(self, resources: Resources) -> Crossed:
        """Note that somebody asks for these amounts; who it is finds in the answer where one of them is crossed."""
        crossed = Crossed()
        for name, amount in resources.items():
            one = self._of.setdefault(name, _Class())
            place = bisect_right(one.amounts, amount)
            if place and one.amounts[place - 1] == amount:
                one.askers[place - 1].append(crossed)
            else:
                one.amounts.insert(place, amount)
                one.askers.insert(place, [crossed])
                self.highest[name] = one.amounts[-1]
        return crossed

    def forget(self, resources: Resources, crossed: Crossed) -> None:
        """Note that who got `crossed` for these amounts asks for them no longer."""
        for name, amount in resources.items():
            one = self._of[name]
            place = bisect_right(one.amounts, amount) - 1
            one.askers[place].remove(crossed)
            if not one.askers[place]:
                del one.amounts[place], one.askers[place]
            if one.amounts:
                self.highest[name] = one.amounts[-1]
            else:
                del self._of[name], self.highest[name]

    def cross(self, name: str, row: int, before: int, after: int) -> bool:
        """Tell everybody whose amount was free on a row before and is not any more, or the other way round.

        Return whether there is such a one.
        """
        one = self._of.get(name)
        if one is None:
            return False
        first, last = bisect_right(one.amounts, before), bisect_right(one.amounts, after)
        if first == last:
            return False
        one.tell(first, last, row)
        return True

    def cross_all(self, name: str, rows: NDArray[np.int64], before: Ints, after: Ints) -> Mask:
        """Do the same for many rows; return on which of them there is such a one."""
        one = self._of.get(name)
        if one is None:
            return np.zeros(len(rows), dtype=np.bool_)
        amounts = np.array(one.amounts, dtype=np.int64)
        first, last = np.searchsorted(amounts, before, "right"), np.searchsorted(amounts, after, "right")
        crossed: Mask = first != last
        places = zip(rows[crossed].tolist(), first[crossed].tolist(), last[crossed].tolist(), strict=True)
        for row, low, high in places:
            one.tell(low, high, row)
        return crossed
