"""Hosts that report every metric by which they are weighed."""

from __future__ import annotations

from skep.placement.filters.base import Filter, whatever_it_is
from skep.placement.hosts.attributes import attribute
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest


def made(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the filter for the metrics that the options weigh."""
    names = tuple(options.metrics_weight_setting)

    def passes(hosts: HostView, request: PlacementRequest) -> Mask:  # noqa: ARG001  # the signature of filters
        mask = hosts.all()
        for name in names:
            mask &= attribute(hosts, ("metrics", name)).judge(lambda _: True)
        return mask

    return (
        Filter(
            name="MetricsFilter",
            passes=passes,
            stage=lambda _: "reported metrics",
            applies=lambda _: bool(names),
            asked=False,
            steady=True,
            if_empty=whatever_it_is,
        ),
    )
