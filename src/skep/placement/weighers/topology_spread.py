"""Spread of a server group's members over hosts, racks or zones: the soft constraints (`domain/spread.py`)."""

from __future__ import annotations

import numpy as np

from skep.placement.hosts.columns import Floats
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.spreading import NOWHERE
from skep.placement.weighers.base import Weigher


def scores(hosts: HostView, request: PlacementRequest) -> Floats:
    """Return 0 where the skew is kept, else less: -1/2 where it is exceeded by 1, -2/3 by 2; -1 without a domain."""
    total = np.zeros(len(hosts), dtype=np.float64)
    for domains in request.spread:
        if not domains.constraint.hard:
            excess = np.maximum(domains.excess, 0)
            score = excess / -(excess + 1.0)
            score[NOWHERE] = -1.0
            total += score[domains.codes[hosts.selected]]
    return total


WEIGHER = Weigher(
    name="TopologySpreadWeigher",
    scores=scores,
    applies=lambda request: request.spec.group is not None and not all(one.hard for one in request.spec.group.spread),
    per_request=True,
    multiplier="topology_spread_weight_multiplier",
)
