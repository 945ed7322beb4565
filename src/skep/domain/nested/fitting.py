"""Which parts of a host a server gets: a pure function of what is left and what is asked.

Cells of the guest go to different cells of the host, as in Nova. Of the ways that fit that is taken which leaves the
most to others: cells without devices first where none are asked for, then the cell that is fullest already; of CPUs
those whose siblings are held already, unless the thread policy says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from skep.domain.nested.devices import devices_near
from skep.domain.nested.groups import group_choices
from skep.domain.nested.room import CellRoom, Room
from skep.domain.nested.wanted import GuestCell, NumaWanted, PageKind, Wanted
from skep.domain.providers import Allocation, CellShare, ProviderShare
from skep.domain.resources import Resources

MOST_WAYS = 2_000
"""Ways that are looked at before a host counts as one on which the request does not fit."""

Shares = tuple[CellShare, ...]


def allocate(room: Room, asked: Wanted) -> Allocation | None:
    """Return what the server gets; None where it does not fit. Flat amounts are not looked at."""
    return next(ways_to_allocate(room, asked), None)


def ways_to_allocate(room: Room, asked: Wanted) -> Iterator[Allocation]:
    """Give each way in which the server could be served, the one that `allocate` takes first."""
    ways = 0
    for chosen, served in group_choices(room, asked):
        for shares in _numa_choices(room, asked):
            ways += 1
            if ways > MOST_WAYS:
                return
            near = frozenset(share.cell for share in shares) if asked.numa is not None else None
            devices = devices_near(room, asked.devices, chosen, near)
            if devices is not None:
                ports = {group: room.providers[name].layout.provider.uuid for group, name in served.items()}
                yield Allocation(cells=shares, providers=_handed_out(room, devices), ports=ports)
            elif not asked.devices:
                break


def _numa_choices(room: Room, asked: Wanted) -> Iterator[Shares]:
    if asked.numa is None:
        yield ()
        return
    numa = asked.numa
    busy = {one.layout.provider.numa for one in room.providers.values()} if not asked.devices else set()
    cells = sorted(
        room.cells.values(),
        key=lambda cell: (cell.layout.number in busy, cell.free.bit_count(), -cell.memory_mb, cell.layout.number),
    )
    yield from _Assigning(numa, cells).ways(())


class _Assigning:
    """Gives cells of the guest cells of the host. No way is begun that cannot be ended: else there are too many."""

    __slots__ = ("_cells", "_numa", "_shares")

    def __init__(self, numa: NumaWanted, cells: list[CellRoom]) -> None:
        self._numa = numa
        self._cells = cells
        self._shares: dict[tuple[int, int], CellShare | None] = {}
        """By the cell of the guest and that of the host."""

    def ways(self, before: Shares) -> Iterator[Shares]:
        """Give each further cell of the guest a cell of the host that no other one has."""
        number = len(before)
        if number == len(self._numa.cells):
            yield before
            return
        used = {share.cell for share in before}
        for cell in self._cells:
            at = cell.layout.number
            share = self._share(number, cell) if at not in used else None
            if share is not None and self._rest_fits(number + 1, used | {at}):
                yield from self.ways((*before, share))

    def _share(self, number: int, cell: CellRoom) -> CellShare | None:
        key = number, cell.layout.number
        if key not in self._shares:
            own_emulator = self._numa.own_emulator and number == 0
            self._shares[key] = _share(cell, self._numa, self._numa.cells[number], own_emulator=own_emulator)
        return self._shares[key]

    def _rest_fits(self, number: int, used: set[int]) -> bool:
        """Tell whether the guest's cells from `number` on find cells of the host, by augmenting paths."""
        held: dict[int, int] = {}
        return all(self._finds(one, used, held, set()) for one in range(number, len(self._numa.cells)))

    def _finds(self, number: int, used: set[int], held: dict[int, int], seen: set[int]) -> bool:
        for cell in self._cells:
            at = cell.layout.number
            if at in used or at in seen or self._share(number, cell) is None:
                continue
            seen.add(at)
            if at not in held or self._finds(held[at], used, held, seen):
                held[at] = number
                return True
        return False


def _share(cell: CellRoom, numa: NumaWanted, guest: GuestCell, *, own_emulator: bool) -> CellShare | None:
    """Return what a cell of the guest gets of a cell of the host; None where it does not fit."""
    if not cell.has_shared(guest.shared):
        return None
    pages: dict[int, int] = {}
    memory = 0
    if numa.page == PageKind.UNSAID:
        memory = guest.memory_mb
        if not cell.has_memory(memory):
            return None
    else:
        size = cell.page_size(numa.page, guest.memory_mb)
        if size is None:
            return None
        pages = {size: guest.memory_mb * 1024 // size}
    cpus = _pinned(cell, numa, guest.dedicated, own_emulator=own_emulator)
    if cpus is None:
        return None
    return CellShare(cell=cell.layout.number, cpus=cpus, shared=guest.shared, memory_mb=memory, pages=pages)


def _pinned(cell: CellRoom, numa: NumaWanted, count: int, *, own_emulator: bool) -> tuple[int, ...] | None:
    """Return so many CPUs, and one for the emulator behind them; None where there are too few."""
    wanted = count + own_emulator
    if not wanted:
        return ()
    if cell.free.bit_count() < wanted:
        return None
    if numa.threads == "isolate":
        cores = cell.single
    elif numa.threads == "require":
        cores = [core for core in cell.whole if core.bit_count() > 1]
        if count % cell.layout.threads:
            return None
    else:
        # Whole cores for as much as fills them, then the threads beside held ones, then what is left.
        whole = cell.whole
        filled = count // cell.layout.threads
        cores = [*whole[:filled], *cell.broken, *whole[filled:]]
    cpus = list(islice((cpu for core in cores for cpu in _bits(core)), count))
    if len(cpus) < count:
        return None
    if own_emulator:
        left = cell.free & ~sum(1 << cpu for cpu in cpus)
        spare = [cpu for part in cell.broken for cpu in _bits(part & left)] or list(_bits(left))
        cpus.append(spare[0])
    return tuple(cpus)


def _bits(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _handed_out(room: Room, amounts: dict[str, Resources]) -> tuple[ProviderShare, ...]:
    """Name the devices that go with the amounts."""
    shares = []
    for name, resources in sorted(amounts.items()):
        provider = room.providers[name]
        devices = provider.layout.provider.devices
        units = sum(resources.values()) if devices else 0
        free = (device for device in devices if device in provider.devices)
        shares.append(ProviderShare(provider=name, resources=resources, devices=tuple(islice(free, units))))
    return tuple(shares)
