"""The writes of a move to another cell, in the cell that an instance leaves. All are fenced by the attempt of its row.

A row is handed back when no host of the cell is left; frozen (`leaving`) while another cell is tried; `moved` when the
mapping names the other cell, `error` when there is none (a shelved server is offloaded again then). A moved row is seen
by nobody and stays until its attempts are closed, like a deleted one that the level above knows of, or until the server
comes back.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import builds, numbers, resting
from skep.database.cell.builds import Work
from skep.database.cell.tables import UNDER_WAY, instances, migrations
from skep.database.cell.transitions import moving
from skep.database.cell.unreadable import give_up, or_none
from skep.database.constants import constants
from skep.database.stored import dump, load
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.instances import Fault, State
from skep.domain.states import before

row = instances.c

SINCE_0_8 = 1 << 62
"""Added to `sent_at` of shelved servers that may go to another cell. Conductors of before 0.8 would write such a row as
that of a new build: the time at which they take it never comes."""
_OF_SHELVED = row.sent_at >= SINCE_0_8


class Leaver(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that waits for another cell."""

    instance: InstanceUuid
    attempt: int
    highest: int
    """Of all numbers that its attempts were given."""


class Forsaken(msgspec.Struct, frozen=True, kw_only=True):
    """A shelved server that no conductor above takes to another cell."""

    instance: InstanceUuid
    attempt: int
    fault: Fault | None


def hand_back(
    connection: sa.Connection, uuid: InstanceUuid, attempt: int, fault: Fault, now: int, *, shelved: bool = False
) -> bool:
    """Write rescheduling -> handed_back, keeping why this cell has no host; False when the attempt was replaced."""
    return _write(
        connection,
        uuid,
        attempt,
        State.RESCHEDULING,
        state=State.HANDED_BACK.value,
        fault=dump(fault),
        owner=None,
        sent_at=SINCE_0_8 if shelved else None,
        host=None,
        node=None,
        step_at=now,
        changed_at=now,
    )


def forsaken(connection: sa.Connection, before: int, limit: int) -> list[Forsaken]:
    """Return shelved servers that were handed back before `before` and that nobody looks for a host for."""
    found = connection.execute(
        sa.select(row.uuid, row.attempt, row.fault)
        .where(
            UNDER_WAY,
            row.state == State.HANDED_BACK.value,
            row.task.is_(None),
            _OF_SHELVED,
            row.step_at < before,
            ~resting.resting(row.uuid),
        )
        .limit(limit)
    )
    return [
        Forsaken(instance=one.uuid, attempt=one.attempt, fault=load(one.fault, Fault) if one.fault else None)
        for one in found
    ]


def waiting(connection: sa.Connection, now: int, limit: int) -> list[Leaver]:
    """Return instances that the level above is to find another cell for."""
    found = connection.execute(
        sa.select(row.uuid, row.attempt, numbers.given().label("given"))
        .where(
            UNDER_WAY,
            row.state.in_(constants((State.HANDED_BACK, State.LEAVING))),
            row.task.is_(None),
            ~resting.resting(row.uuid),
            sa.or_(row.sent_at.is_(None), row.sent_at <= now, row.sent_at.between(SINCE_0_8, SINCE_0_8 + now)),
        )
        .order_by(row.step_at)
        .limit(limit)
    )
    return [Leaver(instance=one.uuid, attempt=one.attempt, highest=one.given) for one in found]


def freeze(connection: sa.Connection, uuid: InstanceUuid, attempt: int, taken: int, now: int) -> Work | None:
    """Write handed_back -> leaving and return the row as it stays from now on; None when it was replaced.

    `taken` is the attempt in the mapping: it is the row's highest number now, so that a conductor that was replaced
    above neither thaws the row nor lets it stay. A row that cannot be read becomes ERROR, so that nobody waits behind
    it.
    """
    frozen = connection.execute(
        instances.update()
        .where(
            row.uuid == uuid,
            row.attempt == attempt,
            row.task.is_(None),
            moving(frozenset({State.HANDED_BACK, State.LEAVING}), State.LEAVING),
        )
        .values(
            state=State.LEAVING.value,
            highest=taken,
            sent_at=sa.case((_OF_SHELVED, SINCE_0_8), else_=row.sent_at),
        )
        .returning(*builds.work_columns)
    ).first()
    if frozen is None:
        return None
    work = or_none(frozen, builds.work_of)
    if work is None:
        give_up(connection, uuid, attempt, now)
    return work


