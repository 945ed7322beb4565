"""Which filters reject each host, all of them and not only the first: what near misses and changes are read from.

A set of filters is a number with one bit for each (`FilterSet`). Hosts that fail on many things are told apart by
nobody, so they share one code, and a row costs a byte.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from skep.placement.emptied import EmptyHosts, cannot_say, could_hold
from skep.placement.hosts.changelog import Changed, ChangeLog
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.pipeline import Stage
from skep.placement.request import PlacementRequest

FilterSet = int
"""Bit N stands for the Nth of the filters that run for a request."""
RowNumbers = NDArray[np.intp]
_Codes = NDArray[np.uint8]

SOME = 1024
"""So many hosts are looked at where one of many is to be found."""
ASKED = 32
"""So many where each must be asked by a slow filter."""
CAPACITY = "CapacityFilter"
INSIDE = ("ResourceGroupsFilter", "PciPassthroughFilter", "NUMATopologyFilter")
"""Each asks for all that the one before it asks for, and more: who fails on one fails on the next for the same lack."""
_NOT_MAPPED = 0
"""Code of a row that is no host which the operator knows."""
_MANY = 255
"""Code of a host that fails on more than `_MOST_THINGS`."""
_MOST_THINGS = 2


class Failures:
    """The filters that reject each host, for one request. Of those in `INSIDE` it is the first only."""

    def __init__(self, filters: Sequence[Stage], column: NDArray[np.int64] | _Codes, codes: dict[FilterSet, int]):
        self.filters = tuple(filters)
        self.column = column
        """A code for each row."""
        self.codes = codes
        self.counts: dict[FilterSet, int] = {}
        """Hosts by the set of filters that reject them; sets of few filters only."""
        self.unasked: Callable[[RowNumbers, FilterSet], RowNumbers] | None = None
        """Where slow filters were asked of those hosts only that all others let through: returns which of some rows
        they would let through."""
        self.capacity = self._bit(CAPACITY)
        """The set that holds this filter alone; the empty one if it does not run."""
        self._inside = {bit: name for name in INSIDE if (bit := self._bit(name))}
        self.inside = tuple(self._inside)
        self._some: dict[FilterSet, RowNumbers] = {}

    def rows(self, failed: FilterSet) -> RowNumbers:
        """Return the rows that exactly these filters reject."""
        code = self.codes.get(failed)
        if code is None or not self.counts.get(failed):
            return np.zeros(0, dtype=np.intp)
        return np.flatnonzero(self.column == code)

    def some(self, failed: FilterSet) -> RowNumbers:
        """Return the first `SOME` of these rows; where slow filters must be asked, of the first `ASKED`."""
        found = self._some.get(failed)
        if found is None:
            found = self._some[failed] = self.let_through(self.rows(failed)[:SOME].copy(), failed)
        return found

    def let_through(self, rows: RowNumbers, failed: FilterSet) -> RowNumbers:
        """Return which of some rows slow filters let through that `failed` does not name; the first `ASKED` at most."""
        return rows if self.unasked is None else self.unasked(rows[:ASKED], failed)

    def hosts(self, failed: FilterSet) -> int:
        """Return how many hosts exactly these filters reject; where slow filters must be asked, how many at least."""
        return self.counts.get(failed, 0) if self.unasked is None else len(self.some(failed))

    def capacity_stage(self, request: PlacementRequest) -> str:
        """Return the words for what capacity is missing."""
        return next(entry.stage(request) for entry in self.filters if entry.name == CAPACITY)

    def of_inside(self, failed: FilterSet) -> str | None:
        """Return which filter of `INSIDE` is in a set."""
        return next((name for bit, name in self._inside.items() if failed & bit), None)

    @property
    def perhaps_one_lack(self) -> list[FilterSet]:
        """Sets of two filters that may reject a host for the same lack."""
        return [failed for bit in self.inside if self.counts.get(failed := self.capacity | bit) and self.capacity]

    def things(self, failed: FilterSet) -> int:
        """Return how many things a set of filters stands for at least."""
        return failed.bit_count() - bool(failed & self.capacity and failed & sum(self.inside))

    def _bit(self, name: str) -> FilterSet:
        return next((1 << number for number, entry in enumerate(self.filters) if entry.name == name), 0)


class ShapeFailures(Failures):
    """The same for all requests of a shape, by the filters that they share; only changed hosts are judged again."""

    def __init__(self, table: HostTable, filters: Sequence[Stage], request: PlacementRequest) -> None:
        super().__init__(filters, np.zeros(0, dtype=np.uint8), {})
        self._table = table
        self._sets: list[FilterSet] = [-1]
        """By code."""
        varying = [entry for entry in self.filters if not entry.steady]
        self._varying = sum(1 << number for number, entry in enumerate(self.filters) if not entry.steady)
        self._log: ChangeLog = table.log.verdicts if all(entry.by_level for entry in varying) else table.log
        self.holding: Mask = np.zeros(0, dtype=np.bool_)
        """Which hosts could hold the server if they were empty, up and enabled."""
        self._not_heard: Mask = np.zeros(0, dtype=np.bool_)
        self.could_hold = 0
        """How many could."""
        self.not_reported = 0
        """How many of these have not reported."""
        self.left_aside = cannot_say(table, self.filters, request)
        self._position = -1
        self.refresh(request)

    def refresh(self, request: PlacementRequest) -> RowNumbers | None:
        """Take what changed. Return the rows of which something may have changed; None: of all."""
        position, size = self._log.position, self._table.size
        if position == self._position:
            return np.zeros(0, dtype=np.intp)
        changed = self._log.since(self._position, max(16, size // 4)) if size == len(self.column) else None
        if changed is None or self._is_full:
            self._begin(request)
            rows = None
        else:
            rows = self._take(changed, request)
        # Only now: a plug-in that fails meanwhile leaves these changes to the next time.
        self._position = position
        return rows

    @property
    def _is_full(self) -> bool:
        """Whether there is no code left for another set: some that are there may have no host any more."""
        return len(self._sets) == _MANY

    def _begin(self, request: PlacementRequest) -> None:
        self._sets, self.codes, self._some = [-1], {}, {}
        self.column = self._codes_of(self._judge(HostView(self._table), request, -1))
        numbers = np.bincount(self.column, minlength=_MANY + 1).tolist()
        self.counts = {failed: numbers[code] for failed, code in self.codes.items() if numbers[code]}
        self.holding = np.zeros(self._table.size, dtype=np.bool_)
        self._not_heard = self.holding.copy()
        self.could_hold = self.not_reported = 0
        self._hold(EmptyHosts(self._table), request)

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
            self._hold(EmptyHosts(self._table, changed.facts), request)
        return rows

    def _hold(self, hosts: EmptyHosts, request: PlacementRequest) -> None:
        """Judge anew which of some hosts could hold the server if empty, and count."""
        holding = could_hold(hosts, self.filters, request)
        not_heard = holding & ~hosts.reported
        self.could_hold += _more(self.holding[hosts.selected], holding)
        self.not_reported += _more(self._not_heard[hosts.selected], not_heard)
        self.holding[hosts.selected], self._not_heard[hosts.selected] = holding, not_heard

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
        for number, bit in enumerate(self.inside):
            failed[(failed & bit) != 0] &= ~sum(self.inside[number + 1 :])
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
            if self.things(failed) > _MOST_THINGS or self._is_full:
                return _MANY
            code = self.codes[failed] = len(self._sets)
            self._sets.append(failed)
        return code

    def set_of(self, code: int) -> FilterSet | None:
        """Return the set that a code stands for; None: the row is no host, or fails on many filters."""
        return self._sets[code] if code not in (_NOT_MAPPED, _MANY) else None


def _more(before: Mask, now: Mask) -> int:
    return int(np.count_nonzero(now)) - int(np.count_nonzero(before))


def with_request_filters(
    shared: ShapeFailures, table: HostTable, filters: Sequence[Stage], request: PlacementRequest
) -> Failures:
    """Join what a shape's filters say and what those do that read more of this request than its shape.

    Slow filters are asked, as in decisions, of hosts only that all others let through.
    """
    hosts, width = HostView(table), len(filters)
    column = shared.column.astype(np.int64) << width
    nobody_yet = shared.codes.get(0, -1) << width
    slow: list[tuple[FilterSet, Stage]] = []
    for number, entry in sorted(enumerate(filters), key=lambda item: item[1].survivors_only):
        if entry.survivors_only:
            slow.append((1 << number + len(shared.filters), entry))
            rows = np.flatnonzero(column == nobody_yet)
            column[rows] |= (~entry.passes(HostView(table, rows), request)).astype(np.int64) << number
        else:
            column |= (~entry.passes(hosts, request)).astype(np.int64) << number
    joint = Failures((*shared.filters, *filters), column, {})
    distinct, numbers = np.unique(column, return_counts=True)
    for code, hosts_of in zip(distinct.tolist(), numbers.tolist(), strict=True):
        first = shared.set_of(code >> width)
        if first is not None:
            failed = first | (code & (1 << width) - 1) << len(shared.filters)
            joint.codes[failed], joint.counts[failed] = code, hosts_of

    def unasked(rows: RowNumbers, failed: FilterSet) -> RowNumbers:
        for bit, entry in slow:
            if len(rows) and not failed & bit:
                rows = rows[entry.passes(HostView(table, rows), request)]
        return rows

    if slow:
        joint.unasked = unasked
    return joint
