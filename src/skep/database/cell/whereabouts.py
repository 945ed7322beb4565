"""What rows say of where their instances are, to be compared with mappings, attempts and claims."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell.moves import SINCE_0_8
from skep.database.cell.tables import UNDER_WAY, attempts, instances, migrations
from skep.database.constants import constants
from skep.domain.ids import InstanceUuid
from skep.domain.instances import State, Task
from skep.domain.moves import CHOICES, SEEK
from skep.domain.states import ON_HOST, PLACELESS

row = instances.c

_COLUMNS = (row.uuid, row.state, row.attempt, row.host)


class Whereabouts(msgspec.Struct, frozen=True, kw_only=True):
    """Where an instance is, by its row."""

    uuid: InstanceUuid
    state: str
    """As it stands there: a damaged row, or one of another release, is compared like any other."""
    attempt: int
    host: str | None
    lingers: bool = False
    """The server is in another cell, and its row here is kept for a while (`moves.linger`)."""


def hosts_of(connection: sa.Connection, uuids: Collection[str]) -> dict[str, str | None]:
    """Return the host, or None, of each of these instances that is not deleted."""
    query = sa.select(row.uuid, row.host).where(row.uuid.in_(uuids), row.deleted_at.is_(None))
    return {one.uuid: one.host for one in connection.execute(query)}


def living(connection: sa.Connection, after: str, limit: int) -> list[Whereabouts]:
    """Return rows that are not deleted, staged ones too, by their UUIDs, some at a time."""
    lingers = sa.and_(row.state == State.LEAVING.value, row.sent_at > SINCE_0_8).label("lingers")
    query = sa.select(*_COLUMNS, lingers).where(row.deleted_at.is_(None), row.uuid > after)
    found = connection.execute(query.order_by(row.uuid).limit(limit))
    return [msgspec.structs.replace(_whereabouts(one), lingers=bool(one.lingers)) for one in found]


def known(connection: sa.Connection, uuids: Sequence[str]) -> dict[str, int | None]:
    """Return which of these rows there are, each with when it was deleted if the cell takes that for known above."""
    query = sa.select(row.uuid, row.deleted_at, row.forgotten).where(row.uuid.in_(uuids))
    return {one.uuid: one.deleted_at if one.forgotten else None for one in connection.execute(query)}


def placeless(connection: sa.Connection, uuids: Sequence[str]) -> list[Whereabouts]:
    """Return those of these rows for which a host may be chosen right now, and that name none yet."""
    query = sa.select(*_COLUMNS).where(UNDER_WAY, row.uuid.in_(uuids), row.state.in_(constants(PLACELESS)))
    return [_whereabouts(one) for one in connection.execute(query)]


def chosen_for_moves(connection: sa.Connection, uuids: Sequence[str]) -> set[tuple[str, int]]:
    """Return those of these instances for which a move chooses a host right now, with the attempt that is to be there.

    What is chosen stands in no row yet.
    """
    move = migrations.c
    query = sa.select(move.instance, move.dest_attempt).where(
        move.step.in_(constants({*CHOICES, SEEK})), move.dest_attempt.is_not(None), move.instance.in_(uuids)
    )
    return {(one.instance, one.dest_attempt) for one in connection.execute(query)}


def without_attempt(connection: sa.Connection) -> list[Whereabouts]:
    """Return rows on a host that have no open attempt there and are not being deleted."""
    attempt = attempts.c
    opened = sa.exists().where(
        attempt.instance == row.uuid, attempt.attempt == row.attempt, attempt.host == row.host, attempt.open
    )
    query = sa.select(*_COLUMNS).where(
        row.deleted_at.is_(None),
        row.state.in_(constants(ON_HOST)),
        row.task.is_distinct_from(Task.DELETING.value),
        ~opened,
    )
    return [_whereabouts(one) for one in connection.execute(query)]


def _whereabouts(found: Any) -> Whereabouts:
    return Whereabouts(uuid=InstanceUuid(found.uuid), state=found.state, attempt=found.attempt, host=found.host)
