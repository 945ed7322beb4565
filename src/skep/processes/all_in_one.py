"""The whole cloud in one process: what `skep up` serves, and what the demo and the benchmarks run on."""

from __future__ import annotations

import gc
import sys
from functools import partial
from pathlib import Path
from typing import Any

from skep.admin.app import AdminApi
from skep.admin.services import AdminServices
from skep.api.app import ComputeApi
from skep.api.openapi import document
from skep.api.policy import Policy
from skep.api.routes import ROUTES
from skep.api.services import ApiServices, RunningService
from skep.config.sections import Config
from skep.domain.clock import Clock
from skep.domain.ids import new_uuid
from skep.processes import mapping, seeds
from skep.processes.control_plane import ControlPlane
from skep.processes.databases import Databases
from skep.processes.directory import StateDirectory
from skep.processes.front import Front
from skep.processes.gauges import Gauges
from skep.processes.installation import open_installation
from skep.processes.listener import Listener
from skep.standalone.binding import check_bind
from skep.standalone.identity.app import identity_app
from skep.standalone.identity.service import StandaloneIdentity
from skep.standalone.identity.settings import standard_catalogue
from skep.standalone.images.app import images_app
from skep.standalone.images.embedded import EmbeddedImages
from skep.standalone.images.service import StandaloneImages
from skep.telemetry.metrics import Metrics
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps

SWITCH_SECONDS = 0.0005
"""How long one thread may keep the interpreter. Databases are written in threads: at Python's 5 ms each of their
statements would wait that long for a busy event loop."""


