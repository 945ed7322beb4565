"""Everything below the HTTP services, in one event loop: scheduler, conductors, and the agents of fake hosts.

`skep up` puts the APIs on top of it; tests drive it directly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from skep.cell_conductor.service import CellConductor
from skep.compute.agent import Agent
from skep.compute.drivers.base import Driver
from skep.compute.flusher import Flusher
from skep.config.sections import Config
from skep.database import Connection
from skep.database.api import cells as cell_rows
from skep.database.engine import Database
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.ids import CELL0, CellUuid, new_uuid
from skep.domain.live import LiveMapping
from skep.neighbours.circuits import Circuits
from skep.neighbours.images.base import ImageExchange
from skep.processes.cells import LiveCells, own_transports
from skep.processes.conducting import make_cell_conductor, make_super_conductor
from skep.processes.databases import Databases, Places
from skep.processes.directory import StateDirectory
from skep.processes.host_images import HostImages
from skep.processes.hosts import DrivenHost
from skep.processes.installation import CELL0_NAME, choose_hosts
from skep.processes.nats_users import Accounts
from skep.processes.own_services import OwnServices
from skep.processes.process import Process
from skep.processes.scheduling import make_scheduler
from skep.processes.stopping import stop_part
from skep.processes.wiring import ProcessTransport, backend_of, check_shared, transport_of
from skep.reconciler.loop import Loop
from skep.scheduler.service import SchedulerService
from skep.super_conductor.parts import CellAccess
from skep.super_conductor.service import SuperConductor
from skep.synchronizer.base import Backend
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps
from skep.transport.base import Transport


def _no_store() -> None:
    """Say that the process has no image store."""


def _no_address() -> str:
    return ""


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
        images: Callable[[], ImageExchange | None] = _no_store,
        images_url: Callable[[], str] = _no_address,
        circuits: Circuits | None = None,
    ) -> None:
        """`images` is the image store of this process, once `start` asks for it; None: it has none. `images_url` is its
        address, for hosts of other processes. `circuits` are those of the process, where it has other parts.

        A `transport` that is given is opened and closed by whoever gives it; otherwise the configured one is made.

        Raises Misconfigured when what is configured does not go together.
        """
        self.process = Process(config, clock, metrics, steps or Steps(metrics), notifier)
        self._circuits = circuits or self.process.circuits
        self.config = config
        self.metrics = metrics
        self.steps = self.process.steps
        self.directory = directory
        self.clock = clock
        self.hosts = hosts
        """Fake hosts that each cell is asked to have; None: what it has, or the configured number if it is new."""
        self.notes: list[str] = []
        """What differs from what was asked for."""
        self._busy = busy
        self._image_store = images
        self._images_url = images_url
        self._images: HostImages | None = None
        self._own_transport: ProcessTransport | None = None
        if transport is None:
            if not config.scheduler.embedded:
                check_shared(config)
            self._own_transport = transport = transport_of(config, metrics, "skep")
        self.transport: Transport = transport
        self.live = LiveCells(
            databases.api,
            Places(config, directory),
            directory,
            transport,
            make_transport=own_transports(config, metrics, "skep"),
            opened=databases.cells,
            upgrade=True,
        )
        self.cells: Mapping[CellUuid, Cell] = self.live.names
        self.databases = Databases(databases.api, LiveMapping(lambda: {**databases.cells, **self.live.by_name}))
        self.backend: Backend | None = backend_of(config) if config.scheduler.embedded else None
        """Of the embedded scheduler."""
        self._scheduler: SchedulerService | None = None
        if self.backend is not None:
            self._scheduler = make_scheduler(self.process, transport, self.backend)
        self.agents: dict[str, Agent] = {}
        self._cell_of: dict[str, CellUuid] = {}
        self.drivers: dict[str, Driver] = {}
        self._flusher = Flusher()
        self._super_conductor: SuperConductor | None = None
        self._own_services: OwnServices | None = None
        self._accounts: Accounts | None = None
        if config.transport.host_users:
            self._accounts = Accounts(
                config,
                directory,
                databases.api,
                clock,
                reconnects=lambda: self._own_transport.reconnects if self._own_transport is not None else 0,
            )
        self._cell_conductors: list[CellConductor] = []
        self._conductor_of: dict[CellUuid, CellConductor] = {}
        self._started_with: dict[CellUuid, tuple[Database, Transport | None]] = {}
        """What the conductor of each cell works with: where that changes, it begins anew."""
        self._stopped: set[CellUuid] = set()
        """Cells that are being removed, or are already."""
        self._keeping_cells = Loop("cells-kept", self._keep_cells, every=5.0)

    @property
    def cell_transports(self) -> Mapping[CellUuid, Transport]:
        """Of each cell but cell0. Mostly it is one transport: addresses name their cell."""
        return {uuid: one.transport for uuid, one in self.live.accesses.items() if one.transport is not None}

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
        self._images = HostImages(self.config, self.directory.root / "images-of-hosts", self.clock, self._image_store())
        await self._find_cells()
        if self._own_transport is not None:
            await self._own_transport.open()
        await self.live.start()
        if self.backend is not None:
            await self.backend.open()
            await self.scheduler.start()
        await self._keep_cells()
        await self._start_super_conductor()
        self.live.on_change = self._keeping_cells.nudge
        self._keeping_cells.start()

    async def stop(self) -> None:
        """Stop from the outside inwards; what is under way goes on at the next start."""
        self.live.on_change = lambda: None
        await stop_part("cells", self._keeping_cells.stop())
        if self._accounts is not None:
            await stop_part("accounts of NATS", self._accounts.stop())
        if self._super_conductor is not None:
            await stop_part("super conductor", self._super_conductor.stop())
        if self._own_services is not None:
            await stop_part("networks", self._own_services.close())
        await asyncio.gather(*(stop_part(f"agent of {host}", agent.stop()) for host, agent in self.agents.items()))
        if self._images is not None:
            await stop_part("images of hosts", self._images.close())
        self._flusher.close()
        for driver in self.drivers.values():
            driver.close()
        for conductor in self._cell_conductors:
            await stop_part("cell conductor", conductor.stop())
        await stop_part("cells", self.live.close())
        if self.backend is not None:
            await stop_part("scheduler", self.scheduler.stop())
            await stop_part("synchronizer", self.backend.close())
        if self._own_transport is not None:
            await stop_part("transport", self._own_transport.close())

    def beat_now(self) -> None:
        """Have the scheduler know at once which hosts live: who waits for new hosts waits for no beat."""
        for conductor in self._cell_conductors:
            conductor.beat_now()

    def cell_databases(self) -> Mapping[CellUuid, CellAccess]:
        """Return how the level above reaches each cell, cell0 too."""
        return self.live.accesses

    async def _find_cells(self) -> None:
        """Follow the rows of the cells, making those of databases that have none."""
        now = self.clock.now()
        names = list(self.databases.cells)

        def unit(connection: Connection) -> None:
            for name in names:
                uuid = CELL0 if name == CELL0_NAME else CellUuid(new_uuid())
                cell_rows.add(connection, Cell(uuid=uuid, name=name), now)

        await self.databases.api.write(unit)

    async def _keep_cells(self) -> bool:
        """Start the conductors and hosts of cells that came, stop those of cells that went, or that moved."""
        for uuid, started in [*self._started_with.items()]:
            access = self.live.accesses.get(uuid)
            if access is None:
                await self.stop_cell(uuid)
            elif (access.database, access.transport) != started and self.live.trouble(uuid) is None:
                await self._stop_cell(uuid)
        for uuid, access in self.live.accesses.items():
            reached = self.live.trouble(uuid) is None
            if reached and not access.cell.is_cell0 and uuid not in self._conductor_of and uuid not in self._stopped:
                await self._start_cell(access.cell)
        return False

    async def _start_cell(self, cell: Cell) -> None:
        access = self.live.accesses[cell.uuid]
        transport = self.cell_transports[cell.uuid]
        conductor = make_cell_conductor(self.process, cell, access.database, transport=transport, above=self.transport)
        await conductor.start()
        self._cell_conductors.append(conductor)
        self._conductor_of[cell.uuid] = conductor
        self._started_with[cell.uuid] = (access.database, access.transport)
        default = self.config.compute.fake.hosts
        hosts = choose_hosts(cell.name, self.directory.hosts(cell.name), self.hosts, default)
        self.notes += hosts.notes
        for host in hosts.names:
            await self.start_agent(cell, host)

    async def stop_cell(self, uuid: CellUuid) -> None:
        """Stop the agents and the conductor of a cell that is removed."""
        self._stopped.add(uuid)
        await self._stop_cell(uuid)

    async def _stop_cell(self, uuid: CellUuid) -> None:
        self._started_with.pop(uuid, None)
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
        """Start the agent of a host of this cell. Raises Misconfigured when its driver cannot be made."""
        directory = self.directory.host(cell.name, host)
        made = DrivenHost(
            self.process,
            cell,
            host,
            directory,
            self.cell_transports[cell.uuid],
            self._flusher,
            key=self.directory.secrets_key,
            images=self._images,
            exchange=self.directory.exchange(self.config.compute),
        )
        await made.start()
        self.drivers[host] = made.driver
        self.agents[host] = made.agent
        self._cell_of[host] = cell.uuid
        return made.agent

    async def _start_super_conductor(self) -> None:
        self._own_services = own_services = OwnServices(
            self.config, self.databases.api, self.process.clock, self._circuits
        )
        self._super_conductor = make_super_conductor(
            self.process,
            self.databases.api,
            self.cell_databases(),
            transport=self.transport,
            key=self.directory.secrets_key,
            images_url=self._images_url,
            networks=own_services.networks,
            volumes=own_services.volumes,
            busy=self._busy,
        )
        await self._super_conductor.start()
        if self._accounts is not None:
            self._accounts.start()
