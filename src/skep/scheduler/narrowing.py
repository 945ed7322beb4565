"""Who is left of those that fit one shape, when filters have named the rows that more of a request is about.

A server group of twenty members concerns twenty rows, whatever the number of hosts: nothing here looks at the others.
"""

from __future__ import annotations

from skep.scheduler.filters.base import Named

_NONE: frozenset[int] = frozenset()


class Narrowing:
    """Begins with all rows at which the column is `yes`, so many; each filter takes some away."""

    __slots__ = ("_column", "_yes", "barred", "left", "only")

    def __init__(self, column: memoryview, yes: int, left: int) -> None:
        self._column = column
        self._yes = yes
        self.left = left
        """How many are left."""
        self.only: set[int] | None = None
        """Those that are left, once a filter has named them."""
        self.barred: set[int] | frozenset[int] = _NONE
        """Those that were taken away before that."""

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

    def _fitting(self, named: Named) -> set[int]:
        """Return the named rows that were left."""
        column, yes, barred = self._column, self._yes, self.barred
        return {row for row in named.rows if column[row] == yes and row not in barred}
