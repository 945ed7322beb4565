"""What the stories of the super conductor share: databases, messaging, time, and who they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from skep.audit.sources import Sources
from skep.config.sections import ConductorSettings
from skep.database import Connection
from skep.database.engine import Database, T, Unit
from skep.domain.cells import Cell
from skep.domain.clock import SECOND, Clock
from skep.domain.errors import SkepError, StorageUnavailable
from skep.domain.ids import CellUuid, Incarnation
from skep.domain.live import LiveMapping
from skep.domain.request_specs import RequestSpec
from skep.domain.timelines import Moment, later
from skep.messages.to_cell_conductor import InstancesChanged, Work
from skep.neighbours.networks.absent import NoNetworks
from skep.neighbours.networks.base import NetworkPorts
from skep.neighbours.volumes.absent import NoVolumes
from skep.neighbours.volumes.base import ServerVolumes
from skep.reconciler.lease import Time
from skep.telemetry import endings
from skep.telemetry.clock_watch import Told, ignore
from skep.telemetry.logs import get_logger
from skep.telemetry.notifier import Notifier
from skep.telemetry.steps import Steps
from skep.transport.base import Transport, cell_conductor

log = get_logger(__name__)

CELL_SECONDS = 2.0
"""How long the level above waits for one answer of a cell's database."""


def keeps_sealed(_sealed: bytes) -> bytes | None:
    """Open nothing: the process has no key."""
    return None


def _no_images() -> str:
    return ""


@dataclass(frozen=True)
class CellAccess:
    """A cell as the level above reaches it: its database, and its messaging."""

    cell: Cell
    database: Database
    transport: Transport | None
    """None for cell0, where nobody listens."""

    async def write(self, unit: Unit[T]) -> T:
        """Write in the cell.

        Raises StorageUnavailable when it does not answer soon, and at once while it is silent: one slow cell must not
        hold up the others. What it stores later all the same is fenced by its attempt.
        """
        return await self.database.write(unit, within=CELL_SECONDS)

    async def read(self, unit: Unit[T]) -> T:
        """Read in the cell. Raises StorageUnavailable as `write` does."""
        return await self.database.read(unit, within=CELL_SECONDS)


@dataclass
class Latest:
    """What one story of the super conductor found out and others use."""

    epoch: str | None = None
    """The epoch of the host states a moment ago."""


@dataclass(frozen=True)
class Parts:
    """Everything that a story of the super conductor works with."""

    owner: Incarnation
    api: Database
    cells: Mapping[CellUuid, CellAccess]
    """cell0 too. Cells come and go: what a loop has seen may be gone when it is looked up, see `cell`."""
    transport: Transport
    clock: Clock
    steps: Steps
    notifier: Notifier
    settings: ConductorSettings
    networks: NetworkPorts = field(default_factory=NoNetworks)
    look_seconds: float = 3600.0
    """Between two looks at the interfaces of a server, where others may change them untold."""
    volumes: ServerVolumes = field(default_factory=NoVolumes)
    volume_seconds: float = 600.0
    """In which the volumes of a server have to be made."""
    volume_look_seconds: float = 3600.0
    """Between two looks at the volumes of a server."""
    reimage_seconds_per_gb: float = 20.0
    """In which a volume has to be filled anew, for each GiB of the image."""
    volumes_in_zone: bool = False
    """Whether volumes are made in the availability zones of their servers."""
    max_attempts: int = 3
    max_cells: int = 2
    judges_disabled: bool = True
    """Whether placement leaves out hosts that are disabled or down: the operator chooses its filters."""
    runs_on: str = ""
    """Where this process runs, as lists of services say."""
    on_clock: Told = ignore
    """Is told by how many seconds this process' clock is ahead of the database's."""
    unseal: Callable[[bytes], bytes | None] = keeps_sealed
    """Opens what the API has sealed of a server; None where this process has not its key."""
    seal: Callable[[bytes], bytes | None] = keeps_sealed
    """Seals by the API's key; None where this process has not its key."""
    images_url: Callable[[], str] = _no_images
    """Address of Skep's own image service, without `/v2`; empty: there is none."""
    latest: Latest = field(default_factory=Latest)
    time: Time | None = None
    """The time of the API database."""
    busy: Callable[[], int] = field(default=lambda: 0)
    """Requests of users under way in this process: building makes room for them."""
    _put_off: set[tuple[str, str]] = field(default_factory=set)
    """Work and cell: what could not be done the last time."""

    @property
    def sources(self) -> Sources:
        """What an audit reads."""
        return Sources(
            api=self.api,
            cells=LiveMapping(lambda: {uuid: access.database for uuid, access in self.cells.items()}),
            names=LiveMapping(lambda: {uuid: access.cell for uuid, access in self.cells.items()}),
            transport=self.transport,
            networks=self.networks,
            volumes=self.volumes,
            ended=partial(endings.ended, self.steps.metrics, self.notifier),
        )

    def takes_disabled(self, spec: RequestSpec) -> bool:
        """Tell whether a server may go to a disabled host: an administrator named it, or no filter looks at that."""
        return not self.judges_disabled or spec.forced_host is not None or spec.forced_node is not None

    def advance(self, connection: Connection) -> Moment | None:
        """Raise the tick of the API database with what is written there: who remembers it knows that it was.

        A database that went back in time begins to recover before the rest of the unit is written.
        """
        return None if self.time is None else self.time.advance(connection, self.owner, self.clock.now())

    def advanced(self, moment: Moment | None) -> None:
        """Remember what `advance` returned, once it is committed."""
        if self.time is not None:
            self.time.moment = later(self.time.moment, moment)

    def cell(self, uuid: CellUuid) -> CellAccess:
        """Return a cell by what a decision or a row says of it.

        Raises StorageUnavailable when this process was not told of it (yet): cells come and go.
        """
        access = self.cells.get(uuid)
        if access is None:
            raise StorageUnavailable(f"this process does not know cell {uuid}")
        return access

    def after(self, seconds: float) -> int:
        """Return the time `seconds` from now, in microseconds."""
        return self.clock.now() + round(seconds * SECOND)

    @property
    def silent(self) -> tuple[CellUuid, ...]:
        """Cells whose database did not answer lately: nothing new goes there."""
        return tuple(cell for cell, access in self.cells.items() if not access.database.answers)

    async def in_each_cell(self, what: str, work: Callable[[CellAccess], Awaitable[bool]]) -> bool:
        """Do some of the same work in all cells at once; True when there is more to do in one.

        A cell in which it cannot be done does not keep it from the others. It is said once until it can.
        """
        return any(await asyncio.gather(*(self._in_cell(what, work, access) for access in list(self.cells.values()))))

    async def _in_cell(self, what: str, work: Callable[[CellAccess], Awaitable[bool]], access: CellAccess) -> bool:
        name = access.cell.name
        try:
            more = await work(access)
        except SkepError as error:
            if (what, name) not in self._put_off:
                self._put_off.add((what, name))
                log.warning("work in a cell put off", work=what, cell=name, error=str(error))
            return False
        except Exception:
            log.exception("work in a cell failed", work=what, cell=name)
            return False
        self._put_off.discard((what, name))
        return more

    async def nudge(self, cell: CellUuid, *work: Work) -> None:
        """Tell a cell's conductors that rows of theirs wait, for any work unless it is named.

        It is a hint: they look by themselves too.
        """
        access = self.cells.get(cell)
        if access is None or access.transport is None:
            return
        try:
            await access.transport.cast(cell_conductor(cell), InstancesChanged(work=work))
        except SkepError as error:
            log.warning("cell conductor not notified", cell=access.cell.name, error=str(error))
