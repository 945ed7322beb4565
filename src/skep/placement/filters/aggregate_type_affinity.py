"""Aggregates for certain flavors alone: their names, under `instance_type` in the metadata."""

from __future__ import annotations

from skep.placement.filters.aggregate_values import saying
from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest

KEY = "instance_type"


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through hosts whose aggregates list the flavor, or list none."""
    reserved, open_to_it = hosts.none(), hosts.none()
    for inside, flavors in saying(hosts, KEY.__eq__):
        reserved |= inside
        if request.spec.flavor.name in flavors:
            open_to_it |= inside
    return open_to_it | ~reserved


FILTER = Filter(
    name="AggregateTypeAffinityFilter",
    passes=passes,
    stage=lambda _: "aggregates open to the flavor",
    asked=False,
    from_operator=True,
    steady=True,
    shaped_by=lambda _, request: request.spec.flavor.name,
)
