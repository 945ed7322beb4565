"""Opens the databases of an installation and brings their schemas up to date."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from skep.config.sections import Config
from skep.database import schema
from skep.database.engine import Database
from skep.domain.errors import Misconfigured, SkepError
from skep.processes.directory import StateDirectory


@dataclass(frozen=True)
class Databases:
    """The API database, and the database of each cell by its name (`cell0` too)."""

    api: Database
    cells: Mapping[str, Database]

    async def close(self) -> None:
        """Finish what was submitted and close all files."""
        for database in (*self.cells.values(), self.api):
            await database.close()


async def open_all(paths: Mapping[str, Path]) -> Databases:
    """Open `api`, `cell0` and the cells of `paths`, making and upgrading what is missing or old.

    Raises Misconfigured when a file cannot be used.
    """
    opened: dict[str, Database] = {}
    try:
        for name, path in paths.items():
            opened[name] = await asyncio.to_thread(_open, name, path)
    except BaseException:
        for database in opened.values():
            await database.close()
        raise
    return Databases(api=opened.pop("api"), cells=opened)


def _open(name: str, path: Path) -> Database:
    database = Database(path)
    try:
        schema.upgrade(database.engine, "api" if name == "api" else "cell")
    except SkepError:
        raise
    except Exception as error:
        raise Misconfigured(f"database {path} cannot be used: {error}") from error
    return database


def sqlite_path(url: str, default: Path) -> Path:
    """Return the file of a `sqlite:///` URL, or the default for an empty one.

    Raises Misconfigured for a URL of another engine.
    """
    if not url:
        return default
    prefix = "sqlite:///"
    if not url.startswith(prefix):
        raise Misconfigured(f"database URL {url.split(':', 1)[0]}:...: this release keeps its data in SQLite files")
    return Path(url.removeprefix(prefix))


def paths_of(config: Config, directory: StateDirectory, cell_names: Sequence[str]) -> dict[str, Path]:
    """Return the file of each database: `api`, `cell0` and the named cells."""
    base = Path(config.database.directory) if config.database.directory else directory.databases
    urls = {"api": config.database.api_url, "cell0": config.database.cell0_url}
    urls |= {cell.name: cell.database_url for cell in config.cells}
    return {name: sqlite_path(urls.get(name, ""), base / f"{name}.db") for name in ("api", "cell0", *cell_names)}
