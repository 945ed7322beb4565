"""Devices by alias (`pci_passthrough:alias`): enough of them free, beside what groups take of the same pools."""

from __future__ import annotations

import numpy as np

from skep.placement.filters.base import PLENTY, Filter
from skep.placement.filters.inside import devices_asked, passes_row, passing, passing_if_empty, servers
from skep.placement.hosts.columns import Ints, Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through who has all devices; how near they must be to NUMA cells the NUMATopologyFilter judges."""
    asked = devices_asked(request)
    return hosts.all() if asked is None else passing(hosts, asked)


def if_empty(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through who would have room if nothing of it were taken."""
    asked = devices_asked(request)
    return hosts.all() if asked is None else passing_if_empty(hosts, asked)


def fits(table: HostTable, request: PlacementRequest, row: int) -> bool:
    """Tell the same of one row."""
    asked = devices_asked(request)
    return asked is None or passes_row(table, asked, row)


def room(hosts: HostView, request: PlacementRequest) -> Ints:
    """Return how many such servers each host has room for."""
    asked = devices_asked(request)
    return np.full(len(hosts), PLENTY) if asked is None else servers(hosts, asked)


FILTER = Filter(
    name="PciPassthroughFilter",
    passes=passes,
    stage=lambda _: "PCI devices",
    applies=lambda request: devices_asked(request) is not None,
    when_forced=True,
    fits=fits,
    room=room,
    if_empty=if_empty,
)
