"""The inside of hosts as columns: NUMA cells and nested providers alike are parts with amounts.

Only amounts are looked at: CPUs and memory of a cell, each class of a provider. Traits, threads and how near devices
are to cells are not; whether a request fits is decided elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skep.domain.nested.numa_reading import PCPU
from skep.domain.nested.room import Room
from skep.domain.nested.wanted import Wanted
from skep.domain.providers import Allocation
from skep.domain.resources import MEMORY_MB, VCPU, Resources
from skep.scheduler.columns import Ints
from skep.scheduler.view import HostView

_CELL = "cell:"
"""Before the class of what NUMA cells have, so that it is told from what providers have."""


MOST_WAYS = 16
"""Ways to serve a request on one host that are compared."""


class Parts(NamedTuple):
    """Ways x parts x classes: of each host one way to serve the request at least."""

    host: Ints
    """Whose way it is: the place of its host in the view."""
    free: Ints
    after: Ints
    """Free when the request has taken its parts; the same as before where it does not fit."""
    capacity: Ints


def parts_asked(asked: Wanted | None) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Return from how many different parts which amounts are asked for each.

    Of a request that asks for several things of different parts the NUMA cells count, else the first group, with those
    that are like it.
    """
    if asked is None:
        return 0, ()
    if asked.numa is not None:
        cells = asked.numa.cells
        amounts = {
            VCPU: max(cell.shared for cell in cells),
            PCPU: max(cell.dedicated for cell in cells),
            MEMORY_MB: max(cell.memory_mb for cell in cells),
        }
        return len(cells), tuple((_CELL + name, amount) for name, amount in sorted(amounts.items()) if amount)
    groups = [group.resources for group in asked.groups] or [(item,) for item in asked.loose]
    if not groups:
        return 0, ()
    return groups.count(groups[0]), groups[0]


def parts_of(hosts: HostView, classes: list[str], asked: Wanted | None) -> Parts:
    """Return what is free in the parts of each host, and what would be left; hosts that told of none have none."""
    rooms = hosts.table.nested
    told = rooms.told(hosts.table.size)[hosts.selected]
    ways: list[tuple[int, Room | None, Allocation | None]] = [
        (place, None, None) for place in (~told).nonzero()[0].tolist()
    ]
    for place, row in zip(told.nonzero()[0].tolist(), hosts.numbers(told), strict=True):
        possible = rooms.ways(row, asked, MOST_WAYS) if asked is not None else []
        ways += [(place, rooms.room(row), way) for way in possible or (None,)]
    most = max((len(room.cells) + len(room.providers) for _, room, _ in ways if room is not None), default=0)
    free, taken, capacity = (np.zeros((len(ways), most, len(classes)), dtype=np.int64) for _ in range(3))
    for at, (_, room, way) in enumerate(ways):
        if room is None:
            continue
        for number, (left, whole) in enumerate(_of_room(room)):
            free[at, number] = [left.get(name, 0) for name in classes]
            capacity[at, number] = [whole.get(name, 0) for name in classes]
        for number, amounts in _of_allocation(room, way) if way is not None else ():
            taken[at, number] = [amounts.get(name, 0) for name in classes]
    return Parts(np.array([place for place, _, _ in ways], dtype=np.int64), free, free - taken, capacity)


def _of_room(room: Room) -> list[tuple[Resources, Resources]]:
    """Return of each part what is free and what it has: cells first."""
    cells = []
    for cell in room.cells.values():
        layout, small = cell.layout, cell.layout.small
        in_pages = (layout.pages.get(small, 0) - cell.pages.get(small, 0)) * small // 1024
        left = {
            _CELL + VCPU: layout.shared_capacity - cell.shared,
            _CELL + PCPU: cell.free.bit_count(),
            _CELL + MEMORY_MB: layout.memory_capacity - cell.memory_mb - in_pages,
        }
        whole = {
            _CELL + VCPU: layout.shared_capacity,
            _CELL + PCPU: layout.cpus.bit_count(),
            _CELL + MEMORY_MB: layout.memory_capacity,
        }
        cells.append((left, whole))
    return [*cells, *((one.free, one.layout.capacity) for one in room.providers.values())]


def _of_allocation(room: Room, allocation: Allocation) -> list[tuple[int, Resources]]:
    """Return what is taken, with the number of its part."""
    cells, providers = list(room.cells), list(room.providers)
    found: list[tuple[int, Resources]] = []
    for share in allocation.cells:
        paged = sum(size * count for size, count in share.pages.items()) // 1024
        amounts = {
            _CELL + VCPU: share.shared,
            _CELL + PCPU: len(share.cpus),
            _CELL + MEMORY_MB: share.memory_mb + paged,
        }
        found.append((cells.index(share.cell), amounts))
    found += [(len(cells) + providers.index(held.provider), held.resources) for held in allocation.providers]
    return found
