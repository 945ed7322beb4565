"""INSERT ... ON CONFLICT, which SQLite and PostgreSQL write alike and SQLAlchemy keeps with each dialect."""

from __future__ import annotations

from typing import cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite


def insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert:
    """Return an insert into `table` that knows `on_conflict_do_update` and `on_conflict_do_nothing`.

    Its `rowcount` tells in both whether a row was written; without the option psycopg has forgotten it by then.
    """
    if connection.dialect.name == "postgresql":
        return cast(sqlite.Insert, postgresql.insert(table).execution_options(preserve_rowcount=True))
    return sqlite.insert(table)
