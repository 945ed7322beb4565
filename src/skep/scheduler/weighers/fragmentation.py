"""Hosts come first on which the request takes the fewest slots away from those that are likely to come.

What is likely to come is learned from what came (`mix.py`); what hosts are worth to it is counted in `slots.py`. Until
something is learned all hosts score alike.
"""

from __future__ import annotations

import numpy as np

from skep.domain.providers import Allocation
from skep.scheduler.columns import Floats, Ints
from skep.scheduler.mix import AskedKind, PublishedMix
from skep.scheduler.nested.parts import MOST_WAYS, parts_asked, parts_of
from skep.scheduler.options import PlacementOptions
from skep.scheduler.request import PlacementRequest
from skep.scheduler.slots import Hosts, Kind, Worth, Worthing
from skep.scheduler.table import HostTable
from skep.scheduler.view import HostView
from skep.scheduler.weighers.base import Weigher

_MOST_ROWS = 4096
"""Ways that are looked at together: memory for each kind and each of them is needed at once."""


class _Learned:
    """The worth of hosts under one published mix."""

    def __init__(self, mix: PublishedMix, how: Worthing) -> None:
        self.version = mix.version
        self._together = max(_MOST_ROWS // how.departures, 1)
        self.classes = sorted({name for kind, _ in mix.kinds for name, _ in kind.resources})
        self.part_classes = sorted({name for kind, _ in mix.kinds for name, _ in parts_asked(kind.nested)[1]})
        mean = np.array([mix.mean.get(name, 0.0) for name in self.classes], dtype=np.float64)
        kinds = [self._kind(kind, count) for kind, count in mix.kinds]
        # Parts are parts of what the host has as a whole, so they say nothing more about the size of a kind.
        self.worth = Worth(kinds, how, mean_flat=mean, mean_part=np.zeros(len(self.part_classes)))

    def _kind(self, kind: AskedKind, count: float) -> Kind:
        resources = dict(kind.resources)
        parts, asked = parts_asked(kind.nested)
        amounts = dict(asked)
        return Kind(
            flat=tuple(resources.get(name, 0) for name in self.classes),
            part=tuple(amounts.get(name, 0) for name in self.part_classes),
            parts=max(parts, 1),
            count=count,
        )

    def losses(self, hosts: HostView, request: PlacementRequest) -> tuple[Ints, Floats]:
        """Return what the request would take, for each way to serve it: the place of its host, and the loss."""
        free = _columns([hosts.free(name) for name in self.classes], len(hosts))
        capacity = _columns([hosts.capacity(name) for name in self.classes], len(hosts))
        taken = np.array([request.resources.get(name, 0) for name in self.classes], dtype=np.int64)
        if self.part_classes:
            inside, inside_capacity, host, after = parts_of(hosts, self.part_classes, request.nested)
        else:
            host = np.arange(len(hosts))
            inside = inside_capacity = after = np.zeros((len(hosts), 0, 0), dtype=np.int64)
        before = self._worth_of(Hosts(free, capacity, inside, inside_capacity))
        left = self._worth_of(Hosts(free[host] - taken, capacity[host], after, inside_capacity[host]))
        return host, before[host] - left

    def _worth_of(self, hosts: Hosts) -> Floats:
        worth = np.zeros(len(hosts.flat), dtype=np.float64)
        for begin in range(0, len(worth), self._together):
            rows = slice(begin, begin + self._together)
            some = Hosts(hosts.flat[rows], hosts.flat_capacity[rows], hosts.part[rows], hosts.part_capacity[rows])
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
        if not latest or latest[0].version != mix.version:
            latest[:] = [_Learned(mix, how)]
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
