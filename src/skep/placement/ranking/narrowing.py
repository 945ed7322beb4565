"""Who is left of those that fit one shape, when filters have named the rows that more of a request is about.

A server group of twenty members concerns twenty rows, whatever the number of hosts: nothing here looks at the others.
"""

from __future__ import annotations

from collections.abc import Iterator

from skep.placement.filters.abilities import Named
from skep.placement.hosts.columns import Mask
from skep.placement.spreading import Domains

_NONE: frozenset[int] = frozenset()


class Narrowing:
    """Begins with all rows at which the column is `yes`, so many; each filter takes some away."""

    __slots__ = ("_codes", "_column", "_domains", "_may", "_yes", "barred", "left", "only")

    def __init__(self, column: memoryview, yes: int, left: int) -> None:
        self._column = column
        self._yes = yes
        self.left = left
        """How many are left."""
        self.only: set[int] | None = None
        """Those that are left, once a filter has named them."""
        self.barred: set[int] | frozenset[int] = _NONE
        """Those that were taken away before that."""
        self._domains: Domains | None = None
        """Those in whose domains no more members may stand were taken away, too."""
        self._codes = self._may = column[:0]

    def take(self, named: Named) -> None:
        """Take away what a filter does not let through."""
        if self.only is not None:
            self.only = self.only & named.rows if named.only else self.only - named.rows
        elif named.only:
            self.only = self._fitting(named)
        else:
            self.barred = self.barred | (barred := self._fitting(named))
            self.left -= len(barred)
            return
        self.left = len(self.only)

    def stay_within(self, domains: Domains) -> None:
        """Take away whose domain may get no more members. Only once: of several such constraints masks are made."""
        may = domains.may()
        self._domains, self._codes, self._may = domains, domains.codes.data, may.data
        if self.only is not None:
            self.only = {row for row in self.only if self.lets(row)}
            self.left = len(self.only)
        else:
            self.left = int(domains.fitting @ may) - sum(self._may[self._codes[row]] for row in self.barred)

    def lets(self, row: int) -> bool:
        """Tell whether a row at which the column is `yes` is left."""
        return row not in self.barred and (self._domains is None or bool(self._may[self._codes[row]]))

    def those_left(self, rows: Iterator[int]) -> Iterator[int]:
        """Pass on those of the rows, at which the column is `yes`, that are left."""
        barred, codes, may = self.barred, self._codes, self._may
        if self._domains is None:
            return (row for row in rows if row not in barred)
        return (row for row in rows if may[codes[row]] and row not in barred)

    def of(self, mask: Mask) -> Mask:
        """Return which of a mask over all rows are left; the mask itself may be changed."""
        mask[list(self.barred)] = False
        return mask if self._domains is None else mask & self._domains.allowed()

    def _fitting(self, named: Named) -> set[int]:
        """Return the named rows that were left."""
        column, yes = self._column, self._yes
        return {row for row in named.rows if column[row] == yes and self.lets(row)}
