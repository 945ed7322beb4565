"""Values that the program itself names in its statements."""

from __future__ import annotations

import re
from collections.abc import Iterable

import sqlalchemy as sa

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def constants(values: Iterable[str]) -> list[sa.ColumnElement[str]]:
    """Return words as text of a statement, for `in_`.

    SQLAlchemy writes a list of parameters into its statement anew at each execution, which costs as much as the
    execution itself; a list of constants is written once. The words are sorted: one set is one text.

    Raises ValueError for what is no word of the program's: nothing from outside may get here.
    """
    words = sorted(values)
    for word in words:
        if _WORD.fullmatch(word) is None:
            raise ValueError(f"{word!r}: expected a word of letters, digits, underscores and hyphens")
    return [sa.literal_column(f"'{word}'", sa.String) for word in words]
