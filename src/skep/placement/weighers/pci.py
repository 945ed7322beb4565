"""Hosts with fewer free PCI devices come first: guests that need none leave them alone, those that do fill hosts up."""

from __future__ import annotations

import numpy as np

from skep.placement.hosts.columns import Floats
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Scaled, ScoreOfRow, Weigher

MOST_COUNTED = 99
"""In Nova's way of weighing more free devices than this count as no more: they are not scarce."""


def scores(hosts: HostView, request: PlacementRequest) -> Floats:  # noqa: ARG001  # the signature of weighers
    """Return the part of the host's own devices that somebody holds; 1 of a host without any."""
    score = np.ones(len(hosts), dtype=np.float64)
    for number, row in hosts.telling_of_their_inside():
        score[number] = _score(*hosts.table.nested.devices(row))
    return score


def of_row(table: HostTable) -> ScoreOfRow:
    """Return what tells the same of one row."""
    has_told, devices = table.nested.has_told, table.nested.devices
    return lambda row: _score(*devices(row)) if has_told(row) else 1.0


def _score(free: int, total: int) -> float:
    return 1.0 - free / total if total else 1.0


def _counted(hosts: HostView, _request: PlacementRequest) -> Floats:
    """Return minus the number of free devices."""
    count = np.zeros(len(hosts), dtype=np.float64)
    for number, row in hosts.telling_of_their_inside():
        count[number] = -min(hosts.table.nested.devices(row)[0], MOST_COUNTED)
    return count


WEIGHER = Weigher(
    name="PCIWeigher",
    scores=scores,
    of_row=of_row,
    foreseeable=True,
    multiplier="pci_weight_multiplier",
    scaled=Scaled(_counted),
)
