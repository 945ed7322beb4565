"""Live migrations inside a cell: how they begin, what is wished of them while they run, how far they are.

They take their steps as cold moves do (`move_steps.py`). A wish stands in the row of the migration: the source, which
copies, is told of it again until the step is over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import sqlalchemy as sa

from skep.database.cell import attempts, resting, second_bindings, tasks
from skep.database.cell.cold_moves import COLUMNS, Move, as_it_was, held, mine, move_of, over_with, told
from skep.database.cell.tables import agents, instances, migrations
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.constants import constants
from skep.domain.actions import Action, Over
from skep.domain.builds import BuildFailure
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest
from skep.domain.ids import InstanceUuid, NodeUuid, new_uuid
from skep.domain.instances import Instance
from skep.domain.moves import ABORTED, STEPS
from skep.domain.resources import DISK_GB, MEMORY_MB
from skep.domain.server_migrations import HALVED, QUEUED, CopyFigures, MigrationType

row = instances.c
move = migrations.c
attempt = attempt_rows.c

COPYING = second_bindings.COPYING
PREPARING = second_bindings.PREPARING
WAITING = (second_bindings.SELECTING, PREPARING)
"""Steps that touch no guest: a conductor ends them by itself."""

LEAST_GIB = 2
"""A guest counts at least so much where its size says how long its copying may take (Nova's rule)."""


def begin(
    connection: sa.Connection,
    server: Instance,
    action: Action,
    context: RequestContext,
    now: int,
    *,
    wanted_host: str | None = None,
    forced: bool = False,
) -> list[Over] | None:
    """Begin a live migration of a server; return what that ended, None when the row does not allow it."""
    over = tasks.begin_over(connection, server.uuid, action, context, now)
    if over is None:
        return None
    first = STEPS["live_select"]
    connection.execute(
        migrations.insert().values(
            uuid=new_uuid(),
            instance=server.uuid,
            project_id=context.project_id,
            user_id=context.user_id,
            type=MigrationType.LIVE.value,
            status=first.status,
            source_host=server.host,
            source_node=server.node,
            source_attempt=server.attempt,
            source_zone=server.availability_zone,
            old_flavor=server.flavor.flavorid,
            new_flavor=server.flavor.flavorid,
            wanted_host=wanted_host,
            forced=forced,
            was=server.state.value,
            task_id=context.request_id,
            step=first.name,
            step_at=now,
            created_at=now,
        )
    )
    return over


def abort(connection: sa.Connection, server: InstanceUuid, uuid: str, statuses: tuple[str, ...]) -> None:
    """Wish that a live migration comes to nothing. Raises BadRequest in any other status than these."""
    wanted = sa.and_(move.step.in_(constants((*WAITING, COPYING))), move.status.in_(statuses))
    _wish(connection, server, uuid, "abort", wanted)


def complete(connection: sa.Connection, server: InstanceUuid, uuid: str) -> None:
    """Wish that a live migration ends soon. Raises BadRequest for one that does not copy its guest."""
    wanted = sa.and_(move.step == COPYING, move.status != HALVED, sa.or_(move.wish.is_(None), move.wish == "complete"))
    _wish(connection, server, uuid, "complete", wanted)


def _wish(
    connection: sa.Connection, server: InstanceUuid, uuid: str, wish: str, wanted: sa.ColumnElement[bool]
) -> None:
    found = sa.and_(move.uuid == uuid, move.instance == server)
    if connection.execute(migrations.update().where(found, wanted).values(wish=wish, sent_at=None)).rowcount:
        return
    status = connection.execute(sa.select(move.status).where(found)).scalar_one_or_none()
    method = "force_complete" if wish == "complete" else wish
    raise BadRequest(
        f"Migration {uuid} state of instance {server} is {status}. Cannot {method} while the migration is in this "
        "state."
    )


def wished() -> sa.ColumnElement[bool]:
    """Say of a move that its source was told of a wish before `resend_before` and has not ended the copying."""
    before = sa.bindparam("resend_before", type_=sa.BigInteger)
    return sa.and_(move.step == COPYING, move.wish.is_not(None), move.sent_at < before)


_CANCELLED = (
    sa.select(*COLUMNS)
    .where(
        move.step.is_not(None),
        sa.or_(move.step.in_(constants(WAITING)), second_bindings.PENDING),
        move.wish == "abort",
        ~resting.move_rests(move.instance, move.source_host, move.dest_host),
    )
    .limit(sa.bindparam("most", type_=sa.Integer))
)


def cancel(connection: sa.Connection, now: int, limit: int) -> list[Over]:
    """End live migrations that are to come to nothing and whose copying has not begun: nothing was touched."""
    over: list[Over] = []
    for found in connection.execute(_CANCELLED, {"most": limit}).all():
        known = move_of(found)
        if held(connection, known) is None:
            continue
        why = f"{ABORTED}: it was aborted before its copying began"
        if known.dest_attempt is not None:
            attempts.give_up(connection, known.instance, known.dest_attempt, now)
        connection.execute(migrations.update().where(move.uuid == known.uuid).values(over_with("cancelled", now, why)))
        connection.execute(
            instances.update()
            .where(mine(known))
            .values(task=None, action_request=None, step_at=now, changed_at=now, updated_at=now)
        )
        over += told(connection, known, why, now)
    return over


def refuse_binding(connection: sa.Connection, uuid: str, why: str, now: int) -> list[Over]:
    """End a live migration whose server's ports cannot be bound to its target: nothing was touched.

    Return what is over with it; nothing where it does not wait for that any more.
    """
    waits = sa.and_(move.uuid == uuid, second_bindings.PENDING, move.sent_at.is_(None))
    found = connection.execute(sa.select(*COLUMNS).where(waits)).first()
    if found is None:
        return []
    known = move_of(found)
    if held(connection, known) is None:
        return []
    if known.dest_attempt is not None:
        attempts.give_up(connection, known.instance, known.dest_attempt, now)
    connection.execute(migrations.update().where(move.uuid == uuid).values(over_with("error", now, why)))
    return as_it_was(connection, known, why, now)


def begin_queued(connection: sa.Connection, now: int, at_once: int, nodes: Collection[NodeUuid] | None = None) -> int:
    """Give live migrations their turn, the oldest first, until each of these hosts copies `at_once` guests (0: all).

    `nodes`: of the hosts that they leave; None: all. Return how many still wait.
    """
    if nodes is None:
        nodes = [NodeUuid(node) for node in connection.scalars(_QUEUED_ON)]
    return sum(_begin_queued_of(connection, node, now, at_once) for node in sorted(nodes))


def _begin_queued_of(connection: sa.Connection, node: NodeUuid, now: int, at_once: int) -> int:
    # Whoever else counts those of this host waits until this is written.
    connection.execute(_HOLD, {"on": node})
    found = connection.execute(_LEAVING, {"on": node}).all()
    waiting = [one.uuid for one in found if one.status == QUEUED]
    free = max(0, at_once - (len(found) - len(waiting))) if at_once else len(waiting)
    if waiting[:free]:
        connection.execute(_GIVE_TURN, {"uuids": waiting[:free], "step_at": now, "updated_at": now})
    return len(waiting[free:])


_QUEUED_ON = sa.select(move.source_node).where(move.step == PREPARING, move.status == QUEUED).distinct()
_HOLD = agents.update().where(agents.c.node == sa.bindparam("on")).values(registered_at=agents.c.registered_at)
_LEAVING = (
    sa.select(move.uuid, move.status)
    .where(move.step.in_(constants((PREPARING, COPYING))), move.source_node == sa.bindparam("on"))
    .order_by(move.created_at, move.id)
)
_GIVE_TURN = (
    migrations.update()
    .where(move.uuid.in_(sa.bindparam("uuids", expanding=True)), move.status == QUEUED)
    .values(status=STEPS[PREPARING].status)
)


def end_late(connection: sa.Connection, now: int, seconds_per_gib: float, wish: str, limit: int) -> list[Move]:
    """Wish an end of live migrations that have been copying for longer than their size allows; return them.

    Their step began when they were last updated: progress does not count as that.
    """
    since = now - int(seconds_per_gib * LEAST_GIB * SECOND)
    # One whose guest goes on on the target has no other end.
    waits = sa.and_(move.wish.is_(None), move.status != HALVED)
    copying = sa.and_(move.step.is_not(None), move.step == COPYING, waits, move.updated_at < since)
    late = []
    for found in connection.execute(
        sa.select(*COLUMNS, move.updated_at).where(copying).order_by(sa.func.random()).limit(limit)
    ).all():
        known = move_of(found)
        work = held(connection, known)
        if work is None:
            continue
        has = work.spec.resources()
        allowed = seconds_per_gib * max(LEAST_GIB, has.get(MEMORY_MB, 0) / 1024 + has.get(DISK_GB, 0))
        if found.updated_at >= now - int(allowed * SECOND):
            continue
        why = f"{ABORTED}: its copying did not end within {allowed:g} s" if wish == "abort" else None
        connection.execute(
            migrations.update().where(move.uuid == known.uuid).values(wish=wish, sent_at=None, error=why)
        )
        late.append(known)
    return late


def end_lost(connection: sa.Connection) -> None:
    """Wish that live migrations come to nothing whose target is lost: its host was fenced."""
    connection.execute(_END_LOST)


_TARGET_IS_OPEN = sa.exists(
    sa.select(attempt.attempt).where(
        attempt.instance == move.instance, attempt.attempt == move.dest_attempt, attempt.open, attempt.outcome.is_(None)
    )
)
_END_LOST = (
    migrations.update()
    .where(move.step.is_not(None), move.step == COPYING, move.wish.is_distinct_from("abort"), ~_TARGET_IS_OPEN)
    .values(wish="abort", sent_at=None, error=f"{ABORTED}: the host that it went to is lost")
)


def why_ended(known: Move, why: BuildFailure) -> str:
    """Return why a step failed, in the words of whoever wished it."""
    if why.error == ABORTED and known.wish == "abort" and known.error is not None:
        return known.error
    return f"{why.error}: {why.message}"


def status_of(known: Move) -> str:
    """Return the status of a live migration that came to nothing."""
    return "cancelled" if known.error is not None and known.error.startswith(ABORTED) else "failed"


def copied(connection: sa.Connection, figures: Mapping[tuple[InstanceUuid, str], CopyFigures]) -> None:
    """Note how far hosts are that copy guests, by instance and the request that asked for it."""
    for (instance, task_id), one in figures.items():
        connection.execute(
            migrations.update()
            .where(move.step == COPYING, move.instance == instance, move.task_id == task_id)
            .values(
                memory_total=one.memory_total,
                memory_processed=one.memory_processed,
                memory_remaining=one.memory_remaining,
                disk_total=one.disk_total,
                disk_processed=one.disk_processed,
                disk_remaining=one.disk_remaining,
                **({"status": HALVED} if one.halved else {}),
            )
        )
