"""The hosts that come nearest: they fail on one thing only, and lack least of it.

Nearest is who lacks the fewest resource classes, and of these the smallest part of what is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skep.domain.builds import NearMiss
from skep.placement.explain.amounts import distances, shortage
from skep.placement.explain.failures import Failures, FilterSet, RowNumbers
from skep.placement.hosts.columns import Floats
from skep.placement.hosts.table import HostTable
from skep.placement.request import PlacementRequest

_LEAST_POOL = 64
_POOL_PART = 128
"""Of so many hosts one is kept at hand as one of the nearest."""


class Nearest:
    """The nearest of the hosts that capacity alone rejects, kept up to date for the requests of one shape.

    A pool holds all rows up to some distance. A row that comes nearer than that is among those that changed, so the
    nearest of the pool are the nearest of all until too few are left in it; then all rows are looked at again.
    """

    def __init__(self, table: HostTable, most: int) -> None:
        """`most`: how many are asked for."""
        self._table = table
        self._most = most
        self._pool: RowNumbers = np.zeros(0, dtype=np.intp)
        self._reach = -1.0
        """Rows that are not in the pool are at least so far."""
        self._is_whole = False
        """Whether the pool has all rows that there were."""
        self._position = -1

    def rows(self, failures: Failures, failed: FilterSet, request: PlacementRequest) -> RowNumbers:
        """Return the nearest rows of those that the set `failed` rejects, nearest first, at most as many as asked."""
        table = self._table
        changed = None
        if self._position >= 0:
            changed = table.log.since(self._position, max(16, table.size // 4))
        if changed is not None:
            self._take(failures, failed, request, np.concatenate((changed.facts, changed.amounts)))
        if changed is None or (len(self._pool) < self._most and not self._is_whole):
            self._begin(failures, failed, request)
        self._position = table.position
        return self._pool[: self._most]

    def _begin(self, failures: Failures, failed: FilterSet, request: PlacementRequest) -> None:
        rows = failures.rows(failed)
        distance = distances(self._table, request, rows)
        self._reach = np.inf
        self._is_whole = True
        self._keep(rows, distance)

    def _take(self, failures: Failures, failed: FilterSet, request: PlacementRequest, changed: RowNumbers) -> None:
        """Judge anew who is in the pool, and who changed."""
        rows = np.union1d(self._pool, changed)
        code = failures.codes.get(failed)
        rows = rows[failures.column[rows] == code] if code is not None else rows[:0]
        distance = distances(self._table, request, rows)
        if not self._is_whole:
            near = distance <= self._reach
            rows, distance = rows[near], distance[near]
        self._keep(rows, distance)

    def _keep(self, rows: RowNumbers, distance: Floats) -> None:
        """Keep the nearest of `rows`, nearest first."""
        most = max(_LEAST_POOL, self._table.size // _POOL_PART)
        if len(rows) > 2 * most:
            nearest = np.argpartition(distance, most - 1)[:most]
            rows, distance = rows[nearest], distance[nearest]
            self._reach, self._is_whole = float(distance.max()), False
        self._pool = rows[np.lexsort((rows, distance))]


def near_misses(
    table: HostTable,
    request: PlacementRequest,
    failures: Failures,
    by_one: Sequence[RowNumbers],
    last_stage: str,
    most: int,
) -> tuple[NearMiss, ...]:
    """Return hosts that failed one filter only: those of the last stage first, then by how little is missing.

    `by_one`: of each filter, some of the hosts that it alone rejects.
    """
    ranked: list[tuple[bool, float, NearMiss]] = []
    for number, entry in enumerate(failures.filters):
        failed = 1 << number
        is_capacity = failed == failures.capacity
        amounts_matter = is_capacity or failures.of_inside(failed) is not None
        for row in by_one[number][:most].tolist():
            lacks = shortage(table, request, row) if amounts_matter else {}
            size = sum(1 + amount / request.resources[name] for name, amount in lacks.items())
            stage = failures.capacity_stage(request) if lacks else entry.stage(request)
            cause = entry.cause(table, row) if entry.cause is not None else ""
            miss = NearMiss(node=table.nodes[row], host=table.hosts[row], stage=stage, lacks=lacks, cause=cause)
            ranked.append((stage != last_stage, size, miss))
    ranked.sort(key=lambda item: item[:2])
    return tuple(miss for _, _, miss in ranked[:most])


def near_in_all(failures: Failures, by_one: Sequence[RowNumbers]) -> int:
    """Return how many hosts fail on one thing only, at least: where each is looked at or asked, some are."""
    found = 0
    for number, rows in enumerate(by_one):
        failed = 1 << number
        is_counted = failures.unasked is None and failures.of_inside(failed) is None
        found += max(len(rows), failures.counts.get(failed, 0) if is_counted else 0)
    return found
