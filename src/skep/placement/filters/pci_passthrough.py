"""Devices by alias (`pci_passthrough:alias`): enough of them free, beside what groups take of the same pools."""

from __future__ import annotations

from skep.placement.filters.base import Filter
from skep.placement.filters.inside import RoomInside, devices_asked

ROOM = RoomInside(devices_asked)
"""Lets through hosts with all devices; how near they must be to NUMA cells the NUMATopologyFilter judges."""

FILTER = Filter(
    name="PciPassthroughFilter",
    passes=ROOM,
    stage=lambda _: "PCI devices",
    applies=ROOM.applies,
    when_forced=True,
    if_empty=ROOM.if_empty,
)