class Cloud:
    """Everything of `skep up` in one event loop. `start` binds the ports first, so that a taken one costs nothing."""

    def __init__(
        self, config: Config, *, cells: int | None = None, hosts: int | None = None, steps: Steps | None = None
    ) -> None:
        """Take the cells and hosts of each cell that a new installation shall have; an old one may get more by them."""
        self.config = config
        self.directory = StateDirectory(Path(config.state.directory))
        self.cells = cells
        self.hosts = hosts
        self.notes: list[str] = []
        """What differs from what was asked for, one line each."""
        self.clock = Clock()
        self.metrics = Metrics() if steps is None else steps.metrics
        self.first_start = False
        self.passwords: dict[str, str] = {}
        """Of the users that this start made; told once."""
        self.plane: ControlPlane
        self.identity: StandaloneIdentity
        self._steps = steps
        self._databases: Databases | None = None
        self._listeners: dict[str, Listener] = {}
        self._gauges: Gauges | None = None
        self._started: list[Any] = []
        self._front: Front | None = None

    @property
    def api_url(self) -> str:
        """Address of the compute API, with its version."""
        return f"{self._listeners['api'].url}/v2.1"

    @property
    def identity_url(self) -> str:
        """Address of the identity service, with its version."""
        return f"{self._listeners['identity'].url}/v3"

    @property
    def images_url(self) -> str:
        """Address of the image service."""
        return self._listeners["images"].url

    @property
    def clouds_yaml(self) -> Path:
        """How clients find this cloud."""
        return self.directory.clouds_yaml

    @property
    def admin_password(self) -> str | None:
        """The first password of `admin`, at the first start only."""
        return self.passwords.get("admin")

    def metrics_text(self) -> bytes:
        """Return everything counted, in Prometheus' text format."""
        return self.metrics.exposition()

    async def start(self) -> None:
        """Start from the state directory, or make it.

        Raises Misconfigured when the directory, a port or a setting cannot be used; nothing runs then.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        self.directory.open()
        self._bind()
        self._databases, notes = await open_installation(self.config, self.directory, self.cells)
        self.notes += notes
        self.plane = ControlPlane(
            self.config,
            self.directory,
            self._databases,
            clock=self.clock,
            metrics=self.metrics,
            notifier=Notifier(self.clock),
            steps=self._steps,
            hosts=self.hosts,
            busy=lambda: self._front.under_way if self._front is not None else 0,
        )
        self.identity = self._identity()
        images = StandaloneImages(
            mapping.images_settings(self.directory, self.identity_url), self._databases.api, self.clock
        )
        await images.open()
        await self._seed(images)
        self._started.append(self.plane)
        await self.plane.start()
        self.notes += self.plane.notes
        self._gauges = Gauges(self.plane, self.metrics)
        self._gauges.start()
        self._started.append(self._gauges)
        await self._listeners["identity"].start(identity_app(self.identity))
        await self._listeners["images"].start(images_app(images, self.identity))
        self._front = self._applications(images)
        await self._listeners["api"].start(self._front)
        # What is there now stays: the collector need not look at it again.
        gc.collect()
        gc.freeze()

    async def stop(self) -> None:
        """Take no more requests, finish those under way, stop; builds under way go on at the next start."""
        for listener in self._listeners.values():
            await listener.stop()
        while self._started:
            await self._started.pop().stop()
        if hasattr(self, "identity"):
            self.identity.close()
        if self._databases is not None:
            await self._databases.close()
            self._databases = None
        self.directory.close()

    def _bind(self) -> None:
        """Take the ports before anything else."""
        host = self.config.api.bind_host
        check_bind(host, tls=False)
        for name, port in (
            ("api", self.config.api.port),
            ("identity", self.config.identity.port),
            ("images", self.config.images.port),
        ):
            self._listeners[name] = Listener(host, port, f"{name}.port")

    def _identity(self) -> StandaloneIdentity:
        assert self._databases is not None
        catalogue = standard_catalogue(self.api_url, self.identity_url, self.images_url)
        settings = mapping.identity_settings(self.config, self.directory, self.identity_url, catalogue)
        return StandaloneIdentity(settings, self._databases.api, self.clock)

    async def _seed(self, images: StandaloneImages) -> None:
        """Make what a new cloud needs; a repeat finds it."""
        assert self._databases is not None
        api = self._databases.api
        self.passwords = await seeds.users(api, self.identity, self.clock, self.directory, self.identity_url)
        self.first_start = bool(self.passwords)
        await seeds.flavors(api, self.clock)
        await seeds.image(images)

    def _applications(self, images: StandaloneImages) -> Front:
        """Return the application on the API's port: compute, admin, health, metrics."""
        plane = self.plane
        databases = {uuid: access.database for uuid, access in plane.cell_databases().items()}
        services = ApiServices(
            database=plane.databases.api,
            cells=databases,
            transport=plane.transport,
            clock=self.clock,
            identity=self.identity,
            images=EmbeddedImages(images),
            policy=Policy(self.config.api.policy_file or None),
            seal=self.directory.seal().encrypt,
            settings=mapping.api_settings(self.config, self.identity_url),
            backlog=lambda: self._gauges.backlog if self._gauges is not None else 0,
            running=partial(_running, self._services(), self.clock.now()),
            observe=self._observe,
        )
        admin = AdminServices(
            database=plane.databases.api,
            cells=databases,
            names=plane.cells,
            transport=plane.transport,
            clock=self.clock,
            identity=self.identity,
            metrics=self.metrics_text,
            openapi=partial(document, ROUTES),
            stop_cell=plane.stop_cell,
        )
        return Front(ComputeApi(services, ROUTES), AdminApi(admin))

    def _services(self) -> tuple[tuple[str, str, str], ...]:
        conductors = [("nova-conductor", cell.name) for cell in self.plane.cells.values() if not cell.is_cell0]
        named = [("nova-scheduler", "skep"), ("nova-conductor", "skep"), *conductors]
        return tuple((new_uuid(), binary, host) for binary, host in named)

    def _observe(self, method: str, template: str, status: int, seconds: float) -> None:
        self.metrics.http_request_seconds.labels("compute", method, template, str(status)).observe(seconds)


def _running(services: tuple[tuple[str, str, str], ...], started_at: int) -> tuple[RunningService, ...]:
    return tuple(
        RunningService(uuid=uuid, binary=binary, host=host, started_at=started_at) for uuid, binary, host in services
    )


def make_cloud(
    config: Config, *, cells: int | None = None, hosts: int | None = None, steps: Steps | None = None
) -> Cloud:
    """Return a cloud that has not started."""
    return Cloud(config, cells=cells, hosts=hosts, steps=steps)
