"""The cells that the API database knows, as a process above them reaches them: opened, moved and closed as rows change.

Nothing is restarted for a new cell, nor for one that goes. A cell that cannot be opened now is there all the same: what
asks its database is told that it cannot be reached, until it can.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from skep.config.sections import Config
from skep.database.api import cells as cell_rows
from skep.database.api.cells import Addresses
from skep.database.cell import identity
from skep.database.engine import Database
from skep.database.locations import Location, is_same, shown
from skep.database.opening import is_absent, prepare
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.errors import Misconfigured, SkepError, Unavailable
from skep.domain.ids import CellUuid
from skep.domain.live import LiveMapping
from skep.processes import addresses
from skep.processes.databases import Places
from skep.processes.directory import StateDirectory
from skep.processes.gated import GatedDatabase
from skep.processes.installation import refuse_other
from skep.processes.wiring import MEMORY, ProcessTransport, transport_at
from skep.reconciler.loop import Loop
from skep.super_conductor.parts import CellAccess
from skep.telemetry.logs import get_logger
from skep.telemetry.metrics import Metrics
from skep.transport.base import Transport

LOOK_SECONDS = 2.0
"""How long a change that another process made stays unnoticed."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
"""Seconds between two attempts to open a cell."""
START_SECONDS = 3.0
"""How long a start waits for cells that do not open at once."""
LEAVE_SECONDS = 5.0
"""How long what was opened of a cell that went or moved goes on for those who still work with it."""
OPENERS = 4
"""Cells that are looked at at once: one that hangs keeps a thread for some seconds."""

TransportMaker = Callable[[Cell, str], ProcessTransport | None]
"""Returns a cell's own transport, not opened yet, by the URL of its row; None: that of all."""

log = get_logger(__name__)


@dataclass(frozen=True)
class _Entry:
    cell: Cell
    addresses: Addresses
    location: Location | None
    """None where the row names none that can be used."""
    access: CellAccess
    gate: GatedDatabase | None
    """None for a database that was opened by somebody else, who closes it."""
    own_transport: ProcessTransport | None
    is_broken: bool = False
    """Whether it only stands for a cell that could not be entered."""

    @property
    def is_open(self) -> bool:
        """Whether its database may be used."""
        return self.gate is None or self.gate.trouble is None


