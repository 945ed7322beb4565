"""Which rows of the table the latest beat of their cell names, and what it says of nodes that have no row there yet."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skep.domain.ids import CellUuid, NodeUuid
from skep.placement.hosts.columns import Mask
from skep.placement.hosts.host_columns import HostColumns

_NO_ROW = -1


@dataclass(slots=True)
class _Beat:
    """What the latest beat of a cell said, beside what the table's columns hold."""

    at: int = 0
    """When, in microseconds since the epoch."""
    astray: set[NodeUuid] = field(default_factory=set)
    """Nodes that it names and that are not in this cell as far as is known: mostly those that are not known yet."""


class HeardRows:
    """The latest beats; keeps the table's columns `heard` and `last_heard` up to date."""

    def __init__(self, table: HostColumns) -> None:
        self._table = table
        self._beats: dict[CellUuid, _Beat] = {}
        self._rows: dict[CellUuid, NDArray[np.int32]] = {}
        """Rows that a cell's beat names, as far as they were looked up."""

    def set(self, cell: CellUuid, code: int, nodes: tuple[NodeUuid, ...], at: int) -> NDArray[np.intp]:
        """Take which nodes the beat of a cell names; return the rows that are heard now and were not, or were."""
        table, row_of = self._table, self._table.row_of
        rows = np.array([row_of.get(node, _NO_ROW) for node in nodes], dtype=np.intp)
        mine = table.cell == code
        astray = ((rows == _NO_ROW) | ~mine[rows]).nonzero()[0]
        self._beats[cell] = _Beat(at, {nodes[number] for number in astray.tolist()})
        now: Mask = np.zeros(len(mine), dtype=np.bool_)
        now[rows[rows != _NO_ROW]] = True
        now &= mine
        table.last_heard[now] = at
        self._rows[cell] = np.flatnonzero(now).astype(np.int32)
        changed = np.flatnonzero((now != table.heard) & mine)
        table.heard[changed] = now[changed]
        return changed

    def touch(self, cell: CellUuid, code: int, at: int) -> None:
        """Take that the nodes which the cell's beat named before are still heard."""
        self._beats.setdefault(cell, _Beat()).at = at
        rows = self._rows.get(cell)
        if rows is None:
            rows = self._rows[cell] = np.flatnonzero(self._table.heard & (self._table.cell == code)).astype(np.int32)
        self._table.last_heard[rows] = at

    def move(self, row: int, former: CellUuid | None, cell: CellUuid) -> None:
        """Note that a row has another cell now; `former`: which it had."""
        table = self._table
        node = table.nodes[row]
        if former is not None and table.heard[row]:
            self._beats[former].astray.add(node)
        self._rows.clear()
        beat = self._beats.get(cell)
        is_heard = beat is not None and node in beat.astray
        table.heard[row], table.last_heard[row] = is_heard, 0
        if beat is not None and is_heard:
            table.last_heard[row] = beat.at
            beat.astray.remove(node)
            if not beat.astray:
                beat.astray.clear()  # gives its memory back