def thaw(connection: sa.Connection, uuid: InstanceUuid, attempt: int, taken: int, not_before: int) -> bool:
    """Write leaving -> handed_back: no cell can answer now; it is tried again from `not_before` on."""
    again = sa.case((_OF_SHELVED, SINCE_0_8 + not_before), else_=not_before)
    return _write(connection, uuid, attempt, State.LEAVING, taken, state=State.HANDED_BACK.value, sent_at=again)


def stay(connection: sa.Connection, uuid: InstanceUuid, attempt: int, taken: int, fault: Fault, now: int) -> bool:
    """Write leaving -> error: no other cell has a host. The server stays here, never in cell0."""
    return _write(connection, uuid, attempt, State.LEAVING, taken, **builds.ended(fault, now))


def linger(connection: sa.Connection, uuid: InstanceUuid, upto: int, until: int) -> bool:
    """Have the row of a shelved server stay frozen until then, though the mapping names another cell; once.

    Who read the mapping just before learns from this row that the image of the server is still needed. False for any
    other row, and when it has been so. `upto` as for `left`.
    """
    mine = sa.and_(
        row.uuid == uuid, row.attempt <= upto, row.state == State.LEAVING.value, row.sent_at == SINCE_0_8, UNDER_WAY
    )
    return connection.execute(instances.update().where(mine).values(sent_at=SINCE_0_8 + until)).rowcount == 1


def left(connection: sa.Connection, uuid: InstanceUuid, now: int, upto: int | None = None) -> bool:
    """Write leaving -> moved: the mapping names another cell.

    Or from handed_back or error: a conductor that found no cell has thawed the row, or let it stay, while another one
    moved the mapping. Only for who has read that the mapping names another cell, under the attempt `upto`: a server
    that has come back since has a higher one. Not while the row lingers.
    """
    return (
        connection.execute(
            instances.update()
            .where(
                row.uuid == uuid,
                moving(before(State.MOVED) - {State.AWAY}, State.MOVED),
                *([] if upto is None else [row.attempt <= upto, _lingered(now)]),
            )
            .values(
                state=State.MOVED.value,
                deleted_at=now,
                changed_at=now,
                forgotten=True,
                secrets=None,
                owner=None,
                sent_at=None,
            )
        ).rowcount
        == 1
    )


def _lingered(now: int) -> sa.ColumnElement[bool]:
    return sa.or_(row.sent_at.is_(None), row.sent_at <= SINCE_0_8 + now)


def left_since(connection: sa.Connection, uuid: InstanceUuid, above: int, now: int) -> bool:
    """Write any state of a build, error and offloaded -> moved, of a row that went back in time to before its move.

    Only for who has read that the mapping names another cell, and when no host has anything of it. Its attempt is
    raised above all that were ever made here (`above` is the newest that hosts have heard of), so that those which are
    open again are undone.
    """
    raised = numbers.raised(above)
    connection.execute(
        instances.update()
        .where(row.uuid == uuid, sa.or_(UNDER_WAY, row.state == State.SHELVED_OFFLOADED.value))
        .values(state=State.HANDED_BACK.value, **raised)
    )
    return left(connection, uuid, now)


def cells_left(connection: sa.Connection, uuid: InstanceUuid) -> list[CellUuid]:
    """Return the cells that an instance was in beside this one, each once; it may be back in one of them."""
    stored = connection.execute(_LEFT_CELLS, {"of": uuid}).scalar_one_or_none()
    left = () if stored is None else load(stored, tuple[CellUuid, ...])
    moved = connection.scalars(_MOVED_CELLS, {"of": uuid})
    return list(dict.fromkeys([*left, *(CellUuid(one) for one in moved)]))


_LEFT_CELLS = sa.select(row.left_cells).where(row.uuid == sa.bindparam("of"))
_OTHER_CELL = sa.func.coalesce(migrations.c.source_cell, migrations.c.dest_cell)
_MOVED_CELLS = (
    sa.select(_OTHER_CELL)
    .where(migrations.c.instance == sa.bindparam("of"), _OTHER_CELL.is_not(None))
    .order_by(migrations.c.id)
)
"""Made once, both: clients ask for the actions of servers again and again."""


def _write(
    connection: sa.Connection, uuid: InstanceUuid, attempt: int, was: State, taken: int | None = None, **values: Any
) -> bool:
    return (
        connection.execute(
            instances.update()
            .where(
                row.uuid == uuid,
                row.attempt == attempt,
                row.task.is_(None),
                moving(was, State(values["state"])),
                *([] if taken is None else [row.highest == taken]),
            )
            .values(**values)
        ).rowcount
        == 1
    )
