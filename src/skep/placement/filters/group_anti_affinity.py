"""Hard anti-affinity: no node with as many members of the group as its rule allows."""

from __future__ import annotations

from skep.domain.ids import NodeUuid
from skep.placement.filters.abilities import Named
from skep.placement.filters.base import Filter, nobody_can_say
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


class AwayFromMembers:
    """The question for nodes with few enough other members."""

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:
        """Let through nodes that hold fewer than `max_server_per_host` other members."""
        return ~hosts.having_nodes(_full(request))

    def named(self, table: HostTable, request: PlacementRequest) -> Named:
        """Name the rows of the others."""
        return Named(table.rows_of(_full(request)))


def _full(request: PlacementRequest) -> list[NodeUuid]:
    group = request.spec.group
    most = group.max_server_per_host if group is not None else 1
    return [node for node, count in request.group_nodes.items() if count >= most]


FILTER = Filter(
    name="ServerGroupAntiAffinityFilter",
    passes=AwayFromMembers(),
    stage=lambda _: "server group policy anti-affinity",
    applies=lambda request: request.spec.group is not None and request.spec.group.policy == "anti-affinity",
    per_request=True,
    when_forced=True,
    if_empty=nobody_can_say,
)
