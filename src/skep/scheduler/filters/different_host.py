"""The hint `different_host`: on no host of the servers that it names."""

from __future__ import annotations

from skep.scheduler.columns import Mask
from skep.scheduler.filters.base import Filter
from skep.scheduler.request import PlacementRequest
from skep.scheduler.view import HostView


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through all other hosts."""
    return ~hosts.named(request.spec.different_host_names)


FILTER = Filter(
    name="DifferentHostFilter",
    passes=passes,
    stage=lambda _: "hint different_host",
    applies=lambda request: bool(request.spec.different_host_names),
    per_request=True,
    from_operator=True,
)
