"""The whole cloud in one process: what `skep up` serves, and what the demo and the benchmarks run on."""

from __future__ import annotations

import sys
from pathlib import Path

from skep.config.sections import Config
from skep.config.whole import with_networks
from skep.domain.clock import Clock
from skep.domain.errors import Misconfigured
from skep.processes import collector
from skep.processes.cell_changes import cell_work
from skep.processes.control_plane import ControlPlane
from skep.processes.databases import Databases
from skep.processes.directory import StateDirectory
from skep.processes.http_services import HttpServices
from skep.processes.installation import open_installation
from skep.processes.metadata_listener import MetadataListener
from skep.processes.notifying import BrokerNotifications
from skep.processes.process import new_process
from skep.telemetry.steps import Steps

SWITCH_SECONDS = 0.0005
"""How long one thread may keep the interpreter. Databases are written in threads: at Python's 5 ms each of their
statements would wait that long for a busy event loop."""


class AllInOneCloud:
    """Everything of `skep up` in one event loop. `start` binds the ports first, so that a taken one costs nothing."""

    def __init__(
        self, config: Config, *, cells: int | None = None, hosts: int | None = None, steps: Steps | None = None
    ) -> None:
        """Take the cells and hosts of each cell that a new installation shall have; an old one may get more by them."""
        self.config = config = with_networks(config)
        self.directory = StateDirectory(Path(config.state.directory))
        self.cells = cells
        self.hosts = hosts
        self.upgrade = True
        """Whether older schemas are brought up at the start; otherwise they are refused."""
        self.notes: list[str] = []
        """What differs from what was asked for, one line each."""
        self.process = new_process(config, steps=steps)
        self.clock: Clock = self.process.clock
        self.metrics = self.process.metrics
        self.first_start = False
        self.passwords: dict[str, str] = {}
        """Of the users that this start made; told once."""
        self.plane: ControlPlane
        self._databases: Databases | None = None
        self._http: HttpServices | None = None
        self._metadata: MetadataListener | None = None
        self._notifications = BrokerNotifications(self.process)
        self._planted = False

    @property
    def api_url(self) -> str:
        """Address of the compute API, with its version."""
        return self.http.api_url

    @property
    def identity_url(self) -> str:
        """Address of the identity service, with its version."""
        return self.http.identity_url

    @property
    def images_url(self) -> str:
        """Address of the image service."""
        return self.http.images_url

    @property
    def networks_url(self) -> str:
        """Address of the network service; empty where there is none."""
        return self.http.networks_url

    @property
    def metadata_url(self) -> str | None:
        """Address of the metadata service; None: the configuration has no proxy that could ask it."""
        return None if self._metadata is None else self._metadata.url

    @property
    def http(self) -> HttpServices:
        """The HTTP services. Raises LookupError before the start."""
        if self._http is None:
            raise LookupError("the cloud has not started")
        return self._http

    @property
    def keystone_url(self) -> str | None:
        """Address of the Keystone whose tokens are taken; None: identity is embedded."""
        return self.identity_url if self.config.identity.kind == "keystone" else None

    @property
    def clouds_yaml(self) -> Path:
        """How clients find this cloud."""
        return self.directory.clouds_yaml

    @property
    def started_hosts(self) -> frozenset[str]:
        """The fake hosts whose agents run here."""
        return frozenset(self.plane.agents)

    def inside(self, host: str) -> str:  # noqa: ARG002 - all of them are in this process
        """Return how the names of a host's network namespaces begin, where the host is in one itself: nothing."""
        return ""

    @property
    def admin_password(self) -> str | None:
        """The first password of `admin`, at the first start only."""
        return self.passwords.get("admin")

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
        self.notes += self.directory.notes()
        if self.directory.processes_env.exists() and not self.config.database.api_url:
            raise Misconfigured(
                f"the cloud in {self.directory.root} runs in many processes: start it by `skep up --processes`, or "
                "choose another directory (SKEP_STATE__DIRECTORY) for one of one process"
            )
        self._check_listening()
        self._notifications.start()
        self._http = http = HttpServices(self.process, self.directory)
        if self.config.metadata.service_metadata_proxy:
            self._metadata = MetadataListener(self.process)
        self._databases, notes = await open_installation(self.config, self.directory, self.cells, upgrade=self.upgrade)
        self.notes += notes
        self.plane = ControlPlane(
            self.config,
            self.directory,
            self._databases,
            clock=self.clock,
            metrics=self.metrics,
            notifier=self.process.notifier,
            steps=self.process.steps,
            hosts=self.hosts,
            busy=lambda: http.under_way,
            images=lambda: http.neighbours.embedded_images,
            images_url=lambda: "" if http.neighbours.store is None else http.images_url,
            circuits=self.process.circuits,
        )
        await http.open(self._databases.api)
        self.passwords = await http.seed()
        self.first_start = bool(self.passwords)
        self._planted = True
        await self.plane.start()
        self.notes += self.plane.notes
        live = self.plane.live
        await http.serve(
            live.databases,
            live.names,
            self.plane.transport,
            stop_cell=self.plane.stop_cell,
            cell_work=cell_work(live),
            alone=True,
        )
        if self._metadata is not None:
            await self._metadata.start(self._databases.api, live.databases)
        collector.settle()

    def _check_listening(self) -> None:
        """Refuse embedded services that nothing serves: no other process does it for a cloud of one."""
        for name, other in (("identity", "keystone"), ("images", "glance"), ("networks", "none")):
            section = getattr(self.config, name)
            if section.kind == "embedded" and not section.listen:
                raise Misconfigured(
                    f"{name}.listen is false, and then nothing serves the embedded {name} service of a cloud in one "
                    f"process; for another service set {name}.kind to `{other}`"
                )

    async def stop(self) -> None:
        """Take no more requests, finish those under way, stop; builds under way go on at the next start."""
        if self._metadata is not None:
            await self._metadata.stop()
            self._metadata = None
        if self._http is not None:
            await self._http.stop()
        if self._planted:
            self._planted = False
            await self.plane.stop()
        if self._databases is not None:
            await self._databases.close()
            self._databases = None
        # The other parts tell something to the last.
        await self._notifications.stop()
        self.directory.close()


def make_cloud(
    config: Config, *, cells: int | None = None, hosts: int | None = None, steps: Steps | None = None
) -> AllInOneCloud:
    """Return a cloud that has not started."""
    return AllInOneCloud(config, cells=cells, hosts=hosts, steps=steps)
