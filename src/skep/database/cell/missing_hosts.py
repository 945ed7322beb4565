"""Attempts on hosts that their cell does not know: nobody is there to end them, and no fence can name such a host.

An operator gives them up one by one. Should the host come back after all, it is told of them again.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.cell import attempts, builds, deletes, reschedules, tasks
from skep.database.cell.tables import agents, instances
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.transitions import moving
from skep.domain.actions import Ended
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import Fault, State, Task
from skep.domain.server_events import GIVEN_UP
from skep.domain.states import before

row = instances.c
attempt_row = attempt_rows.c

OUTCOME = attempts.HOST_MISSING

NO_AGENT = ~sa.exists().where(agents.c.node == attempt_row.node)
"""Says of an attempt that its cell does not know the host."""


def give_up(connection: sa.Connection, instance: InstanceUuid, attempt: int, now: int) -> list[Ended] | None:
    """Close an open attempt on a host that the cell does not know; None when there is none.

    Return the actions that are over with it.
    A build that had not begun goes to another host. A server that may have a guest there is ERROR, so that it can be
    deleted; its attempt is not raised: a host that comes back with the guest has what the row says.
    """
    mine = sa.and_(attempt_row.instance == instance, attempt_row.attempt == attempt, attempt_row.open, NO_AGENT)
    found = connection.execute(sa.select(attempt_row.host).where(mine)).first()
    server = connection.execute(
        sa.select(row.attempt, row.state, row.task).where(row.uuid == instance, row.deleted_at.is_(None))
    ).first()
    if found is None or (server is not None and server.state == State.STAGED):
        return None
    ended: list[Ended | None] = []
    current = server is not None and server.attempt == attempt and server.task != Task.DELETING
    if current and not reschedules.take_from_host(connection, instance, attempt, now):
        ended += _lose(connection, instance, attempt, found.host, now)
    closed = {"open": False, "outcome": OUTCOME, "ended_at": now}
    connection.execute(attempt_rows.update().where(mine).values(closed))
    ended.append(deletes.finish_if_closed(connection, instance, now))
    return [one for one in ended if one is not None]


def came_back(connection: sa.Connection, node: NodeUuid) -> int:
    """Open what was given up of a host that is here again: it says what is left of it. Return how many attempts."""
    built = sa.exists().where(
        row.uuid == attempt_row.instance, row.attempt == attempt_row.attempt, row.launched_at.is_not(None)
    )
    beside = sa.exists().where(row.uuid == attempt_row.instance, row.attempt < attempt_row.attempt)
    return connection.execute(
        attempt_rows.update()
        .where(attempt_row.node == node, attempt_row.outcome == OUTCOME, ~attempt_row.open)
        .values(
            open=True,
            outcome=sa.case((built, "built"), (beside, GIVEN_UP), else_=sa.null()),
            sent_at=None,
            sends=0,
        )
    ).rowcount


def _lose(connection: sa.Connection, instance: InstanceUuid, attempt: int, host: str, now: int) -> list[Ended | None]:
    current = sa.and_(row.uuid == instance, row.attempt == attempt)
    why = f"The host of the server is not known: {tasks.UNKNOWN}"
    ended = [tasks.settle(connection, task, now, why) for task in tasks.of(connection, current)]
    fault = Fault(
        code=500,
        message="The host of the server is not part of this cloud any more",
        created_at=now,
        details=f"host {host} is not known to its cell; whether it has a guest of the server is not known",
    )
    values = {**builds.ended(fault, now), "task": None}
    del values["host"], values["node"]
    # What is soft-deleted stays so, until it is deleted.
    lost = before(State.ERROR) - {State.SOFT_DELETED}
    connection.execute(instances.update().where(current, moving(lost, State.ERROR)).values(values))
    return ended
