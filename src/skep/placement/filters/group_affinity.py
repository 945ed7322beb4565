"""Hard affinity: where the group's other members are."""

from __future__ import annotations

from skep.placement.filters.abilities import Named
from skep.placement.filters.base import Filter, nobody_can_say
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


class WithMembers:
    """The question for the nodes of the other members."""

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:
        """Let through the nodes of the other members; all while there are none."""
        return hosts.having_nodes(request.group_nodes) if request.group_nodes else hosts.all()

    def named(self, table: HostTable, request: PlacementRequest) -> Named:
        """Name the rows of the other members."""
        return Named(table.rows_of(request.group_nodes), only=bool(request.group_nodes))


FILTER = Filter(
    name="ServerGroupAffinityFilter",
    passes=WithMembers(),
    stage=lambda _: "server group policy affinity",
    applies=lambda request: request.spec.group is not None and request.spec.group.policy == "affinity",
    per_request=True,
    when_forced=True,
    if_empty=nobody_can_say,
)
