"""No condition at all: for who wants to name a filter that does nothing."""

from __future__ import annotations

from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:  # noqa: ARG001  # the signature of filters
    """Let through everybody."""
    return hosts.all()


FILTER = Filter(
    name="AllHostsFilter", passes=passes, stage=lambda _: "all hosts", asked=False, steady=True, from_operator=True
)
