"""What an installation has already: the cells of its API database and the hosts of its state directory.

A start never makes them fewer. What it is asked for is added; what is there is started whether it is asked for or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from skep.config.sections import Config
from skep.database import Connection
from skep.database.api import cells as cell_rows
from skep.database.cell import identity
from skep.database.engine import Database
from skep.database.locations import Location, shown
from skep.database.opening import looking_at, open_database, revision_of
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.errors import Misconfigured, StorageUnavailable
from skep.domain.ids import CELL0, CellUuid, new_uuid
from skep.processes import addresses
from skep.processes.databases import Databases, Places
from skep.processes.directory import StateDirectory

CELL0_NAME = "cell0"
NEW_CELLS = 2
"""Cells of a new installation that says nothing of them."""


@dataclass(frozen=True)
class KnownCell:
    """A cell that the API database knows."""

    cell: Cell
    location: Location


@dataclass(frozen=True)
class Cells:
    """Which cells a start has."""

    names: tuple[str, ...]
    """All but cell0: those that are there, then those that are added."""
    notes: tuple[str, ...] = ()
    """What differs from what was asked for, one line each."""


def choose_cells(
    known: Sequence[str], configured: Sequence[str], count: int | None, taken: Collection[str] = ()
) -> Cells:
    """Return the cells to start: every known one, every configured one, and new ones up to `count`.

    `taken` are names that no new cell may get, because something of another cell stands under them.
    """
    if configured:
        return _with_configured(known, configured)
    wanted = count if count is not None else len(known) or NEW_CELLS
    if wanted < len(known):
        there = ", ".join(known)
        return Cells(tuple(known), (f"the installation has {len(known)} cells, all stay: {there}",))
    free = (name for name in map("cell{}".format, range(1, 2**31)) if name not in {*known, *taken})
    return Cells((*known, *(next(free) for _ in range(wanted - len(known)))))


def _with_configured(known: Sequence[str], configured: Sequence[str]) -> Cells:
    notes = tuple(
        f"cell {name} is not in the configuration and stays, its servers are there; "
        f"`skep cell disable {name}` keeps new ones away, `skep cell delete {name}` removes it once it is empty"
        for name in known
        if name not in configured
    )
    return Cells((*known, *(name for name in configured if name not in known)), notes)


def known_cells(places: Places, directory: StateDirectory) -> dict[str, KnownCell]:
    """Return the cells, cell0 too, that the API database knows; it may be of an older release, or not there. Blocks.

    Raises Misconfigured when it is no database, StorageUnavailable when it cannot be reached now.
    """
    if revision_of(places.api) is None:
        return {}
    with _above(places) as connection:
        rows = cell_rows.located_in_any_release(connection)
    return placed(rows, places, directory)


def placed(
    rows: Iterable[tuple[Cell, cell_rows.Addresses]], places: Places, directory: StateDirectory
) -> dict[str, KnownCell]:
    """Return cells by name, with where their databases are. Raises Misconfigured for a URL of no database."""
    return {
        cell.name: KnownCell(cell, places.of(cell.name, addresses.database_url(directory, where)))
        for cell, where in rows
    }


def renew_addresses(
    places: Places, directory: StateDirectory, database_url: Callable[[str], str], transport_url: Callable[[str], str]
) -> tuple[str, ...]:
    """Put into the rows of the cells what these return for their URLs; return the names of those that changed. Blocks.

    For servers that take other passwords or ports than before; nothing else runs meanwhile. Raises as `known_cells`.
    """
    if revision_of(places.api) is None:
        return ()
    changed: list[str] = []
    with _above(places) as connection:
        for cell, where in cell_rows.located_in_any_release(connection):
            if where == cell_rows.NOWHERE:
                continue
            before = addresses.database_url(directory, where), addresses.transport_url(directory, where)
            after = database_url(before[0]), transport_url(before[1])
            if after != before:
                cell_rows.move(connection, cell.uuid, addresses.to_store(directory, *after))
                changed.append(cell.name)
    return tuple(changed)


@contextmanager
def _above(places: Places) -> Iterator[Connection]:
    """A transaction in the API database, which may be of another release. Raises Misconfigured when it is none."""
    try:
        with looking_at(places.api) as connection:
            yield connection
    except StorageUnavailable as error:
        raise Misconfigured(f"{shown(places.api)}: {error}") from error


async def open_installation(
    config: Config, directory: StateDirectory, count: int | None, *, upgrade: bool = True
) -> tuple[Databases, tuple[str, ...]]:
    """Open every database of an installation, making those of cells that are new; return them and what to say.

    A known cell whose database cannot be reached now is not among them. Without `upgrade` older schemas are refused.
    Raises Misconfigured when a database that belongs to it is missing or belongs to another one, StorageUnavailable
    when the API database cannot be reached.
    """
    places = Places(config, directory)
    there = await asyncio.to_thread(known_cells, places, directory)
    known = [name for name in there if name != CELL0_NAME]
    taken = [name for name in places.files() if name != "api"]
    chosen = choose_cells(known, [cell.name for cell in config.cells], count, taken if known else ())
    locations = {name: places.of(name) for name in ("api", CELL0_NAME, *chosen.names)}
    locations |= {name: one.location for name, one in there.items()}
    await asyncio.to_thread(refuse_missing, locations, there)
    is_new = await asyncio.to_thread(revision_of, locations["api"]) is None
    opened = {"api": await open_database("api", locations.pop("api"), upgrade=upgrade or is_new)}
    notes = list(chosen.notes)
    try:
        for name, location in locations.items():
            is_known = name in there
            try:
                opened[name] = await open_database(name, location, upgrade=upgrade or not is_known)
            except StorageUnavailable as error:
                if not is_known:
                    raise
                notes.append(f"cell {name} is away and joins when it is back: {error}")
                continue
            await _settle(opened, name, there.get(name))
    except BaseException:
        for database in opened.values():
            await database.close()
        raise
    return Databases(api=opened.pop("api"), cells=opened), tuple(notes)


async def _settle(opened: Mapping[str, Database], name: str, known: KnownCell | None) -> None:
    """Write down whose database it is, below and above. Raises Misconfigured when it is another cell's."""
    database, now = opened[name], Clock().now()
    if known is None:
        cell = await begin_cell(database, name)
        await opened["api"].write(partial(cell_rows.add, cell=cell, now=now))
        return
    whose = await database.write(partial(identity.claim, cell=known.cell, now=now))
    refuse_other(database, known.cell, whose)


