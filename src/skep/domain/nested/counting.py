"""Whether a request fits, by counting alone: for requests whose parts do not compete with each other.

Most do not: cells of the guest that are alike, devices of pools that no other part of the request may use. Then it is
enough to count, and no way has to be found. What this says is what `fitting.allocate` would find.
"""

from __future__ import annotations

from itertools import combinations

from skep.domain.nested.devices import suits
from skep.domain.nested.layout import Layout
from skep.domain.nested.room import CellRoom, Room
from skep.domain.nested.wanted import Affinity, PageKind, Wanted

_Pools = tuple[tuple[str, int | None], ...]
"""Names of pools, and the NUMA cell of each."""


class Counting:
    """One request on hosts of one layout."""

    __slots__ = ("_affinities", "_count", "_dedicated", "_memory", "_page", "_shared", "_sockets", "_threads")

    def __init__(self, asked: Wanted, layout: Layout, pools: list[_Pools]) -> None:
        """`pools`: those that suit each request for devices; no pool suits two. Use `counting_of`."""
        self._count = len(asked.numa.cells) if asked.numa is not None else 0
        if asked.numa is not None:
            first = asked.numa.cells[0]
            self._shared, self._dedicated, self._memory = first.shared, first.dedicated, first.memory_mb
            self._page, self._threads = asked.numa.page, asked.numa.threads
        self._affinities: list[tuple[int, Affinity, _Pools]] = [
            (request.count, request.affinity, suiting) for request, suiting in zip(asked.devices, pools, strict=True)
        ]
        self._sockets = {cell.number: cell.socket for cell in layout.cells}

    def fits(self, room: Room) -> bool:
        """Tell whether the host has room."""
        if not self._count:
            return not self._affinities or self._has_devices(room, None)
        if self._count == 1 and not self._affinities:
            return any(map(self._fits_cell, room.cells.values()))
        fitting = [number for number, cell in room.cells.items() if self._fits_cell(cell)]
        if len(fitting) < self._count:
            return False
        if not self._affinities:
            return True
        return any(self._has_devices(room, near) for near in combinations(fitting, self._count))

    def _fits_cell(self, cell: CellRoom) -> bool:
        if self._dedicated and not self._has_cpus(cell):
            return False
        if self._shared and not cell.has_shared(self._shared):
            return False
        if self._page == PageKind.UNSAID:
            return cell.has_memory(self._memory)
        return cell.page_size(self._page, self._memory) is not None

    def _has_cpus(self, cell: CellRoom) -> bool:
        if self._threads == "prefer":
            return cell.free.bit_count() >= self._dedicated
        if self._threads == "isolate":
            return len(cell.single) >= self._dedicated
        threads = cell.layout.threads
        return threads > 1 and not self._dedicated % threads and cell.full >= self._dedicated

    def _has_devices(self, room: Room, near: tuple[int, ...] | None) -> bool:
        for count, affinity, pools in self._affinities:
            left = count
            for name, at in pools:
                if near is None or at in near or self._is_near(affinity, at, near):
                    left -= max(room.providers[name].units, 0)
                    if left <= 0:
                        break
            if left > 0:
                return False
        return True

    def _is_near(self, affinity: Affinity, at: int | None, near: tuple[int, ...]) -> bool:
        if affinity == "preferred":
            return True
        if affinity == "legacy":
            return at is None
        if affinity == "socket" and at in self._sockets:
            return self._sockets[at] in {self._sockets[number] for number in near}
        return False


def counting_of(asked: Wanted, layout: Layout) -> Counting | None:
    """Return how to count; None where parts of the request compete, so that a way has to be found."""
    if asked.all_groups or any(name not in layout.classes for name, _ in asked.loose):
        return None
    numa = asked.numa
    if numa is not None and (numa.own_emulator or any(cell != numa.cells[0] for cell in numa.cells)):
        return None
    pools = [
        tuple((pool.name, pool.provider.numa) for pool in layout.providers if suits(pool, request))
        for request in asked.devices
    ]
    names = [name for suiting in pools for name, _ in suiting]
    return Counting(asked, layout, pools) if len(names) == len(set(names)) else None
