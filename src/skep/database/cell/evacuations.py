"""Evacuations inside a cell: servers of a host that is lost go to another one, with a guest that is made anew.

Their steps are rows of `domain/moves.py`, written by `cold_moves.py` and `move_steps.py`. Here is what is theirs alone:
how they begin, what becomes of them when their host is fenced meanwhile, and how they end.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from skep.database.cell import actions, asked, attempts, tasks
from skep.database.cell.actions import ActionEvent
from skep.database.cell.cold_moves import COLUMNS, Move, anew, mine, move_of, over_with, told
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.tables import instances, migrations
from skep.database.cell.transitions import moving
from skep.database.constants import constants
from skep.database.stored import dump, load
from skep.domain.actions import ACTIONS, Action, ActionRequest, EvacuateTo, Over
from skep.domain.context import RequestContext
from skep.domain.decoding import convert
from skep.domain.guests import state_after
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.instances import Instance, PowerState, State, Task
from skep.domain.moves import BEFORE_RELEASE, EVACUATING, STEPS
from skep.domain.server_migrations import EVACUATED, SOURCE_CLEARED, MigrationType
from skep.domain.states import SETTLED, before

row = instances.c
move = migrations.c

_BEFORE_RELEASE = move.step.in_(constants(BEFORE_RELEASE))


def begin(
    connection: sa.Connection,
    server: Instance,
    action: Action,
    context: RequestContext,
    now: int,
    *,
    to: EvacuateTo,
    wanted_host: str | None = None,
    secrets: bytes | None = None,
) -> list[Over] | None:
    """Begin to evacuate a server; return what that ended, None when the row does not allow it."""
    lost = _end_former(connection, server, action, context, now)
    over = tasks.begin_over(connection, server.uuid, action, context, now, to, secrets)
    if over is None:
        return None
    first = STEPS["evacuate_select"]
    connection.execute(
        migrations.insert().values(
            uuid=new_uuid(),
            instance=server.uuid,
            project_id=context.project_id,
            user_id=context.user_id,
            type=MigrationType.EVACUATION.value,
            status=first.status,
            source_host=server.host,
            source_node=server.node,
            source_attempt=server.attempt,
            source_zone=server.availability_zone,
            wanted_host=wanted_host,
            was=server.state.value,
            task_id=context.request_id,
            step=first.name,
            step_at=now,
            created_at=now,
        )
    )
    return [*lost, *over]


def _end_former(
    connection: sa.Connection, server: Instance, action: Action, context: RequestContext, now: int
) -> list[Over]:
    """End an evacuation whose own target is lost: it was to make the guest there and nobody knows how far it came.

    None is ended where another one may not begin.
    """
    if server.task is not Task.EVACUATE_SPAWNING:
        return []
    there = sa.and_(move.instance == server.uuid, move.step == "evacuate_spawn", move.dest_attempt == server.attempt)
    found = connection.execute(sa.select(*COLUMNS).where(there)).first()
    if found is None:
        return []
    known = move_of(found)
    may_begin = sa.and_(
        mine(known),
        row.state.in_(constants(action.begins_in or ())),
        row.refused_id.is_distinct_from(context.request_id),
    )
    ended = connection.execute(instances.update().where(may_begin).values(task=None, action_request=None)).rowcount
    if not ended:
        return []
    connection.execute(
        migrations.update().where(move.uuid == known.uuid).values(over_with("error", now, tasks.OVERTAKEN))
    )
    return told(connection, known, tasks.OVERTAKEN, now)


def request_of(connection: sa.Connection, known: Move) -> ActionRequest | None:
    """Return what was asked; None where the server is no more this evacuation's."""
    found = connection.execute(sa.select(*asked.COLUMNS).where(mine(known))).first()
    return None if found is None else asked.request_of(found, ACTIONS["evacuate"])


def arguments_of(connection: sa.Connection, known: Move) -> EvacuateTo:
    """Return the arguments of an evacuation."""
    request = request_of(connection, known)
    return EvacuateTo() if request is None else convert(request.arguments, EvacuateTo)


def starts(connection: sa.Connection, known: Move, server: Instance) -> bool:
    """Tell whether the guest that the present step makes is to run."""
    was = State(known.was)
    if known.step != "evacuate_spawn":
        return was is State.ACTIVE or (was is State.ERROR and server.power_state is PowerState.RUNNING)
    stopped = arguments_of(connection, known).stopped and was is not State.ERROR
    return was is not State.STOPPED and not stopped


def released(connection: sa.Connection, known: Move, now: int) -> None:
    """Have the lost host undo what it has of a server that is another's from now on, before it starts anything."""
    attempts.give_up(connection, known.instance, known.source_attempt, now)


def awaiting_release(connection: sa.Connection, limit: int) -> list[Move]:
    """Return evacuations that wait for the word of the host which they leave."""
    return [move_of(one) for one in connection.execute(_AWAITING, {"most": limit})]


_AWAITING = (
    sa.select(*COLUMNS)
    .where(move.step == "evacuate_release")
    .order_by(sa.func.random())
    .limit(sa.bindparam("most", type_=sa.Integer))
)


