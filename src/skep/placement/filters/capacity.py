"""Enough of every resource class, ratios counted: (total - reserved) x ratio - used - claimed."""

from __future__ import annotations

from skep.placement.filters.base import Filter, Recorded
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through who has everything free that is asked for."""
    mask = hosts.all()
    for resource_class, amount in request.resources.items():
        mask &= hosts.free(resource_class) >= amount
    return mask


def fits(table: HostTable, request: PlacementRequest, row: int) -> bool:
    """Tell whether one row has everything free that is asked for."""
    for resource_class, amount in request.resources.items():
        amounts = table.resources.get(resource_class)
        if amounts is None or amounts.free_of(row) < amount:
            return False
    return True


def still(table: HostTable, request: PlacementRequest, record: Recorded) -> bool:
    """Tell whether the host's aggregates leave it as much; its own capacity is checked with every record."""
    return table.limits.allow(record.row, record.usage, record.claims, request.resources)


FILTER = Filter(
    name="CapacityFilter",
    passes=passes,
    foreseeable=True,
    stage=lambda _: "capacity",
    applies=lambda request: bool(request.resources),
    asked=False,
    when_forced=True,
    by_level=True,
    fits=fits,
    if_empty=passes,
    still=still,
)
