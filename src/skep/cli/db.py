"""`skep db`: the schemas of the databases. `skep up` upgrades by itself; these are for looking and for scripts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.config import config_option
from skep.cli.failures import Failed
from skep.cli.output import Format, format_option, print_rows, progress
from skep.domain.errors import Misconfigured

if TYPE_CHECKING:
    from skep.config import Config
    from skep.database.schema import Kind

COLUMNS = {"database": "Database", "revision": "Revision", "newest": "This release's", "file": "File"}


@click.group()
def db() -> None:
    """Bring the databases to this release's schema.

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
    rows = list(revisions(_config(config_file)))
    print_rows(rows, COLUMNS, form)
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
    from skep.processes.databases import open_all
    from skep.processes.directory import StateDirectory

    config = _config(config_file)
    directory = StateDirectory(Path(config.state.directory))
    directory.open()
    try:

        async def bring_up() -> None:
            await (await open_all(_paths(config))).close()

        with progress("Upgrading databases"):
            asyncio.run(bring_up())
    finally:
        directory.close()
    print_rows(list(revisions(config)), COLUMNS, form)


def _config(file: Path | None) -> Config:
    from skep.config import load

    return load(file, os.environ).config


def _paths(config: Config) -> dict[str, Path]:
    """Return the databases: those of configured cells, without any those that are there."""
    from skep.processes.databases import paths_of
    from skep.processes.directory import StateDirectory

    directory = StateDirectory(Path(config.state.directory))
    above = paths_of(config, directory, [])
    names = [cell.name for cell in config.cells]
    if not names:
        names = sorted(path.stem for path in above["api"].parent.glob("*.db") if path not in above.values())
    return paths_of(config, directory, names)


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
