"""A server that tells how long it will live goes where the host is occupied for as long anyway: so others get empty.

After the temporal cost of NILAS ("LAVA: Lifetime-Aware VM Allocation with Learned Distributions and Adaptation to
Mispredictions", MLSys 2025, arXiv 2412.09840): by how much a server puts off the moment when its host is empty. There
lifetimes are predicted, and predicted again for servers that outlive them; here users tell them, once. A host that
should have been empty when the server was asked for counts like an empty one: nobody knows how long it stays.
"""

from __future__ import annotations

import numpy as np

from skep.placement.hosts.columns import Floats
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Weigher


def scores(hosts: HostView, request: PlacementRequest) -> Floats:
    """Return the share of the server's lifetime, 0 to 1, for which the host is occupied without it.

    1: the server does not put off the host's end, 0: by its whole lifetime. No clock: the lifetime says when it began.
    """
    lifetime = request.spec.lifetime
    if lifetime is None:
        return np.zeros(len(hosts), dtype=np.float64)
    shares: Floats = (hosts.occupied_until - lifetime.begin) / (lifetime.end - lifetime.begin)
    return np.clip(shares, 0.0, 1.0, out=shares)


WEIGHER = Weigher(
    name="LifetimeWeigher",
    scores=scores,
    applies=lambda request: request.spec.lifetime is not None,
    per_request=True,
    multiplier="lifetime_weight_multiplier",
)
