"""Hosts come first on which the request takes the fewest slots away from those that are likely to come.

What is likely to come is learned from what came (`mix.py`); what hosts are worth to it is counted in `slots.py`. Until
something is learned all hosts score alike.
"""

from __future__ import annotations

import numpy as np

from skep.domain.providers import Allocation
from skep.placement.hosts.columns import Floats, Ints
from skep.placement.hosts.mix import AskedKind
from skep.placement.hosts.parts import MOST_WAYS, parts_asked, parts_of
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest
from skep.placement.slots import HostAmounts, ServerKind, Worth, Worthing
from skep.placement.weighers.base import Weigher

_FEW_CHANGES = 16
_MOST_ROWS = 4096
"""Ways that are looked at together: memory for each kind and each of them is needed at once."""


class _Learned:
    """The worth of hosts under one published mix."""

    def __init__(self, table: HostTable, how: Worthing) -> None:
        mix = table.mix.published
        self.table, self.version = table, mix.version
        self._known: Floats = np.zeros(0, dtype=np.float64)
        """The worth of each row as it is; NaN where it is not known. Every request is compared with it."""
        self._position = -1
        """Up to where the table's log of changes is counted in."""
        self._together = max(_MOST_ROWS // how.departures, 1)
        self.classes = sorted({name for kind, _ in mix.kinds for name, _ in kind.resources})
        self.part_classes = sorted({name for kind, _ in mix.kinds for name, _ in parts_asked(kind.nested)[1]})
        mean = np.array([mix.mean.get(name, 0.0) for name in self.classes], dtype=np.float64)
        kinds = [self._kind(kind, count) for kind, count in mix.kinds]
        # Parts are parts of what the host has as a whole, so they say nothing more about the size of a kind.
        self.worth = Worth(kinds, how, mean_flat=mean, mean_part=np.zeros(len(self.part_classes)))

    def _kind(self, kind: AskedKind, count: float) -> ServerKind:
        resources = dict(kind.resources)
        parts, asked = parts_asked(kind.nested)
        amounts = dict(asked)
        return ServerKind(
            flat=tuple(resources.get(name, 0) for name in self.classes),
            part=tuple(amounts.get(name, 0) for name in self.part_classes),
            parts=max(parts, 1),
            count=count,
        )

    def losses(self, hosts: HostView, request: PlacementRequest) -> tuple[Ints, Floats]:
        """Return what the request would take, for each way to serve it: the place of its host, and the loss."""
        free, capacity = self._flat(hosts)
        taken = np.array([request.resources.get(name, 0) for name in self.classes], dtype=np.int64)
        before = self._before(hosts)
        if not self.part_classes:
            inside = np.zeros((len(hosts), 0, 0), dtype=np.int64)
            return np.arange(len(hosts)), before - self._worth_of(HostAmounts(free - taken, capacity, inside, inside))
        _, inside_capacity, host, after = parts_of(hosts, self.part_classes, request.nested)
        left = self._worth_of(HostAmounts(free[host] - taken, capacity[host], after, inside_capacity[host]))
        return host, before[host] - left

    def _before(self, hosts: HostView) -> Floats:
        """Return the worth of hosts as they are, worked out only where something changed since the last time."""
        table = self.table
        if self._position != table.position or len(self._known) < table.size:
            changed = table.log.since(self._position, max(_FEW_CHANGES, table.size // 4))
            if changed is None or len(self._known) < table.size:
                self._known = np.full(len(table.mapped), np.nan)
            else:
                self._known[changed.facts] = np.nan
                self._known[changed.amounts] = np.nan
            self._position = table.position
        worth: Floats = self._known[hosts.selected]
        unknown = np.isnan(worth)
        if unknown.any():
            rows = np.array(hosts.numbers(unknown), dtype=np.int64)
            self._known[rows] = self._worth_now(HostView(table, rows))
            worth = self._known[hosts.selected]
        return worth

    def _worth_now(self, hosts: HostView) -> Floats:
        free, capacity = self._flat(hosts)
        if self.part_classes:
            inside, inside_capacity, _, _ = parts_of(hosts, self.part_classes, None)
        else:
            inside = inside_capacity = np.zeros((len(hosts), 0, 0), dtype=np.int64)
        return self._worth_of(HostAmounts(free, capacity, inside, inside_capacity))

    def _flat(self, hosts: HostView) -> tuple[Ints, Ints]:
        free = _columns([hosts.free(name) for name in self.classes], len(hosts))
        return free, _columns([hosts.capacity(name) for name in self.classes], len(hosts))

    def _worth_of(self, hosts: HostAmounts) -> Floats:
        worth = np.zeros(len(hosts.flat), dtype=np.float64)
        for begin in range(0, len(worth), self._together):
            rows = slice(begin, begin + self._together)
            some = HostAmounts(hosts.flat[rows], hosts.flat_capacity[rows], hosts.part[rows], hosts.part_capacity[rows])
            worth[rows] = self.worth.of(some)
        return worth


def _columns(columns: list[Ints], rows: int) -> Ints:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0), dtype=np.int64)


def made(options: PlacementOptions) -> Weigher:
    """Return the weigher: what slots the request would take, negated."""
    how = Worthing(
        size_exponent=options.fragmentation_size_exponent,
        slot_exponent=options.fragmentation_slot_exponent,
        departures=options.fragmentation_departures,
    )
    latest: list[_Learned] = []

    def learned(table: HostTable) -> _Learned | None:
        mix = table.mix.published
        if not mix.version:
            return None
        if not latest or latest[0].version != mix.version or latest[0].table is not table:
            latest[:] = [_Learned(table, how)]
        return latest[0]

    def scores(hosts: HostView, request: PlacementRequest) -> Floats:
        known = learned(hosts.table)
        if known is None:
            return np.zeros(len(hosts), dtype=np.float64)
        host, loss = known.losses(hosts, request)
        least = np.full(len(hosts), np.inf)
        np.minimum.at(least, host, loss)
        return -least

    def way(table: HostTable, request: PlacementRequest, row: int) -> Allocation | None:
        ways = table.nested.ways(row, request.nested, MOST_WAYS) if request.nested is not None else []
        known = learned(table)
        if known is None or not known.part_classes or len(ways) < 2:
            return ways[0] if ways else None
        _, loss = known.losses(HostView(table, slice(row, row + 1)), request)
        return ways[int(np.argmin(loss))]

    return Weigher(
        name="FragmentationWeigher",
        scores=scores,
        shaped_by=lambda table, _: table.mix.published.version,
        learns=True,
        way=way,
        multiplier="fragmentation_weight_multiplier",
    )
