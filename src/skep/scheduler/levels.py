"""Amounts that somebody asks for: while what is free on a host stays between two of them, nobody's answer changes.

A host with room for a hundred servers fits every request before and after each of them. So filters that only compare
what is free with what is asked for are asked again for few of the hosts that changed.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable

from skep.domain.resources import Resources


class Levels:
    """The different amounts that are asked for, of each resource class."""

    __slots__ = ("_of", "highest")

    def __init__(self) -> None:
        self._of: dict[str, list[int]] = {}
        self.highest: dict[str, int] = {}
        """The largest amount of each class. Above it nothing is crossed."""

    def watch(self, resources: Resources) -> None:
        """Note that a request asks for these amounts."""
        for name, amount in resources.items():
            levels = self._of.setdefault(name, [])
            if amount not in levels:
                insort(levels, amount)
                self.highest[name] = levels[-1]

    def set_watched(self, requests: Iterable[Resources]) -> None:
        """Note that nobody asks for other amounts than these."""
        self._of.clear()
        self.highest.clear()
        for resources in requests:
            self.watch(resources)

    def crossed(self, name: str, before: int, after: int) -> bool:
        """Tell whether an amount that is asked for was free before and is not any more, or the other way round."""
        levels = self._of.get(name, [])
        return bisect_right(levels, before) != bisect_right(levels, after)
