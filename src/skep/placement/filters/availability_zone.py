"""The availability zone that the user named."""

from __future__ import annotations

from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through hosts of that zone; a host in no aggregate with a zone is in the default zone."""
    return hosts.in_zone(request.spec.availability_zone or "")


FILTER = Filter(
    name="AvailabilityZoneFilter",
    passes=passes,
    stage=lambda request: f"availability zone {request.spec.availability_zone}",
    applies=lambda request: request.spec.availability_zone is not None,
    from_operator=True,
    steady=True,
)
