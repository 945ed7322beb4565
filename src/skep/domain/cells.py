"""Cells: a database, a messaging, and the hosts that belong to them."""

from __future__ import annotations

import msgspec

from skep.domain.ids import CELL0, CellUuid, NodeUuid


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One cell as the API database knows it."""

    uuid: CellUuid
    name: str
    disabled: bool = False
    """A disabled cell gets no new servers; its servers stay reachable."""

    @property
    def is_cell0(self) -> bool:
        """Whether this is the cell of instances that never got a host."""
        return self.uuid == CELL0


class HostMapping(msgspec.Struct, frozen=True, kw_only=True):
    """Which cell a node belongs to, and what the operator wants of it.

    The operator's wishes are never overridden by what the host reports.
    """

    node: NodeUuid
    host: str
    cell: CellUuid
    disabled: bool = False
    disabled_reason: str | None = None
    forced_down: bool = False
    created_at: int = 0
    updated_at: int | None = None
    deleting_at: int | None = None
    """Since when the host is being deleted; no server is mapped to it any more."""
