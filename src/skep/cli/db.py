"""`skep db`: the schemas of the databases. `skep up` upgrades by itself; these are for looking and for scripts."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skep.cli.backup import backup, recover, restore
from skep.cli.config import config_option
from skep.cli.databases import loaded, locations, revisions, see_all_there, state_directory
from skep.cli.failures import CommandRefused, Failed
from skep.cli.output import Format, format_option, print_rows, print_said, progress
from skep.cli.tables import Table

if TYPE_CHECKING:
    from skep.config import Config

TABLE = Table({"database": "Database", "revision": "Revision", "newest": "This release's", "file": "File"})


@click.group()
def db() -> None:
    """Bring the databases to this release's schema, copy and restore them, give up a cell whose database is lost.

    \b
    Example: skep db check
    """


db.add_command(backup)
db.add_command(restore)
db.add_command(recover)


@db.command()
@config_option
@format_option
def current(config_file: Path | None, form: Format) -> None:
    """Print the schema revision of each database and that of this release.

    \b
    Example: skep db current
    """
    config = loaded(config_file)
    rows = list(revisions(config))
    if not any(row["revision"] or "error" in row for row in rows):
        raise CommandRefused(
            f"there is no installation in {config.state.directory}: `skep db upgrade` or `skep up` makes one; name "
            "another by --config or SKEP_STATE__DIRECTORY"
        )
    print_rows(rows, TABLE, form)
    away = [f"{row['database']} ({row['error']})" for row in rows if "error" in row]
    if away:
        raise Failed(f"cannot be reached: {', '.join(away)}")


@db.command()
@config_option
@format_option
def check(config_file: Path | None, form: Format) -> None:
    """Exit with 1 unless every database has this release's schema, or a newer one that this release can use.

    \b
    Example: skep db check && skep up
    """
    config = loaded(config_file)
    rows = list(revisions(config))
    print_rows(rows, TABLE, form)
    see_all_there(config)
    away = [f"{row['database']} ({row['error']})" for row in rows if "error" in row]
    behind = [row["database"] for row in rows if not row["fits"] and "error" not in row]
    if behind:
        raise Failed(f"not at this release's schema: {', '.join(behind)}; run `skep db upgrade`")
    if away:
        raise Failed(f"cannot be reached: {', '.join(away)}")


@db.command()
@config_option
@format_option
def upgrade(config_file: Path | None, form: Format) -> None:
    """Create missing databases and bring all to this release's schema.

    SQLite files are refused while a cloud runs on them. PostgreSQL's are brought up beneath the last release's
    processes, which run on with the new schema: upgrade it first, then restart them one by one.

    \b
    Example: skep db upgrade
    """
    config = loaded(config_file)
    with progress("Upgrading databases"):
        asyncio.run(_bring_up(config))
    print_rows(list(revisions(config)), TABLE, form)


@db.command("forget-cell")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Give its servers up: they count as deleted from now on.")
@config_option
@format_option
def forget_cell(name: str, yes: bool, config_file: Path | None, form: Format) -> None:
    """Give up a cell whose database is lost, so that the rest can start; refused while a cloud runs.

    Its servers count as deleted and use no quota any more. What its hosts have on disk is not touched.

    \b
    Example: skep db forget-cell cell2 --yes
    """
    if not yes:
        raise CommandRefused(
            f"this gives up every server of cell {name}; add --yes, or restore its database from a backup"
        )
    given_up = asyncio.run(_forget(loaded(config_file), name))
    print_said(
        f"Cell {name} is forgotten; {given_up} servers count as deleted.", {"cell": name, "deleted": given_up}, form
    )


async def _bring_up(config: Config) -> None:
    """Open all databases as a start does: those of known cells must be there, those above and configured are made."""
    from skep.processes.databases import Places
    from skep.processes.installation import known_cells, open_installation

    directory = state_directory(config)
    files = [location for location in locations(config)[0].values() if isinstance(location, Path)]
    directory.open(shared=not files)
    try:
        is_new = not known_cells(Places(config, directory), directory)
        databases, notes = await open_installation(config, directory, 0 if is_new else None)
        await databases.close()
    finally:
        directory.close()
    for note in notes:
        click.echo(note, err=True)


async def _forget(config: Config, name: str) -> int:
    """Give up a cell; return how many servers it had. Raises Refused unless it is known and its database is gone."""
    from skep.database.api import cells
    from skep.database.locations import shown
    from skep.database.opening import is_absent, open_database
    from skep.domain.clock import Clock
    from skep.processes.databases import Places
    from skep.processes.installation import known_cells

    directory = state_directory(config)
    directory.open()
    try:
        places = Places(config, directory)
        known = known_cells(places, directory).get(name)
        if known is None:
            raise CommandRefused(f"the API database {shown(places.api)} knows no cell {name}")
        if not is_absent(known.location):
            raise CommandRefused(
                f"the database of cell {name} may still exist, {shown(known.location)}: use `skep cell delete {name}`"
            )
        database = await open_database("api", places.api, upgrade=True)
        try:
            return await database.write(partial(cells.give_up, uuid=known.cell.uuid, now=Clock().now()))
        finally:
            await database.close()
    finally:
        directory.close()
