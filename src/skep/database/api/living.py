"""Whether a server lives, as its mapping has it: a condition of statements on other tables."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.tables import instance_mappings

_mapping = instance_mappings.c


def lives(instance: sa.ColumnElement[str] | str) -> sa.Exists:
    """Say of a server, by the column or the value of its UUID, that it is mapped and not deleted."""
    return sa.exists().where(_mapping.instance == instance, _mapping.deleted_at.is_(None))
