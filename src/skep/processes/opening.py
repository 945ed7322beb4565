"""Opens databases for a role: one that is away is waited for, one that does not fit is refused. None is made here."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from skep.config.sections import Config
from skep.database import schema
from skep.database.api import cells as cell_rows
from skep.database.engine import Database
from skep.domain.cells import Cell
from skep.domain.errors import Misconfigured
from skep.domain.ids import CellUuid
from skep.processes.directory import StateDirectory
from skep.super_conductor.parts import CellAccess
from skep.transport.base import Transport


def location_of(config: Config, name: str) -> Path | str:
    """Return where a database is, `api`, `cell0` or a cell's: a SQLAlchemy URL, or a file of the state directory."""
    urls = {"api": config.database.api_url, "cell0": config.database.cell0_url}
    urls |= {cell.name: cell.database_url for cell in config.cells}
    if url := urls.get(name):
        return Path(url.removeprefix("sqlite:///")) if url.startswith("sqlite:///") else url
    directory = config.database.directory
    return (Path(directory) if directory else StateDirectory(Path(config.state.directory)).databases) / f"{name}.db"


async def open_database(config: Config, name: str) -> Database:
    """Open a database that is there.

    Raises StorageUnavailable when it does not answer now, Misconfigured when its file or its schema is missing or old.
    """
    location = location_of(config, name)
    if isinstance(location, Path) and not location.is_file():
        raise Misconfigured(f"the database of {name}, {location}, is missing: `skep db upgrade` makes it")
    database = Database(location, name=name)
    try:
        await database.read(lambda connection: connection.execute(sa.select(1)).scalar())
        await asyncio.to_thread(schema.check, database.engine, "api" if name == "api" else "cell", name)
    except BaseException:
        await database.close()
        raise
    return database


@dataclass(frozen=True)
class OpenCells:
    """The cells as a process above them reaches them, cell0 too."""

    accesses: Mapping[CellUuid, CellAccess]

    @property
    def databases(self) -> Mapping[CellUuid, Database]:
        """The database of each."""
        return {uuid: access.database for uuid, access in self.accesses.items()}

    @property
    def names(self) -> Mapping[CellUuid, Cell]:
        """The row of each."""
        return {uuid: access.cell for uuid, access in self.accesses.items()}

    async def close(self) -> None:
        """Close the databases."""
        for access in self.accesses.values():
            await access.database.close()


async def open_cells(config: Config, api: Database, transport: Transport) -> OpenCells:
    """Open all cells of the API database.

    Raises StorageUnavailable when one does not answer now, Misconfigured when one does not fit.
    """
    opened: dict[CellUuid, CellAccess] = {}
    try:
        for cell in await api.read(cell_rows.every):
            database = await open_database(config, cell.name)
            opened[cell.uuid] = CellAccess(cell, database, None if cell.is_cell0 else transport)
    except BaseException:
        await OpenCells(opened).close()
        raise
    return OpenCells(opened)
