"""What is left of the inside of a host after what its servers hold.

Pinned CPUs are sets of bits, one bit for each physical CPU. While no part is held twice, a part given
back is free again; otherwise the room is computed anew from all held parts.
"""

from __future__ import annotations

from collections.abc import Iterable

from skep.domain.hosts import HostUsage
from skep.domain.nested.layout import CellLayout, Layout, ProviderLayout, layout_of
from skep.domain.nested.wanted import PageKind
from skep.domain.providers import Allocation, CellShare, ProviderShare

RoomKey = tuple[object, ...]
HOST = ""
"""The name of the host itself among the providers."""


class CellRoom:
    """What is left of one NUMA cell."""

    __slots__ = ("_full", "free", "layout", "memory_mb", "pages", "shared")

    def __init__(self, layout: CellLayout) -> None:
        self.layout = layout
        self.free = layout.cpus
        self._full: int | None = None
        """The CPUs that may be pinned, as bits."""
        self.shared = 0
        self.memory_mb = 0
        """Both are what is held."""
        self.pages = layout.pages.copy()
        """Free pages by size. Of the smallest, `memory_mb` takes too."""

    def take(self, share: CellShare) -> bool:
        """Count held parts; tell whether their CPUs were free."""
        bits = sum(1 << cpu for cpu in share.cpus)
        alone = bits & self.free == bits
        self.free &= ~bits
        self._full = None
        self._add(share, 1)
        return alone

    def give_back(self, share: CellShare) -> None:
        """Count it no longer."""
        self.free |= sum(1 << cpu for cpu in share.cpus)
        self._full = None
        self._add(share, -1)

    def _add(self, share: CellShare, sign: int) -> None:
        self.shared += sign * share.shared
        self.memory_mb += sign * share.memory_mb
        for size, count in share.pages.items():
            self.pages[size] = self.pages.get(size, 0) - sign * count

    def has(self, share: CellShare) -> bool:
        """Tell whether all of it is free."""
        bits = sum(1 << cpu for cpu in set(share.cpus))
        return (
            bits & self.free == bits
            and bits.bit_count() == len(share.cpus)
            and self.has_shared(share.shared)
            and self.has_memory(share.memory_mb)
            and all(self.has_pages(size, count) for size, count in share.pages.items())
        )

    def has_shared(self, cpus: int) -> bool:
        """Tell whether so many more CPUs may float here."""
        return not cpus or self.shared + cpus <= self.layout.shared_capacity

    def has_memory(self, amount: int) -> bool:
        """Tell whether so many MiB are left for which no page size is asked."""
        if not amount:
            return True
        small = self.layout.small
        in_pages = (self.layout.pages.get(small, 0) - self.pages.get(small, 0)) * small // 1024
        return self.memory_mb + in_pages + amount <= self.layout.memory_capacity

    def has_pages(self, size: int, count: int) -> bool:
        """Tell whether so many pages of a size are left."""
        if not count:
            return True
        others = -(-self.memory_mb * 1024 // size) if size == self.layout.small else 0
        return self.pages.get(size, 0) - others >= count

    def page_size(self, asked: int, memory_mb: int) -> int | None:
        """Return the size of the pages to take, the largest that may be and of which enough are left.

        `asked`: in KiB, or a `PageKind`. The size must divide the memory.
        """
        need = memory_mb * 1024
        for size in self.layout.sizes:
            if asked == PageKind.SMALL and size != self.layout.small:
                continue
            if asked == PageKind.LARGE and size == self.layout.small:
                continue
            if (asked < 0 or size == asked) and need % size == 0 and self.has_pages(size, need // size):
                return size
        return None

    @property
    def whole(self) -> list[int]:
        """The cores of which no thread is held, as bits."""
        return [core for core in self.layout.cores if core & self.free == core]

    @property
    def full(self) -> int:
        """How many CPUs the free cores of several threads have."""
        if self._full is None:
            self._full = sum(core.bit_count() for core in self.whole if core.bit_count() > 1)
        return self._full

    @property
    def single(self) -> list[int]:
        """Free cores that have one thread alone."""
        return [core for core in self.layout.cores if core & self.free and core.bit_count() == 1]

    @property
    def broken(self) -> list[int]:
        """The free threads of cores of which some thread is held, as bits."""
        return [core & self.free for core in self.layout.cores if core & self.free not in (0, core)]

    def key(self) -> RoomKey:
        """Return what decides about requests: of CPUs the counts, not which."""
        counts = (self.free.bit_count(), len(self.whole), len(self.single), self.shared, self.memory_mb)
        return counts + tuple(self.pages.values())


class ProviderRoom:
    """What is left of one nested provider."""

    __slots__ = ("devices", "free", "layout", "name")

    def __init__(self, layout: ProviderLayout) -> None:
        self.layout = layout
        self.name = layout.name
        self.free = layout.capacity.copy()
        self.devices = set(layout.provider.devices)
        """The free devices."""

    def take(self, share: ProviderShare) -> bool:
        """Count held parts; tell whether their devices were free."""
        alone = self.devices.issuperset(share.devices)
        self._add(share, 1)
        self.devices.difference_update(share.devices)
        return alone

    def give_back(self, share: ProviderShare) -> None:
        """Count it no longer."""
        self._add(share, -1)
        self.devices.update(share.devices)

    def _add(self, share: ProviderShare, sign: int) -> None:
        for name, amount in share.resources.items():
            self.free[name] = self.free.get(name, 0) - sign * amount

    def has(self, share: ProviderShare) -> bool:
        """Tell whether all of it is free."""
        amounts = all(self.free.get(name, 0) >= amount for name, amount in share.resources.items())
        different = len(set(share.devices)) == len(share.devices)
        return amounts and different and all(device in self.devices for device in share.devices)

    @property
    def units(self) -> int:
        """Free units of a pool of one resource class; where devices have names, no more than there are."""
        # What is held may be of other classes than the pool has by now, so `free` may count more of them.
        (name,) = self.layout.capacity
        amount = self.free[name]
        return min(amount, len(self.devices)) if self.layout.provider.devices else amount

    def key(self) -> RoomKey:
        """Return what decides about requests."""
        return (len(self.devices), *self.free.values())


class Room:
    """What is left of the inside of a host."""

    __slots__ = ("_key", "cells", "exact", "layout", "providers")

    def __init__(self, layout: Layout, held: Iterable[Allocation] = ()) -> None:
        self.layout = layout
        self.cells = {cell.number: CellRoom(cell) for cell in layout.cells}
        self.providers = {one.name: ProviderRoom(one) for one in layout.providers}
        self._key: RoomKey | None = None
        self.exact = True
        """Whether no part was counted twice, and the host has every counted part."""
        for one in held:
            self.take(one)

    def take(self, allocation: Allocation) -> None:
        """Count held parts, free or not. Parts that the host does not have are not counted."""
        self._key = None
        for share in allocation.cells:
            cell = self.cells.get(share.cell)
            self.exact = cell is not None and cell.take(share) and self.exact
        for held in allocation.providers:
            provider = self.providers.get(held.provider)
            self.exact = provider is not None and provider.take(held) and self.exact

    def give_back(self, allocation: Allocation) -> None:
        """Count it no longer. Only for rooms that are `exact`, and what was taken."""
        self._key = None
        for share in allocation.cells:
            self.cells[share.cell].give_back(share)
        for held in allocation.providers:
            self.providers[held.provider].give_back(held)

    def has(self, allocation: Allocation) -> bool:
        """Tell whether all of an allocation is free."""
        if len({share.cell for share in allocation.cells}) < len(allocation.cells):
            return False
        if len({held.provider for held in allocation.providers}) < len(allocation.providers):
            return False
        return all(
            (cell := self.cells.get(share.cell)) is not None and cell.has(share) for share in allocation.cells
        ) and all(
            (one := self.providers.get(held.provider)) is not None and one.has(held) for held in allocation.providers
        )

    @property
    def key(self) -> RoomKey:
        """What decides about any request: rooms of one layout with equal keys have room for the same ones."""
        if self._key is None:
            cells = tuple(cell.key() for cell in self.cells.values())
            self._key = (cells, tuple(one.key() for one in self.providers.values()))
        return self._key


def room_of(usage: HostUsage, held: Iterable[Allocation] = ()) -> Room:
    """Return what is left of a host; `held`: of what is claimed on it and not yet counted in `usage.taken`."""
    taken = () if usage.taken is None else (usage.taken,)
    return Room(layout_of(usage), (*taken, *held))
