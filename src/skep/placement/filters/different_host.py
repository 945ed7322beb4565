"""The hint `different_host`: on no host of the servers that it names."""

from __future__ import annotations

from skep.placement.filters.abilities import Named
from skep.placement.filters.base import Filter, nobody_can_say
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


class Others:
    """The question for other hosts than those of the hint."""

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:
        """Let through all other hosts."""
        return ~hosts.named(request.spec.different_host_names)

    def named(self, table: HostTable, request: PlacementRequest) -> Named:
        """Name the rows of those hosts."""
        rows = {row for host in request.spec.different_host_names for row in table.rows_named(host)}
        return Named(rows)


FILTER = Filter(
    name="DifferentHostFilter",
    passes=Others(),
    stage=lambda _: "hint different_host",
    applies=lambda request: bool(request.spec.different_host_names),
    per_request=True,
    from_operator=True,
    if_empty=nobody_can_say,
)
