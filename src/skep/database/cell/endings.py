"""Actions that are over, with the instances that they were about: what is told of them needs both."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from skep.database.cell import listing
from skep.domain.actions import Ended, Over


def with_instances(connection: sa.Connection, over: Iterable[Ended]) -> list[Over]:
    """Return each with its instance."""
    return [(one, listing.find(connection, one.instance)) for one in over]
