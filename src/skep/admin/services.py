"""What the admin API works with. Wiring builds one `AdminServices` per process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skep.admin.event_streams import EventStreams
from skep.admin.joining import Messaging, nobody_joins
from skep.audit.sources import Sources
from skep.database.engine import Database
from skep.database.of_cells import database_of
from skep.domain.actions import Over
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.errors import Conflict, NotFound
from skep.domain.ids import CellUuid, Incarnation, NodeUuid, ProjectId
from skep.domain.instances import Instance
from skep.domain.nested.aliases import DeviceAlias
from skep.http.request_limits import RequestLimits, RequestLimitSettings
from skep.neighbours.identity.base import IdentityService
from skep.neighbours.images.base import ImageService
from skep.neighbours.networks.base import NetworkPorts
from skep.neighbours.volumes.base import ServerVolumes
from skep.transport.base import Transport

CELL_SECONDS = 2.0
"""How long an operator's request waits for one cell."""


def _nothing_missing() -> Sequence[str]:
    return ()


def _nothing_keeps_it(_context: RequestContext, _server: Instance) -> str | None:
    return None


async def _none_runs_here(_cell: CellUuid) -> None:
    return


async def _no_new_cells(_name: str, _database_url: str, _transport_url: str) -> Cell:
    raise Conflict("This process cannot create cells.")


async def _no_moved_cells(_cell: Cell, _database_url: str | None, _transport_url: str | None) -> None:
    raise Conflict("This process cannot move cells.")


async def _nothing_to_refresh() -> None:
    return


@dataclass(frozen=True, slots=True)
class CellWork:
    """What only wiring can do with cells, for it knows how their databases and messaging are opened."""

    create: Callable[[str, str, str], Awaitable[Cell]] = _no_new_cells
    """Makes a cell by its name, the URL of its database and that of its NATS servers; empty ones follow from the
    configuration. Raises BadRequest, Conflict, StorageUnavailable."""
    move: Callable[[Cell, str | None, str | None], Awaitable[None]] = _no_moved_cells
    """Says that a cell is reached elsewhere; None leaves an address as it is. Raises as `create`."""
    refresh: Callable[[], Awaitable[None]] = _nothing_to_refresh
    """Takes changed rows of cells into use in this process."""


NO_CELL_WORK = CellWork()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminServices:
    """Everything that a handler of the admin API may need."""

    database: Database
    """The API database."""
    cells: Mapping[CellUuid, Database]
    """The database of each cell, cell0 among them."""
    names: Mapping[CellUuid, Cell]
    """The rows of the same cells. Both are live: cells come and go."""
    transport: Transport
    networks: NetworkPorts
    """Whose ports the audit compares with the rows of servers."""
    volumes: ServerVolumes
    """Likewise."""
    streams: EventStreams
    clock: Clock
    identity: IdentityService
    sees_server: Callable[[RequestContext, ProjectId], bool]
    """Whether the compute API would show a caller the servers of a project."""
    metrics: Callable[[], bytes]
    """Everything counted, in Prometheus' text format."""
    ended: Callable[[Iterable[Over]], None]
    """Tells of actions that are over with a repair."""
    openapi: Callable[[], Mapping[str, Any]]
    """The document of the compute API."""
    kept: Callable[[RequestContext, Instance], str | None] = _nothing_keeps_it
    """The rule by which a cold move that this caller asks for keeps the server in its cell; None: none does."""
    missing: Callable[[], Sequence[str]] = _nothing_missing
    """Parts of this process that are not ready yet, each a sentence; for `/readyz`."""
    owner: Incarnation | None = None
    """This run of the process, as its lease says."""
    runs_on: str = ""
    """The machine of this process."""
    fence_grace_seconds: float = 3600.0
    """How long a fence can be taken back."""
    stop_cell: Callable[[CellUuid], Awaitable[None]] = _none_runs_here
    """Stops what this process runs of a cell that is being removed."""
    cell_work: CellWork = NO_CELL_WORK
    messaging: Callable[[Cell, NodeUuid, str], Awaitable[Messaging]] = nobody_joins
    """What a new host of a cell is told of its messaging. It raises Misconfigured where none can join."""
    aliases: Mapping[str, DeviceAlias] = field(default_factory=dict)
    """What the names of devices in flavors mean, as to the compute API."""
    images: ImageService | None = None
    """Where dry runs find images; None: they know of none."""
    filters: Collection[str] = ()
    """Filters that the operator has chosen, as to the compute API: some hints are taken only where one reads them."""
    limits: RequestLimits = field(default_factory=lambda: RequestLimits(RequestLimitSettings()))
    """What each project, and each address without a token, may ask of the routes of users: one measure with the compute
    API."""
    audit_pause: float = 2.0
    """Seconds between the two looks of the audit: what only one of them saw was work under way."""

    @property
    def sources(self) -> Sources:
        """What an audit reads."""
        return Sources(
            api=self.database,
            cells=self.cells,
            names=self.names,
            transport=self.transport,
            networks=self.networks,
            volumes=self.volumes,
            ended=self.ended,
        )

    def cell(self, uuid: CellUuid) -> Database:
        """Return the database of a cell. Raises StorageUnavailable where this process does not know it."""
        return database_of(self.cells, uuid)

    def cell_name(self, uuid: CellUuid | str | None) -> str | None:
        """Return the name of a cell; its UUID where this process does not know it."""
        if uuid is None:
            return None
        cell = self.names.get(CellUuid(uuid))
        return cell.name if cell is not None else str(uuid)

    def cell_named(self, name: str) -> Cell:
        """Return the cell with this name (or UUID).

        Raises NotFound when there is none.
        """
        for cell in self.names.values():
            if name in (cell.name, cell.uuid):
                return cell
        raise NotFound(f"There is no cell {name[:80]!r}.")
