"""The tables of a SQL backend. Both servers have the same."""

from __future__ import annotations

import sqlalchemy as sa

FORMAT = 1
"""Of the tables and of what is in them; a database with another one is not touched."""


class Tables:
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


def _text() -> sa.types.TypeEngine[str]:
    """Text that is compared byte by byte, whatever the database's language."""
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
