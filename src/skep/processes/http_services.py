"""The HTTP services of a process: compute and admin API on one port, the embedded services on theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from skep.admin.app import AdminApi
from skep.admin.event_streams import EventStreams
from skep.admin.joining import Messaging
from skep.admin.services import NO_CELL_WORK, AdminServices, CellWork
from skep.api.app import ComputeApi
from skep.api.awaited_images import AwaitedImages
from skep.api.background import Background
from skep.api.console_pages import console_pages
from skep.api.console_proxy import ConsoleProxy
from skep.api.openapi import document
from skep.api.policy import Policy
from skep.api.routes import ROUTES
from skep.api.services import ApiServices
from skep.database.api import cells as cell_rows
from skep.database.api import revoked_nats_users
from skep.database.engine import Database
from skep.domain.actions import Over
from skep.domain.cells import Cell
from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid, NodeUuid, ProjectId
from skep.domain.instances import Instance
from skep.domain.leaving import CROSS_CELL, kept_by
from skep.http.request_limits import RequestLimits
from skep.neighbours.images.tickets import image_of
from skep.processes import addresses, mapping, seeds
from skep.processes.directory import StateDirectory
from skep.processes.front import Door, Front
from skep.processes.gauges import Gauges
from skep.processes.listener import Listener
from skep.processes.nats_accounts import messaging_of_hosts
from skep.processes.nats_users import host_user
from skep.processes.neighbours import Neighbours, keystone_settings
from skep.processes.process import Process
from skep.processes.roster import Roster
from skep.reconciler.loop import Loop
from skep.standalone.binding import check_bind
from skep.standalone.identity.app import identity_app
from skep.standalone.images.app import images_app
from skep.standalone.networks.app import networks_app
from skep.standalone.networks.bootstrap import ensure_first_networks
from skep.standalone.networks.callers import NetworksApi
from skep.standalone.networks.settings import NetworksSettings
from skep.telemetry import endings
from skep.transport.base import Transport


async def _none_runs_here(_cell: CellUuid) -> None:
    return


class HttpServices:
    """Binds the ports when it is made, so that a taken one costs nothing; then `open`, `seed`, `serve`."""

    def __init__(self, process: Process, directory: StateDirectory) -> None:
        """Raises Misconfigured when a port is taken."""
        self.process = process
        self.directory = directory
        self.neighbours: Neighbours
        self._api: Database
        self._seal = directory.seal()
        self._front: Front | None = None
        self._door: Door | None = None
        self._gauges: Gauges | None = None
        self._awaited: Loop | None = None
        self._image_cachings = Background()
        self._streams: EventStreams | None = None
        self._listeners: dict[str, Listener] = {}
        config = process.config
        self._policy = Policy(config.api.policy_file or None)
        self._limits = RequestLimits(
            mapping.request_limits(config), tell=lambda limit: process.metrics.requests_refused.labels(limit).inc()
        )
        check_bind(config.api.bind_host, tls=False)
        try:
            self._bind("api", config.api.port)
            if config.identity.listen and config.identity.kind == "embedded":
                self._bind("identity", config.identity.port)
            if config.images.listen and config.images.kind == "embedded":
                self._bind("images", config.images.port)
            if config.networks.listen and config.networks.kind == "embedded":
                self._bind("networks", config.networks.port)
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
        if section.kind == "keystone":
            return section.public_url or keystone_settings(section).credentials.v3
        return section.public_url or f"{self._url('identity', '', section.port)}/v3"

    @property
    def images_url(self) -> str:
        """Address of the image service; empty where only Keystone's catalogue says it."""
        section = self.process.config.images
        if section.kind == "glance":
            return section.public_url or section.endpoint
        return self._url("images", section.public_url, section.port)

    @property
    def networks_url(self) -> str:
        """Address of the network service; empty where there is none."""
        section = self.process.config.networks
        return self._url("networks", section.public_url, section.port) if section.kind == "embedded" else ""

    @property
    def _networks_settings(self) -> NetworksSettings:
        return mapping.networks_settings(self.process.config, self.identity_url)

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
        """Open identity and images, the embedded ones over the API database.

        Raises Misconfigured when Keystone refuses Skep's user, Unavailable when it does not answer.
        """
        self._api = api
        neighbours = Neighbours(
            self.process.config,
            self.directory,
            api,
            self.process.clock,
            api_url=self.api_url,
            identity_url=self.identity_url,
            images_url=self.images_url,
            networks_url=self.networks_url,
            metrics=self.process.metrics,
            circuits=self.process.circuits,
        )
        try:
            await neighbours.open()
        except BaseException:
            await neighbours.close()
            raise
        self.neighbours = neighbours

    async def seed(self, image: seeds.FirstImage = seeds.PLAIN_IMAGE) -> dict[str, str]:
        """Make what a new cloud needs, with this image; a repeat finds it. Return the passwords that were made now."""
        passwords: dict[str, str] = {}
        users, store = self.neighbours.users, self.neighbours.store
        if users is not None:
            passwords = await seeds.users(self._api, users, self.process.clock, self.directory, self.identity_url)
        await seeds.flavors(self._api, self.process.clock)
        if store is not None:
            await seeds.image(store, image)
        if self.process.config.networks.kind == "embedded":
            await ensure_first_networks(self._api, self._networks_settings, self.process.clock)
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
        alone: bool = False,
    ) -> None:
        """Answer everything from now on; `alone`: as the only process that does."""
        self._gauges = Gauges(self._api, names, transport, self.process.metrics)
        self._gauges.start()
        users, store = self.neighbours.users, self.neighbours.store
        if users is not None and "identity" in self._listeners:
            await self._listeners["identity"].start(identity_app(users))
        if store is not None and "images" in self._listeners:
            await self._listeners["images"].start(images_app(store, self.neighbours.identity, self._image_of_ticket))
        if "networks" in self._listeners:
            networks = NetworksApi(
                self._api,
                self.process.clock,
                self.neighbours.identity,
                self._networks_settings,
            )
            await self._listeners["networks"].start(networks_app(networks))
        services = self._compute(cells, names, transport)
        self._awaited = AwaitedImages(services, alone=alone and store is not None).loop
        self._awaited.start()
        streams = self._streams = EventStreams(self._api, self.process.config.events)
        self.process.metrics.event_streams.set_function(lambda: streams.count)
        admin = AdminApi(self._admin(cells, names, transport, missing, stop_cell, cell_work, streams))
        consoles = ConsoleProxy(services, mapping.console_limits(self.process.config.consoles))
        pages = console_pages(services.settings.novnc_directory, self.process.config.consoles.allowed_origins)
        self._front = Front(ComputeApi(services, ROUTES), admin, consoles, pages)
        if self._door is not None:
            self._door.inside = self._front
        else:
            await self._listeners["api"].start(self._front)

    async def stop(self) -> None:
        """Take no more requests, finish those under way."""
        if self._streams is not None:
            await self._streams.close()
        for listener in self._listeners.values():
            await listener.stop()
        if self._gauges is not None:
            gauges, self._gauges = self._gauges, None
            await gauges.stop()
        await self._image_cachings.stop()
        if self._awaited is not None:
            awaited, self._awaited = self._awaited, None
            await awaited.stop()
        if hasattr(self, "neighbours"):
            await self.neighbours.close()

    def _bind(self, name: str, port: int) -> None:
        config = self.process.config
        self._listeners[name] = Listener(
            config.api.bind_host,
            port,
            f"{name}.port",
            limits=config.http,
            metrics=self.process.metrics,
            websockets=name == "api",
        )

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
            identity=self.neighbours.identity,
            images=self.neighbours.images,
            image_records=self.neighbours.image_records,
            images_of_users=self.neighbours.images_of_users,
            networks=self.neighbours.own_services.networks,
            volumes=self.neighbours.own_services.volumes,
            server_volumes=self.neighbours.own_services.volumes,
            policy=self._policy,
            seal=self._seal.encrypt,
            unseal=self._seal.decrypt,
            settings=mapping.api_settings(config, self.identity_url, self.images_url),
            ended=self._ended,
            asked=self._asked,
            tell=self._tell,
            runs_on=self.process.host,
            backlog=lambda: self._gauges.backlog if self._gauges is not None else 0,
            running=Roster(self._api, cells, names, transport, self.process.clock).running,
            limits=self._limits,
            observe=self._observe,
            image_cachings=self._image_cachings,
            count_precached=lambda outcome: self.process.metrics.images_precached.labels(outcome).inc(),
            unified_quotas=mapping.unified_quotas(config.quota, self.neighbours.limits),
        )

    def _admin(
        self,
        cells: Mapping[CellUuid, Database],
        names: Mapping[CellUuid, Cell],
        transport: Transport,
        missing: Callable[[], Sequence[str]],
        stop_cell: Callable[[CellUuid], Awaitable[None]],
        cell_work: CellWork,
        streams: EventStreams,
    ) -> AdminServices:
        return AdminServices(
            database=self._api,
            cells=cells,
            names=names,
            transport=transport,
            clock=self.process.clock,
            identity=self.neighbours.identity,
            sees_server=self._sees_server,
            kept=self._kept,
            metrics=self.process.metrics.exposition,
            ended=self._ended,
            openapi=partial(document, ROUTES),
            missing=missing,
            owner=self.process.owner,
            runs_on=self.process.host,
            stop_cell=stop_cell,
            cell_work=cell_work,
            messaging=self._messaging,
            aliases=mapping.device_aliases(self.process.config.pci),
            networks=self.neighbours.own_services.networks,
            volumes=self.neighbours.own_services.volumes,
            images=self.neighbours.images,
            streams=streams,
            limits=self._limits,
            filters=self.process.config.scheduler.enabled_filters,
            fence_grace_seconds=self.process.config.conductor.fence_grace_seconds,
        )

    def _sees_server(self, context: RequestContext, project_id: ProjectId) -> bool:
        return self._policy.allows("os_compute_api:servers:show", context, project_id=project_id)

    def _kept(self, context: RequestContext, server: Instance) -> str | None:
        config = self.process.config
        return kept_by(
            allowed=self._policy.allows(CROSS_CELL, context, project_id=server.project_id, user_id=server.user_id),
            max_cells=config.scheduler.max_cells,
            moves_between_cells=config.conductor.moves_between_cells,
        )

    async def _messaging(self, cell: Cell, node: NodeUuid, host: str) -> Messaging:
        """Return what a new host of a cell is told of its messaging."""
        rows = dict(await self._api.read(cell_rows.located))
        own = next((where for one, where in rows.items() if one.uuid == cell.uuid), cell_rows.NOWHERE)
        own_url = addresses.transport_url(self.directory, own)
        config = self.process.config
        user = None
        if config.transport.host_users:
            issuing = partial(revoked_nats_users.issue_second, node=node, now=self.process.clock.now())
            user = host_user(config, self.directory, cell, node, host, await self._api.read(issuing))
        return messaging_of_hosts(config, self.directory, cell, own_url, user)

    def _image_of_ticket(self, ticket: str, *, store: bool = False) -> str | None:
        return image_of(self._seal.decrypt, ticket, self.process.clock.now(), store=store)

    def _ended(self, over: Iterable[Over]) -> None:
        endings.ended(self.process.metrics, self.process.notifier, over)

    def _asked(self, notification: str, server: Instance, context: RequestContext) -> None:
        endings.asked(self.process.notifier, notification, server, context, self.process.host)

    def _tell(self, event_type: str, payload: Mapping[str, Any], context: RequestContext) -> None:
        publisher_id = f"nova-api:{self.process.host}"
        self.process.notifier.emit(event_type, payload, publisher_id=publisher_id, context=context)

    def _observe(self, method: str, template: str, status: int, seconds: float) -> None:
        self.process.metrics.http_request_seconds.labels("compute", method, template, str(status)).observe(seconds)
