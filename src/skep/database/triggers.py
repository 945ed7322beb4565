"""Triggers that note what a row became in the transaction that changed it, whichever process and release writes.

A revision makes those that its module of triggers has. One that changes a trigger drops it and makes it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

_WORDS: Mapping[str, Mapping[str, str]] = {
    "sqlite": {
        "key": "lower(hex(randomblob(8)))",
        "now": "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    },
    "postgresql": {
        "key": "left(replace(gen_random_uuid()::text, '-', ''), 16)",
        "now": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    },
}
"""Dialect -> what both can draw, in its words: a new key, and the time in microseconds."""


class Trigger(NamedTuple):
    """One trigger, for each row that a statement writes."""

    name: str
    moment: str
    """Such as `INSERT` or `UPDATE OF column`."""
    table: str
    condition: str | None
    into: str
    columns: str
    values: str
    """What is selected; `{key}` and `{now}` stand for a new key and the time."""

    def made_by(self, dialect: str) -> Iterator[str]:
        """Return the statements that make it."""
        values = self.values.replace("{key}", _WORDS[dialect]["key"]).replace("{now}", _WORDS[dialect]["now"])
        note = f"INSERT INTO {self.into} ({self.columns}) SELECT {values}"
        when = "" if self.condition is None else f"WHEN ({self.condition}) "
        head = f"CREATE TRIGGER {self.name} AFTER {self.moment} ON {self.table} FOR EACH ROW {when}"
        if dialect == "sqlite":
            yield f"{head}BEGIN {note}; END"
            return
        yield (
            f"CREATE FUNCTION {self.name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {note}; RETURN NULL; END $$"
        )
        yield f"{head}EXECUTE FUNCTION {self.name}()"

    def dropped_by(self, dialect: str) -> Iterator[str]:
        """Return the statements that drop it."""
        if dialect == "sqlite":
            yield f"DROP TRIGGER {self.name}"
            return
        yield f"DROP TRIGGER {self.name} ON {self.table}"
        yield f"DROP FUNCTION {self.name}()"


def make(connection: sa.Connection, triggers: Iterable[Trigger]) -> None:
    """Make triggers whose tables are there."""
    for one in triggers:
        for statement in one.made_by(connection.dialect.name):
            connection.exec_driver_sql(statement)


def drop(connection: sa.Connection, triggers: Iterable[Trigger]) -> None:
    """Drop triggers."""
    for one in triggers:
        for statement in one.dropped_by(connection.dialect.name):
            connection.exec_driver_sql(statement)


def declare(metadata: sa.MetaData, triggers: Iterable[Trigger]) -> None:
    """Have triggers made with all tables of one kind of database."""

    def after(_target: sa.MetaData, connection: sa.Connection, **_more: Any) -> None:
        make(connection, triggers)

    sa.event.listen(metadata, "after_create", after)
