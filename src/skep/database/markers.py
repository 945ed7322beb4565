"""Pages of sorted lists: what comes behind the row that a client names as its marker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa


class SortKey(NamedTuple):
    """What rows are sorted by."""

    value: sa.ColumnElement[Any]
    of_marker: Any
    descends: bool


def behind(keys: Sequence[SortKey]) -> sa.ColumnElement[bool]:
    """Return the condition for rows behind the marker: the first keys equal, the next one beyond."""
    alternatives = []
    for position, key in enumerate(keys):
        equal = [earlier.value == earlier.of_marker for earlier in keys[:position]]
        beyond = key.value < key.of_marker if key.descends else key.value > key.of_marker
        alternatives.append(sa.and_(*equal, beyond))
    return sa.or_(*alternatives)
