"""Hosts with the larger free share of their own memory come first."""

from __future__ import annotations

from skep.domain.resources import MEMORY_MB
from skep.scheduler.columns import Floats
from skep.scheduler.request import PlacementRequest
from skep.scheduler.view import HostView
from skep.scheduler.weighers.base import Weigher


def scores(hosts: HostView, request: PlacementRequest) -> Floats:  # noqa: ARG001  # the signature of weighers
    """Return the free share, 0 to 1."""
    return hosts.free_share(MEMORY_MB)


WEIGHER = Weigher(name="RAMWeigher", scores=scores)
