"""Schemas of the databases: Alembic histories, one for the API database and one for cells (cell0 too)."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from skep.domain.errors import Misconfigured

Kind = Literal["api", "cell"]


def upgrade(engine: sa.Engine, kind: Kind, revision: str = "head") -> None:
    """Bring a database to `revision`. Safe to repeat; each step is one transaction."""
    with engine.begin() as connection:
        command.upgrade(_config(kind, connection), revision)


def current(engine: sa.Engine) -> str | None:
    """Return the revision that a database is at, None for an empty one."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def head(kind: Kind) -> str:
    """Return the newest revision that this release knows."""
    newest = ScriptDirectory.from_config(_config(kind)).get_current_head()
    assert newest is not None, f"the history of {kind} has no revision"
    return newest


def check(engine: sa.Engine, kind: Kind, name: str) -> None:
    """Refuse a database that is not at this release's revision.

    Raises Misconfigured naming the command that mends it.
    """
    found, wanted = current(engine), head(kind)
    if found != wanted:
        raise Misconfigured(
            f"database {name} is at revision {found}, this release needs {wanted}: run `skep db upgrade`"
        )


def _config(kind: Kind, connection: sa.Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / kind / "migrations"))
    config.attributes["connection"] = connection
    return config
