"""Hosts with the larger free share of their own memory come first."""

from __future__ import annotations

from skep.domain.resources import MEMORY_MB
from skep.placement.hosts.columns import Floats
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Scaled, ScoreOfRow, Weigher


def scores(hosts: HostView, request: PlacementRequest) -> Floats:  # noqa: ARG001  # the signature of weighers
    """Return the free share, 0 to 1."""
    return hosts.free_share(MEMORY_MB)


def of_row(table: HostTable) -> ScoreOfRow:
    """Return what tells the free share of one row."""
    amounts = table.resources.get(MEMORY_MB)
    return amounts.share_of if amounts else lambda _: 0.0


WEIGHER = Weigher(
    name="RAMWeigher",
    scores=scores,
    of_row=of_row,
    foreseeable=True,
    multiplier="ram_weight_multiplier",
    scaled=Scaled(lambda hosts, _: hosts.free(MEMORY_MB), floor=0.0),
)
