"""The guest's NUMA cells, pinned CPUs and page sizes (`hw:numa_*`, `hw:cpu_policy`, `hw:mem_page_size`).

Judged with groups and devices, because devices may have to be near to the cells that the guest gets.
"""

from __future__ import annotations

from skep.scheduler.columns import Mask
from skep.scheduler.filters.base import Filter
from skep.scheduler.nested.judging import numa_asked, passes_row, passing
from skep.scheduler.request import PlacementRequest
from skep.scheduler.table import HostTable
from skep.scheduler.view import HostView


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through who has a cell for each cell of the guest, with CPUs, pages and devices."""
    asked = numa_asked(request)
    return hosts.all() if asked is None else passing(hosts, asked)


def fits(table: HostTable, request: PlacementRequest, row: int) -> bool:
    """Tell the same of one row."""
    asked = numa_asked(request)
    return asked is None or passes_row(table, asked, row)


FILTER = Filter(
    name="NUMATopologyFilter",
    passes=passes,
    stage=lambda _: "NUMA topology",
    applies=lambda request: numa_asked(request) is not None,
    when_forced=True,
    fits=fits,
)
