"""Servers whose images have the same properties: a positive multiplier brings them together, a negative one apart."""

from __future__ import annotations

import numpy as np

from skep.domain.hosts import HostUsage
from skep.placement.hosts.columns import Floats
from skep.placement.hosts.view import HostView
from skep.placement.options import PlacementOptions
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Weigher


def made(options: PlacementOptions) -> Weigher:
    """Return the weigher: how many servers of the host share each property with the image, as a part of those that
    NumInstancesFilter allows.

    The options may say how much each property counts; then others do not count.
    """
    setting, most = options.image_props_weight_setting, options.max_instances_per_host

    def weighed(request: PlacementRequest) -> tuple[tuple[str, float], ...]:
        """Return what to look for, `name=value`, and how much it counts."""
        image = request.spec.image
        if image is None:
            return ()
        ratios = (
            (f"{name}={value}", setting.get(name, 0.0 if setting else 1.0)) for name, value in image.properties.items()
        )
        return tuple(sorted((wanted, ratio) for wanted, ratio in ratios if ratio))

    def scores(hosts: HostView, request: PlacementRequest) -> Floats:
        wanted = weighed(request)

        def score(usage: HostUsage | None) -> float:
            return 0.0 if usage is None else sum(ratio * usage.image_properties.get(name, 0) for name, ratio in wanted)

        return np.array([score(usage) for usage in hosts.usages()], dtype=np.float64) / most

    return Weigher(
        name="ImagePropertiesWeigher",
        scores=scores,
        applies=lambda request: bool(weighed(request)),
        shaped_by=lambda _, request: weighed(request),
        multiplier="image_props_weight_multiplier",
    )
