"""The cloud of `skep up --processes`: NATS, PostgreSQL and every role beside each other, looked after from here."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import httpx
from msgspec.structs import replace

from skep.config.loading import FILE_VARIABLE
from skep.config.sections import CellSettings, Config
from skep.config.whole import with_networks
from skep.database.api import cells as cell_rows
from skep.database.engine import Database
from skep.database.locations import Location
from skep.database.opening import open_database
from skep.domain.cells import Cell
from skep.domain.errors import Misconfigured, Unavailable
from skep.processes.databases import Places
from skep.processes.directory import StateDirectory, write_private
from skep.processes.http_services import HttpServices
from skep.processes.installation import (
    CELL0_NAME,
    choose_cells,
    choose_hosts,
    known_cells,
    open_installation,
    placed,
    renew_addresses,
)
from skep.processes.notifying import check_notifications
from skep.processes.ports import free_ports
from skep.processes.process import new_process
from skep.processes.seeds import PLAIN_IMAGE
from skep.processes.stopping import stop_part
from skep.processes.supervisor.child import Child, ChildTask
from skep.processes.supervisor.hosts_apart import HostsApart, loopback_ports, open_hosts, with_external_network
from skep.processes.supervisor.plan import ProcessNumbers, orders_above, orders_inside, settings_above
from skep.processes.supervisor.real_hosts import (
    HOSTS,
    check_machine,
    has_real_hosts,
    host_settings,
    tiny_image,
    where_guests_are,
)
from skep.processes.supervisor.servers import LocalServers
from skep.processes.supervisor.ways_out import find_way_out
from skep.processes.wiring import MEMORY
from skep.reconciler.loop import Loop
from skep.telemetry.logs import get_logger

ANSWER_SECONDS = 120.0
"""How long the first API process may take until it serves, on a machine that starts many others meanwhile."""
POLL_SECONDS = 0.1
LOOK_SECONDS = 2.0
"""How long a cell that was made or deleted stays unnoticed."""

NOT_FOR_ALL = (
    *("SKEP_DATABASE__API_URL", "SKEP_DATABASE__CELL0_URL", "SKEP_CELLS", "SKEP_SYNCHRONIZER__URL"),
    "SKEP_NOTIFICATIONS__TRANSPORT_URL",
)
"""Variables that hold what some roles must not know."""

log = get_logger(__name__)


class SupervisedCloud:
    """All processes of one cloud. What NATS and PostgreSQL are not configured is started here, and kept."""

    def __init__(
        self,
        config: Config,
        numbers: ProcessNumbers,
        *,
        cells: int | None = None,
        hosts: int | None = None,
        config_file: Path | None = None,
        apart: type[HostsApart] = HostsApart,
    ) -> None:
        """Take the cells and hosts of each cell that a new installation shall have; an old one may get more.

        `config_file` is where the configuration was read from: the children read it too. `apart`: what hosts with
        networks of their own have.
        """
        self.config = config = with_networks(config)
        self.numbers = numbers
        self._config_file = config_file
        self._kind = apart
        self.cells = cells
        self.hosts = hosts
        self.directory = StateDirectory(Path(config.state.directory).absolute())
        self.notes: list[str] = []
        """What differs from what was asked for, one line each."""
        self.first_start = False
        self.passwords: dict[str, str] = {}
        """Of the users that this start made; told once."""
        self.api_url = ""
        self.api_urls: tuple[str, ...] = ()
        """Of all API processes, the first's first."""
        self.identity_url = ""
        self.images_url = ""
        self.networks_url = ""
        """Empty: the network service is not the embedded one."""
        self.metadata_url: str | None = None
        """Address of the metadata service; None: the configuration has no proxy that could ask it."""
        self.servers: LocalServers | None = None
        self.children: dict[str, Child] = {}
        """By name, in the order in which they were started."""
        self._running = config
        """The configuration with every database and server."""
        self._known: dict[str, Cell] = {}
        """The cells whose children run, by name."""
        self._cells_kept = Loop("cells", self._keep_cells, every=LOOK_SECONDS)
        self._api: Database | None = None
        """In which cells come and go: one connection that stays, for a new one costs more than the look."""
        self._lock: int | None = None
        self._apart: HostsApart | None = None
        """Where hosts with networks are; None: all is in the namespaces of this process."""
        self._way_out: Mapping[str, object] = {}
        """What the drivers of hosts are told of it, where their guests have one in user mode."""
        self._loopback_ports: tuple[int, ...] = ()
        """What hosts reach of this cloud."""

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
        """The fake hosts whose agents were started."""
        agents = [child.order.name for child in self.children.values() if child.order.role == "compute"]
        return frozenset(name.removeprefix("compute-") for name in agents)

    def inside(self, host: str) -> str:
        """Return how the names of a host's network namespaces begin, where the host is in one itself; else nothing."""
        return "" if self._apart is None else self._apart.inside(host)

    @property
    def admin_password(self) -> str | None:
        """The first password of `admin`, at the first start only."""
        return self.passwords.get("admin")

    @property
    def logs(self) -> Path:
        """Where each child has its log."""
        return self.directory.root / "logs"

    async def start(self) -> None:
        """Start everything, and return once the API says how it is.

        Raises Misconfigured when the directory, a port, a program or a setting cannot be used; nothing runs then.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the roles from the outside inwards, then the servers; all is kept."""
        await self._cells_kept.stop()
        if self._api is not None:
            await stop_part("database api", self._api.close())
            self._api = None
        for role in ("metadata", "api", "super-conductor", "compute", "cell-conductor", "scheduler"):
            mine = [child for child in self.children.values() if child.order.role == role]
            await asyncio.gather(*(stop_part(child.order.name, child.stop()) for child in mine))
        self.children = {}
        if self._apart is not None:
            await stop_part("networks of hosts", self._apart.stop())
            self._apart = None
        if self.servers is not None:
            await stop_part("servers", self.servers.stop())
            self.servers = None
        self.directory.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def _start(self) -> None:
        if has_real_hosts(self.config):
            check_machine()
        elsewhere = where_guests_are(self.config, self.directory.root)
        self._hold()
        self._apart, why_not = await asyncio.to_thread(open_hosts, self.config, self.directory, self._kind)
        self._way_out, way_out = await asyncio.to_thread(find_way_out, self.config, self.directory)
        self.notes += [note for note in (why_not, way_out, elsewhere) if note]
        check_notifications(self.config)
        config = await self._with_servers()
        config = config if self._apart is None else with_external_network(config)
        config, names = await self._with_cells(config)
        found, ports = await self._make(config, names)
        if config.metadata.service_metadata_proxy:
            port = config.metadata.port or free_ports(config.api.bind_host, 1)[0]
            ports = {**ports, "metadata": port}
            self.metadata_url = f"http://{config.api.bind_host}:{port}"
        self._running = config
        self._loopback_ports = loopback_ports(config, ports)
        self.logs.mkdir(exist_ok=True)
        self._write_settings(config)
        api_ports = [ports["api"], *free_ports(config.api.bind_host, self.numbers.api - 1)]
        self.api_urls = tuple(self.api_url.replace(f":{ports['api']}/", f":{port}/") for port in api_ports)
        self._launch(orders_above(config, self.numbers, ports, api_ports, self.identity_url))
        for cell in found:
            await self._launch_cell(config, cell)
        await self._until_answered()
        self._api = await open_database("api", Places(config, self.directory).api, upgrade=False)
        self._cells_kept.start()

    def _launch(self, orders: Sequence[ChildTask]) -> None:
        environment = self._environment()
        for order in orders:
            child = Child(order, environment, self.logs, self.config.process.drain_seconds)
            self.children[order.name] = child
            child.start()

    async def _launch_cell(self, config: Config, cell: Cell) -> None:
        hosts = self._hosts(cell.name)
        if self._apart is not None:
            # A cell whose hosts could not be made is not known yet, so it is tried again.
            for host in hosts:
                await self._apart.add(host, self._loopback_ports)
        self._known[cell.name] = cell
        if self._apart is not None:
            settings = partial(self._apart.settings, config, metadata_url=self.metadata_url)
            self._launch(orders_inside(config, self.numbers, cell, hosts, settings, self._apart.within))
        elif has_real_hosts(config):
            way_out, url = self._way_out, self.metadata_url
            settings = partial(host_settings, config, self.directory, options=way_out, metadata_url=url)
            self._launch(orders_inside(config, self.numbers, cell, hosts, settings))
        else:
            self._launch(orders_inside(config, self.numbers, cell, hosts))

    async def _keep_cells(self) -> bool:
        """Start the children of cells that came, stop those of cells that went."""
        assert self._api is not None
        rows = await self._api.read(cell_rows.located, within=LOOK_SECONDS)
        there = placed(rows, Places(self._running, self.directory), self.directory)
        for name in self._known.keys() - there.keys():
            log.info("cell left", cell=name)
            del self._known[name]
            mine = [child for child in self.children.values() if child.order.cell == name]
            await asyncio.gather(*(stop_part(child.order.name, child.stop()) for child in mine))
            self.children = {key: child for key, child in self.children.items() if child not in mine}
        for name, known in there.items():
            if name not in self._known and name != CELL0_NAME:
                log.info("cell added", cell=name)
                settings = CellSettings(name=name, database_url=url_of(known.location))
                await self._launch_cell(replace(self._running, cells=(settings,)), known.cell)
        return False

    def _hold(self) -> None:
        """Hold the directory: API processes share it with us, nobody else starts such a cloud on it."""
        self.directory.open(shared=True, passed=self._has_own_servers and os.geteuid() == 0)
        self.notes += self.directory.notes()
        self._lock = os.open(self.directory.root / "supervisor.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Misconfigured(f"state directory {self.directory.root} is in use by another process of Skep") from None
        file = Places(self.config, self.directory).api
        if isinstance(file, Path) and file.is_file():
            raise Misconfigured(
                f"the cloud in {self.directory.root} runs in one process, over {file}: start it by `skep up`, or "
                "choose another directory (SKEP_STATE__DIRECTORY) for one of many processes"
            )

    @property
    def _has_own_servers(self) -> bool:
        """Whether the configuration leaves out a server, which is started here then."""
        config = self.config
        return not config.database.api_url or MEMORY in (config.transport.kind, config.synchronizer.backend)

    async def _with_servers(self) -> Config:
        """Start the servers that are not configured; return the configuration with where they are."""
        config = self.config
        own_database, own_messaging = not config.database.api_url, config.transport.kind == MEMORY
        if self._has_own_servers:
            self.servers = LocalServers(self.directory.servers)
            if not self.servers.postgres_folder.is_relative_to(self.directory.root):
                self.notes.append(
                    f"PostgreSQL, which does not run as root, keeps its data in {self.servers.postgres_folder}: nobody "
                    f"else can get to {self.directory.root}"
                )
            await self.servers.start()
            nats = {"url": self.servers.nats_url, "sign_in_file": str(self.servers.nats_sign_in)}
            if own_messaging:
                config = replace(config, transport=replace(config.transport, kind="nats", **nats))
            if config.synchronizer.backend == MEMORY:
                config = replace(config, synchronizer=replace(config.synchronizer, backend="nats", **nats))
            if own_database:
                for name in ("api", CELL0_NAME):
                    await self.servers.make_database(name)
                above = replace(
                    config.database,
                    api_url=self.servers.database_url("api"),
                    cell0_url=self.servers.database_url(CELL0_NAME),
                )
                config = replace(config, database=above)
        return replace(config, scheduler=replace(config.scheduler, embedded=False))

    async def _with_cells(self, config: Config) -> tuple[Config, Sequence[str]]:
        """Choose the cells, and give those a database of their own that have none."""
        places = Places(config, self.directory)
        if self.servers is not None:
            renewed = self.servers.renewed_database_url, self.servers.renewed_nats_url
            await asyncio.to_thread(renew_addresses, places, self.directory, *renewed)
        there = await asyncio.to_thread(known_cells, places, self.directory)
        known = [name for name in there if name != CELL0_NAME]
        chosen = choose_cells(known, [cell.name for cell in config.cells], self.cells)
        self.notes += chosen.notes
        settings = {cell.name: cell for cell in config.cells}
        for name in chosen.names:
            cell = settings.get(name) or CellSettings(name=name)
            if name in there and is_elsewhere(there[name].location):
                cell = replace(cell, database_url=url_of(there[name].location))
            elif not cell.database_url and self.servers is not None:
                await self.servers.make_database(name)
                cell = replace(cell, database_url=self.servers.database_url(name))
            elif self.servers is not None:
                url = await asyncio.to_thread(self.servers.renewed_database_url, cell.database_url)
                transport = self.servers.renewed_nats_url(cell.transport_url)
                cell = replace(cell, database_url=url, transport_url=transport)
            settings[name] = cell
        return replace(config, cells=tuple(settings.values())), chosen.names

    async def _make(self, config: Config, names: Sequence[str]) -> tuple[tuple[Cell, ...], Mapping[str, int]]:
        """Make schemas and what a new cloud needs; return the cells, and the ports that the first API process takes."""
        databases, notes = await open_installation(config, self.directory, None)
        self.notes += [note for note in notes if note not in self.notes]
        http: HttpServices | None = None
        try:
            http = HttpServices(new_process(config), self.directory)
            await http.open(databases.api)
            image = tiny_image(config.images.first_image) if has_real_hosts(config) else PLAIN_IMAGE
            self.passwords = await http.seed(image)
            self.first_start = bool(self.passwords)
            self.directory.seal()
            self.api_url, self.identity_url = http.api_url, http.identity_url
            self.images_url, self.networks_url = http.images_url, http.networks_url
            cells = await databases.api.read(cell_rows.every)
            return tuple(cell for cell in cells if cell.name in names), http.ports
        finally:
            if http is not None:
                await http.stop()
            await databases.close()

    def _hosts(self, cell: str) -> tuple[str, ...]:
        default = HOSTS if has_real_hosts(self.config) else self.config.compute.fake.hosts
        hosts = choose_hosts(cell, self.directory.hosts(cell), self.hosts, default)
        self.notes += hosts.notes
        return hosts.names

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in NOT_FOR_ALL}
        if self._config_file is not None:
            kept[FILE_VARIABLE] = str(self._config_file.absolute())
        return kept | {"SKEP_STATE__DIRECTORY": str(self.directory.root)}

    def _write_settings(self, config: Config) -> None:
        """Write what other commands need to reach the same databases and servers, as variables for a shell."""
        variables = (*settings_above(config), ("SKEP_STATE__DIRECTORY", str(self.directory.root)))
        lines = [f"export {name}={shlex.quote(value)}" for name, value in variables]
        write_private(self.directory.processes_env, ("\n".join(lines) + "\n").encode())

    async def _until_answered(self) -> None:
        """Wait until the first API process serves. Raises Unavailable with the end of its log."""
        url = self.api_url.removesuffix("v2.1")
        first = next(child for child in self.children.values() if child.order.role == "api")
        end = asyncio.get_running_loop().time() + ANSWER_SECONDS
        async with httpx.AsyncClient(trust_env=False, timeout=2.0) as client:
            while not await _serves(client, url):
                if asyncio.get_running_loop().time() > end:
                    raise Unavailable(f"the API does not answer; {first.log} ends:\n{first.tail()}")
                await asyncio.sleep(POLL_SECONDS)


async def _serves(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).status_code != httpx.codes.SERVICE_UNAVAILABLE
    except httpx.TransportError:
        return False


def url_of(location: Location) -> str:
    """Return a database's SQLAlchemy URL."""
    return f"sqlite:///{location}" if isinstance(location, Path) else location


def is_elsewhere(location: Location) -> bool:
    """Tell whether a cell has a database of its own that was not made here: by its row, or a file that is there."""
    return not isinstance(location, Path) or location.is_file()
