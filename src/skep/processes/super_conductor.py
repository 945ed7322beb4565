"""One super conductor in a process of its own: `skep serve super-conductor`."""

from __future__ import annotations

from pathlib import Path

from skep.config.sections import Config
from skep.database.engine import Database
from skep.processes.cells import LiveCells
from skep.processes.conducting import make_super_conductor
from skep.processes.directory import StateDirectory
from skep.processes.nats_users import Accounts
from skep.processes.opening import open_cells, open_database
from skep.processes.own_services import OwnServices
from skep.processes.process import Process
from skep.processes.role import Role
from skep.processes.wiring import check_apart, transport_of


class SuperConductorProcess(Role):
    """Reaches the API database, all cells and NATS. Any number may run."""

    name = "super-conductor"
    notifies = True

    def __init__(self, process: Process) -> None:
        """Raises Misconfigured when no other process could reach it."""
        check_apart(process.config)
        port = process.config.conductor.super_conductor_health_port
        super().__init__(process, health_port=port, setting="conductor.super_conductor_health_port")
        self._transport = transport_of(self.config, process.metrics, "skep-super-conductor")

    async def _open(self) -> None:
        self._on_stop("messaging", self._transport.close)
        await self._wait_for("messaging", self._transport.open)
        api = await self._wait_for("database api", lambda: open_database(self.config, "api"))
        self._on_stop("database api", api.close)
        cells = await self._wait_for("cells", lambda: self._cells(api))
        self._on_stop("cells", cells.close)
        directory = StateDirectory(Path(self.config.state.directory))
        own_services = OwnServices(self.config, api, self.process.clock, self.process.circuits)
        self._on_stop("networks", own_services.close)
        conductor = make_super_conductor(
            self.process,
            api,
            cells.accesses,
            transport=self._transport,
            key=directory.secrets_key,
            images_url=lambda: _images_url(self.config),
            networks=own_services.networks,
            volumes=own_services.volumes,
        )
        self._on_stop("super conductor", conductor.stop)
        await self._wait_for("database api", conductor.start)
        if self.config.transport.host_users:
            accounts = Accounts(
                self.config, directory, api, self.process.clock, reconnects=lambda: self._transport.reconnects
            )
            self._on_stop("accounts of NATS", accounts.stop)
            accounts.start()

    async def _cells(self, api: Database) -> LiveCells:
        return await open_cells(self.config, self.process.metrics, api, self._transport, "skep-super-conductor")

    def _troubles(self) -> list[str]:
        return [] if self._transport.connected else ["messaging: there is no connection"]


def _images_url(config: Config) -> str:
    """Return the address of Skep's own image service, without `/v2`, as other processes reach it.

    Empty where there is none, or where only its process knows its port.
    """
    section = config.images
    if section.kind != "embedded" or not (section.public_url or section.port):
        return ""
    return section.public_url.rstrip("/").removesuffix("/v2") or f"http://{config.api.bind_host}:{section.port}"
