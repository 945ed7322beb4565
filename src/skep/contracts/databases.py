"""Databases for clouds in tests. New SQLite ones are copies: the migrations run once in a process.

What tests migrations themselves, or the making of a database, makes its own.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import sqlalchemy as sa

from skep.config.sections import Config
from skep.database import schema
from skep.database.engine import Database
from skep.database.locations import Location
from skep.database.opening import open_database
from skep.processes.databases import Databases, Places
from skep.processes.directory import StateDirectory


def locations_of(config: Config, directory: StateDirectory, cell_names: Sequence[str]) -> dict[str, Location]:
    """Return where the configuration has each database: `api`, `cell0` and the named cells."""
    places = Places(config, directory)
    return {name: places.of(name) for name in ("api", "cell0", *cell_names)}


async def open_all(locations: Mapping[str, Location]) -> Databases:
    """Open `api`, `cell0` and the cells of `locations`, with their tables."""
    opened: dict[str, Database] = {}
    try:
        for name, location in locations.items():
            opened[name] = await open_database(name, location, upgrade=True)
    except BaseException:
        for database in opened.values():
            await database.close()
        raise
    return Databases(api=opened.pop("api"), cells=opened)


def lay_out(locations: Mapping[str, Location]) -> None:
    """Put a new database at each place that is a file and is not there yet. By its name it is `api`, or a cell's."""
    for name, location in locations.items():
        if isinstance(location, Path) and not location.exists():
            location.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(location, "api" if name == "api" else "cell")


def new_database(path: Path, kind: schema.Kind, *, readers: int = 2, busy_timeout: float = 5.0) -> Database:
    """Make a database in a new file and open it. Raises FileExistsError when the file is there."""
    _write(path, kind)
    return Database(path, readers=readers, busy_timeout=busy_timeout)


def new_in_memory(kind: schema.Kind) -> sa.Engine:
    """Return an engine of a new database that lives as long as its one connection."""

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.deserialize(_template(kind))
        return connection

    return sa.create_engine("sqlite://", creator=connect, poolclass=sa.StaticPool)


def _write(path: Path, kind: schema.Kind) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(_template(kind))


@cache
def _template(kind: schema.Kind) -> bytes:
    """Return the bytes of a new database."""
    with tempfile.TemporaryDirectory(prefix="skep-template-") as folder:
        path = Path(folder) / f"{kind}.db"
        engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.NullPool)
        try:
            schema.upgrade(engine, kind)
        finally:
            engine.dispose()
        return path.read_bytes()