class LiveCells:
    """Follows the rows of the cells between `start` and `close`; its mappings are live views by UUID, cell0 too."""

    def __init__(
        self,
        api: Database,
        places: Places,
        directory: StateDirectory,
        transport: Transport,
        *,
        make_transport: TransportMaker = lambda _cell, _url: None,
        opened: Mapping[str, Database] | None = None,
        upgrade: bool = False,
    ) -> None:
        """`opened`: databases by the cell's name that are open already. `upgrade`: older schemas are brought up."""
        self.places = places
        self.directory = directory
        self.api = api
        self._shared = transport
        self._make_transport = make_transport
        self._opened = opened or {}
        self._upgrade = upgrade
        self._clock = Clock()
        self._entries: dict[CellUuid, _Entry] = {}
        self._coming: dict[CellUuid, _Entry] = {}
        """What takes the place of an entry that goes on until this one is open: the same database, another sign-in."""
        self._broken: dict[CellUuid, str] = {}
        """Cells that could not be entered, with what went wrong."""
        self._accesses: dict[CellUuid, CellAccess] = {}
        self._databases: dict[CellUuid, Database] = {}
        self._names: dict[CellUuid, Cell] = {}
        self._by_name: dict[str, Database] = {}
        self.accesses: Mapping[CellUuid, CellAccess] = LiveMapping(lambda: self._accesses)
        self.databases: Mapping[CellUuid, Database] = LiveMapping(lambda: self._databases)
        self.names: Mapping[CellUuid, Cell] = LiveMapping(lambda: self._names)
        """The rows themselves."""
        self.by_name: Mapping[str, Database] = LiveMapping(lambda: self._by_name)
        self.on_change: Callable[[], None] = lambda: None
        """Called when a cell came, changed, went or could be opened."""
        self._turn = asyncio.Lock()
        self._opening: dict[CellUuid, asyncio.Task[None]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._hurry = asyncio.Event()
        self._threads = ThreadPoolExecutor(OPENERS, thread_name_prefix="cells")
        self._loop = Loop("cells", self._look, every=LOOK_SECONDS)

    async def start(self) -> None:
        """Open the cells that are there, and follow them; those that do not open soon are opened later.

        Raises StorageUnavailable when the API database cannot be read.
        """
        await self.refresh()
        await self.settle()
        self._loop.start()

    async def close(self) -> None:
        """Follow no longer, and close what was opened here."""
        await self._loop.stop()
        entries = (*self._entries.values(), *self._coming.values())
        self._entries, self._coming = {}, {}
        self._show()
        for entry in entries:
            self._leave(entry)
        self._hurry.set()
        while self._closing:
            await asyncio.wait(self._closing)
        self._threads.shutdown()

    def nudge(self) -> None:
        """Something changed: look at the rows soon."""
        self._loop.nudge()

    def trouble(self, uuid: CellUuid) -> str | None:
        """Return why a cell cannot be reached; None while it can, as far as is known."""
        entry = self._entries.get(uuid)
        if entry is None:
            return "this process does not know the cell"
        return None if entry.gate is None else entry.gate.trouble

    async def refresh(self) -> None:
        """Look at the rows now. Raises StorageUnavailable when they cannot be read."""
        async with self._turn:
            self._follow(dict(await self.api.read(cell_rows.located)))

    async def settle(self, seconds: float = START_SECONDS) -> None:
        """Wait until all cells have been opened, but not for long."""
        if self._opening:
            await asyncio.wait(self._opening.values(), timeout=seconds)

    async def _look(self) -> bool:
        await self.refresh()
        return False

    def _follow(self, rows: Mapping[Cell, Addresses]) -> None:
        entries: dict[CellUuid, _Entry] = {}
        before, self._coming = self._coming, {}
        new: set[int] = set()
        for cell, where in rows.items():
            known = self._entries.get(cell.uuid)
            if known is not None and _is_of(known, cell, where):
                entries[cell.uuid] = known if known.cell == cell else _renewed(known, cell)
                continue
            fresh = before.get(cell.uuid)
            if fresh is None or not _is_of(fresh, cell, where):
                fresh = self._entered(cell, where, known)
                if fresh is known:
                    entries[cell.uuid] = _renewed(known, cell)
                    continue
                new.add(id(fresh))
            goes_on = known is not None and known.is_open and _is_same_place(known.location, fresh.location)
            connects = id(fresh) in new and fresh.own_transport is not None
            if known is not None and goes_on and (connects or not self._is_ready(fresh)):
                self._coming[cell.uuid] = fresh
                entries[cell.uuid] = _renewed(known, cell)
            else:
                entries[cell.uuid] = fresh
        gone = [entry for entry in self._entries.values() if _is_other(entry, entries.get(entry.cell.uuid))]
        used = {id(entry) for entry in (*entries.values(), *self._coming.values())}
        gone += [entry for entry in before.values() if id(entry) not in used]
        if entries != self._entries:
            self._entries = entries
            self._show()
            self.on_change()
        for entry in gone:
            log.info("cell left", cell=entry.cell.name)
            self._leave(entry)
        for entry in (*entries.values(), *self._coming.values()):
            connects = id(entry) in new and entry.own_transport is not None
            if entry.cell.uuid not in self._opening and (connects or not entry.is_open) and not entry.is_broken:
                self._begin_opening(entry)

    def _is_ready(self, entry: _Entry) -> bool:
        """Whether its database and its messaging are open."""
        return entry.is_open and entry.cell.uuid not in self._opening

    def _show(self) -> None:
        """Put new mappings in the place of those that loops may be walking through."""
        entries = self._entries
        self._accesses = {uuid: entry.access for uuid, entry in entries.items()}
        self._databases = {uuid: entry.access.database for uuid, entry in entries.items()}
        self._names = {uuid: entry.cell for uuid, entry in entries.items()}
        self._by_name = {entry.cell.name: entry.access.database for entry in entries.values()}

    def _entered(self, cell: Cell, where: Addresses, known: _Entry | None) -> _Entry:
        """Return the entry of a cell, whatever is wrong with it: the other cells are followed all the same.

        The entry that is known goes on where what fails leaves no better one; the next look tries again.
        """
        location: Location | None = None
        try:
            location, url, trouble = self._found(cell, where)
            entry = self._enter(cell, where, location, url, trouble)
        except Exception as error:
            trouble = _shown(error)
            if self._broken.get(cell.uuid) != trouble:
                log.exception("cell not entered", cell=cell.name)
            self._broken[cell.uuid] = trouble
            if known is not None and known.is_broken:
                return known
            if known is not None and known.is_open and _is_same_place(known.location, location):
                return known
            gate = GatedDatabase(None, cell.name, trouble)
            transport = None if cell.is_cell0 else self._shared
            return _Entry(cell, where, None, CellAccess(cell, gate, transport), gate, None, is_broken=True)
        self._broken.pop(cell.uuid, None)
        return entry

    def _enter(self, cell: Cell, where: Addresses, location: Location | None, url: str, trouble: str) -> _Entry:
        gate: GatedDatabase | None = None
        database = self._opened.get(cell.name)
        if database is None or location is None or str(database.location) != str(location):
            gate = GatedDatabase(location, cell.name, trouble)
            database = gate
        own = None if cell.is_cell0 else self._make_transport(cell, url)
        transport = None if cell.is_cell0 else own or self._shared
        return _Entry(cell, where, location, CellAccess(cell, database, transport), gate, own)

    def _found(self, cell: Cell, where: Addresses) -> tuple[Location | None, str, str]:
        """Return where a cell's database is, the URL of its own NATS servers, and what is wrong with them."""
        try:
            location = self.places.of(cell.name, addresses.database_url(self.directory, where))
            return location, addresses.transport_url(self.directory, where), "it has not been opened yet"
        except Misconfigured as error:
            return None, "", str(error)

    def _begin_opening(self, entry: _Entry) -> None:
        uuid = entry.cell.uuid
        task = asyncio.create_task(self._open(entry), name=f"open {entry.cell.name}")
        self._opening[uuid] = task
        task.add_done_callback(partial(self._opened_or_left, uuid))

    def _opened_or_left(self, uuid: CellUuid, task: asyncio.Task[None]) -> None:
        if self._opening.get(uuid) is task:
            del self._opening[uuid]
            if uuid in self._coming:
                self.nudge()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("cell not opened", cell=str(uuid), exc_info=error)

    async def _open(self, entry: _Entry) -> None:
        parts = []
        if entry.gate is not None:
            parts.append(self._open_database(entry, entry.gate))
        if entry.own_transport is not None:
            parts.append(self._connect(entry.cell, entry.own_transport))
        await asyncio.gather(*parts)

    async def _open_database(self, entry: _Entry, gate: GatedDatabase) -> None:
        """Look at the database until it may be used."""
        pause = FIRST_PAUSE
        while entry.location is not None:
            try:
                loop = asyncio.get_running_loop()
                await loop.run_in_executor(self._threads, partial(self._see_fit, gate, entry.cell))
                whose = await gate.claim(partial(identity.claim, cell=entry.cell, now=self._clock.now()))
                refuse_other(gate, entry.cell, whose)
            except SkepError as error:
                if gate.refuse(str(error)):
                    log.warning("cell not opened", cell=entry.cell.name, error=str(error))
            except Exception as error:
                if gate.refuse(_shown(error)):
                    log.exception("cell not opened", cell=entry.cell.name)
            else:
                gate.admit()
                log.info("cell opened", cell=entry.cell.name, database=shown(entry.location))
                self.on_change()
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _see_fit(self, database: Database, cell: Cell) -> None:
        """Blocks. Raises Misconfigured, StorageUnavailable."""
        if is_absent(database.location):
            # An empty one in its place would look like a cell without servers, whose guests run on unseen.
            raise Misconfigured(f"its database {shown(database.location)} is missing: restore it from a backup")
        prepare(database, cell.name, upgrade=self._upgrade)

    async def _connect(self, cell: Cell, transport: ProcessTransport) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                return await transport.open()
            except (Unavailable, Misconfigured) as error:
                log.warning("messaging of a cell not open yet", cell=cell.name, error=str(error))
            except Exception:
                log.exception("messaging of a cell not open yet", cell=cell.name)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _leave(self, entry: _Entry) -> None:
        opening = self._opening.pop(entry.cell.uuid, None)
        if opening is not None:
            opening.cancel()
        closing = asyncio.create_task(self._close(entry, opening), name=f"close {entry.cell.name}")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _close(self, entry: _Entry, opening: asyncio.Task[None] | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._hurry.wait()
        if opening is not None:
            await asyncio.wait({opening})
        if entry.gate is not None:
            entry.gate.refuse("it was removed or moved")
            await entry.gate.close()
        if entry.own_transport is not None:
            await entry.own_transport.close()


def _renewed(entry: _Entry, cell: Cell) -> _Entry:
    return replace(entry, cell=cell, access=replace(entry.access, cell=cell))


def _is_of(entry: _Entry, cell: Cell, where: Addresses) -> bool:
    return not entry.is_broken and (entry.cell.name, entry.addresses) == (cell.name, where)


def _is_same_place(one: Location | None, other: Location | None) -> bool:
    """Whether two locations are those of the same database, whoever signs in to it."""
    return one is not None and other is not None and is_same(one, other)


def _shown(error: Exception) -> str:
    return str(error) if isinstance(error, SkepError) else f"it failed with {type(error).__name__}"


def _is_other(before: _Entry, after: _Entry | None) -> bool:
    """Whether something that an entry has opened is used no longer."""
    return (
        after is None
        or after.access.database is not before.access.database
        or after.own_transport is not before.own_transport
    )


def own_transports(config: Config, metrics: Metrics, name: str) -> TransportMaker:
    """Return what makes a process's transport to a cell with NATS servers of its own, by its row or its configuration.

    `name` is what NATS' monitoring calls the process.
    """
    configured = {cell.name: cell.transport_url for cell in config.cells}

    def make(cell: Cell, url: str) -> ProcessTransport | None:
        wanted = url or configured.get(cell.name, "")
        if not wanted or config.transport.kind == MEMORY:
            return None
        return transport_at(config, wanted, metrics, name)

    return make
