"""What hosts lack for a request, and how far that is.

Nearest is who lacks the fewest resource classes, and of these the smallest part of what is asked for.
"""

from __future__ import annotations

import numpy as np

from skep.domain.resources import Resources
from skep.placement.explain.failures import RowNumbers
from skep.placement.hosts.columns import Floats
from skep.placement.hosts.table import HostTable
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def distances(table: HostTable, request: PlacementRequest, rows: RowNumbers) -> Floats:
    """Return how far each row is from fitting, by what it lacks: whole classes first, then parts of the amounts."""
    hosts = HostView(table, rows)
    distance = np.zeros(len(rows), dtype=np.float64)
    weight = len(request.resources) + 1
    for name, amount in request.resources.items():
        missing = np.clip(amount - hosts.free(name), 0, amount)
        distance += missing / amount + weight * (missing > 0)
    return distance


def shortage(table: HostTable, request: PlacementRequest, row: int) -> Resources:
    """Return what a host lacks for the request, by resource class."""
    return lacking(table, request.resources, row)


def lacking(table: HostTable, asked: Resources, row: int) -> Resources:
    """Return what a host lacks of some amounts."""
    lacks = {}
    for name, amount in asked.items():
        amounts = table.resources.get(name)
        free = amounts.free_of(row) if amounts else 0
        if free < amount:
            lacks[name] = amount - max(free, 0)
    return lacks


def nearest(table: HostTable, request: PlacementRequest, rows: RowNumbers) -> RowNumbers:
    """Return the rows, nearest first."""
    return rows[np.argsort(distances(table, request, rows), kind="stable")]
