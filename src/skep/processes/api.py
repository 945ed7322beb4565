"""One API process: `skep serve api`, with the compute and the admin API, and embedded identity and images."""

from __future__ import annotations

from pathlib import Path

from skep.database.api.tables import leases
from skep.database.clocks import DatabaseClock
from skep.database.engine import Database
from skep.database.leases import API
from skep.processes.cell_changes import cell_work
from skep.processes.cells import LiveCells
from skep.processes.directory import StateDirectory
from skep.processes.http_services import HttpServices
from skep.processes.opening import open_cells, open_database
from skep.processes.process import Process
from skep.processes.role import Role
from skep.processes.wiring import check_apart, transport_of
from skep.reconciler.lease import Lease


class ApiProcess(Role):
    """Reaches the API database, all cells and NATS, and shares a state directory with the others of its machine.

    `/readyz` on its own port says how it is, from the beginning; until it serves, everything else is answered 503.
    """

    name = "api"
    notifies = True

    def __init__(self, process: Process) -> None:
        """Raises Misconfigured when it could reach no other process."""
        check_apart(process.config)
        super().__init__(process)
        self.directory = StateDirectory(Path(self.config.state.directory))
        self.http: HttpServices
        self._transport = transport_of(self.config, process.metrics, "skep-api")

    async def _open(self) -> None:
        self.directory.open(shared=True)
        self._on_stop("state directory", self._leave)
        self.http = http = HttpServices(self.process, self.directory)
        self._on_stop("ports", http.stop)
        await http.announce(self.reasons)
        self._on_stop("messaging", self._transport.close)
        await self._wait_for("messaging", self._transport.open)
        api = await self._wait_for("database api", lambda: open_database(self.config, "api"))
        self._on_stop("database api", api.close)
        cells = await self._wait_for("cells", lambda: self._cells(api))
        self._on_stop("cells", cells.close)
        async with self.directory.turn("seed"):
            await self._wait_for("identity and images", lambda: http.open(api))
            await self._wait_for("database api", http.seed)
            self.directory.seal()
        lease = self._lease(api)
        self._on_stop("lease", lease.stop)
        await self._wait_for("database api", lease.start)
        # Requests under way need all of the above.
        self._on_stop("http", http.stop)
        await http.serve(
            cells.databases, cells.names, self._transport, missing=self.reasons, cell_work=cell_work(cells)
        )

    def _lease(self, api: Database) -> Lease:
        """Return how the others know that this process lives, and by how much its clock is off."""
        return Lease(
            api,
            leases,
            self.process.owner,
            API,
            DatabaseClock(self.process.clock),
            seconds=self.config.conductor.lease_seconds,
            host=self.process.host,
            on_clock=self.process.metrics.clock_ahead.labels("api").set,
        )

    async def _cells(self, api: Database) -> LiveCells:
        return await open_cells(self.config, self.process.metrics, api, self._transport, "skep-api")

    def _troubles(self) -> list[str]:
        return [] if self._transport.connected else ["messaging: there is no connection"]

    async def _leave(self) -> None:
        self.directory.close()
