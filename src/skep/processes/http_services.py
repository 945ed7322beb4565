"""The HTTP services of a process: compute and admin API on one port, embedded identity and images on theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from skep.admin.app import AdminApi
from skep.admin.joining import Messaging
from skep.admin.services import NO_CELL_WORK, AdminServices, CellWork
from skep.api.app import ComputeApi
from skep.api.openapi import document
from skep.api.policy import Policy
from skep.api.routes import ROUTES
from skep.api.services import ApiServices
from skep.database.api import cells as cell_rows
from skep.database.engine import Database
from skep.domain.cells import Cell
from skep.domain.ids import CellUuid
from skep.processes import addresses, mapping, seeds
from skep.processes.directory import StateDirectory
from skep.processes.front import Door, Front
from skep.processes.gauges import Gauges
from skep.processes.listener import Listener
from skep.processes.nats_accounts import messaging_of_hosts
from skep.processes.process import Process
from skep.processes.roster import Roster
from skep.standalone.binding import check_bind
from skep.standalone.identity.app import identity_app
from skep.standalone.identity.service import StandaloneIdentity
from skep.standalone.identity.settings import standard_catalogue
from skep.standalone.images.app import images_app
from skep.standalone.images.embedded import EmbeddedImages
from skep.standalone.images.service import StandaloneImages
from skep.transport.base import Transport


async def _none_runs_here(_cell: CellUuid) -> None:
    return


class HttpServices:
    """Binds the ports when it is made, so that a taken one costs nothing; then `open`, `seed`, `serve`."""

    def __init__(self, process: Process, directory: StateDirectory) -> None:
        """Raises Misconfigured when a port is taken."""
        self.process = process
        self.directory = directory
        self.identity: StandaloneIdentity
        self.images: StandaloneImages
        self._api: Database
        self._front: Front | None = None
        self._door: Door | None = None
        self._gauges: Gauges | None = None
        self._listeners: dict[str, Listener] = {}
        config = process.config
        check_bind(config.api.bind_host, tls=False)
        try:
            self._bind("api", config.api.port)
            if config.identity.listen:
                self._bind("identity", config.identity.port)
            if config.images.listen:
                self._bind("images", config.images.port)
        except BaseException:
            for listener in self._listeners.values():
                listener.close()
            raise

    @property
    def api_url(self) -> str:
        """Address of the compute API, with its version."""
        return f"{self._url('api', self.process.config.api.public_url, self.process.config.api.port)}/v2.1"

    @property
    def identity_url(self) -> str:
        """Address of the identity service, with its version."""
        section = self.process.config.identity
        return section.public_url or f"{self._url('identity', '', section.port)}/v3"

    @property
    def images_url(self) -> str:
        """Address of the image service."""
        section = self.process.config.images
        return self._url("images", section.public_url, section.port)

    @property
    def ports(self) -> dict[str, int]:
        """The ports that were taken, by the names of the services."""
        return {name: listener.port for name, listener in self._listeners.items()}

    @property
    def under_way(self) -> int:
        """Requests to the compute API that are being answered."""
        return self._front.under_way if self._front is not None else 0

    async def announce(self, reasons: Callable[[], Sequence[str]]) -> None:
        """Answer on the API's port that it is not ready yet, and why, until `serve`."""
        self._door = Door(reasons, self.process.metrics.exposition)
        await self._listeners["api"].start(self._door)

    async def open(self, api: Database) -> None:
        """Open identity and images over the API database."""
        self._api = api
        config = self.process.config
        catalogue = standard_catalogue(self.api_url, self.identity_url, self.images_url)
        self.identity = StandaloneIdentity(
            mapping.identity_settings(config, self.directory, self.identity_url, catalogue), api, self.process.clock
        )
        self.images = StandaloneImages(
            mapping.images_settings(self.directory, self.identity_url), api, self.process.clock
        )
        await self.images.open()

    async def seed(self) -> dict[str, str]:
        """Make what a new cloud needs; a repeat finds it. Return the passwords of users that were made now."""
        passwords = await seeds.users(self._api, self.identity, self.process.clock, self.directory, self.identity_url)
        await seeds.flavors(self._api, self.process.clock)
        await seeds.image(self.images)
        return passwords

    async def serve(
        self,
        cells: Mapping[CellUuid, Database],
        names: Mapping[CellUuid, Cell],
        transport: Transport,
        *,
        missing: Callable[[], Sequence[str]] = tuple,
        stop_cell: Callable[[CellUuid], Awaitable[None]] = _none_runs_here,
        cell_work: CellWork = NO_CELL_WORK,
    ) -> None:
        """Answer everything from now on."""
        self._gauges = Gauges(self._api, names, transport, self.process.metrics)
        self._gauges.start()
        for name, app in (
            ("identity", identity_app(self.identity)),
            ("images", images_app(self.images, self.identity)),
        ):
            if name in self._listeners:
                await self._listeners[name].start(app)
        compute = ComputeApi(self._compute(cells, names, transport), ROUTES)
        self._front = Front(compute, AdminApi(self._admin(cells, names, transport, missing, stop_cell, cell_work)))
        if self._door is not None:
            self._door.inside = self._front
        else:
            await self._listeners["api"].start(self._front)

    async def stop(self) -> None:
        """Take no more requests, finish those under way."""
        for listener in self._listeners.values():
            await listener.stop()
        if self._gauges is not None:
            gauges, self._gauges = self._gauges, None
            await gauges.stop()
        if hasattr(self, "identity"):
            self.identity.close()

    def _bind(self, name: str, port: int) -> None:
        self._listeners[name] = Listener(self.process.config.api.bind_host, port, f"{name}.port")

    def _url(self, name: str, public: str, port: int) -> str:
        """Return where a service is reached: as configured, here, or where another process of this machine has it."""
        listener = self._listeners.get(name)
        here = listener.url if listener is not None else f"http://{self.process.config.api.bind_host}:{port}"
        return public.rstrip("/") or here

    def _compute(
        self, cells: Mapping[CellUuid, Database], names: Mapping[CellUuid, Cell], transport: Transport
    ) -> ApiServices:
        config = self.process.config
        return ApiServices(
            database=self._api,
            cells=cells,
            transport=transport,
            clock=self.process.clock,
            identity=self.identity,
            images=EmbeddedImages(self.images),
            policy=Policy(config.api.policy_file or None),
            seal=self.directory.seal().encrypt,
            settings=mapping.api_settings(config, self.identity_url),
            backlog=lambda: self._gauges.backlog if self._gauges is not None else 0,
            running=Roster(self._api, cells, names, transport, self.process.clock).running,
            observe=self._observe,
        )

    def _admin(
        self,
        cells: Mapping[CellUuid, Database],
        names: Mapping[CellUuid, Cell],
        transport: Transport,
        missing: Callable[[], Sequence[str]],
        stop_cell: Callable[[CellUuid], Awaitable[None]],
        cell_work: CellWork,
    ) -> AdminServices:
        return AdminServices(
            database=self._api,
            cells=cells,
            names=names,
            transport=transport,
            clock=self.process.clock,
            identity=self.identity,
            metrics=self.process.metrics.exposition,
            openapi=partial(document, ROUTES),
            missing=missing,
            stop_cell=stop_cell,
            cell_work=cell_work,
            messaging=self._messaging,
            aliases=mapping.device_aliases(self.process.config.pci),
            images=EmbeddedImages(self.images),
            filters=self.process.config.scheduler.enabled_filters,
        )

    async def _messaging(self, cell: Cell) -> Messaging:
        """Return what a new host of a cell is told of its messaging."""
        rows = dict(await self._api.read(cell_rows.located))
        own = next((where for one, where in rows.items() if one.uuid == cell.uuid), cell_rows.NOWHERE)
        own_url = addresses.transport_url(self.directory, own)
        return messaging_of_hosts(self.process.config, self.directory, cell, own_url)

    def _observe(self, method: str, template: str, status: int, seconds: float) -> None:
        self.process.metrics.http_request_seconds.labels("compute", method, template, str(status)).observe(seconds)
