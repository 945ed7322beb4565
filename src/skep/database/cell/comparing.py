"""What a cell says when databases are compared of which one went back in time, and what its rows follow then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import actions, hand_overs, moves, numbers, recovery
from skep.database.cell.builds import Work, work
from skep.database.cell.instances import columns_of
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.tables import found_guests, instances, recovering_instances
from skep.database.constants import constants
from skep.database.stored import dump
from skep.database.upsert import insert
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, NodeUuid, new_request_id
from skep.domain.instances import State, Task
from skep.domain.recovery import Adopt, FoundGuest, was_deleted
from skep.domain.request_specs import RequestSpec
from skep.domain.states import ENDS, UNSEEN

row = instances.c
found = found_guests.c

_NO_SERVER = UNSEEN | ENDS
"""States of rows that are no server that lives, as far as their cell knows."""


class Living(msgspec.Struct, frozen=True, kw_only=True):
    """A row that is the server, as far as its cell knows."""

    uuid: InstanceUuid
    state: State
    attempt: int


class CellServer(msgspec.Struct, frozen=True, kw_only=True):
    """What one cell says of one server."""

    uuid: InstanceUuid
    living: Living | None
    hosts: tuple[str, ...]
    """Hosts that told of a guest or build of it which no row names."""
    highest: int
    """The newest attempt that the cell, or one of its hosts, has heard of."""
    deleted: bool = False
    """Whether the last that hosts have heard of it is that it was deleted."""
    staged: bool = False
    """Whether there is a row that was staged, and not seen yet, in the moment to which the cell went back."""


def living(connection: sa.Connection, after: str, limit: int) -> list[Living]:
    """Return rows that are servers, by their UUIDs, some at a time."""
    query = sa.select(row.uuid, row.state, row.attempt).where(
        row.deleted_at.is_(None), row.state.not_in(constants(_NO_SERVER)), row.uuid > after
    )
    return [_living(one) for one in connection.execute(query.order_by(row.uuid).limit(limit))]


def deleted(connection: sa.Connection, after: str, limit: int) -> list[str]:
    """Return deleted rows of which the cell believes that this is known above, some at a time."""
    query = sa.select(row.uuid).where(row.state == State.DELETED.value, row.forgotten, row.uuid > after)
    return list(connection.scalars(query.order_by(row.uuid).limit(limit)))


def server(connection: sa.Connection, uuid: InstanceUuid) -> Work | None:
    """Return a server with what was asked for."""
    return work(connection, uuid)


def say(connection: sa.Connection, uuids: Sequence[str]) -> list[CellServer]:
    """Return what is known here of servers."""
    rows = {
        one.uuid: one
        for one in connection.execute(
            sa.select(row.uuid, row.state, row.attempt, row.highest, row.deleted_at).where(row.uuid.in_(uuids))
        )
    }
    tried = _highest(connection, sa.select(attempt_rows.c.instance, sa.func.max(attempt_rows.c.attempt)), uuids)
    heard = _highest(connection, sa.select(found.instance, sa.func.max(found.highest)), uuids)
    guests = recovery.guests_of(connection, uuids)
    said = []
    for uuid in uuids:
        one = rows.get(uuid)
        lives = one is not None and one.deleted_at is None and one.state not in _NO_SERVER
        told = [] if lives else _hosts_with(connection, uuid)
        here = (one.attempt, one.highest) if one is not None else ()
        said.append(
            CellServer(
                uuid=InstanceUuid(uuid),
                living=_living(one) if lives else None,
                hosts=tuple(told),
                highest=max(tried.get(uuid, 0), heard.get(uuid, 0), *here),
                deleted=not lives and was_deleted(guests.get(uuid, ())),
                staged=one is not None and one.state == State.STAGED.value,
            )
        )
    return said


def expect_unknown(connection: sa.Connection, hosts: Sequence[tuple[NodeUuid, str]]) -> None:
    """Wait for hosts too whose registration was lost."""
    for node, name in hosts:
        recovery.expect(connection, node, name)


def follow_above(
    connection: sa.Connection, over: Sequence[str], moved: Sequence[str], unknown: Sequence[str], now: int
) -> None:
    """Have rows follow what is known above: servers that are deleted, moved to another cell, or not known there."""
    for uuid in over:
        recovery.let_go(connection, InstanceUuid(uuid))
        highest = _highest(connection, sa.select(found.instance, sa.func.max(found.highest)), [uuid]).get(uuid, 0)
        connection.execute(
            instances.update()
            .where(row.uuid == uuid, row.deleted_at.is_(None), row.task.is_distinct_from(Task.DELETING.value))
            .values(
                **numbers.raised(above=highest),
                task=Task.DELETING.value,
                task_id=new_request_id(),
                owner=None,
                sent_at=None,
                secrets=None,
                step_at=now,
                changed_at=now,
            )
        )
    for uuid in moved:
        if _hosts_with(connection, uuid) or not leave(connection, InstanceUuid(uuid), now):
            _doubt(connection, uuid, "the mapping names another cell")
    for uuid in unknown:
        _doubt(connection, uuid, "not mapped above")


def leave(connection: sa.Connection, uuid: InstanceUuid, now: int) -> bool:
    """Have a row follow a mapping that names another cell, once no host here has anything of it."""
    highest = _highest(connection, sa.select(found.instance, sa.func.max(found.highest)), [uuid]).get(uuid, 0)
    if not moves.left_since(connection, uuid, highest, now):
        return False
    recovery.let_go(connection, uuid)
    return True


def be_away(connection: sa.Connection, uuid: InstanceUuid, now: int) -> bool:
    """Have the row of a server that a move gave to another cell be away; its host keeps what it has."""
    if not hand_overs.leave(connection, uuid, now):
        return False
    recovery.let_go(connection, uuid)
    return True


def lost(connection: sa.Connection) -> dict[InstanceUuid, list[FoundGuest]]:
    """Return what hosts told, but for what is aside, of servers with a whole guest that the cell has no row of."""
    known = sa.exists(sa.select(row.uuid).where(row.uuid == found.instance))
    uuids = connection.scalars(sa.select(found.instance).where(found.phase == "whole", ~known).distinct()).all()
    guests = recovery.guests_of(connection, uuids)
    return {
        InstanceUuid(uuid): [one for one in guests[uuid] if one.phase not in ("none", "aside", recovery.UNDO)]
        for uuid in uuids
    }


def remake(connection: sa.Connection, guest: FoundGuest, spec: RequestSpec, context: RequestContext, now: int) -> bool:
    """Make the row of a guest anew, as its host described it; False when there is one by now, or no description."""
    if guest.described is None:
        return False
    instance = msgspec.structs.replace(
        guest.described, state=State.BUILDING, task=None, attempt=guest.attempt, host=guest.host, node=guest.node
    )
    values: dict[str, Any] = {
        **columns_of(instance),
        "epoch": "",
        "step_at": now,
        "changed_at": now,
        "forgotten": False,
        "context": dump(context),
        "spec": dump(spec),
        "alternates": dump(()),
        "left_cells": "[]",
    }
    made = connection.execute(insert(connection, instances).values(values).on_conflict_do_nothing()).rowcount
    if made == 1:
        actions.begin(connection, [actions.action_of(instance.uuid, actions.CREATE, context, instance.created_at)])
        recovery.adopt(connection, instance.uuid, Adopt(guest), now)
    return made == 1


def _doubt(connection: sa.Connection, uuid: str, reason: str) -> None:
    statement = insert(connection, recovering_instances).values(instance=uuid, doubt=reason)
    connection.execute(statement.on_conflict_do_update(index_elements=["instance"], set_={"doubt": reason}))


def _living(one: Any) -> Living:
    return Living(uuid=InstanceUuid(one.uuid), state=State(one.state), attempt=one.attempt)


def _hosts_with(connection: sa.Connection, uuid: str) -> list[str]:
    query = sa.select(found.host).where(found.instance == uuid, found.phase.not_in(("none", recovery.UNDO))).distinct()
    return list(connection.scalars(query.order_by(found.host)))


def _highest(connection: sa.Connection, query: sa.Select[Any], uuids: Sequence[str]) -> dict[str, int]:
    column = query.selected_columns[0]
    return {one[0]: one[1] for one in connection.execute(query.where(column.in_(uuids)).group_by(column))}
