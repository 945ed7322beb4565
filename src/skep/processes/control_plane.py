"""Everything below the HTTP services, in one event loop: scheduler, conductors, and the agents of fake hosts.

`skep up` puts the APIs on top of it; tests drive it directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import sqlalchemy as sa

from skep.cell_conductor.service import CellConductor
from skep.compute.agent import Agent
from skep.compute.drivers.fake import FakeDriver
from skep.compute.flusher import Flusher
from skep.config.sections import Config
from skep.database.api import cells as cell_rows
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.ids import CELL0, CellUuid, new_uuid
from skep.processes.conducting import make_cell_conductor, make_super_conductor
from skep.processes.databases import Databases
from skep.processes.directory import StateDirectory
from skep.processes.hosts import FakeHost
from skep.processes.installation import CELL0_NAME, choose_hosts
from skep.processes.process import Process
from skep.processes.scheduling import make_scheduler
from skep.processes.stopping import stop_part
from skep.processes.wiring import ProcessTransport, backend_of, check_shared, transport_of
from skep.scheduler.service import SchedulerService
from skep.super_conductor.parts import CellAccess
from skep.super_conductor.service import SuperConductor
from skep.synchronizer.base import Backend
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps
from skep.transport.base import Transport


def _nobody_waits() -> int:
    return 0


class ControlPlane:
    """Super conductor, per cell a conductor and its agents, and a scheduler unless only other processes run some.

    Cells are the rows of the API database.
    """

    def __init__(
        self,
        config: Config,
        directory: StateDirectory,
        databases: Databases,
        *,
        clock: Clock,
        metrics: Metrics,
        notifier: Notifier,
        steps: Steps | None = None,
        hosts: int | None,
        busy: Callable[[], int] = _nobody_waits,
        transport: Transport | None = None,
    ) -> None:
        """A `transport` that is given is opened and closed by whoever gives it; otherwise the configured one is made.

        Raises Misconfigured when what is configured does not go together.
        """
        self.process = Process(config, clock, metrics, steps or Steps(metrics), notifier)
        self.config = config
        self.metrics = metrics
        self.steps = self.process.steps
        self.directory = directory
        self.databases = databases
        self.clock = clock
        self.hosts = hosts
        """Fake hosts that each cell is asked to have; None: what it has, or the configured number if it is new."""
        self.notes: list[str] = []
        """What differs from what was asked for."""
        self._busy = busy
        self._own_transport: ProcessTransport | None = None
        if transport is None:
            if not config.scheduler.embedded:
                check_shared(config)
            self._own_transport = transport = transport_of(config, metrics, "skep")
        self.transport: Transport = transport
        self.cells: dict[CellUuid, Cell] = {}
        self.cell_transports: dict[CellUuid, Transport] = {}
        """Of each cell but cell0. In one process it is one transport: addresses name their cell."""
        self.backend: Backend | None = backend_of(config) if config.scheduler.embedded else None
        """Of the embedded scheduler."""
        self._scheduler: SchedulerService | None = None
        if self.backend is not None:
            self._scheduler = make_scheduler(self.process, transport, self.backend)
        self.agents: dict[str, Agent] = {}
        self._cell_of: dict[str, CellUuid] = {}
        self.drivers: dict[str, FakeDriver] = {}
        self._flusher = Flusher()
        self._super_conductor: SuperConductor | None = None
        self._cell_conductors: list[CellConductor] = []
        self._conductor_of: dict[CellUuid, CellConductor] = {}

    @property
    def scheduler(self) -> SchedulerService:
        """The embedded scheduler. Raises LookupError where only other processes run schedulers."""
        if self._scheduler is None:
            raise LookupError("[scheduler] embedded is false")
        return self._scheduler

    async def start(self) -> None:
        """Start from the middle outwards: scheduler, cells with their agents, then what gives them work.

        Raises Unavailable when the messaging server or the synchronizer's backend is away.
        """
        await self._find_cells()
        if self._own_transport is not None:
            await self._own_transport.open()
        if self.backend is not None:
            await self.backend.open()
            await self.scheduler.start()
        for cell in self.cells.values():
            if not cell.is_cell0:
                await self._start_cell(cell)
        await self._start_super_conductor()

    async def stop(self) -> None:
        """Stop from the outside inwards; what is under way goes on at the next start."""
        if self._super_conductor is not None:
            await stop_part("super conductor", self._super_conductor.stop())
        await asyncio.gather(*(stop_part(f"agent of {host}", agent.stop()) for host, agent in self.agents.items()))
        for driver in self.drivers.values():
            driver.close()
        for conductor in self._cell_conductors:
            await stop_part("cell conductor", conductor.stop())
        if self.backend is not None:
            await stop_part("scheduler", self.scheduler.stop())
            await stop_part("synchronizer", self.backend.close())
        if self._own_transport is not None:
            await stop_part("transport", self._own_transport.close())

    def cell_databases(self) -> Mapping[CellUuid, CellAccess]:
        """Return how the level above reaches each cell, cell0 too."""
        return {
            cell.uuid: CellAccess(cell, self.databases.cells[cell.name], self.cell_transports.get(cell.uuid))
            for cell in self.cells.values()
        }

    async def _find_cells(self) -> None:
        """Read the rows of the cells, making those of cells that are configured and have none."""
        now = self.clock.now()
        names = list(self.databases.cells)

        def unit(connection: sa.Connection) -> tuple[Cell, ...]:
            for name in names:
                uuid = CELL0 if name == CELL0_NAME else CellUuid(new_uuid())
                cell_rows.add(connection, Cell(uuid=uuid, name=name), now)
            return cell_rows.every(connection)

        rows = await self.databases.api.write(unit)
        self.cells = {cell.uuid: cell for cell in rows if cell.name in self.databases.cells}
        for cell in self.cells.values():
            if not cell.is_cell0:
                self.cell_transports[cell.uuid] = self.transport

    async def _start_cell(self, cell: Cell) -> None:
        transport = self.cell_transports[cell.uuid]
        conductor = make_cell_conductor(
            self.process, cell, self.databases.cells[cell.name], transport=transport, above=self.transport
        )
        await conductor.start()
        self._cell_conductors.append(conductor)
        self._conductor_of[cell.uuid] = conductor
        default = self.config.compute.fake.hosts
        hosts = choose_hosts(cell.name, self.directory.hosts(cell.name), self.hosts, default)
        self.notes += hosts.notes
        for host in hosts.names:
            await self.start_agent(cell, host)

    async def stop_cell(self, uuid: CellUuid) -> None:
        """Stop the agents and the conductor of a cell that is removed; its database stays open until we stop."""
        for host, agent in list(self.agents.items()):
            if self._cell_of[host] == uuid:
                await stop_part(f"agent of {host}", agent.stop())
                self.drivers.pop(host).close()
                del self.agents[host], self._cell_of[host]
        conductor = self._conductor_of.pop(uuid, None)
        if conductor is not None:
            self._cell_conductors.remove(conductor)
            await stop_part("cell conductor", conductor.stop())

    async def start_agent(self, cell: Cell, host: str) -> Agent:
        """Start the agent of a fake host of this cell."""
        directory = self.directory.host(cell.name, host)
        made = FakeHost(self.process, cell, host, directory, self.cell_transports[cell.uuid], self._flusher)
        await made.start()
        self.drivers[host] = made.driver
        self.agents[host] = made.agent
        self._cell_of[host] = cell.uuid
        return made.agent

    async def _start_super_conductor(self) -> None:
        self._super_conductor = make_super_conductor(
            self.process, self.databases.api, self.cell_databases(), transport=self.transport, busy=self._busy
        )
        await self._super_conductor.start()
