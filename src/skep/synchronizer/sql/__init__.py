"""Records in a SQL database of their own: PostgreSQL, or one SQLite file for the processes of one machine.

`backend.py` is the handle; `postgres.py` and `sqlite.py` hold the statements of each server; `tables.py` the tables.

The order of changes is the order of commits. Each publishing transaction first raises the *clock*, one row, and holds
its lock until it has committed; its records bear the clock's new reading. So a reader that saw the clock at 7 has seen
every record that bears 7 or less, and asks for those above. (A sequence would not do: its numbers are drawn before the
commit, so 8 may be visible while 7 still is to come, and a reader that has passed 8 never sees 7.) Publishers wait for
one another for the time of a commit, therefore whatever waits in a process goes in one transaction.

Every reading of the clock has a random *mark*, kept for the latest `KEEP_COMMITS` of them. A cursor is (epoch, clock,
mark); one whose mark is not there is too old: it was trimmed, or the database was set back to an old copy, also when
the clock has meanwhile gone beyond the cursor again.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from skep.config.sections import SynchronizerSettings
from skep.domain.errors import Misconfigured
from skep.synchronizer.sql.backend import SqlBackend
from skep.synchronizer.sql.postgres import PostgresRecords
from skep.synchronizer.sql.server import SqlServer
from skep.synchronizer.sql.sqlite import SqliteRecords

__all__ = ["SqlBackend", "make"]


def make(settings: SynchronizerSettings) -> SqlBackend:
    """Return a backend on `settings.url`, in tables that are named after `settings.name`.

    Raises Misconfigured when the URL is neither `sqlite:///PATH` nor `postgresql+psycopg://...`.
    """
    return SqlBackend(_server(settings))


def _server(settings: SynchronizerSettings) -> SqlServer[Any]:
    try:
        url = sa.make_url(settings.url)
    except exc.ArgumentError as error:
        raise Misconfigured("synchronizer.url: not a SQLAlchemy URL") from error
    if url.drivername in {"postgresql", "postgresql+psycopg"}:
        return PostgresRecords(url.set(drivername="postgresql+psycopg"), settings.name)
    if url.drivername == "sqlite" and url.database and url.database != ":memory:":
        return SqliteRecords(url, settings.name)
    raise Misconfigured("synchronizer.url: expected sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE")
