"""Hosts that must not be chosen: tried before, ruled out by the request, or the one that a move leaves."""

from __future__ import annotations

from skep.placement.filters.abilities import Named
from skep.placement.filters.base import Filter, whatever_it_is
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


class Untried:
    """The question for hosts that were neither tried nor excluded."""

    def __call__(self, hosts: HostView, request: PlacementRequest) -> Mask:
        """Let through everybody else."""
        return ~(hosts.having_nodes(request.ignore) | hosts.named(request.spec.ignore_hosts))

    def named(self, table: HostTable, request: PlacementRequest) -> Named:
        """Name the rows that must not be chosen."""
        by_name = (row for host in request.spec.ignore_hosts for row in table.rows_named(host))
        return Named(table.rows_of(request.ignore).union(by_name))


def _stage(request: PlacementRequest) -> str:
    if request.home is None:
        return "not having been tried"
    if set(request.ignore) == {request.home} and not request.spec.ignore_hosts:
        return "not being its own host"
    return "not being its own host or having been tried"


FILTER = Filter(
    name="IgnoredHostsFilter",
    passes=Untried(),
    stage=_stage,
    applies=lambda request: bool(request.ignore or request.spec.ignore_hosts),
    per_request=True,
    when_forced=True,
    from_operator=True,
    if_empty=whatever_it_is,
)
