"""Which filters reject each host, all of them and not only the first: what near misses and changes are read from.

A set of filters is a number with one bit for each (`FilterSet`). Hosts that fail on many things are told apart by
nobody, so they share one code, and a row costs a byte.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from skep.scheduler.changelog import Changed, ChangeLog
from skep.scheduler.columns import Mask
from skep.scheduler.filters.base import Filter
from skep.scheduler.request import PlacementRequest
from skep.scheduler.table import HostTable
from skep.scheduler.view import HostView

FilterSet = int
"""Bit N stands for the Nth of the filters that run for a request."""
RowNumbers = NDArray[np.intp]
_Codes = NDArray[np.uint8]

SOME = 1024
"""So many hosts are looked at where one of many is to be found."""
_NOT_MAPPED = 0
"""Code of a row that is no host which the operator knows."""
_MANY = 255
"""Code of a host that fails on more than `_MOST_BITS` filters."""
_MOST_BITS = 2
_STATE_FILTERS = frozenset({"ReportsFilter", "ComputeFilter", "CellFilter", "IgnoredHostsFilter"})
"""They judge the state a host is in, or what was tried, not whether it could hold the server one day."""


class Failures:
    """The filters that reject each host, for one request."""

    def __init__(self, filters: Sequence[Filter], column: NDArray[np.int64] | _Codes, codes: dict[FilterSet, int]):
        self.filters = tuple(filters)
        self.column = column
        """A code for each row."""
        self.codes = codes
        self.counts: dict[FilterSet, int] = {}
        """Hosts by the set of filters that reject them; sets of few filters only."""
        self._some: dict[FilterSet, RowNumbers] = {}

    def rows(self, failed: FilterSet) -> RowNumbers:
        """Return the rows that exactly these filters reject."""
        code = self.codes.get(failed)
        if code is None or not self.counts.get(failed):
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(self.column == code)

    def some(self, failed: FilterSet) -> RowNumbers:
        """Return the first `SOME` of these rows."""
        found = self._some.get(failed)
        if found is None:
            found = self._some[failed] = self.rows(failed)[:SOME].copy()
        return found

    def bit(self, name: str) -> FilterSet:
        """Return the set that holds the filter of this name alone; the empty one if it does not run."""
        return next((1 << number for number, entry in enumerate(self.filters) if entry.name == name), 0)


class ShapeFailures(Failures):
    """The same for all requests of a shape, by the filters that they share; only changed hosts are judged again."""

    def __init__(self, table: HostTable, filters: Sequence[Filter], request: PlacementRequest) -> None:
        super().__init__(filters, np.zeros(0, dtype=np.uint8), {})
        self._table = table
        self._sets: list[FilterSet] = [-1]
        """By code."""
        varying = [entry for entry in self.filters if not entry.steady]
        self._varying = sum(1 << number for number, entry in enumerate(self.filters) if not entry.steady)
        self._log: ChangeLog = table.log.verdicts if all(entry.by_level for entry in varying) else table.log
        self._holding: Mask = np.zeros(0, dtype=np.bool_)
        """Which hosts could hold the server if they were empty, up and enabled."""
        self._position = -1
        self.could_hold = 0
        """How many."""
        self.refresh(request)

    def refresh(self, request: PlacementRequest) -> RowNumbers | None:
        """Take what changed. Return the rows of which something may have changed; None: of all."""
        position, size = self._log.position, self._table.size
        if position == self._position:
            return np.zeros(0, dtype=np.intp)
        changed = self._log.since(self._position, max(16, size // 4)) if size == len(self.column) else None
        self._position = position
        if changed is None or self._is_full:
            self._begin(request)
            return None
        return self._take(changed, request)

    @property
    def _is_full(self) -> bool:
        """Whether there is no code left for another set: some that are there may have no host any more."""
        return len(self._sets) == _MANY

    def _begin(self, request: PlacementRequest) -> None:
        self._sets, self.codes, self._some = [-1], {}, {}
        self.column = self._codes_of(self._judge(HostView(self._table), request, -1))
        numbers = np.bincount(self.column, minlength=_MANY + 1).tolist()
        self.counts = {failed: numbers[code] for failed, code in self.codes.items() if numbers[code]}
        self._holding = _could_hold(HostView(self._table), self.filters, request)
        self.could_hold = int(np.count_nonzero(self._holding))

    def _take(self, changed: Changed, request: PlacementRequest) -> RowNumbers:
        rows = np.union1d(changed.facts, changed.amounts)
        before = self.column[rows]
        if len(changed.facts) or (before == _MANY).any():
            after = self._judge(HostView(self._table, rows), request, -1)
        else:
            steady = np.array(self._sets, dtype=np.int64)[before] & ~self._varying
            after = steady | self._judge(HostView(self._table, rows), request, self._varying)
            after[before == _NOT_MAPPED] = -1
        codes = self._codes_of(after)
        different = np.flatnonzero(codes != before)
        for old, new in zip(before[different].tolist(), codes[different].tolist(), strict=True):
            self._count(old, -1)
            self._count(new, 1)
        if len(different):
            self.column[rows] = codes
            self._some.clear()
        if len(changed.facts):
            was = self._holding[changed.facts]
            now = self._holding[changed.facts] = _could_hold(
                HostView(self._table, changed.facts), self.filters, request
            )
            self.could_hold += int(np.count_nonzero(now)) - int(np.count_nonzero(was))
        return rows

    def _count(self, code: int, change: int) -> None:
        if code not in (_NOT_MAPPED, _MANY):
            failed = self._sets[code]
            self.counts[failed] = self.counts.get(failed, 0) + change

    def _judge(self, hosts: HostView, request: PlacementRequest, which: FilterSet) -> NDArray[np.int64]:
        """Return the set of those filters of `which` that reject each host; -1 for who is not mapped."""
        failed = np.zeros(len(hosts), dtype=np.int64)
        for number, entry in enumerate(self.filters):
            if which >> number & 1:
                failed |= (~entry.passes(hosts, request)).astype(np.int64) << number
        if which == -1:
            failed[~hosts.mapped] = -1
        return failed

    def _codes_of(self, failed: NDArray[np.int64]) -> _Codes:
        distinct = np.unique(failed)
        codes = np.array([self._code_of(one) for one in distinct.tolist()], dtype=np.uint8)
        return codes[np.searchsorted(distinct, failed)] if len(distinct) else np.zeros(len(failed), dtype=np.uint8)

    def _code_of(self, failed: FilterSet) -> int:
        if failed == -1:
            return _NOT_MAPPED
        code = self.codes.get(failed)
        if code is None:
            if failed.bit_count() > _MOST_BITS or self._is_full:
                return _MANY
            code = self.codes[failed] = len(self._sets)
            self._sets.append(failed)
        return code

    def set_of(self, code: int) -> FilterSet | None:
        """Return the set that a code stands for; None: the row is no host, or fails on many filters."""
        return self._sets[code] if code not in (_NOT_MAPPED, _MANY) else None


def with_request_filters(
    shared: ShapeFailures, table: HostTable, filters: Sequence[Filter], request: PlacementRequest
) -> Failures:
    """Join what a shape's filters say and what those do that read more of this request than its shape."""
    hosts, width = HostView(table), len(filters)
    column = shared.column.astype(np.int64) << width
    for number, entry in enumerate(filters):
        column |= (~entry.passes(hosts, request)).astype(np.int64) << number
    joint = Failures((*shared.filters, *filters), column, {})
    distinct, numbers = np.unique(column, return_counts=True)
    for code, hosts_of in zip(distinct.tolist(), numbers.tolist(), strict=True):
        first = shared.set_of(code >> width)
        if first is not None:
            failed = first | (code & (1 << width) - 1) << len(shared.filters)
            joint.codes[failed], joint.counts[failed] = code, hosts_of
    return joint


def _could_hold(hosts: HostView, filters: Sequence[Filter], request: PlacementRequest) -> Mask:
    """Return who could hold the server if empty, up and enabled, for all that is known.

    A filter that looks at what is free and cannot say what it would say of an empty host rules out nobody; nor does
    what a host would have to report, of one that has not.
    """
    mask = hosts.mapped.copy()
    unknown = ~hosts.reported
    for entry in filters:
        limited_to_cell = entry.name == "CellFilter" and request.cell is not None
        if entry.name in _STATE_FILTERS and not limited_to_cell:
            continue
        judge = entry.passes if entry.steady else entry.if_empty
        if judge is not None:
            passed = judge(hosts, request)
            mask &= passed if entry.from_operator else passed | unknown
    return mask
