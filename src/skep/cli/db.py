"""`skep db`: the schemas of the databases. `skep up` upgrades by itself; these are for looking and for scripts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.config import config_option
from skep.cli.failures import Failed, Refused
from skep.cli.output import Format, format_option, print_rows, progress
from skep.domain.errors import Misconfigured

if TYPE_CHECKING:
    import sqlalchemy as sa

    from skep.config import Config
    from skep.database.schema import Kind

COLUMNS = {"database": "Database", "revision": "Revision", "newest": "This release's", "file": "File"}


@click.group()
def db() -> None:
    """Bring the databases to this release's schema; give up a cell whose database is lost.

    \b
    Example: skep db check
    """


@db.command()
@config_option
@format_option
def current(config_file: Path | None, form: Format) -> None:
    """Print the schema revision of each database and that of this release.

    \b
    Example: skep db current
    """
    print_rows(list(revisions(_config(config_file))), COLUMNS, form)


@db.command()
@config_option
@format_option
def check(config_file: Path | None, form: Format) -> None:
    """Exit with 1 unless every database has this release's schema.

    \b
    Example: skep db check && skep up
    """
    config = _config(config_file)
    rows = list(revisions(config))
    print_rows(rows, COLUMNS, form)
    see_all_there(config)
    behind = [row["database"] for row in rows if row["revision"] != row["newest"]]
    if behind:
        raise Failed(f"not at this release's schema: {', '.join(behind)}; `skep db upgrade` mends it")


@db.command()
@config_option
@format_option
def upgrade(config_file: Path | None, form: Format) -> None:
    """Make what is missing and bring all databases to this release's schema; refused while a cloud runs on them.

    \b
    Example: skep db upgrade
    """
    config = _config(config_file)
    with progress("Upgrading databases"):
        asyncio.run(_bring_up(config))
    print_rows(list(revisions(config)), COLUMNS, form)


@db.command("forget-cell")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Its servers are given up: they count as deleted from now on.")
@config_option
def forget_cell(name: str, yes: bool, config_file: Path | None) -> None:
    """Give up a cell whose database is lost, so that the rest can start; refused while a cloud runs.

    Its servers count as deleted and use no quota any more. What its hosts have on disk is not touched.

    \b
    Example: skep db forget-cell cell2 --yes
    """
    if not yes:
        raise Refused(f"this gives up every server of cell {name}; say --yes, or restore its database from a backup")
    given_up = asyncio.run(_forget(_config(config_file), name))
    click.echo(f"Cell {name} is forgotten; {given_up} servers count as deleted.")


async def _bring_up(config: Config) -> None:
    """Open all databases as a start does, making none but those above the cells. Raises Misconfigured."""
    from skep.processes.databases import open_all
    from skep.processes.directory import StateDirectory

    directory = StateDirectory(Path(config.state.directory))
    directory.open()
    try:
        see_all_there(config)
        await (await open_all(_paths(config))).close()
    finally:
        directory.close()


async def _forget(config: Config, name: str) -> int:
    """Give up a cell; return how many servers it had. Raises Refused unless it is known and its database is gone."""
    from skep.database.api import cells
    from skep.database.engine import Database
    from skep.domain.clock import Clock
    from skep.processes.directory import StateDirectory
    from skep.processes.installation import known_cells

    directory = StateDirectory(Path(config.state.directory))
    directory.open()
    try:
        paths = _paths(config)
        if name not in known_cells(paths["api"]):
            raise Refused(f"the API database {paths['api']} knows no cell {name}")
        if paths[name].is_file():
            raise Refused(f"the database of cell {name} is there, {paths[name]}: use `skep cell delete {name}`")
        database = Database(paths["api"])
        now = Clock().now()

        def unit(connection: sa.Connection) -> int:
            return sum(cells.give_up(connection, one.uuid, now) for one in cells.every(connection) if one.name == name)

        try:
            return await database.write(unit)
        finally:
            await database.close()
    finally:
        directory.close()


def _config(file: Path | None) -> Config:
    from skep.config import load

    return load(file, os.environ).config


def _paths(config: Config) -> dict[str, Path]:
    """Return the databases: of the cells that the API database knows, that are configured or whose file is there."""
    from skep.processes.databases import paths_of
    from skep.processes.directory import StateDirectory
    from skep.processes.installation import known_cells

    directory = StateDirectory(Path(config.state.directory))
    above = paths_of(config, directory, [])
    names = {cell.name for cell in config.cells} | {*known_cells(above["api"])}
    if not config.cells:
        names |= {path.stem for path in above["api"].parent.glob("*.db") if path not in above.values()}
    return paths_of(config, directory, sorted(names - above.keys()))


def see_all_there(config: Config) -> None:
    """See that no database is missing that the installation has. Raises Misconfigured naming it and what to do."""
    from skep.processes.installation import known_cells, refuse_missing

    paths = _paths(config)
    refuse_missing(paths, known_cells(paths["api"]))


def revisions(config: Config) -> Iterator[dict[str, Any]]:
    """Return each database with the revision of its schema (None: it is not there) and this release's."""
    from skep.database import schema

    for name, path in _paths(config).items():
        kind: Kind = "api" if name == "api" else "cell"
        yield {
            "database": name,
            "revision": _revision(path) if path.is_file() else None,
            "newest": schema.head(kind),
            "file": str(path),
        }


def _revision(path: Path) -> str | None:
    """Return the revision of a file. Raises Misconfigured when it is no database."""
    import sqlalchemy as sa

    from skep.database import schema

    engine = sa.create_engine(f"sqlite:///{path}")
    try:
        return schema.current(engine)
    except sa.exc.DatabaseError as error:
        raise Misconfigured(f"{path}: {error.orig}") from error
    finally:
        engine.dispose()
