"""Hosts that an operator declared dead for good, and what becomes of all that was on them.

Fencing raises the attempt of every row that its host still had, so that whatever a host brings back after all is stale,
and undone like any other attempt that its row has left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import builds, deletes, tasks, unreadable
from skep.database.cell.tables import agents, instances
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.stored import dump, load
from skep.domain.claims import ClaimKey
from skep.domain.ids import GroupUuid, InstanceUuid, NodeUuid
from skep.domain.instances import Fault, State, Task
from skep.domain.request_specs import RequestSpec

row = instances.c
attempt = attempt_rows.c

OUTCOME = "fenced"

_UNDER_WAY = (State.SCHEDULED.value, State.BUILDING.value, State.SPAWNING.value)


class FencedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that is dead for good, as far as anybody knows."""

    node: NodeUuid
    host: str


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """What was closed in one go."""

    released: tuple[ClaimKey, ...] = ()
    rescheduled: int = 0
    lost: int = 0
    """Servers that ran there, in ERROR now."""
    deleted: int = 0


def declare(connection: sa.Connection, node: NodeUuid, now: int) -> bool:
    """Write that the host of a node is dead for good; False when the cell has no such node. It may be repeated."""
    fenced_at = sa.func.coalesce(agents.c.fenced_at, now)
    return connection.execute(agents.update().where(agents.c.node == node).values(fenced_at=fenced_at)).rowcount == 1


def fenced(connection: sa.Connection) -> list[FencedHost]:
    """Return the hosts that are fenced."""
    found = connection.execute(
        sa.select(agents.c.node, agents.c.host).where(agents.c.fenced_at.is_not(None)).order_by(agents.c.host)
    )
    return [FencedHost(node=NodeUuid(one.node), host=one.host) for one in found]


def close(connection: sa.Connection, host: FencedHost, now: int, limit: int) -> Closed:
    """Close up to `limit` open attempts of a fenced host.

    Builds go to another host, also past the point of no return: nobody is there to finish them. Servers that ran are
    ERROR and keep the host's name; those that are being deleted are deleted. Nothing is closed of a host that came back
    since it was looked up: it undoes what is open.
    """
    if not _is_fenced(connection, host.node):
        return Closed()
    mine = [
        (one.instance, one.attempt)
        for one in connection.execute(
            sa.select(attempt.instance, attempt.attempt).where(attempt.node == host.node, attempt.open).limit(limit)
        )
    ]
    if not mine:
        return Closed()
    groups = _groups(connection, [instance for instance, _ in mine])
    rescheduled = _reschedule(connection, mine, now)
    lost = _lose(connection, mine, host, now)
    closed = connection.execute(
        attempt_rows.update()
        .where(sa.tuple_(attempt.instance, attempt.attempt).in_(mine))
        .values(open=False, outcome=OUTCOME, ended_at=now)
        .returning(attempt.instance, attempt.attempt, attempt.node)
    ).all()
    return Closed(
        released=tuple(ClaimKey(one.instance, one.attempt, one.node, groups.get(one.instance)) for one in closed),
        rescheduled=rescheduled,
        lost=lost,
        deleted=sum(
            deletes.finish_if_closed(connection, instance, now) for instance in {one.instance for one in closed}
        ),
    )


def came_back(connection: sa.Connection, node: NodeUuid) -> int:
    """Take a fence back, because its host is heard: all that it had is to be undone there. Return how many attempts."""
    connection.execute(agents.update().where(agents.c.node == node).values(fenced_at=None))
    return connection.execute(
        attempt_rows.update()
        .where(attempt.node == node, attempt.outcome == OUTCOME, ~attempt.open)
        .values(open=True, sent_at=None, sends=0)
    ).rowcount


def _is_fenced(connection: sa.Connection, node: NodeUuid) -> bool:
    """Whether the host of a node is still fenced; it stays so until the transaction ends, for the row is written."""
    mine = sa.and_(agents.c.node == node, agents.c.fenced_at.is_not(None))
    return connection.execute(agents.update().where(mine).values(fenced_at=agents.c.fenced_at)).rowcount == 1


def _groups(connection: sa.Connection, uuids: Sequence[InstanceUuid]) -> dict[str, GroupUuid]:
    found = connection.execute(sa.select(row.uuid, row.spec).where(row.uuid.in_(uuids)))
    specs = {one.uuid: unreadable.or_none(one, _spec) for one in found}
    return {uuid: spec.group.uuid for uuid, spec in specs.items() if spec is not None and spec.group is not None}


def _spec(found: Any) -> RequestSpec:
    spec: RequestSpec = load(found.spec, RequestSpec)
    return spec


def _reschedule(connection: sa.Connection, mine: Sequence[tuple[str, int]], now: int) -> int:
    return connection.execute(
        instances.update()
        .where(sa.tuple_(row.uuid, row.attempt).in_(mine), row.task.is_(None), row.state.in_(_UNDER_WAY))
        .values(attempt=row.attempt + 1, **builds.ended(None, now))
    ).rowcount


def _lose(connection: sa.Connection, mine: Sequence[tuple[str, int]], host: FencedHost, now: int) -> int:
    """Write ERROR for what ran there. One that is ERROR for another reason, and has no host, keeps its fault."""
    current = sa.and_(sa.tuple_(row.uuid, row.attempt).in_(mine), row.task.is_distinct_from(Task.DELETING.value))
    for task in tasks.of(connection, current):
        tasks.give_up(connection, task, now)
    fault = Fault(
        code=500,
        message="The host of the server was fenced: it is dead for good",
        created_at=now,
        details=f"host {host.host} was fenced",
    )
    lost = connection.execute(
        instances.update()
        .where(current, row.host == host.host, row.state.not_in(_UNDER_WAY))
        .values(
            attempt=row.attempt + 1,
            state=State.ERROR.value,
            fault=dump(fault),
            secrets=None,
            task=None,
            sent_at=None,
            step_at=now,
            changed_at=now,
            updated_at=now,
        )
    ).rowcount
    connection.execute(instances.update().where(current, row.host.is_(None)).values(attempt=row.attempt + 1))
    return lost
