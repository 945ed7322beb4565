"""One metadata service in a process of its own: `skep serve metadata`."""

from __future__ import annotations

from skep.database.engine import Database
from skep.domain.errors import Misconfigured
from skep.processes.cells import LiveCells
from skep.processes.metadata_listener import MetadataListener
from skep.processes.opening import open_cells, open_database
from skep.processes.process import Process
from skep.processes.role import Role
from skep.processes.wiring import check_apart, transport_of


class MetadataProcess(Role):
    """Reaches the API database and all cells. Any number may run, each on a port of its own."""

    name = "metadata"

    def __init__(self, process: Process) -> None:
        """Raises Misconfigured when no other process could reach it, or nobody could prove who asks."""
        check_apart(process.config)
        if not process.config.metadata.service_metadata_proxy:
            raise Misconfigured(
                "metadata.service_metadata_proxy is false: without a proxy that proves who asks, nobody is answered"
            )
        super().__init__(process, health_port=process.config.metadata.health_port, setting="metadata.health_port")
        self._transport = transport_of(self.config, process.metrics, "skep-metadata")

    async def _open(self) -> None:
        listener = MetadataListener(self.process)
        self._on_stop("port", listener.stop)
        self._on_stop("messaging", self._transport.close)
        await self._wait_for("messaging", self._transport.open)
        api = await self._wait_for("database api", lambda: open_database(self.config, "api"))
        self._on_stop("database api", api.close)
        cells = await self._wait_for("cells", lambda: self._cells(api))
        self._on_stop("cells", cells.close)
        # Requests under way need all of the above.
        self._on_stop("http", listener.stop)
        await listener.start(api, cells.databases)

    async def _cells(self, api: Database) -> LiveCells:
        return await open_cells(self.config, self.process.metrics, api, self._transport, "skep-metadata")

    def _troubles(self) -> list[str]:
        return [] if self._transport.connected else ["messaging: there is no connection"]
