"""Certain images only on certain hosts: `isolated_images` and `isolated_hosts`."""

from __future__ import annotations

from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest


def made(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the filter. If the isolated hosts are restricted to those images, other images stay off them too."""
    images, names = frozenset(options.isolated_images), options.isolated_hosts
    restricted = options.restrict_isolated_hosts_to_isolated_images

    def is_isolated(request: PlacementRequest) -> bool:
        return request.spec.image is not None and request.spec.image.id in images

    def passes(hosts: HostView, request: PlacementRequest) -> Mask:
        isolated = hosts.named(names)
        if is_isolated(request):
            return isolated
        return ~isolated if restricted else hosts.all()

    return (
        Filter(
            name="IsolatedHostsFilter",
            passes=passes,
            stage=lambda _: "hosts open to the image",
            asked=False,
            from_operator=True,
            steady=True,
            shaped_by=lambda _, request: is_isolated(request),
        ),
    )
