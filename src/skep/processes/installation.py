"""What an installation has already: the cells of its API database and the hosts of its state directory.

A start never makes them fewer. What it is asked for is added; what is there is started whether it is asked for or not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from skep.config.sections import Config
from skep.database.api import cells as cell_rows
from skep.database.cell.tables import instances
from skep.domain.errors import Misconfigured
from skep.processes.databases import Databases, open_all, paths_of
from skep.processes.directory import StateDirectory

CELL0_NAME = "cell0"
NEW_CELLS = 2
"""Cells of a new installation that says nothing of them."""


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
        return Cells(tuple(known), (f"the installation has {len(known)} cells, all are started: {there}",))
    free = (name for name in map("cell{}".format, range(1, 2**31)) if name not in {*known, *taken})
    return Cells((*known, *(next(free) for _ in range(wanted - len(known)))))


def _with_configured(known: Sequence[str], configured: Sequence[str]) -> Cells:
    notes = tuple(
        f"cell {name} is not in the configuration and is started all the same, its servers are there; "
        f"`skep cell disable {name}` keeps new ones away, `skep cell delete {name}` removes it once it is empty"
        for name in known
        if name not in configured
    )
    return Cells((*known, *(name for name in configured if name not in known)), notes)


def known_cells(path: Path) -> tuple[str, ...]:
    """Return the names of the cells, cell0 too, that the API database in a file knows; it may be of an older release.

    Raises Misconfigured when the file is no database.
    """
    if not path.is_file():
        return ()
    engine = sa.create_engine(f"sqlite:///{path}")
    try:
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table("cells"):
                return ()
            return tuple(cell.name for cell in cell_rows.every(connection))
    except sa.exc.DatabaseError as error:
        raise Misconfigured(f"{path}: {error.orig}") from error
    finally:
        engine.dispose()


def api_database(config: Config, directory: StateDirectory) -> Path:
    """Return the file of the API database."""
    return paths_of(config, directory, ())["api"]


async def open_installation(
    config: Config, directory: StateDirectory, count: int | None
) -> tuple[Databases, tuple[str, ...]]:
    """Open every database of an installation, making those of cells that are new; return them and what to say.

    Raises Misconfigured when a database that belongs to it is missing or belongs to another one.
    """
    above = paths_of(config, directory, ())
    there = known_cells(above["api"])
    known = [name for name in there if name != CELL0_NAME]
    configured = [cell.name for cell in config.cells]
    files = [path.stem for path in sorted(above["api"].parent.glob("*.db")) if path != above["api"]]
    chosen = choose_cells(known, configured, count, files if known else ())
    paths = paths_of(config, directory, chosen.names)
    refuse_missing(paths, there)
    databases = await open_all(paths)
    try:
        for name in paths.keys() - {"api", *there}:
            await _refuse_foreign(databases, name, paths[name])
    except BaseException:
        await databases.close()
        raise
    return databases, chosen.notes


def refuse_missing(paths: Mapping[str, Path], known: Collection[str]) -> None:
    """See that no database is missing that the installation has.

    An empty one in its place would look like a cloud without servers, whose guests run on unseen. Raises Misconfigured.
    """
    if not paths["api"].is_file():
        left = [f"{name} ({path})" for name, path in paths.items() if path.is_file()]
        if left:
            raise Misconfigured(
                f"the API database {paths['api']} is missing, but databases of cells are there: {', '.join(left)}; "
                "restore it from a backup, or move the cells' away to begin anew without their servers"
            )
    for name in known:
        if not paths[name].is_file():
            raise Misconfigured(
                f"the database of cell {name}, {paths[name]}, is missing: restore it from a backup, "
                f"or give up the servers of the cell: `skep db forget-cell {name} --yes`"
            )


async def _refuse_foreign(databases: Databases, name: str, path: Path) -> None:
    """Refuse to begin a cell on the rows of another: nothing above would know its servers."""
    rows = await databases.cells[name].read(partial(_any_server))
    if rows:
        raise Misconfigured(
            f"the database {path} holds servers of a cell {name} that the API database does not know: "
            "restore the API database that belongs to it, or move the file away to begin the cell anew"
        )


def _any_server(connection: sa.Connection) -> bool:
    return connection.execute(sa.select(instances.c.uuid).limit(1)).first() is not None


@dataclass(frozen=True)
class Hosts:
    """Which fake hosts a cell has."""

    names: tuple[str, ...]
    notes: tuple[str, ...] = ()


def choose_hosts(cell: str, there: Sequence[str], count: int | None, default: int) -> Hosts:
    """Return the hosts of a cell to start: all that are there, and new ones up to `count` (new cell: `default`)."""
    wanted = count if count is not None else len(there) or default
    if wanted < len(there):
        return Hosts(tuple(there), (f"{cell} has {len(there)} hosts, all are started",))
    free = (name for name in map(f"{cell}-host{{}}".format, range(1, 2**31)) if name not in there)
    return Hosts((*there, *(next(free) for _ in range(wanted - len(there)))))