def task_after_fence() -> sa.ColumnElement[Any]:
    """Return the task of a server whose host is given up: an evacuation that nothing was begun for goes on."""
    under_way = sa.and_(move.instance == row.uuid, move.task_id == row.task_id, _BEFORE_RELEASE)
    return sa.case((sa.exists(sa.select(move.uuid).where(under_way)), row.task), else_=None)


def begin_anew(connection: sa.Connection, uuids: Collection[InstanceUuid], now: int) -> int:
    """Let evacuations choose anew whose server has another number since its host was given up; return how many.

    What was begun on a target bears a number below that one: it is undone.
    """
    holder = sa.select(row.attempt).where(row.uuid == move.instance).correlate(migrations).scalar_subquery()
    under_way = sa.and_(_BEFORE_RELEASE, move.instance.in_(uuids), move.source_attempt != holder)
    return connection.execute(
        migrations.update().where(under_way).values(**_from_the_start(now), source_attempt=holder)
    ).rowcount


def choose_again(connection: sa.Connection, known: Move, now: int) -> None:
    """Let an evacuation choose another target: the one that it had is lost."""
    tried = [*load(known.tried.encode(), list[str]), known.dest_node]
    if known.dest_attempt is not None:
        attempts.give_up(connection, known.instance, known.dest_attempt, now)
    connection.execute(
        migrations.update().where(move.uuid == known.uuid).values(**_from_the_start(now), tried=dump(tried).decode())
    )


def _from_the_start(now: int) -> dict[str, Any]:
    first = STEPS["evacuate_select"]
    nowhere = dict.fromkeys(("owner", "dest_host", "dest_node", "dest_attempt", "dest_zone"))
    return {**anew(now), **nowhere, "step": first.name, "status": first.status}


def is_target(instance: InstanceUuid, attempt: int, host: str) -> sa.ColumnElement[bool]:
    """Say that an unfinished evacuation makes a guest of this server on this host by this attempt."""
    return sa.exists(
        sa.select(move.uuid).where(
            move.instance == instance,
            move.dest_attempt == attempt,
            move.dest_host == host,
            move.step.in_(constants(EVACUATING)),
        )
    )


def end(connection: sa.Connection, known: Move, power_state: PowerState, now: int) -> list[Over]:
    """Write that the server is on its target, as its new guest is."""
    assert known.dest_attempt is not None
    assert known.dest_host is not None
    attempts.finish(connection, known.instance, known.dest_attempt, known.dest_host, now, "built", keep_open=True)
    # A move that a fence ended may have left what it was lost from: nothing of that comes back any more.
    attempts.give_up_others(connection, known.instance, known.dest_attempt, now)
    event = known.row.event
    assert event is not None
    actions.finish(
        connection,
        ActionEvent(
            instance=known.instance,
            request_id=known.task_id or "",
            event=event,
            host=known.dest_host,
            started_at=now,
            finished_at=now,
            result="Success",
        ),
    )
    connection.execute(migrations.update().where(move.uuid == known.uuid).values(over_with(EVACUATED, now)))
    # A source that lives may have cleared what it had before the guest was made.
    lost = {"of": known.instance, "on": known.source_host, "number": known.source_attempt}
    connection.execute(_CLEARED_BEFORE, {**lost, "now": now})
    state = state_after(State.ACTIVE, power_state)
    connection.execute(
        instances.update()
        .where(row.uuid == known.instance, moving(SETTLED & (before(state) | {state}), state))
        .values(
            state=state.value,
            power_state=int(power_state),
            task=None,
            action_request=None,
            fault=None,
            step_at=now,
            changed_at=now,
            updated_at=now,
        )
    )
    return told(connection, known, None, now)


_UNDONE = sa.select(attempt_rows.c.attempt).where(
    attempt_rows.c.instance == sa.bindparam("of"),
    attempt_rows.c.attempt == sa.bindparam("number"),
    ~attempt_rows.c.open,
    attempt_rows.c.outcome.not_in((attempts.FENCED, attempts.HOST_MISSING)),
)
"""What its host undid; no fence closed it."""
_CLEARED = (
    migrations.update()
    .where(
        move.instance == sa.bindparam("of"),
        move.source_host == sa.bindparam("on"),
        move.type == MigrationType.EVACUATION.value,
        move.status == EVACUATED,
        ~sa.exists(
            sa.select(attempt_rows.c.attempt)
            .where(
                attempt_rows.c.instance == move.instance,
                attempt_rows.c.node == move.source_node,
                attempt_rows.c.attempt <= move.source_attempt,
                attempt_rows.c.open,
            )
            .correlate(migrations)
        ),
    )
    .values(status=SOURCE_CLEARED, updated_at=sa.bindparam("now"))
)
"""Made once: it runs whenever a host has undone something."""
_CLEARED_BEFORE = _CLEARED.where(sa.exists(_UNDONE))


def source_cleared(connection: sa.Connection, instance: InstanceUuid, host: str | None, now: int) -> None:
    """Write that a host has nothing of a server any more that was evacuated from it."""
    connection.execute(_CLEARED, {"of": instance, "on": host, "now": now})
