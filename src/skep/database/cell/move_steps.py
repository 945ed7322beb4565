"""The steps of cold moves on hosts: which host is told of which, what its answer makes of the move and its server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import actions, attempts, builds, resending, resting, tasks
from skep.database.cell.actions import ActionEvent
from skep.database.cell.cold_moves import (
    COLUMNS,
    FINISHED,
    Move,
    allocation_of,
    anew,
    as_it_was,
    held,
    mine,
    move_of,
    over_with,
    told,
)
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.tables import instances, migrations
from skep.database.cell.transitions import moving
from skep.database.stored import dump, load
from skep.domain.actions import Over
from skep.domain.assignments import Assignment
from skep.domain.builds import BuildFailure
from skep.domain.guests import state_after
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.instances import Fault, Instance, PowerState, State, Task
from skep.domain.moves import HELD_BY, ON_HOSTS, STEPS, SWITCHES
from skep.domain.states import SETTLED, before

row = instances.c
move = migrations.c

SILENT = "HostSilent"
"""The error of a step whose host did not answer within the deadline."""


class DueStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that its host is to be told of now."""

    move: Move
    instance: Instance
    attempt: int
    assignment: Assignment
    start: bool


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What the end of a step came to."""

    before: Move
    after: Move
    instance: Instance | None
    over: tuple[Over, ...] = ()
    """The action that is over with it."""


def due(
    connection: sa.Connection, home: CellUuid, now: int, resend_before: int, limit: int, progress_before: int
) -> list[DueStep]:
    """Return steps whose host is to be told of them now, and note that it was told."""
    wanted = (
        sa.select(move.uuid)
        .where(
            move.step.is_not(None),
            move.step.in_(sorted(ON_HOSTS)),
            resending.due(move.sent_at, move.step_at, now, resend_before, progress_before),
            ~resting.resting(move.instance),
        )
        .order_by(move.step_at)
        .limit(limit)
    )
    ordered = connection.execute(
        migrations.update()
        .where(move.uuid.in_(wanted))
        .values(**resending.told(move.sent_at, move.step_at, now))
        .returning(*COLUMNS)
    ).all()
    orders = [_order(connection, move_of(one), home) for one in ordered]
    return [one for one in orders if one is not None]


def _order(connection: sa.Connection, known: Move, home: CellUuid) -> DueStep | None:
    work = held(connection, known)
    attempt, host, node, _ = known.place()
    if work is None or attempt is None or host is None or node is None:
        return None
    found = connection.execute(
        sa.select(attempt_rows.c.allocation, row.allocation.label("of_row"), row.attempt.label("holder"))
        .join(instances, row.uuid == attempt_rows.c.instance)
        .where(attempt_rows.c.instance == known.instance, attempt_rows.c.attempt == attempt)
    ).first()
    parts = None if found is None else found.of_row if found.holder == attempt else found.allocation
    assignment = Assignment(
        node=node,
        host=host,
        cell=home,
        resources=work.spec.resources(),
        allocation=allocation_of(parts),
        end=work.spec.expected_end,
        role="move_source" if known.row.side == "source" else "move_target",
    )
    return DueStep(
        move=known,
        instance=work.instance,
        attempt=attempt,
        assignment=assignment,
        start=State(known.was) is State.ACTIVE,
    )


def progressed(connection: sa.Connection, tasks_in_hand: Sequence[tuple[InstanceUuid, str]], now: int) -> None:
    """Note that hosts have steps of these moves in hand: their deadlines begin anew."""
    named = sa.tuple_(move.instance, move.task_id).in_(tasks_in_hand)
    connection.execute(migrations.update().where(move.step.is_not(None), named).values(step_at=now))


def may(connection: sa.Connection, uuid: str, step: str, attempt: int, host: str, now: int) -> tuple[bool, Move | None]:
    """Let a host begin a step that stops or starts a guest; also the move, where this is the first yes."""
    found = connection.execute(sa.select(*COLUMNS, move.granted).where(move.uuid == uuid, move.step == step)).first()
    if found is None:
        return False, None
    known = move_of(found)
    if known.place()[:2] != (attempt, host) or held(connection, known) is None:
        return False, None
    connection.execute(migrations.update().where(move.uuid == uuid).values(granted=True, step_at=now))
    return True, None if found.granted else known


def done(
    connection: sa.Connection, uuid: str, step: str, attempt: int, host: str, power_state: PowerState, now: int
) -> Moved | None:
    """Write that a step is done, and what follows; None when the move is elsewhere by now."""
    known = _at(connection, uuid, step, attempt, host)
    if known is None:
        return None
    follows = known.row.next
    after = STEPS[follows] if follows is not None else None
    values: dict[str, Any] = {**anew(now), "step": follows}
    if after is not None:
        values["status"] = after.status
    connection.execute(migrations.update().where(move.uuid == uuid).values(values))
    _write_event(connection, known, host, None, now)
    changed: dict[str, Any] = {"step_at": now, "changed_at": now, "updated_at": now}
    if after is not None:
        changed["task"] = after.task.value
    if step in SWITCHES:
        changed |= _switched(connection, known)
    connection.execute(instances.update().where(mine(known)).values(changed))
    ended = _END[step](connection, known, power_state, now) if follows is None else []
    return _moved(connection, known, ended)


def failed(
    connection: sa.Connection,
    uuid: str,
    step: str,
    attempt: int,
    host: str,
    why: BuildFailure,
    now: int,
    most_hosts: int,
) -> Moved | None:
    """Write that a step failed, and what follows; None when the move is elsewhere by now."""
    known = _at(connection, uuid, step, attempt, host)
    if known is None:
        return None
    said = f"{why.error}: {why.message}"
    follows = known.row.on_failure
    if follows is None:
        # After the switch, or with the guest put aside: only this host can go on, and it is told again and again.
        fault = Fault(code=500, message=why.message, created_at=now, details=f"{host}: {said}")
        again = {"step_at": now} if why.error == SILENT else {}
        connection.execute(migrations.update().where(move.uuid == uuid).values(error=said, updated_at=now, **again))
        connection.execute(
            instances.update()
            .where(mine(known))
            .values(state=State.ERROR.value, fault=dump(fault), changed_at=now, updated_at=now)
        )
        return _moved(connection, known, [])
    _write_event(connection, known, host, said, now)
    ended: list[Over] = []
    beside = known.back_attempt if known.row.side == "back" or follows == "revert_take_back" else known.dest_attempt
    if beside is not None:
        attempts.give_up(connection, known.instance, beside, now)
    values: dict[str, Any] = {**anew(now), "error": said, "step": follows, "status": STEPS[follows].status}
    if follows == "select":
        tried = [*load(known.tried.encode(), list[str]), known.dest_node]
        values |= {"tried": dump(tried).decode(), "dest_host": None, "dest_node": None, "dest_attempt": None}
        if known.wanted_host is not None or len(tried) >= most_hosts:
            values |= over_with("error", now, said)
    connection.execute(migrations.update().where(move.uuid == uuid).values(values))
    if values["step"] is None:
        ended = as_it_was(connection, known, said, now)
    else:
        connection.execute(instances.update().where(mine(known)).values(task=STEPS[follows].task.value, changed_at=now))
    return _moved(connection, known, ended)


def overdue(connection: sa.Connection, since: int, limit: int) -> list[Move]:
    """Return moves whose host has been silent since before `since` at a step that it was not allowed to begin, or
    that touches no guest."""
    plain = sa.or_(move.granted == sa.false(), move.step.in_(("prepare", "transfer", "revert_receive")))
    silent = sa.and_(move.step.in_(sorted(ON_HOSTS)), move.sent_at.is_not(None), move.step_at < since, plain)
    found = connection.execute(sa.select(*COLUMNS).where(move.step.is_not(None), silent).limit(limit))
    return [move_of(one) for one in found]


def abandon(connection: sa.Connection, now: int, limit: int) -> tuple[int, list[Over]]:
    """End moves whose server was taken away from them, and let go of what nobody needs any more.

    Return how many, and the actions that are over with it.

    A server in ERROR keeps all its attempts: what it has lost may be on any of their hosts.
    """
    holder = sa.case(
        (move.step.in_(sorted(HELD_BY["source"])), move.source_attempt),
        (move.step.in_(sorted(HELD_BY["back"])), move.back_attempt),
        else_=move.dest_attempt,
    )
    lost = sa.and_(
        move.step.is_not(None),
        sa.or_(row.attempt != holder, row.task_id.is_distinct_from(move.task_id), row.deleted_at.is_not(None)),
    )
    let_go = sa.and_(
        move.step.is_(None),
        move.status == FINISHED,
        sa.or_(
            row.task == Task.DELETING.value,
            row.deleted_at.is_not(None),
            sa.and_(row.task.is_(None), row.state.not_in((State.RESIZED.value, State.ERROR.value))),
        ),
    )
    wanted = sa.select(*COLUMNS, row.attempt.label("current"), row.state.label("stands"), row.task.label("doing")).join(
        instances, row.uuid == move.instance
    )
    # Apart, for each has an index of its own.
    found = [
        one for condition in (lost, let_go) for one in connection.execute(wanted.where(condition).limit(limit)).all()
    ]
    over: list[Over] = []
    for one in found:
        rests = one.step is None
        if not rests:
            over += told(connection, move_of(one), tasks.OVERTAKEN, now)
        status = "confirmed" if rests and one.doing == Task.DELETING.value else "error"
        connection.execute(migrations.update().where(move.uuid == one.uuid).values(over_with(status, now, one.error)))
        beside: Iterable[int | None] = (one.dest_attempt, one.back_attempt)
        if one.stands != State.ERROR.value:
            beside = (*beside, one.source_attempt)
        elif one.step not in HELD_BY["source"]:
            beside = (one.back_attempt,)
        for number in beside:
            if number is not None and number != one.current:
                attempts.give_up(connection, one.instance, number, now)
    return len(found), over


def _at(connection: sa.Connection, uuid: str, step: str, attempt: int, host: str) -> Move | None:
    """Return a move that is at this step, of this attempt on this host, and still has its server."""
    found = connection.execute(sa.select(*COLUMNS).where(move.uuid == uuid, move.step == step)).first()
    if found is None:
        return None
    known = move_of(found)
    return known if known.place()[:2] == (attempt, host) and held(connection, known) is not None else None


def _switched(connection: sa.Connection, known: Move) -> dict[str, Any]:
    """Return the columns of a server that another attempt holds from now on; keep what the one before it held."""
    to = known.at(SWITCHES[known.row.name])
    assert to.attempt is not None
    left = connection.execute(sa.select(row.allocation, row.attempt).where(row.uuid == known.instance)).one()
    of = attempt_rows.c
    connection.execute(
        attempt_rows.update()
        .where(of.instance == known.instance, of.attempt == left.attempt)
        .values(allocation=left.allocation)
    )
    own = sa.and_(of.instance == known.instance, of.attempt == to.attempt)
    allocation = connection.execute(sa.select(of.allocation).where(own)).scalar_one_or_none()
    highest = sa.case((row.highest > to.attempt, row.highest), else_=to.attempt)
    return {
        "attempt": to.attempt,
        "highest": highest,
        "host": to.host,
        "node": to.node,
        "allocation": allocation,
        "availability_zone": to.zone,
        # What the host before it had begun says nothing of how old the reports of this one are.
        "acted_id": None,
    }


def _end_taken_up(connection: sa.Connection, known: Move, power_state: PowerState, now: int) -> list[Over]:
    """The server is on its target: its user confirms it, or goes back."""
    assert known.dest_attempt is not None
    assert known.dest_host is not None
    attempts.finish(connection, known.instance, known.dest_attempt, known.dest_host, now, "built", keep_open=True)
    return _end(connection, known, State.RESIZED, power_state, FINISHED, now)


def _end_taken_back(connection: sa.Connection, known: Move, power_state: PowerState, now: int) -> list[Over]:
    """The move came to nothing, and the server is as it was."""
    state = state_after(State(known.was), power_state)
    return _end(connection, known, state, power_state, "error", now, known.error)


def _end_reverted(connection: sa.Connection, known: Move, power_state: PowerState, now: int) -> list[Over]:
    """The server is back: nothing else of the move is needed."""
    assert known.back_attempt is not None
    attempts.finish(connection, known.instance, known.back_attempt, known.source_host, now, "built", keep_open=True)
    for number in (known.source_attempt, known.dest_attempt):
        if number is not None:
            attempts.give_up(connection, known.instance, number, now)
    state = state_after(State(known.was), power_state)
    return _end(connection, known, state, power_state, "reverted", now)


def _end_kept(connection: sa.Connection, known: Move, power_state: PowerState, now: int) -> list[Over]:
    """The revert came to nothing, and the server is where it was moved to."""
    return _end(connection, known, State.RESIZED, power_state, FINISHED, now, known.error)


_END = {
    "take_up": _end_taken_up,
    "take_back": _end_taken_back,
    "revert_take_up": _end_reverted,
    "revert_take_back": _end_kept,
}


def _end(
    connection: sa.Connection,
    known: Move,
    state: State,
    power_state: PowerState,
    status: str,
    now: int,
    error: str | None = None,
) -> list[Over]:
    connection.execute(migrations.update().where(move.uuid == known.uuid).values(over_with(status, now, error)))
    fault = None if error is None else dump(Fault(code=500, message=error, created_at=now))
    connection.execute(
        instances.update()
        .where(
            row.uuid == known.instance,
            moving(SETTLED & (before(state) | {state}), state),
        )
        .values(
            state=state.value,
            power_state=int(power_state),
            task=None,
            action_request=None,
            fault=fault,
            step_at=now,
            changed_at=now,
            updated_at=now,
        )
    )
    return told(connection, known, error, now)


def _write_event(connection: sa.Connection, known: Move, host: str, error: str | None, now: int) -> None:
    event = known.row.event
    if event is None or known.row.next is None:
        return
    actions.finish(
        connection,
        ActionEvent(
            instance=known.instance,
            request_id=known.task_id or "",
            event=event,
            host=host,
            started_at=now,
            finished_at=now,
            result="Success" if error is None else "Error",
            details=error,
        ),
    )


def _moved(connection: sa.Connection, known: Move, over: Iterable[Over]) -> Moved:
    after = connection.execute(sa.select(*COLUMNS).where(move.uuid == known.uuid)).one()
    work = builds.work(connection, known.instance)
    return Moved(before=known, after=move_of(after), instance=None if work is None else work.instance, over=tuple(over))
