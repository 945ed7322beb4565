"""New cells, and cells that move, asked for while everything runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec

from skep.admin.services import CellWork
from skep.database.api import cells as cell_rows
from skep.database.cell import identity
from skep.database.engine import Database
from skep.database.locations import Location, location_of, shown
from skep.database.opening import open_database, revision_of
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.errors import BadRequest, Conflict, Misconfigured
from skep.processes import addresses
from skep.processes.cells import LiveCells
from skep.processes.installation import begin_cell, refuse_other

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Names of cells, as the configuration takes them."""


class CellChanges:
    """Makes and moves cells of an installation. Each change is seen here at once, elsewhere within seconds."""

    def __init__(self, cells: LiveCells) -> None:
        self._cells = cells
        self._turn = asyncio.Lock()

    async def refresh(self) -> None:
        """Take what was changed in the rows into use here. Raises StorageUnavailable."""
        await self._cells.refresh()

    async def create(self, name: str, database_url: str, transport_url: str) -> Cell:
        """Make the schema of a cell's database and its row; a repeat after a failure goes on with what was begun.

        Raises BadRequest for names and addresses that cannot be, Conflict when the name or the database is taken or
        the database does not fit, StorageUnavailable when it cannot be reached now.
        """
        if not NAME.fullmatch(name) or name in ("api", "cell0"):
            raise BadRequest(f"name: {name[:80]!r} cannot be the name of a cell.")
        location = self._location(name, database_url)
        where = addresses.to_store(self._cells.directory, database_url, transport_url)
        async with self._turn:
            known = await self._cells.api.read(cell_rows.every)
            if any(cell.name == name for cell in known):
                raise Conflict(f"There is a cell {name} already.")
            async with _opened(name, location) as database:
                cell = await begin_cell(database, name)
            if any(one.uuid == cell.uuid for one in known):
                raise Conflict(f"The database {shown(location)} is that of another cell.")
            add = partial(cell_rows.add, cell=cell, now=Clock().now(), addresses=where)
            if not await self._cells.api.write(add, intake=True):
                raise Conflict(f"There is a cell {name} already.")
        await self._cells.refresh()
        await self._cells.settle()
        return cell

    async def move(self, cell: Cell, database_url: str | None, transport_url: str | None) -> None:
        """Say that a cell is reached elsewhere, or by another password; None leaves an address as it is.

        Raises BadRequest, Conflict and StorageUnavailable as `create`; the database must be the cell's own.
        """
        directory = self._cells.directory
        if database_url is not None:
            location = self._location(cell.name, database_url)
            await asyncio.to_thread(_refuse_empty, cell, location)
            async with _opened(cell.name, location) as database:
                whose = await database.write(partial(identity.claim, cell=cell, now=Clock().now()))
                refuse_other(database, cell, whose)
        async with self._turn:
            kept = dict(await self._cells.api.read(cell_rows.located)).get(cell, cell_rows.NOWHERE)
            new = addresses.to_store(directory, database_url or "", transport_url or "")
            taken = [("database_url", database_url), ("transport_url", transport_url)]
            named = [name for key, url in taken if url is not None for name in (key, f"{key}_sealed")]
            where = msgspec.structs.replace(kept, **{name: getattr(new, name) for name in named})
            await self._cells.api.write(partial(cell_rows.move, uuid=cell.uuid, addresses=where), intake=True)
        await self._cells.refresh()
        await self._cells.settle()

    def _location(self, name: str, url: str) -> Location:
        places = self._cells.places
        if not url and not places.has_own(name) and not isinstance(places.api, Path):
            raise BadRequest(
                "database_url: expected the address of the cell's database; only SQLite files have a default."
            )
        try:
            return location_of(url, Path()) if url else places.of(name)
        except Misconfigured as error:
            raise BadRequest(f"database_url: {error}") from None


def cell_work(cells: LiveCells) -> CellWork:
    """Return what the admin API may do with cells."""
    changes = CellChanges(cells)
    return CellWork(create=changes.create, move=changes.move, refresh=changes.refresh)


def _refuse_empty(cell: Cell, location: Location) -> None:
    """See that there are tables: without them a cell would look as if it had lost its servers. Raises Conflict."""
    try:
        made = revision_of(location)
    except Misconfigured as error:
        raise Conflict(f"{error}") from None
    if made is None:
        raise Conflict(f"{shown(location)} is empty or not there: put the database of cell {cell.name} there first.")


@asynccontextmanager
async def _opened(name: str, location: Location) -> AsyncIterator[Database]:
    """Open a database for the length of a block, making or upgrading its schema."""
    try:
        database = await open_database(name, location, upgrade=True)
    except Misconfigured as error:
        raise Conflict(f"{error}") from None
    try:
        yield database
    except Misconfigured as error:
        raise Conflict(f"{error}") from None
    finally:
        await database.close()
