"""The inside of a host as requests look at it: worked out once for all reports that say the same."""

from __future__ import annotations

import math
from collections import deque
from hashlib import blake2b
from weakref import WeakValueDictionary

import msgspec

from skep.domain.hosts import HostUsage
from skep.domain.providers import NumaCell, Provider, Topology
from skep.domain.resources import MEMORY_MB, VCPU


class CellLayout:
    """One NUMA cell of a host."""

    __slots__ = (
        "cores",
        "cpus",
        "memory_capacity",
        "number",
        "pages",
        "shared_capacity",
        "sizes",
        "small",
        "socket",
        "threads",
    )

    def __init__(self, cell: NumaCell, cpu_ratio: float, memory_ratio: float) -> None:
        self.number = cell.number
        self.socket = cell.socket
        self.cores = [sum(1 << cpu for cpu in core) for core in cell.cores]
        """CPUs that may be pinned, as bits, by core."""
        self.cpus = sum(self.cores)
        self.threads = max((len(core) for core in cell.cores), default=1)
        """Threads of a core."""
        self.shared_capacity = math.floor(cell.shared_cpus * cpu_ratio)
        self.pages = dict(cell.pages)
        self.sizes = sorted((size for size in cell.pages if size > 0), reverse=True)
        self.small = min(cell.pages, default=0)
        """Size of ordinary pages in KiB."""
        self.memory_capacity = math.floor(self.pages.get(self.small, 0) * self.small // 1024 * memory_ratio)
        """MiB that may be given to guests that ask for no page size."""


class ProviderLayout:
    """One nested provider."""

    __slots__ = ("capacity", "name", "provider", "traits")

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.name = provider.name
        self.traits = frozenset(provider.traits)
        self.capacity = {name: inventory.capacity for name, inventory in provider.inventory.items()}


class Layout:
    """The inside of a host. Hosts that are alike have the same object."""

    __slots__ = ("__weakref__", "cells", "classes", "providers", "traits")

    def __init__(self, topology: Topology, cpu_ratio: float, memory_ratio: float, usage: HostUsage) -> None:
        self.cells = tuple(CellLayout(cell, cpu_ratio, memory_ratio) for cell in topology.cells)
        self.providers = tuple(ProviderLayout(provider) for provider in topology.providers)
        nested = {name for one in topology.providers for name in one.inventory}
        self.classes = frozenset(usage.inventory.keys() - nested)
        """Classes of the host itself: how much is free of them the flat inventory says."""
        self.traits = frozenset(usage.traits)


_encoder = msgspec.msgpack.Encoder()
_NOTHING = Topology()


_KEPT = 256
"""The most recent layouts, kept although no host has them."""
_layouts: WeakValueDictionary[bytes, Layout] = WeakValueDictionary()
"""All layouts in use, by what they depend on. Devices may have names that no other host has, so there may be as many
as hosts; the owner of the hosts bounds them."""
_latest: deque[Layout] = deque(maxlen=_KEPT)


def layout_of(usage: HostUsage) -> Layout:
    """Return the layout of a host that has reported this."""
    cpu_ratio, memory_ratio = (
        usage.inventory[name].allocation_ratio if name in usage.inventory else 1.0 for name in _RATED
    )
    said = _encoder.encode((usage.topology, cpu_ratio, memory_ratio, usage.traits, sorted(usage.inventory)))
    digest = blake2b(said, digest_size=16).digest()
    layout = _layouts.get(digest)
    if layout is None:
        layout = _layouts[digest] = Layout(usage.topology or _NOTHING, cpu_ratio, memory_ratio, usage)
        _latest.append(layout)
    return layout


_RATED = (VCPU, MEMORY_MB)
