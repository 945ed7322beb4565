"""Hosts with the larger free share of their own local disk come first."""

from __future__ import annotations

from skep.domain.resources import DISK_GB
from skep.placement.hosts.columns import Floats
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Scaled, ScoreOfRow, Weigher


def scores(hosts: HostView, request: PlacementRequest) -> Floats:  # noqa: ARG001  # the signature of weighers
    """Return the free share, 0 to 1."""
    return hosts.free_share(DISK_GB)


def of_row(table: HostTable) -> ScoreOfRow:
    """Return what tells the free share of one row."""
    amounts = table.resources.get(DISK_GB)
    return amounts.share_of if amounts else lambda _: 0.0


WEIGHER = Weigher(
    name="DiskWeigher",
    scores=scores,
    of_row=of_row,
    foreseeable=True,
    multiplier="disk_weight_multiplier",
    scaled=Scaled(lambda hosts, _: hosts.free(DISK_GB), floor=0.0),
)
