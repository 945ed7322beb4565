"""Which cells may be used: enabled ones, or the one cell that the request is limited to."""

from __future__ import annotations

import numpy as np

from skep.placement.filters.base import Filter
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.view import HostView
from skep.placement.request import PlacementRequest


def passes(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through hosts of the request's cell, disabled or not; without one, of all enabled cells not excluded.

    The hints `target_cell` and `different_cell` hold in either case.
    """
    cells, spec = hosts.table.cells, request.spec
    excluded = {*request.exclude_cells, *spec.different_cells}
    if request.cell is not None:
        flags = cells.get(request.cell)
        if flags is None or not flags.known or request.cell in excluded or spec.target_cell not in (None, request.cell):
            return hosts.none()
        mask: Mask = hosts.cell == flags.code
        return mask
    shut = [
        flags.code
        for cell, flags in cells.items()
        if flags.disabled or not flags.known or cell in excluded or spec.target_cell not in (None, cell)
    ]
    if not shut:
        return hosts.all()
    return ~np.isin(hosts.cell, shut)


def if_empty(hosts: HostView, request: PlacementRequest) -> Mask:
    """Let through hosts of the cells that the request may be in, if all were open and none had been tried."""
    wanted = {cell for cell in (request.cell, request.spec.target_cell) if cell is not None}
    mask = hosts.all()
    for cell, flags in hosts.table.cells.items():
        if cell in request.spec.different_cells or wanted - {cell}:
            mask &= hosts.cell != flags.code
    return mask


FILTER = Filter(
    name="CellFilter",
    passes=passes,
    stage=lambda request: "cell" if request.cell is not None else "cells open to it",
    asked=False,
    when_forced=True,
    from_operator=True,
    steady=True,
    if_empty=if_empty,
)
