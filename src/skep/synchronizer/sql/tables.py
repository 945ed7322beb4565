"""The tables of a SQL backend. Both servers have the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.domain.errors import Misconfigured

FORMAT = 1
"""Of the tables and of what is in them; a database with another one is not touched."""


class RecordTables:
    """The tables of one cloud's records, named after it."""

    def __init__(self, name: str) -> None:
        self.metadata = sa.MetaData()
        self.life = sa.Table(
            f"{name}_life",
            self.metadata,
            sa.Column("one", sa.Integer, primary_key=True, autoincrement=False),  # always 1: there is one row
            sa.Column("format", sa.Integer, nullable=False),
            sa.Column("epoch", sa.Text, nullable=False),
            sa.Column("clock", sa.BigInteger, nullable=False),  # commits since the tables were made
            # Room beside the row that every commit writes anew.
            postgresql_with={"fillfactor": 10},
        )
        self.commits = sa.Table(
            f"{name}_commits",
            self.metadata,
            sa.Column("clock", sa.BigInteger, primary_key=True, autoincrement=False),
            sa.Column("mark", sa.BigInteger, nullable=False),
        )
        self.records = sa.Table(
            f"{name}_records",
            self.metadata,
            sa.Column("namespace", _text(), primary_key=True),
            sa.Column("name", _text(), primary_key=True),
            sa.Column("generation", sa.BigInteger, nullable=False),
            sa.Column("changed", sa.BigInteger, nullable=False, index=True),  # the clock at its latest change
            sa.Column("removed_at", sa.BigInteger),  # microseconds since the epoch; null while the record is there
            sa.Column("body", sa.LargeBinary, nullable=False),
            postgresql_with={"fillfactor": 80},
        )
        # What `trim` looks for is little: it holds the clock meanwhile.
        removed = sa.text("removed_at IS NOT NULL")
        sa.Index(
            f"ix_{name}_records_removed_at",
            self.records.c.removed_at,
            postgresql_where=removed,
            sqlite_where=removed,
        )

    def ddl(self, dialect: sa.Dialect) -> list[str]:
        """Return the statements that make what is missing of these tables and their indexes."""
        made: list[sa.schema.ExecutableDDLElement] = []
        for table in self.metadata.sorted_tables:
            made.append(sa.schema.CreateTable(table, if_not_exists=True))
            made += [sa.schema.CreateIndex(index, if_not_exists=True) for index in table.indexes]
        return [str(statement.compile(dialect=dialect)) for statement in made]


def is_ours(row: Sequence[Any] | None) -> bool:
    """Tell by what stands as the format of the tables whether they were prepared.

    Raises Misconfigured when they have another one.
    """
    if row is not None and row[0] != FORMAT:
        raise Misconfigured(f"synchronizer.url: the tables have format {row[0]}, this version knows {FORMAT}")
    return row is not None


def _text() -> sa.types.TypeEngine[str]:
    """Text that is compared byte by byte, whatever the database's language."""
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
