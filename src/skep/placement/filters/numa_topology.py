"""The guest's NUMA cells, pinned CPUs and page sizes (`hw:numa_*`, `hw:cpu_policy`, `hw:mem_page_size`).

Judged with groups and devices, because devices may have to be near to the cells that the guest gets.
"""

from __future__ import annotations

import numpy as np

from skep.placement.filters.base import PLENTY, Filter
from skep.placement.filters.inside import numa_asked, passes_row, passing, passing_if_empty, servers
from skep.placement.hosts.columns import Ints, Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through who has a cell for each cell of the guest, with CPUs, pages and devices."""
    asked = numa_asked(request)
    return hosts.all() if asked is None else passing(hosts, asked)


def if_empty(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through who would have room if nothing of it were taken."""
    asked = numa_asked(request)
    return hosts.all() if asked is None else passing_if_empty(hosts, asked)


def fits(table: HostTable, request: PlacementRequest, row: int) -> bool:
    """Tell the same of one row."""
    asked = numa_asked(request)
    return asked is None or passes_row(table, asked, row)


def room(hosts: HostView, request: PlacementRequest) -> Ints:
    """Return how many such servers each host has room for."""
    asked = numa_asked(request)
    return np.full(len(hosts), PLENTY) if asked is None else servers(hosts, asked)


FILTER = Filter(
    name="NUMATopologyFilter",
    passes=passes,
    stage=lambda _: "NUMA topology",
    applies=lambda request: numa_asked(request) is not None,
    when_forced=True,
    fits=fits,
    room=room,
    if_empty=if_empty,
)
