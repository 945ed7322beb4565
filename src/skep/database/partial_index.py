"""Indexes of some of a table's rows, for both kinds of database."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa


def where(condition: str | sa.TextClause, postgresql: str | None = None) -> dict[str, Any]:
    """Return the keyword arguments of an index that holds only the rows of which `condition` is true.

    `postgresql` is the same condition in the words of PostgreSQL, where they differ: a boolean is no number there.
    """
    text = condition if isinstance(condition, str) else condition.text
    return {"sqlite_where": sa.text(text), "postgresql_where": sa.text(postgresql or text)}
