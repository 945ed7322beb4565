"""INSERT ... ON CONFLICT, which SQLite and PostgreSQL write alike and SQLAlchemy keeps with each dialect."""

from __future__ import annotations

from functools import cache
from typing import cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite


def insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert:
    """Return an insert into `table` that knows `on_conflict_do_update` and `on_conflict_do_nothing`.

    Its `rowcount` tells in both whether a row was written; without the option psycopg has forgotten it by then.
    """
    return _insert(connection.dialect.name, table)


def _insert(dialect: str, table: sa.Table) -> sqlite.Insert:
    if dialect == "postgresql":
        return cast(sqlite.Insert, postgresql.insert(table).execution_options(preserve_rowcount=True))
    return sqlite.insert(table)


def written(connection: sa.Connection, table: sa.Table, key: str, *changed: str) -> sqlite.Insert:
    """Return the insert into `table` that writes `changed` of a row that is there; made once for each dialect."""
    return _written(connection.dialect.name, table, key, changed)


@cache
def _written(dialect: str, table: sa.Table, key: str, changed: tuple[str, ...]) -> sqlite.Insert:
    statement = _insert(dialect, table)
    return statement.on_conflict_do_update(
        index_elements=[key], set_={name: statement.excluded[name] for name in changed}
    )


def new_only(connection: sa.Connection, table: sa.Table) -> sqlite.Insert:
    """Return the insert into `table` that leaves rows as they are which are there; made once for each dialect."""
    return _new_only(connection.dialect.name, table)


@cache
def _new_only(dialect: str, table: sa.Table) -> sqlite.Insert:
    return _insert(dialect, table).on_conflict_do_nothing()
