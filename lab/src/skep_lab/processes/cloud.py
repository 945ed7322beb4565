"""A cloud of processes for tests: each role a child, real NATS and PostgreSQL, each cell behind links that can be cut.

    cloud = ProcessCloud(root, chaos_config(root, builds=200))
    await cloud.start()
    cloud.children["cell-conductor-cell1-1"].kill()

Which processes there are and what each is told is what `skep up --processes` says (`processes.supervisor.plan`), but
for the links: a cell's processes reach NATS by one, and those above the cells reach its database by another.
"""

from __future__ import annotations

import asyncio
import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from skep.config.sections import LOOPBACK, CellSettings, Config, SynchronizerSettings, TransportSettings
from skep.contracts.eventually import PATIENCE, eventually
from skep.database.api import cells as cell_rows
from skep.domain.cells import Cell
from skep.domain.ids import CELL0, CellUuid
from skep.processes.directory import StateDirectory
from skep.processes.http_services import HttpServices
from skep.processes.installation import CELL0_NAME, open_installation
from skep.processes.ports import free_ports
from skep.processes.process import new_process
from skep.processes.servers.nats import NatsServer
from skep.processes.servers.postgres import PostgresServer
from skep.processes.supervisor.child import ChildTask
from skep.processes.supervisor.plan import ProcessNumbers, orders_above, orders_inside
from skep_lab.crash.forks import environment_without_skep
from skep_lab.processes.child import RoleChild, RoleDied
from skep_lab.processes.client import ProcessCloudClient
from skep_lab.processes.clocks import HostClocks
from skep_lab.processes.links import Link
from skep_lab.processes.release_child import ReleaseChild
from skep_lab.witnesses import witness_guests, witness_rows
from skep_lab.witnesses.witness import HostSeen, Seen
from skep_lab.witnesses.witness_guests import Life

NUMBERS = ProcessNumbers(api=2, super_conductor=2, scheduler=2, cell_conductor=2)
HOSTS_SECONDS = 1.5 * PATIENCE
STOPPING_ORDER = ("api", "super-conductor", "compute", "cell-conductor", "scheduler")
CONNECTIONS = "400"
HostSettings = Callable[[str], tuple[tuple[str, str], ...]]
SMALL_DISK = {"max_wal_size": "96MB", "min_wal_size": "32MB"}
"""What PostgreSQL is told whose disk is small."""


