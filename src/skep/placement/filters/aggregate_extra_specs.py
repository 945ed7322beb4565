"""Extra specs scoped `aggregate_instance_extra_specs:`: the metadata of the host's aggregates must satisfy them."""

from __future__ import annotations

from collections.abc import Mapping

from skep.placement.filters.base import Filter
from skep.placement.filters.extra_spec_values import matches
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through hosts for which, for each key, some aggregate's metadata has a value that is wanted."""
    mask = hosts.all()
    for key, wanted in request.aggregate_specs:
        some = hosts.none()
        for number, aggregate in hosts.table.aggregates.items():
            if _satisfies(aggregate.metadata, key, wanted):
                some |= hosts.in_aggregate(number)
        mask &= some
    return mask


def _satisfies(metadata: Mapping[str, str], key: str, wanted: str) -> bool:
    """Values of aggregate metadata are lists, separated by commas; one that matches is enough."""
    return key in metadata and any(matches(value.strip(), wanted) for value in metadata[key].split(","))


def words(request: PlacementRequest) -> str:
    """Return what is asked for, as users read it."""
    return f"aggregate metadata ({', '.join(f'{key} {wanted}' for key, wanted in request.aggregate_specs)})"


FILTER = Filter(
    name="AggregateInstanceExtraSpecsFilter",
    passes=passes,
    stage=words,
    applies=lambda request: bool(request.aggregate_specs),
    from_operator=True,
    steady=True,
)
