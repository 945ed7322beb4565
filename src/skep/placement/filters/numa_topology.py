"""The guest's NUMA cells, pinned CPUs and page sizes (`hw:numa_*`, `hw:cpu_policy`, `hw:mem_page_size`).

Judged with groups and devices, because devices may have to be near to the cells that the guest gets.
"""

from __future__ import annotations

from skep.placement.filters.base import Filter
from skep.placement.filters.inside import RoomInside, numa_asked

ROOM = RoomInside(numa_asked)
"""Lets through hosts with a cell for each cell of the guest, with CPUs, pages and devices."""

FILTER = Filter(
    name="NUMATopologyFilter",
    passes=ROOM,
    stage=lambda _: "NUMA topology",
    applies=ROOM.applies,
    when_forced=True,
    if_empty=ROOM.if_empty,
)
