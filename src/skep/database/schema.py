"""Schemas of the databases: Alembic histories, one for the API database and one for cells (cell0 too).

Two tables say where a database is. `schema_revision` is the revision that it has. `alembic_version` is the oldest
revision whose release can work with it: a release that knows this one runs on the database, however much newer that is.
(Releases before 0.3 look at `alembic_version` alone, and find what they know there.) Each revision says by its
`compatible_since` what it asks of a release. See docs/decisions/0401-expand-and-contract.md.

Each process looks at the revision when it opens a database. Only what changes a schema imports Alembic, which takes
memory and the time of a start.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import sqlalchemy as sa

from skep.database.dialects import LOCK
from skep.domain.errors import Misconfigured

if TYPE_CHECKING:
    from alembic.config import Config

Kind = Literal["api", "cell"]

REVISION_TABLE = "schema_revision"
FLOOR_TABLE = "alembic_version"

MIGRATION_LOCK = 0x736B6571
"""Key of the advisory lock that lets one process at a time bring a PostgreSQL database up."""
LOCK_SECONDS = 60
"""How long a step waits for other processes, be it for their upgrade or for their use of a table."""

_REVISION = re.compile(r'^revision = "(\w+)"$', re.MULTILINE)
_SINCE = re.compile(r'^compatible_since = "(\w+)"$', re.MULTILINE)


def upgrade(engine: sa.Engine, kind: Kind, revision: str = "head") -> None:
    """Bring a database to `revision`, all steps in one transaction; one that is there, or is newer, stays as it is.

    Raises Misconfigured for the database of a newer release that does not take this one.
    """
    if revision == "head" and current(engine) is not None and is_fit(engine, kind):
        return
    from alembic import command

    with engine.begin() as connection:
        _take_turn(connection)
        _adopt(connection)
        found = _read(connection, REVISION_TABLE)
        if found is not None and found not in history(kind):
            _refuse_newer(connection, kind, found, "")
            return
        command.upgrade(_config(kind, connection), revision)
        reached = _read(connection, REVISION_TABLE)
        assert reached is not None, f"an upgrade of {kind} made nothing"
        _write(connection, FLOOR_TABLE, history(kind)[reached])


def current(engine: sa.Engine) -> str | None:
    """Return the revision that a database is at, None for an empty one."""
    with engine.connect() as connection:
        return _read(connection, REVISION_TABLE) or _read(connection, FLOOR_TABLE)


def head(kind: Kind) -> str:
    """Return the newest revision that this release knows."""
    return max(history(kind))


@cache
def history(kind: Kind) -> dict[str, str]:
    """Return the revisions that this release knows, each with the oldest whose release can work with it."""
    known: dict[str, str] = {}
    for path in _migrations(kind).glob("versions/*.py"):
        text = path.read_text(encoding="utf-8")
        (revision,) = _REVISION.findall(text)
        since = _SINCE.findall(text)
        known[revision] = since[0] if since else revision
    return known


def is_fit(engine: sa.Engine, kind: Kind) -> bool:
    """Tell whether this release can work with a database: it has all that this release knows, or takes it anyway."""
    found = current(engine)
    if found == head(kind):
        return True
    with engine.connect() as connection:
        return found not in history(kind) and _read(connection, FLOOR_TABLE) in history(kind)


def check(engine: sa.Engine, kind: Kind, name: str) -> None:
    """Refuse a database that this release cannot work with; a newer one is taken as far as it takes us.

    Raises Misconfigured naming the command that mends it.
    """
    if is_fit(engine, kind):
        return
    found = current(engine)
    if found is not None and found not in history(kind):
        with engine.connect() as connection:
            _refuse_newer(connection, kind, found, f" {name}")
    raise Misconfigured(
        f"database {name} is at revision {found}, this release needs {head(kind)}: run `skep db upgrade`"
    )


def _refuse_newer(connection: sa.Connection, kind: Kind, found: str, name: str) -> None:
    """Raise Misconfigured unless a database of a newer release takes this one."""
    floor = _read(connection, FLOOR_TABLE)
    if floor not in history(kind):
        raise Misconfigured(
            f"database{name} is at revision {found} of a newer release, which supports releases from revision {floor} "
            f"on; this one knows {head(kind)}: run the newer release"
        )


def _take_turn(connection: sa.Connection) -> None:
    """Wait for other processes that upgrade and for writers, and let no limit of a short statement end a long one.

    A writer that had one table and waited for another would wait for ever for a revision that changes both.
    """
    if connection.dialect.name != "postgresql":
        return
    for limit in (f"lock_timeout = '{LOCK_SECONDS}s'", "statement_timeout = 0"):
        connection.exec_driver_sql(f"SET LOCAL {limit}")
    connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
    for lock in (MIGRATION_LOCK, LOCK):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({lock})")


def _adopt(connection: sa.Connection) -> None:
    """Take over what a release before 0.3 has noted, whose only table is the floor."""
    known = _read(connection, REVISION_TABLE) or _read(connection, FLOOR_TABLE)
    if known is not None:
        _write(connection, REVISION_TABLE, known)


def _read(connection: sa.Connection, table: str) -> str | None:
    """Return what a table notes, None where it is empty or not there."""
    if not sa.inspect(connection).has_table(table):
        return None
    return connection.execute(sa.select(_noted(table).c.version_num)).scalar_one_or_none()


def _write(connection: sa.Connection, table: str, revision: str) -> None:
    """Note a revision, as Alembic itself does."""
    numbers = _noted(table)
    numbers.create(connection, checkfirst=True)
    if connection.execute(sa.update(numbers).values(version_num=revision)).rowcount == 0:
        connection.execute(sa.insert(numbers).values(version_num=revision))


def _noted(table: str) -> sa.Table:
    return sa.Table(table, sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True))


def _migrations(kind: Kind) -> Path:
    return Path(__file__).parent / kind / "migrations"


def _config(kind: Kind, connection: sa.Connection) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_migrations(kind)))
    config.attributes["connection"] = connection
    config.attributes["version_table"] = REVISION_TABLE
    return config
