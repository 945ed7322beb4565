"""The one collection of the API database's tables."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()


def json_bytes(name: str, *, nullable: bool = False) -> sa.Column[bytes]:
    """Declare a column that holds JSON which no statement looks into."""
    return sa.Column(name, sa.LargeBinary, nullable=nullable)
