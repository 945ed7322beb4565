"""Enough of every resource class, ratios counted: (total - reserved) x ratio - used - claimed."""

from __future__ import annotations

from skep.placement.filters.abilities import Recorded
from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


class HasCapacity:
    """The question whether everything is free that is asked for."""

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:
        """Let through who has everything free that is asked for."""
        mask = hosts.all()
        for resource_class, amount in request.resources.items():
            mask &= hosts.free(resource_class) >= amount
        return mask

    def fits(self, table: HostTable, request: PlacementRequest, row: int) -> bool:
        """Tell whether one row has everything free that is asked for."""
        for resource_class, amount in request.resources.items():
            amounts = table.resources.get(resource_class)
            if amounts is None or amounts.free_of(row) < amount:
                return False
        return True

    def still(self, table: HostTable, request: PlacementRequest, record: Recorded) -> bool:
        """Tell whether the host's aggregates leave it as much; its own capacity is checked with every record."""
        return table.limits.allow(record.row, record.usage, record.claims, request.resources)


CAPACITY = HasCapacity()

FILTER = Filter(
    name="CapacityFilter",
    passes=CAPACITY,
    foreseeable=True,
    stage=lambda _: "capacity",
    applies=lambda request: bool(request.resources),
    asked=False,
    when_forced=True,
    by_level=True,
    if_empty=CAPACITY,
)
