"""Aggregates that the request must be in."""

from __future__ import annotations

from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through hosts that are in every required aggregate."""
    mask = hosts.all()
    for number in request.spec.required_aggregates:
        mask &= hosts.in_aggregate(number)
    return mask


FILTER = Filter(
    name="AggregateMembershipFilter",
    passes=passes,
    stage=lambda _: "required aggregates",
    applies=lambda request: bool(request.spec.required_aggregates),
    from_operator=True,
    steady=True,
)
