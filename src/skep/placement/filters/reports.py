"""Only hosts whose free resources are known: reported in this epoch, in a cell that has asserted its claims."""

from __future__ import annotations

from skep.placement.filters.base import Filter, whatever_it_is
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:  # noqa: ARG001  # the signature of filters
    """Let through who is ready."""
    return hosts.ready


FILTER = Filter(
    name="ReportsFilter",
    passes=passes,
    stage=lambda _: "host reports",
    asked=False,
    when_forced=True,
    steady=True,
    of_host=True,
    if_empty=whatever_it_is,
)
