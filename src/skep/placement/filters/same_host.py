"""The hint `same_host`: on a host of one of the servers that it names."""

from __future__ import annotations

from skep.placement.filters.abilities import Named
from skep.placement.filters.base import Filter, nobody_can_say
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


class Those:
    """The question for the hosts of the hint."""

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:
        """Let through those hosts. Given, and none of the servers has a host: nobody passes, as in Nova."""
        return hosts.named(request.spec.same_host_names or ())

    def named(self, table: HostTable, request: PlacementRequest) -> Named:
        """Name the rows of those hosts."""
        rows = {row for host in request.spec.same_host_names or () for row in table.rows_named(host)}
        return Named(rows, only=True)


FILTER = Filter(
    name="SameHostFilter",
    passes=Those(),
    stage=lambda _: "hint same_host",
    applies=lambda request: request.spec.same_host_names is not None,
    per_request=True,
    from_operator=True,
    if_empty=nobody_can_say,
)
