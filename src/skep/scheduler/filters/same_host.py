"""The hint `same_host`: on a host of one of the servers that it names."""

from __future__ import annotations

from skep.scheduler.columns import Mask
from skep.scheduler.filters.base import Filter
from skep.scheduler.request import PlacementRequest
from skep.scheduler.view import HostView


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through those hosts. Given, and none of the servers has a host: nobody passes, as in Nova."""
    return hosts.named(request.spec.same_host_names or ())


FILTER = Filter(
    name="SameHostFilter",
    passes=passes,
    stage=lambda _: "hint same_host",
    applies=lambda request: request.spec.same_host_names is not None,
    per_request=True,
    from_operator=True,
)