class ProcessCloud:
    """One cloud. Its children, servers and links are there to be broken; `ask` and the like block."""

    def __init__(
        self,
        root: Path,
        config: Config,
        *,
        cells: int = 2,
        hosts: int = 3,
        numbers: ProcessNumbers = NUMBERS,
        disk_bytes: int = 0,
        host_settings: HostSettings = lambda _host: (),
    ) -> None:
        """Take settings without addresses, and how many cells, and hosts in each.

        `disk_bytes` puts the databases on a disk of that size, where we may mount one: see `databases_disk`.
        `host_settings` gives the variables of the agent of a host by its name, which come after all others.
        """
        self.cells, self.hosts = cells, hosts
        self.names = tuple(f"cell{number}" for number in range(1, cells + 1))
        self.state = Path(config.state.directory)
        self.logs = root / "logs"
        self.config = config
        self.nats = NatsServer(root / "nats")
        settings = {"max_connections": CONNECTIONS, **(SMALL_DISK if disk_bytes else {})}
        self.postgres = PostgresServer(None, prefix=(), own_session=False, **settings)
        self._disk_bytes = disk_bytes
        self.databases_disk: Path | None = None
        """The folder of the databases where they have a disk of their own, which can be filled."""
        self.children: dict[str, RoleChild] = {}
        self.release: Path | None = None
        """The interpreter of another release whose processes are those that are started; this code's then wait."""
        self.older: dict[str, ReleaseChild] = {}
        """With `release`: its processes, by the same names as `children`."""
        self.to_nats: dict[str, Link] = {}
        """By cell: how its conductors and hosts reach NATS."""
        self.to_database: dict[str, Link] = {}
        """By cell: how those above reach its database."""
        self.host_clocks = HostClocks()
        """Is told of each host whose clock is made wrong, or right again."""
        self.mounts: list[Path] = []
        """Directories of hosts on disks of their own."""
        self._numbers = numbers
        self._host_settings = host_settings
        self._environment: dict[str, str] = {}
        self._directory = StateDirectory(self.state)
        self._client: ProcessCloudClient | None = None
        self._image = ""

    async def start(self) -> None:
        """Start everything and wait until all hosts may get servers; nothing runs when that fails."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop everything in order, whatever state it is in; a role that does not stop is killed, and then raised."""
        for link in (*self.to_nats.values(), *self.to_database.values()):
            link.heal()
        failed = await self._stop_roles()
        if self._client is not None:
            self._client.close()
        for link in (*self.to_nats.values(), *self.to_database.values()):
            await link.stop()
        await asyncio.to_thread(self.nats.stop)
        await asyncio.to_thread(self.postgres.remove)
        self._directory.close()
        while self.mounts:
            await asyncio.to_thread(subprocess.run, ["umount", str(self.mounts.pop())], check=True)
        if failed:
            raise failed[0]

    async def _stop_roles(self) -> list[RoleDied]:
        failed: list[RoleDied] = []
        for role in STOPPING_ORDER:
            older = [child for child in self.older.values() if child.order.role == role]
            both: list[RoleChild | ReleaseChild] = [*self.of(role), *older]
            mine = [asyncio.to_thread(child.stop) for child in both]
            failed += [one for one in await asyncio.gather(*mine, return_exceptions=True) if isinstance(one, RoleDied)]
        return failed

    async def stop_processes(self) -> None:
        """Stop all roles in order; NATS and PostgreSQL go on. A role that does not stop is killed, and then raised."""
        failed = await self._stop_roles()
        self._directory.close()
        if failed:
            raise failed[0]

    async def start_processes(self) -> None:
        """Start all roles again, and wait until each takes work."""
        self._directory.open(shared=True)
        await self._started([*self.children.values()])

    async def _started(self, children: Sequence[RoleChild | ReleaseChild]) -> None:
        with ThreadPoolExecutor(len(children)) as threads:
            loop = asyncio.get_running_loop()
            for child in children:
                child.start()
            await asyncio.gather(*(loop.run_in_executor(threads, child.wait_started) for child in children))

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of `skep` as an operator does who has the configuration; its output is all it said."""
        config = self._with_addresses()
        variables = {**self._environment, **dict(variables_of(config)), "SKEP_CELLS": _text(config.cells)}
        return subprocess.run(
            [sys.executable, "-m", "skep.cli", *arguments],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def of(self, role: str) -> list[RoleChild]:
        """Return the processes of a role."""
        return [child for child in self.children.values() if child.order.role == role]

    @property
    def _patience(self) -> float:
        """Seconds in which a process ends that was told to: it drains, and the machine may be busy with much else."""
        return self.config.process.drain_seconds + PATIENCE

    def program(self, child: RoleChild, variables: Mapping[str, str], what: str) -> ReleaseChild:
        """Return a program of this code that can do the work of a process, with more variables."""
        environment = {**self._environment, **variables}
        interpreter = Path(sys.executable)
        return ReleaseChild(child.order, environment, self.logs, interpreter, stop_seconds=self._patience, what=what)

    def add_child(self, order: ChildTask) -> RoleChild:
        """Return one more process, which is not started yet."""
        child = RoleChild(order, self._environment, self.logs, stop_seconds=self._patience)
        self.children[order.name] = child
        return child

    def new_database(self, name: str) -> str:
        """Make an empty database and return its address."""
        self.postgres.create_database(name)
        return self.postgres.url(name)

    def orders_of(self, name: str, uuid: str, database_url: str) -> tuple[ChildTask, ...]:
        """Return the conductor and the host of one more cell, which no link is before."""
        config = replace(self._with_addresses(), cells=(CellSettings(name=name, database_url=database_url),))
        cell = Cell(uuid=CellUuid(uuid), name=name)
        return orders_inside(config, ProcessNumbers(), cell, [f"{name}-host1"])

    def host_directory(self, child: RoleChild) -> Path:
        """Return where the host of a compute process keeps its journal."""
        host = child.order.name.removeprefix("compute-")
        return self._directory.host(host.rpartition("-")[0], host)

    @property
    def image(self) -> str:
        """The id of the image `tiny`."""
        return self._image

    @property
    def client(self) -> ProcessCloudClient:
        """Who asks it, and knows where it is."""
        assert self._client is not None, "the cloud was never started"
        return self._client

    def ask(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Send a request to whichever API process takes it; see `CloudClient.ask`."""
        return self.client.ask(method, path, body)

    def rows(self) -> witness_rows.Rows:
        """Read the databases, past all links."""
        return witness_rows.read_databases({name: self.postgres.url(name) for name in ("api", CELL0_NAME, *self.names)})

    def answer(self, path: str) -> Any:
        """Return what a GET answers. Raises httpx.HTTPStatusError unless it answers well."""
        return self.ask("GET", path).raise_for_status().json()

    def look(self, statuses: dict[str, str], hosts: dict[str, HostSeen]) -> Seen:
        """Read databases, past all links, and the hosts' logs."""
        rows = self.rows()
        # Agents of older releases make no disks, or leave those that younger ones made.
        disks = None if self.release is not None else tuple(witness_guests.disks(self.state))
        drives = None if self.release is not None else tuple(witness_guests.drives(self.state))
        return Seen(rows=rows, lives=tuple(self.guests()), disks=disks, statuses=statuses, hosts=hosts, drives=drives)

    def guests(self) -> list[Life]:
        """Return all guests that the hosts ever had, by the right time."""
        return witness_guests.lives(self.state, self.host_clocks.ahead)

    async def ready(self) -> None:
        """Wait until the API is ready and all hosts may get servers. Raises AssertionError."""
        await eventually(self._hosts_up, "all hosts are up", seconds=HOSTS_SECONDS)

    async def _hosts_up(self) -> bool:
        try:
            ready = await asyncio.to_thread(self.ask, "GET", "/readyz")
            shown = await asyncio.to_thread(self.ask, "GET", "/admin/v1/hosts")
        except httpx.TransportError:
            return False
        if ready.status_code != 200 or ready.json()["warnings"] or shown.status_code != 200:
            await asyncio.sleep(0.2)
            return False
        up = [host for host in shown.json()["hosts"] if host["state"] == "up"]
        return len(up) == self.cells * self.hosts

    async def _start(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        self._directory.open(shared=True)
        await self.nats.start()
        await asyncio.to_thread(self._make_databases)
        for name in self.names:
            self.to_nats[name] = Link(self.nats.port)
            self.to_database[name] = Link(self.postgres.port)
        for link in (*self.to_nats.values(), *self.to_database.values()):
            await link.start()
        await self._install()
        first: list[RoleChild | ReleaseChild] = [*(self.older or self.children).values()]
        await self._started(first)
        assert self._client is not None
        await asyncio.to_thread(self._client.sign_in)
        self._image = await asyncio.to_thread(self._client.find_image)
        await self.ready()

    def _make_databases(self) -> None:
        if self._disk_bytes and mount_memory(self.postgres.folder, self._disk_bytes):
            self.mounts.append(self.postgres.folder)
            self.databases_disk = self.postgres.folder
        self.postgres.start()
        for name in ("api", CELL0_NAME, *self.names):
            self.postgres.create_database(name)

    async def _install(self) -> None:
        """Make schemas, cells and first users, as the first start does, and say which processes there will be."""
        config = self._with_addresses()
        databases, _ = await open_installation(config, self._directory, None)
        http: HttpServices | None = None
        try:
            http = HttpServices(new_process(config), self._directory)
            await http.open(databases.api)
            await http.seed()
            self._directory.seal()
            cells = [cell for cell in await databases.api.read(cell_rows.every) if cell.uuid != CELL0]
            ports = [http.ports["api"], *free_ports(LOOPBACK, self._numbers.api - 1)]
            planned = self._planned(config, cells, http, ports)
            urls = [f"http://127.0.0.1:{port}/v2.1" for port in ports]
            images = http.images_url.removesuffix("/v2")
            self._client = ProcessCloudClient(self._directory.clouds_yaml, urls, http.identity_url, images)
        finally:
            if http is not None:
                await http.stop()
            await databases.close()
        self._environment = environment_without_skep() | dict(variables_of(self.config))
        for order in planned:
            patience = self._patience
            self.children[order.name] = RoleChild(order, self._environment, self.logs, stop_seconds=patience)
            if self.release is not None:
                known = _known_to_older(self._environment)
                known_order = dataclasses.replace(order, settings=tuple(_known_to_older(dict(order.settings)).items()))
                self.older[order.name] = ReleaseChild(
                    known_order, known, self.logs, self.release, stop_seconds=patience
                )

    def _with_addresses(self) -> Config:
        url = self.postgres.url
        return replace(
            self.config,
            database=replace(self.config.database, api_url=url("api"), cell0_url=url(CELL0_NAME)),
            cells=tuple(CellSettings(name=name, database_url=url(name)) for name in self.names),
            transport=TransportSettings(kind="nats", url=self.nats.url),
            synchronizer=SynchronizerSettings(backend="nats", url=self.nats.url, expected_hosts=1000),
            scheduler=replace(self.config.scheduler, embedded=False),
        )

    def _planned(self, config: Config, cells: list[Cell], http: HttpServices, ports: list[int]) -> list[ChildTask]:
        """Return the plan with the links in it."""
        linked = tuple(replace(cell, database_url=self._linked(cell.name)) for cell in config.cells)
        above = replace(config, cells=linked)
        planned = [*orders_above(above, self._numbers, http.ports, ports, http.identity_url)]
        for cell in cells:
            hosts = [f"{cell.name}-host{number}" for number in range(1, self.hosts + 1)]
            url = f"nats://127.0.0.1:{self.to_nats[cell.name].port}"
            inside = replace(config, transport=replace(config.transport, url=url))
            planned += orders_inside(inside, self._numbers, cell, hosts, self._host_settings)
        return planned

    def _linked(self, name: str) -> str:
        url = sa.make_url(self.postgres.url(name))
        return url.set(port=self.to_database[name].port).render_as_string(hide_password=False)


def mount_memory(directory: Path, size: int) -> bool:
    """Put a small disk in memory under a directory that stays its owner's; whether we may."""
    owner = directory.stat()
    options = f"size={size},mode={owner.st_mode & 0o777:o},uid={owner.st_uid},gid={owner.st_gid}"
    command = ["mount", "-t", "tmpfs", "-o", options, "skep-chaos", str(directory)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def variables_of(config: Config) -> Iterator[tuple[str, str]]:
    """Return the variables that say what of a configuration is not as by default."""
    for name in config.__struct_fields__:
        value = getattr(config, name)
        if isinstance(value, msgspec.Struct):
            yield from _variables(f"SKEP_{name.upper()}", value)


def _variables(prefix: str, section: msgspec.Struct) -> Iterator[tuple[str, str]]:
    defaults = type(section)()
    for name in section.__struct_fields__:
        value, variable = getattr(section, name), f"{prefix}__{name.upper()}"
        if isinstance(value, msgspec.Struct):
            yield from _variables(variable, value)
        elif value != getattr(defaults, name):
            yield variable, _text(value)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple) and any(isinstance(one, msgspec.Struct) for one in value):
        return msgspec.json.encode([_not_by_default(one) for one in value]).decode()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _not_by_default(section: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that are not as by default: an older release refuses a field that it does not know."""
    values = {field.name: (getattr(section, field.name), field.default) for field in msgspec.structs.fields(section)}
    return {name: value for name, (value, default) in values.items() if value != default}


NEWER_VARIABLES = (
    "SKEP_COMPUTE__REQUIRE_SIGNATURES",
    "SKEP_COMPUTE__EXCHANGE_DIRECTORY",
    "SKEP_COMPUTE__FAKE__COPY_DELAY",
    "SKEP_COMPUTE__IMAGES__BY_TICKET",
    "SKEP_NETWORKS__AUTO_ALLOCATED_CIDR",
    "SKEP_NETWORKS__KIND",
    "SKEP_NETWORKS__PORT",
    "SKEP_NETWORKS__QUOTA_PORT",
)
"""Settings that other releases do not know, and refuse."""


def _known_to_older(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in NEWER_VARIABLES}
