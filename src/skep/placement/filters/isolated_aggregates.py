"""Aggregates kept for servers that ask for their traits: `trait:NAME` = `required` in their metadata (pre-filter)."""

from __future__ import annotations

from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest

PREFIX = "trait:"


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through hosts none of whose aggregates requires a trait that the request does not require."""
    asked = frozenset(request.required_traits)
    mask = hosts.all()
    for number, aggregate in hosts.table.aggregates.items():
        required = {
            key.removeprefix(PREFIX)
            for key, value in aggregate.metadata.items()
            if key.startswith(PREFIX) and value == "required"
        }
        if required - asked:
            mask &= ~hosts.in_aggregate(number)
    return mask


FILTER = Filter(
    name="isolate_aggregates",
    passes=passes,
    stage=lambda _: "aggregates kept for certain traits",
    asked=False,
    from_operator=True,
    steady=True,
)


def chosen(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the pre-filter where the operator enabled it."""
    return (FILTER,) if options.enable_isolated_aggregate_filtering else ()