async def begin_cell(database: Database, name: str) -> Cell:
    """Make an empty database that of a new cell; what a broken start began is gone on with.

    Raises Misconfigured for the database of another cell, or of one that the API database does not know.
    """
    uuid = CELL0 if name == CELL0_NAME else CellUuid(new_uuid())
    whose = await database.write(partial(_begin, cell=Cell(uuid=uuid, name=name), now=Clock().now()))
    if whose is None:
        raise Misconfigured(
            f"the database {shown(database.location)} holds servers of a cell {name} that the API database does not "
            "know: restore the API database that belongs to it, or move the file away to begin the cell anew"
        )
    if whose.name != name:
        raise Misconfigured(
            f"the database {shown(database.location)} is that of cell {whose.name} ({whose.uuid}), "
            f"not of a new cell {name}"
        )
    return whose


def _begin(connection: Connection, cell: Cell, now: int) -> Cell | None:
    whose = identity.read(connection)
    if whose is not None and whose.name != cell.name:
        return whose
    if identity.holds_servers(connection):
        return None
    return identity.claim(connection, cell, now)


def refuse_other(database: Database, cell: Cell, whose: Cell) -> None:
    """Raise Misconfigured when a database is not that of `cell`."""
    if (whose.uuid, whose.name) != (cell.uuid, cell.name):
        raise Misconfigured(
            f"the database {shown(database.location)} is that of cell {whose.name} ({whose.uuid}), "
            f"not of {cell.name} ({cell.uuid})"
        )


async def cell_named(database: Database, name: str) -> Cell:
    """Return the cell of this name, to which the database belongs.

    Raises StorageUnavailable until the level above has written down whose it is, Misconfigured when it is another's.
    """
    cell = await database.read(identity.read)
    if cell is None:
        raise StorageUnavailable("no cell is stored in the database yet: run `skep cell create`")
    if cell.name != name:
        raise Misconfigured(
            f"the database {shown(database.location)}, configured for cell {name}, is that of cell {cell.name} "
            f"({cell.uuid}): correct its URL or --cell"
        )
    return cell


def refuse_missing(locations: Mapping[str, Location], known: Collection[str]) -> None:
    """See that no database is missing that the installation has. Blocks. One that cannot be reached is not missing.

    An empty one in its place would look like a cloud without servers, whose guests run on unseen. Raises Misconfigured.
    """
    if not known:
        left = [f"{name} ({shown(place)})" for name, place in locations.items() if name != "api" and _is_made(place)]
        if left and not _is_made(locations["api"]):
            raise Misconfigured(
                f"the API database {shown(locations['api'])} is missing, but databases of cells are there: "
                f"{', '.join(left)}; restore it from a backup, or move the cells' away to begin anew without their "
                "servers"
            )
    for name in known:
        if not _is_made(locations[name]):
            raise Misconfigured(
                f"the database of cell {name}, {shown(locations[name])}, is missing: restore it from a backup, "
                f"or give up the servers of the cell: `skep db forget-cell {name} --yes`"
            )


def _is_made(location: Location) -> bool:
    if isinstance(location, Path):
        return location.is_file()
    try:
        return revision_of(location) is not None
    except StorageUnavailable:
        return True


@dataclass(frozen=True)
class FakeHosts:
    """Which fake hosts a cell has."""

    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def choose_hosts(cell: str, there: Sequence[str], count: int | None, default: int) -> FakeHosts:
    """Return the hosts of a cell to start: all that are there, and new ones up to `count` (new cell: `default`)."""
    wanted = count if count is not None else len(there) or default
    if wanted < len(there):
        return FakeHosts(tuple(there), (f"{cell} has {len(there)} hosts, all stay",))
    free = (name for name in map(f"{cell}-host{{}}".format, range(1, 2**31)) if name not in there)
    return FakeHosts((*there, *(next(free) for _ in range(wanted - len(there)))))
