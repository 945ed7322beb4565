"""Devices by alias (`pci_passthrough:alias`): enough of them free, beside what groups take of the same pools."""

from __future__ import annotations

from skep.scheduler.columns import Mask
from skep.scheduler.filters.base import Filter
from skep.scheduler.nested.judging import devices_asked, passes_row, passing
from skep.scheduler.request import PlacementRequest
from skep.scheduler.table import HostTable
from skep.scheduler.view import HostView


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through who has all devices; how near they must be to NUMA cells the NUMATopologyFilter judges."""
    asked = devices_asked(request)
    return hosts.all() if asked is None else passing(hosts, asked)


def fits(table: HostTable, request: PlacementRequest, row: int) -> bool:
    """Tell the same of one row."""
    asked = devices_asked(request)
    return asked is None or passes_row(table, asked, row)


FILTER = Filter(
    name="PciPassthroughFilter",
    passes=passes,
    stage=lambda _: "PCI devices",
    applies=lambda request: devices_asked(request) is not None,
    when_forced=True,
    fits=fits,
)
