"""A filter that looks at one host at a time, and a weigher that looks at whole columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skep.scheduler.plugins import HostView, OneHost, PlacementRequest, column_weigher, host_filter


def wants_licence(request: PlacementRequest) -> bool:
    """Tell whether the flavor names a licence."""
    return "licence:name" in request.spec.flavor.extra_specs


@host_filter(stage="licences", applies=wants_licence)
def licences(host: OneHost, request: PlacementRequest) -> bool:
    """Let through hosts in an aggregate with the licence that the flavor asks for."""
    wanted = request.spec.flavor.extra_specs["licence:name"]
    return any(wanted in metadata.get("licences", "").split() for metadata in host.metadata)


@column_weigher(per_request=False)
def quiet(hosts: HostView, _: PlacementRequest) -> NDArray[np.float64]:
    """Prefer hosts with the fewest servers."""
    return -hosts.servers.astype(np.float64)
