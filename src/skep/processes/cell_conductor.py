"""One conductor of a cell in a process of its own: `skep serve cell-conductor --cell NAME`."""

from __future__ import annotations

from skep.cell_conductor.service import CellConductor
from skep.processes.conducting import make_cell_conductor
from skep.processes.installation import cell_named
from skep.processes.opening import open_database
from skep.processes.process import Process
from skep.processes.role import Role
from skep.processes.wiring import check_apart, transport_in_cell

READ_SECONDS = 30.0
"""How long the conductor waits for what it reads. Then the database is silent, is probed, and what hangs is cut off."""


class CellConductorProcess(Role):
    """Reaches its cell's database and messaging, nothing else. Any number may run for a cell."""

    name = "cell-conductor"
    notifies = True

    def __init__(self, process: Process, cell: str) -> None:
        """Take the name of the cell. Raises Misconfigured when no other process could reach it."""
        check_apart(process.config)
        port = process.config.conductor.cell_conductor_health_port
        super().__init__(process, health_port=port, setting="conductor.cell_conductor_health_port")
        self._cell = cell
        self._conductor: CellConductor | None = None
        self._transport = transport_in_cell(self.config, process.metrics, "skep-cell-conductor", cell)

    async def _open(self) -> None:
        self._on_stop("messaging", self._transport.close)
        await self._wait_for("messaging", self._transport.open)
        part = f"database {self._cell}"
        database = await self._wait_for(part, lambda: open_database(self.config, self._cell))
        self._on_stop(part, database.close)
        database.read_within = READ_SECONDS
        cell = await self._wait_for(part, lambda: cell_named(database, self._cell))
        conductor = make_cell_conductor(self.process, cell, database, transport=self._transport, above=self._transport)
        self._on_stop("cell conductor", conductor.stop)
        self._conductor = conductor
        await self._wait_for(part, conductor.start)

    def _troubles(self) -> list[str]:
        troubles = [] if self._transport.connected else ["messaging: there is no connection"]
        return troubles + (self._conductor.troubles() if self._conductor is not None else [])
