"""Up and enabled: a living beat names the host, and the operator neither disabled it nor forced it down."""

from __future__ import annotations

from skep.scheduler.filters.base import Filter, whatever_it_is
from skep.scheduler.hosts.columns import Mask
from skep.scheduler.hosts.view import HostView
from skep.scheduler.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:  # noqa: ARG001  # the signature of filters
    """Let through who is up and enabled."""
    return hosts.up & ~hosts.disabled


FILTER = Filter(
    name="ComputeFilter",
    passes=passes,
    stage=lambda _: "being up and enabled",
    asked=False,
    steady=True,
    of_host=True,
    if_empty=whatever_it_is,
)
