"""The writes of a second try inside a cell, and of builds whose host is silent. All are fenced by the attempt."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database import leases as lease_rows
from skep.database.cell import agents, assignments, attempts, builds, numbers, resting, unreadable
from skep.database.cell.builds import Work
from skep.database.cell.instances import ANEW
from skep.database.cell.resending import AGAIN_AT_ONCE
from skep.database.cell.tables import UNDER_WAY, instances, leases
from skep.database.cell.transitions import moving
from skep.database.stored import dump
from skep.domain.assignments import Role
from skep.domain.builds import Placed
from skep.domain.ids import Incarnation, InstanceUuid
from skep.domain.instances import Fault, State

row = instances.c


class Overdue(msgspec.Struct, frozen=True, kw_only=True):
    """A build whose host is silent."""

    instance: InstanceUuid
    attempt: int
    host: str | None


def take(connection: sa.Connection, owner: Incarnation, now: int, limit: int) -> list[Work]:
    """Take instances that need another host of this cell and that nobody living works on, raising their attempt."""
    taken = connection.execute(_TAKE, {"mine": owner, "now": now, "most": limit}).all()
    return unreadable.sifted(connection, taken, builds.work_of, now)


_FREE = sa.and_(
    UNDER_WAY,
    row.state == State.RESCHEDULING,
    row.task.is_(None),
    ~resting.resting(row.uuid),
    row.bound_to.is_distinct_from(ANEW),
    sa.or_(row.sent_at.is_(None), row.sent_at <= lease_rows.NOW),
    sa.or_(row.owner == sa.bindparam("mine"), lease_rows.unowned(leases, row.owner)),
)
_TAKE = (
    instances.update()
    .where(
        row.uuid.in_(
            sa.select(row.uuid).where(_FREE).order_by(row.step_at).limit(sa.bindparam("most", type_=sa.Integer))
        )
    )
    .values(owner=sa.bindparam("mine"), host=None, node=None, **numbers.raised())
    .returning(*builds.work_columns)
)


def give_back(connection: sa.Connection, uuid: InstanceUuid, attempt: int, not_before: int) -> None:
    """Let anybody take the instance again, from `not_before` on."""
    connection.execute(
        instances.update()
        .where(row.uuid == uuid, row.attempt == attempt, row.state == State.RESCHEDULING, row.task.is_(None))
        .values(owner=None, sent_at=not_before)
    )


_RESCHEDULED = instances.update().where(
    row.uuid == sa.bindparam("of"),
    row.attempt == sa.bindparam("of_attempt"),
    moving(State.RESCHEDULING, State.SCHEDULED),
    row.task.is_(None),
)


def rescheduled(
    connection: sa.Connection, uuid: InstanceUuid, attempt: int, placed: Placed, now: int, role: Role = "build"
) -> bool:
    """Write rescheduling -> scheduled on the next host; False when the attempt was replaced or the host is deleted."""
    if agents.closed(connection, [placed.node]):
        return False
    values = {
        "state": State.SCHEDULED.value,
        "epoch": placed.epoch,
        "availability_zone": placed.zone,
        "alternates": dump(placed.alternates),
        "owner": None,
        "sent_at": None,
        "step_at": now,
        "changed_at": now,
        "updated_at": now,
        **assignments.columns_of(placed),
    }
    moved = connection.execute(_RESCHEDULED, {"of": uuid, "of_attempt": attempt, **values}).rowcount
    if moved:
        attempts.begin(connection, [attempts.of_decision(uuid, attempt, placed, placed.explanation, now, role)])
    return moved == 1


def exhausted(connection: sa.Connection, uuid: InstanceUuid, attempt: int, fault: Fault, now: int) -> bool:
    """Write rescheduling -> error: no other host; False when the attempt was replaced."""
    return (
        connection.execute(
            instances.update()
            .where(
                row.uuid == uuid, row.attempt == attempt, moving(State.RESCHEDULING, State.ERROR), row.task.is_(None)
            )
            .values(**builds.ended(fault, now))
        ).rowcount
        == 1
    )


def overdue(connection: sa.Connection, state: State, before: int, limit: int) -> list[Overdue]:
    """Return instances that have been in the build state `state` since before `before` without progress.

    What its host was never told of is not the host's fault.
    """
    found = connection.execute(
        sa.select(row.uuid, row.attempt, row.host)
        .where(
            UNDER_WAY,
            row.state == state,
            row.task.is_(None),
            row.step_at < before,
            ~resting.resting(row.uuid),
            ~resting.awaited(row.host),
            sa.or_(row.state != State.SCHEDULED, row.sent_at > AGAIN_AT_ONCE),
        )
        .order_by(row.step_at)
        .limit(limit)
    )
    return [Overdue(instance=one.uuid, attempt=one.attempt, host=one.host) for one in found]


def take_from_host(connection: sa.Connection, uuid: InstanceUuid, attempt: int, now: int) -> bool:
    """Take a build away from its host, before the point of no return; False when it is past that, or was replaced.

    The build waits for another host, under the next attempt. A host that was never told of it does not count as tried.
    """
    mine = sa.and_(
        row.uuid == uuid,
        row.attempt == attempt,
        row.task.is_(None),
        moving(frozenset({State.SCHEDULED, State.BUILDING}), State.RESCHEDULING),
        ~resting.resting(row.uuid),
    )
    unsent = connection.execute(sa.select(row.uuid).where(mine, row.state == State.SCHEDULED, row.sent_at.is_(None)))
    if unsent.first() is not None:
        attempts.not_sent(connection, {uuid: attempt + 1}, now)
    replaced = instances.update().where(mine).values(**numbers.raised(), **builds.ended(None, now))
    return connection.execute(replaced).rowcount == 1


def give_up_on_host(connection: sa.Connection, uuid: InstanceUuid, attempt: int, fault: Fault, now: int) -> bool:
    """After the point of no return: ERROR, but host, claim and attempt stay until the host is heard again."""
    return (
        connection.execute(
            instances.update()
            .where(row.uuid == uuid, row.attempt == attempt, row.task.is_(None), moving(State.SPAWNING, State.ERROR))
            .values(
                state=State.ERROR.value,
                fault=dump(fault),
                secrets=None,
                step_at=now,
                changed_at=now,
                updated_at=now,
            )
        ).rowcount
        == 1
    )
