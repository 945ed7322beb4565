"""The inside of hosts as columns: NUMA cells and nested providers alike are parts with amounts.

Only amounts are looked at: CPUs and memory of a cell, each class of a provider. Traits, threads and how near devices
are to cells are not; whether a request fits is decided elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skep.domain.nested.layout import Layout
from skep.domain.nested.numa_reading import PCPU
from skep.domain.nested.room import Room, RoomKey
from skep.domain.nested.wanted import Wanted
from skep.domain.providers import Allocation
from skep.domain.resources import MEMORY_MB, VCPU, Resources
from skep.placement.hosts.columns import Ints
from skep.placement.hosts.view import HostView

_CELL = "cell:"
"""Before the class of what NUMA cells have, so that it is told from what providers have."""


MOST_WAYS = 16
"""Ways to serve a request on one host that are compared."""


class Parts(NamedTuple):
    """The parts of some hosts, and of each host one way to serve the request at least."""

    free: Ints
    """Hosts x parts x classes."""
    capacity: Ints
    host: Ints
    """For each way the place of its host in the view."""
    after: Ints
    """Ways x parts x classes: free when the request has taken its parts; the same as before where it does not fit."""


class _Inside(NamedTuple):
    """What is said of all hosts in one condition."""

    free: list[list[int]]
    capacity: list[list[int]]
    taken: list[list[list[int]]]
    """Ways x parts x classes."""


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
    groups = [group.resources for group in asked.all_groups] or [(item,) for item in asked.loose]
    if not groups:
        return 0, ()
    return groups.count(groups[0]), groups[0]


def parts_of(hosts: HostView, classes: list[str], asked: Wanted | None) -> Parts:
    """Return what is free in the parts of each host, and what would be left; hosts that told of none have none.

    Hosts of one layout with equal keys differ in nothing that is looked at, so one of them speaks for all.
    """
    rooms = hosts.table.nested
    told = rooms.told(hosts.table.size)[hosts.selected]
    insides = [_Inside([], [], [[]])]
    numbers: dict[tuple[Layout, RoomKey], int] = {}
    condition = np.zeros(len(hosts), dtype=np.int64)
    for place, row in zip(told.nonzero()[0].tolist(), hosts.numbers(told), strict=True):
        room = rooms.room(row)
        assert room is not None
        number = numbers.setdefault((room.layout, room.key), len(insides))
        if number == len(insides):
            ways = rooms.ways(row, asked, MOST_WAYS) if asked is not None else []
            insides.append(_inside(room, classes, ways))
        condition[place] = number
    most = max(len(one.free) for one in insides)
    free, capacity = (np.zeros((len(insides), most, len(classes)), dtype=np.int64) for _ in range(2))
    ways_of = np.array([len(one.taken) for one in insides], dtype=np.int64)
    taken = np.zeros((int(ways_of.sum()), most, len(classes)), dtype=np.int64)
    first = np.cumsum(ways_of) - ways_of
    for number, one in enumerate(insides):
        if one.free:
            free[number, : len(one.free)] = one.free
            capacity[number, : len(one.free)] = one.capacity
            taken[first[number] : first[number] + len(one.taken), : len(one.free)] = one.taken
    each = ways_of[condition]
    host = np.repeat(np.arange(len(hosts)), each)
    of_host = np.arange(len(host)) - np.repeat(np.cumsum(each) - each, each)
    way = first[condition][host] + of_host
    before = free[condition]
    return Parts(before, capacity[condition], host, before[host] - taken[way])


def _inside(room: Room, classes: list[str], ways: list[Allocation]) -> _Inside:
    """Return the amounts of a room by part and class; without a way one that takes nothing."""
    parts = _of_room(room)
    nothing = [0] * len(classes)
    all_taken: list[list[list[int]]] = []
    for way in ways:
        taken = [nothing] * len(parts)
        for number, amounts in _of_allocation(room, way):
            taken[number] = [amounts.get(name, 0) for name in classes]
        all_taken.append(taken)
    return _Inside(
        [[left.get(name, 0) for name in classes] for left, _ in parts],
        [[whole.get(name, 0) for name in classes] for _, whole in parts],
        all_taken or [[nothing] * len(parts)],
    )


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
