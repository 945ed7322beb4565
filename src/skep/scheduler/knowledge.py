"""What one scheduler knows of the world: columns, claims and groups that agree, and what follows from them.

Pure. The service fills it from records, a simulator from wherever it likes.
"""

from __future__ import annotations

from skep.domain.groups import GroupRule
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.scheduler.claims import ClaimIndex
from skep.scheduler.groups import GroupIndex
from skep.scheduler.placement import Placement
from skep.scheduler.request import PlacementRequest
from skep.scheduler.settings import SchedulerSettings
from skep.scheduler.table import HostTable
from skep.scheduler.view import HostView


class Knowledge:
    """The columns with their indexes, who may be asked, and who cannot be judged now."""

    def __init__(self, settings: SchedulerSettings) -> None:
        """Raises Misconfigured for an unknown filter or weigher."""
        self.epoch = ""
        self.table = HostTable()
        self.claims = ClaimIndex(self.table)
        self.groups = GroupIndex()
        self.placement = Placement(self.table, self.groups, settings)
        self._lapse = settings.beat_lapse_seconds
        self._beat_seen: dict[CellUuid, float] = {}

    def take_beat(self, cell: CellUuid, heard: tuple[NodeUuid, ...], at: int, now: float | None) -> None:
        """Take a cell's beat. `now`: the monotonic clock when it changed; None where its age is not known."""
        self.table.set_heard(cell, heard, at)
        if now is not None:
            self._beat_seen[cell] = now
            self.table.set_cell(cell, living=True)

    def drop_beat(self, cell: CellUuid) -> None:
        """Forget a cell's beat."""
        self.table.set_heard(cell, (), 0)
        self._beat_seen.pop(cell, None)
        self.table.set_cell(cell, living=False)

    def observe(self, now: float) -> None:
        """Let the beats lapse that have not changed for too long by now, a reading of the monotonic clock."""
        for cell, seen in self._beat_seen.items():
            if now - seen > self._lapse and self.table.cells[cell].living:
                self.table.set_cell(cell, living=False)

    def asserted(self, cell: CellUuid) -> bool:
        """Tell whether the cell has asserted its claims in this epoch."""
        flags = self.table.cells.get(cell)
        return flags is not None and flags.asserted

    def group_unknown(self, rule: GroupRule | None) -> str | None:
        """Return why a hard policy cannot be judged yet: a cell may hold members that it has not told."""
        if rule is None or not rule.is_hard:
            return None
        cells = rule.cells if rule.cells is not None else self._known_cells()
        if all(self.asserted(cell) for cell in cells):
            return None
        return "the members of the server group are not all known yet"

    def not_ready(self, request: PlacementRequest, instance: InstanceUuid) -> str | None:
        """Return why the hosts that fit may be among those that cannot be judged now; None if none may be."""
        if not self._known_cells():
            return "the operator's settings are not known yet"
        table = self.table
        size = table.size
        flags = [table.cells[cell] for cell in table.cell_names]
        waiting = HostView(table).none()
        for cell in flags:
            mine = table.cell[:size] == cell.code
            if not cell.known:
                continue
            if not cell.asserted:
                waiting |= mine
            elif cell.living:
                waiting |= mine & table.heard[:size] & ~table.reported[:size]
            elif not request.is_forced:
                waiting |= mine
        if not request.is_forced:
            waiting &= ~table.disabled[:size] & ~table.forced_down[:size]
        if not (waiting & self.placement.might_fit(request, instance)).any():
            return None
        return "a cell that may hold the server is not ready yet"

    def _known_cells(self) -> list[CellUuid]:
        return [cell for cell, flags in self.table.cells.items() if flags.known]
