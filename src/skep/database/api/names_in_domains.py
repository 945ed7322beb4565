"""Names that are unique within a domain, in columns that are unique in the whole table.

The names of the first domain are stored as they are, as releases wrote them that knew no other. Such a release finds
names of other domains by none that a client can send.
"""

from __future__ import annotations

import sqlalchemy as sa

FIRST_DOMAIN = "default"
"""Id of the domain that every cloud has."""

_SEPARATOR = "\n"
"""No name holds it."""


def stored(name: str, domain_id: str) -> str:
    """Return what stands in the column."""
    return name if domain_id == FIRST_DOMAIN else f"{name}{_SEPARATOR}{domain_id}"


def shown(text: str) -> str:
    """Return the name alone."""
    return text.partition(_SEPARATOR)[0]


def is_named(column: sa.ColumnElement[str], name: str) -> sa.ColumnElement[bool]:
    """Return the condition that a name is this one, whatever its domain."""
    return sa.or_(column == name, column.startswith(name + _SEPARATOR, autoescape=True))
