"""What of an offloaded instance goes with it to another cell: all that is known of it, but for where it was built.

A build that goes to another cell has no past: it is staged there from what was asked for. An offloaded server has one,
so its row is copied as it stands, with its actions, their events and its migrations.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell.event_facts import no_news
from skep.database.cell.tables import action_events, actions, instances, migrations
from skep.domain.ids import InstanceUuid

row = instances.c

_OF_THE_BUILD = frozenset(
    {
        "uuid",
        "availability_zone",
        "state",
        "task",
        "attempt",
        "highest",
        "owner",
        "host",
        "node",
        "epoch",
        "sent_at",
        "step_at",
        "changed_at",
        "terminated_at",
        "deleted_at",
        "forgotten",
        "alternates",
        "allocation",
        "left_cells",
        "secrets",
        "fault",
    }
)
"""Columns that say how far the build of an instance is in its cell: each cell has its own."""

_PAST = (actions, action_events, migrations)
_NUMBERED_BY_CELL = frozenset({"id"})

Values = dict[str, Any]


class Traveller(msgspec.Struct, frozen=True):
    """An instance on its way to another cell."""

    columns: Values
    past: dict[str, list[Values]]
    """Rows about it, by the name of their table."""


def pack(connection: sa.Connection, uuid: InstanceUuid) -> Traveller:
    """Return what goes with an instance that is frozen."""
    kept = [column for column in instances.c if column.name not in _OF_THE_BUILD]
    columns = connection.execute(sa.select(*kept).where(row.uuid == uuid)).mappings().one()
    return Traveller(dict(columns), {table.name: past_of(connection, table, uuid) for table in _PAST})


def unpack(connection: sa.Connection, uuid: InstanceUuid, traveller: Traveller) -> None:
    """Write what came with an instance into its staged row, and beside it; over what is left of an earlier stay."""
    connection.execute(instances.update().where(row.uuid == uuid).values(traveller.columns))
    forget(connection, uuid)
    with no_news(connection):
        for table in _PAST:
            if traveller.past[table.name]:
                connection.execute(table.insert(), traveller.past[table.name])


def forget(connection: sa.Connection, uuid: InstanceUuid) -> None:
    """Remove the past of an instance whose staged row is gone, or written anew."""
    for table in _PAST:
        connection.execute(table.delete().where(table.c.instance == uuid))


def past_of(connection: sa.Connection, table: sa.Table, uuid: InstanceUuid, **more: str) -> list[Values]:
    """Return the rows of a server in a table of its past, in their order, without the numbers that its cell gives them.

    `more`: columns, and what they must hold.
    """
    numbered = [column for column in table.c if column.name in _NUMBERED_BY_CELL]
    wanted = [table.c.instance == uuid, *(table.c[name] == value for name, value in more.items())]
    found = connection.execute(sa.select(table).where(*wanted).order_by(*numbered)).mappings()
    return [{name: value for name, value in dict(one).items() if name not in _NUMBERED_BY_CELL} for one in found]
