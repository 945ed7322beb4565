"""Of a move between cells: hosts of the cell where the server is come first."""

from __future__ import annotations

import numpy as np

from skep.domain.ids import CellUuid
from skep.placement.hosts.columns import Floats
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest
from skep.placement.weighers.base import Weigher


def scores(hosts: HostView, request: PlacementRequest) -> Floats:
    """Return 1 in the server's own cell and -1 in others."""
    flags = hosts.table.cells.get(request.source_cell or CellUuid(""))
    return np.where(hosts.cell == (flags.code if flags is not None else -1), 1.0, -1.0)


WEIGHER = Weigher(
    name="CrossCellWeigher",
    scores=scores,
    applies=lambda request: request.source_cell is not None,
    multiplier="cross_cell_move_weight_multiplier",
)
