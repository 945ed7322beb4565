"""When hosts are expected to be empty: the latest end of what a host counts itself and of what is claimed on it.

Costs nothing, not even columns, until the end of some server is known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skep.placement.hosts.columns import Floats, Ints, Rows

_UNKNOWN = np.iinfo(np.int64).min
"""In the columns: no server with a known end."""


class ExpectedEnds:
    """The ends that reports and claims tell, by row. Microseconds since the epoch."""

    def __init__(self) -> None:
        self._reported: Ints = np.zeros(0, dtype=np.int64)
        self._claimed: Ints = np.zeros(0, dtype=np.int64)
        """The latest of the claims that have one."""
        self._with_end: Ints = np.zeros(0, dtype=np.int64)
        """How many claims have one."""
        self._held: dict[int, dict[tuple[str, int], int]] = {}
        """The ends of claims."""

    def report(self, row: int, end: int | None) -> None:
        """Take when a host expects the last of its servers to end; None: it has none, or not all of them have one."""
        if end is None and row >= len(self._reported):
            return
        self._make_room(row + 1)
        self._reported[row] = _UNKNOWN if end is None else end

    def hold(self, row: int, claim: tuple[str, int], end: int) -> None:
        """Count the end of a claim."""
        self._make_room(row + 1)
        held = self._held.setdefault(row, {})
        held[claim] = end
        self._count(row, held)

    def release(self, row: int, claim: tuple[str, int]) -> None:
        """Count the end of a claim no longer."""
        held = self._held[row]
        del held[claim]
        self._count(row, held)
        if not held:
            del self._held[row]

    def occupied_until(self, rows: Rows, instances: Ints, claims: Ints) -> Floats:
        """Return until when hosts are occupied: for ever (inf) by a server without an end, never (-inf) if empty.

        `instances` and `claims`: how many servers each row of the table counts itself, and how many are claimed.
        """
        if not len(self._reported):
            return np.where(instances[rows] + claims[rows] > 0, np.inf, -np.inf)
        self._make_room(len(instances))
        reported, claimed = self._reported[rows], self._claimed[rows]
        there = instances[rows] > 0
        endless = (there & (reported == _UNKNOWN)) | (claims[rows] > self._with_end[rows])
        latest = np.maximum(np.where(there, reported, _UNKNOWN), claimed)
        until: NDArray[np.float64] = np.where(latest == _UNKNOWN, -np.inf, latest)
        until[endless] = np.inf
        return until

    def _count(self, row: int, held: dict[tuple[str, int], int]) -> None:
        self._with_end[row] = len(held)
        self._claimed[row] = max(held.values(), default=_UNKNOWN)

    def _make_room(self, rows: int) -> None:
        length = len(self._reported)
        if rows <= length:
            return
        more = max(rows, 2 * length) - length
        unknown = np.full(more, _UNKNOWN, dtype=np.int64)
        self._reported = np.concatenate((self._reported, unknown))
        self._claimed = np.concatenate((self._claimed, unknown))
        self._with_end = np.concatenate((self._with_end, np.zeros(more, dtype=np.int64)))
