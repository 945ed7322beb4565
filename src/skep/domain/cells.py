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


class HostIntent(msgspec.Struct, frozen=True, kw_only=True):
    """The cell of a node, and the operator's intent for it. No report of the host overrides it."""

    node: NodeUuid
    host: str
    cell: CellUuid
    disabled: bool = False
    disabled_reason: str | None = None
    forced_down: bool = False


class HostMapping(HostIntent, frozen=True, kw_only=True):
    """A node's row in the API database: the intent and its times."""

    created_at: int = 0
    updated_at: int | None = None
    deleting_at: int | None = None
    """Since when the host is being deleted; no server is mapped to it any more."""

    @property
    def intent(self) -> HostIntent:
        """What schedulers get of this row."""
        return HostIntent(
            node=self.node,
            host=self.host,
            cell=self.cell,
            disabled=self.disabled,
            disabled_reason=self.disabled_reason,
            forced_down=self.forced_down,
        )
