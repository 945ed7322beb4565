"""Metadata of aggregates that name image properties: an image with another value does not come in."""

from __future__ import annotations

from collections.abc import Hashable

from skep.placement.filters.aggregate_values import saying
from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest


def made(options: PlacementOptions) -> tuple[Filter, ...]:
    """Return the filter. A namespace in the options limits it to keys that begin with it and the separator."""
    namespace = options.aggregate_image_properties_isolation_namespace
    prefix = namespace + options.aggregate_image_properties_isolation_separator if namespace else ""

    def properties(request: PlacementRequest) -> dict[str, str]:
        image = request.spec.image
        return {name: value for name, value in image.properties.items() if value} if image is not None else {}

    def passes(hosts: HostView, request: PlacementRequest) -> Mask:
        """Let through hosts whose aggregates have, for each property of the image that they name, its value."""
        mask = hosts.all()
        for name, value in properties(request).items():
            if not name.startswith(prefix):
                continue
            named, allowed = hosts.none(), hosts.none()
            for inside, said in saying(hosts, name.__eq__):
                named |= inside
                if value in said:
                    allowed |= inside
            mask &= allowed | ~named
        return mask

    def shaped_by(table: HostTable, request: PlacementRequest) -> Hashable:
        found = properties(request)
        if not found:
            return ()
        named = {key for aggregate in table.aggregates.values() for key in aggregate.metadata}
        return tuple(sorted(item for item in found.items() if item[0] in named))

    return (
        Filter(
            name="AggregateImagePropertiesIsolation",
            passes=passes,
            stage=lambda _: "aggregates open to the image's properties",
            asked=False,
            from_operator=True,
            steady=True,
            shaped_by=shaped_by,
        ),
    )
