"""Hosts on which the request leaves least come first: they fill up one after the other, and large ones stay whole."""

from __future__ import annotations

import numpy as np

from skep.placement.hosts.columns import Floats
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Weigher


def scores(hosts: HostView, request: PlacementRequest) -> Floats:
    """Return the share of the host's own capacity that would be in use, 0 to 1: the mean of the classes asked for."""
    used = np.zeros(len(hosts), dtype=np.float64)
    classes = [name for name, amount in request.resources.items() if amount > 0]
    for name in classes:
        capacity = hosts.capacity(name)
        left = (hosts.free(name) - request.resources[name]) / np.maximum(capacity, 1)
        used += np.where(capacity > 0, 1 - left, 0.0)
    return used / max(len(classes), 1)


WEIGHER = Weigher(name="BestFitWeigher", scores=scores, multiplier="best_fit_weight_multiplier")
