"""No condition at all: for who wants to name a filter that does nothing."""

from __future__ import annotations

from skep.scheduler.columns import Mask
from skep.scheduler.filters.base import Filter
from skep.scheduler.request import PlacementRequest
from skep.scheduler.view import HostView


def passes(hosts: HostView, request: PlacementRequest) -> Mask:  # noqa: ARG001  # the signature of filters
    """Let through everybody."""
    return hosts.all()


FILTER = Filter(
    name="AllHostsFilter", passes=passes, stage=lambda _: "all hosts", asked=False, steady=True, from_operator=True
)
