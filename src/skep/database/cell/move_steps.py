"""The steps of moves on hosts: which host is told of which, what its answer makes of the move and its server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import (
    actions,
    agents,
    attempts,
    builds,
    evacuations,
    following,
    interfaces,
    listing,
    live_moves,
    move_statements,
    rebuilds,
    resending,
    resting,
    second_bindings,
)
from skep.database.cell import instances as rows
from skep.database.cell.actions import ActionEvent
from skep.database.cell.assertions import slot_of
from skep.database.cell.cold_moves import (
    COLUMNS,
    FINISHED,
    Move,
    allocation_of,
    anew,
    as_it_was,
    change,
    change_server,
    held_by,
    move_of,
    over_with,
    told,
)
from skep.database.cell.tables import instances, migrations
from skep.database.constants import constants
from skep.database.stored import dump, load
from skep.domain.actions import Over
from skep.domain.assignments import Assignment
from skep.domain.builds import BuildFailure, FailureKind
from skep.domain.capabilities import Capability
from skep.domain.clock import SECOND
from skep.domain.guests import state_after
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.instances import Fault, Instance, PowerState, State
from skep.domain.moves import (
    CHOICES,
    EVACUATING,
    HANDING_OVER,
    OF_SIDE,
    SEEK,
    STEPS,
    SWITCHES,
    SWITCHES_BACK,
    Side,
)
from skep.domain.server_migrations import QUEUED
from skep.domain.vifs import vifs_at
from skep.messages.to_scheduler import Slot

row = instances.c
move = migrations.c

SILENT = "HostSilent"
"""The error of a step whose host did not answer within the deadline."""

CHOOSE_A_WAY = frozenset({"prepare", "put_aside"})
"""Steps at which a host of a cold move looks which way the disks go."""

LONGEST_RETRY = 15 * SECOND
"""So long at most is waited before a host is told again of a step that failed and that only it can take."""

LOST = BuildFailure(
    kind=FailureKind.RESCHEDULE, error="TargetLost", message="The target was given up, or its host was fenced"
)


class DueStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step that its host is to be told of now."""

    move: Move
    instance: Instance
    attempt: int
    assignment: Assignment
    start: bool
    slot: Slot | None = None
    """Of an attempt that comes back, the place in its group: no scheduler chose its host, so none holds it."""
    kept: int = 0
    """The attempt on this host whose disks the one of the step gets, or whose place it takes; 0: none."""
    preserve: bool = False
    secrets: bytes | None = None
    """What was asked for besides, sealed."""
    by_wire: bool = False
    """The agents of both hosts say that disks may go from one to the other."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What the end of a step came to."""

    before: Move
    step: str | None
    """At which it is now."""
    instance: Instance | None = None
    """The server as it is now, where its step is one whose end is told."""
    over: tuple[Over, ...] = ()
    """The action that is over with it."""


def due(
    connection: sa.Connection,
    home: CellUuid,
    now: int,
    resend_before: int,
    limit: int,
    progress_before: int,
    unfollowed_before: int = following.NOTHING_WAITS,
) -> list[DueStep]:
    """Return steps whose host is to be told of them now, and note that it was told.

    Those that began after `unfollowed_before` wait until ports and volumes have followed their server (`following`).
    """
    asked = {
        **resending.asked_at(now, resend_before, progress_before),
        "most": limit,
        "unfollowed_before": unfollowed_before,
    }
    ordered = connection.execute(_DUE, asked).all()
    orders = [_order(connection, move_of(one), home) for one in ordered]
    return [one for one in orders if one is not None]


HERE = sa.or_(
    sa.and_(move.step.in_(constants(OF_SIDE["source"] | OF_SIDE["back"])), move.source_cell.is_(None)),
    sa.and_(move.step.in_(constants(OF_SIDE["target"])), move.dest_cell.is_(None)),
)
"""Says of a move under way that the host of its step is one of this cell."""

_DUE = (
    migrations.update()
    .where(
        move.uuid.in_(
            sa.select(move.uuid)
            .where(
                move.step.is_not(None),
                HERE,
                move.status != QUEUED,
                second_bindings.MAY_BE_TOLD,
                following.OF_MOVE,
                sa.or_(resending.due(move.sent_at, move.step_at), live_moves.wished()),
                ~resting.move_rests(move.instance, move.source_host, move.dest_host),
            )
            .order_by(move.step_at)
            .limit(sa.bindparam("most", type_=sa.Integer))
        )
    )
    .values(**resending.told(move.sent_at, move.step_at))
    .returning(*COLUMNS)
)


def _order(connection: sa.Connection, known: Move, home: CellUuid) -> DueStep | None:
    attempt, host, node, _ = known.place()
    if attempt is None or host is None or node is None:
        return None
    found = connection.execute(move_statements.HELD_BESIDE, {**held_by(known), "mine": attempt}).first()
    work = None if found is None else builds.readable(found)
    if found is None or work is None:
        return None
    side = known.row.side or "target"
    size = known.size(side)
    spec = work.spec if size is None else size.spec(work.spec)
    parts = found.allocation if found.attempt == attempt else found.allocation_beside
    assignment = Assignment(
        node=node,
        host=host,
        cell=home,
        resources=spec.resources(),
        allocation=allocation_of(parts),
        end=spec.expected_end,
        role="move_source" if known.row.side == "source" else "move_target",
    )
    enters = known.row.side == "back" or (known.row.side == "target" and known.action == rebuilds.REBUILD.name)
    group = work.spec.group if enters else None
    evacuates = known.step in EVACUATING
    request = evacuations.request_of(connection, known) if evacuates else None
    server = work.instance
    if server.state is State.AWAY:
        # Agents know nothing of cells.
        server = msgspec.structs.replace(server, state=State(known.was))
    if known.step == second_bindings.PREPARING:
        server = msgspec.structs.replace(server, vifs=vifs_at(server.vifs, host))
    due_step = DueStep(
        move=known,
        instance=known.sized(side, server),
        attempt=attempt,
        assignment=assignment,
        slot=None if group is None else slot_of(known.instance, attempt, node, group),
        start=evacuations.starts(connection, known, work.instance) if evacuates else State(known.was) is State.ACTIVE,
        secrets=None if request is None else request.secrets,
        kept=known.source_attempt if known.row.side == "back" else 0,
        by_wire=known.step in CHOOSE_A_WAY and _are_wired(connection, known),
    )
    if known.action != rebuilds.REBUILD.name:
        return due_step
    asked = rebuilds.arguments(connection, known)
    goes_in = known.row.side == "target"
    return msgspec.structs.replace(
        due_step,
        instance=asked.rebuilt(work.instance) if goes_in else work.instance,
        start=rebuilds.starts(known, work.instance),
        kept=known.source_attempt if goes_in else 0,
        preserve=asked.preserve,
        secrets=work.secrets if goes_in else None,
    )


def _are_wired(connection: sa.Connection, known: Move) -> bool:
    if known.is_between_cells or known.dest_node is None:
        return False
    both = {known.source_node, known.dest_node}
    return agents.having(connection, both, Capability.MOVE_BY_WIRE) == both


def progressed(connection: sa.Connection, tasks_in_hand: Sequence[tuple[InstanceUuid, str]], now: int) -> None:
    """Note that hosts have steps of these moves in hand: their deadlines begin anew."""
    named = sa.tuple_(move.instance, move.task_id).in_(tasks_in_hand)
    connection.execute(migrations.update().where(move.step.is_not(None), named).values(step_at=now))


def may(
    connection: sa.Connection, uuid: str, step: str, attempt: int, host: str, now: int, *, task_id: str
) -> tuple[bool, Move | None]:
    """Let a host begin a step that stops or starts a guest; also the move, where this is the first yes."""
    found = found_at(connection, uuid, step, attempt, host, task_id)
    if found is None:
        return False, None
    known, granted = found
    change(connection, known, {"granted": True, "step_at": now})
    return True, None if granted else known


def done(
    connection: sa.Connection,
    uuid: str,
    step: str,
    attempt: int,
    host: str,
    power_state: PowerState,
    now: int,
    most_hosts: int,
    *,
    task_id: str,
) -> Moved | None:
    """Write that a step is done, and what follows; None when the move is elsewhere by now.

    A target that was given up meanwhile, or whose host was fenced, has failed: nothing goes where it may be undone.
    """
    known = _at(connection, uuid, step, attempt, host, task_id)
    if known is None:
        return None
    goes_to = known.at(SWITCHES[step]).attempt if step in SWITCHES else attempt
    judged = step in SWITCHES or known.row.side != known.row.holder
    if judged and (goes_to is None or not attempts.is_under_way(connection, known.instance, goes_to)):
        return failed(connection, uuid, step, attempt, host, LOST, now, most_hosts, task_id=task_id)
    follows = known.follows
    after = STEPS[follows] if follows is not None else None
    values: dict[str, Any] = {**anew(now), "step": follows}
    if after is not None:
        values["status"] = after.status
    change(connection, known, values)
    _write_event(connection, known, host, None, now)
    changed: dict[str, Any] = {"step_at": now, "changed_at": now, "updated_at": now}
    if after is not None:
        changed["task"] = after.task.value
    if step in SWITCHES and follows not in HANDING_OVER:
        changed |= switched(connection, known, SWITCHES[step])
        if step in EVACUATING:
            evacuations.released(connection, known, now)
    change_server(connection, known, changed)
    ended = _END[step](connection, known, power_state, now) if follows is None else []
    return _moved(connection, known, ended, follows)


def released(connection: sa.Connection, known: Move, now: int, most_hosts: int) -> Moved | None:
    """Let an evacuation go on whose lost host is silent; None when the move is elsewhere by now.

    Where its target is lost, too, another one is chosen; if the lost host may have put its guest aside, it has to make
    it again first.
    """
    attempt, host, task_id = known.source_attempt, known.source_host, known.context.request_id
    assert known.dest_attempt is not None
    if attempts.is_under_way(connection, known.instance, known.dest_attempt):
        step = "evacuate_release"
        nothing = PowerState.NOSTATE
        return done(connection, known.uuid, step, attempt, host, nothing, now, most_hosts, task_id=task_id)
    found = found_at(connection, known.uuid, "evacuate_release", attempt, host, task_id)
    if found is None:
        return None
    there, granted = found
    if granted:
        step = "evacuate_release"
        return failed(connection, known.uuid, step, attempt, host, LOST, now, most_hosts, task_id=task_id)
    evacuations.choose_again(connection, known, now)
    return _moved(connection, there, [], "evacuate_select")


def not_released(connection: sa.Connection, known: Move, now: int) -> Moved | None:
    """End an evacuation whose lost host is heard, but whose agent takes no steps: it would never answer.

    None where it takes them, or was allowed to begin. Nothing was touched.
    """
    agent = agents.get(connection, known.source_node)
    if agent is None or "MoveStep" in (agent.understands or ()):
        return None
    asked_of = (known.source_attempt, known.source_host, known.context.request_id)
    found = found_at(connection, known.uuid, "evacuate_release", *asked_of)
    if found is None or found[1]:
        return None
    there = found[0]
    said = f"NotSupportedByAgent: the agent of host {known.source_host} is in use and takes no steps of moves"
    if there.dest_attempt is not None:
        attempts.give_up(connection, there.instance, there.dest_attempt, now)
    change(connection, there, over_with("error", now, said))
    return _moved(connection, there, as_it_was(connection, there, said, now), None)


def failed(
    connection: sa.Connection,
    uuid: str,
    step: str,
    attempt: int,
    host: str,
    why: BuildFailure,
    now: int,
    most_hosts: int,
    *,
    task_id: str,
) -> Moved | None:
    """Write that a step failed, and what follows; None when the move is elsewhere by now."""
    known = _at(connection, uuid, step, attempt, host, task_id)
    if known is None:
        return None
    said = live_moves.why_ended(known, why)
    follows = known.after_failure
    if rebuilds.is_lost(known, why):
        return _moved(connection, known, _end_lost(connection, known, host, why, now), None)
    if follows is None and not known.row.gives_up:
        # After the switch, or with the guest put aside: only this host can go on, and it is told again and again.
        fault = Fault(code=500, message=why.message, created_at=now, details=f"{host}: {said}")
        # What ended a live migration stays the reason, however often its host tries to take the guest back.
        why_over = known.error if step == "live_take_back" and known.error is not None else said
        change(connection, known, {"error": why_over})
        _again(connection, known, now, answered=why.error != SILENT)
        in_error = {"state": State.ERROR.value, "fault": dump(fault), "changed_at": now, "updated_at": now}
        change_server(connection, known, in_error)
        return _moved(connection, known, [], step)
    _write_event(connection, known, host, said, now)
    ended: list[Over] = []
    beside = known.back_attempt if known.row.side == "back" or follows == "revert_take_back" else known.dest_attempt
    if beside is not None:
        attempts.give_up(connection, known.instance, beside, now)
    values: dict[str, Any] = {**anew(now), "error": said, "step": follows}
    if follows is None:
        values |= over_with("error", now, said)
    else:
        values["status"] = STEPS[follows].status
    if follows in CHOICES or follows == SEEK:
        tried = [*load(known.tried.encode(), list[str]), known.dest_node]
        values |= {"tried": dump(tried).decode(), "dest_host": None, "dest_node": None, "dest_attempt": None}
        if follows != SEEK and (known.wanted_host is not None or len(tried) >= most_hosts):
            values |= over_with("error", now, said)
    change(connection, known, values)
    if values["step"] is None:
        ended = as_it_was(connection, known, said, now)
    else:
        changed: dict[str, Any] = {"task": STEPS[values["step"]].task.value, "changed_at": now}
        if step in SWITCHES_BACK:
            changed |= switched(connection, known, SWITCHES_BACK[step])
        change_server(connection, known, changed)
    return _moved(connection, known, ended, values["step"])


def _again(connection: sa.Connection, known: Move, now: int, *, answered: bool) -> None:
    """Have the host of a step that failed told of it once more: soon at first, then less and less often.

    The step began when its move was last updated: failures do not count as that. A host that did not answer has the
    whole deadline anew.
    """
    since = sa.case((move.updated_at < now - LONGEST_RETRY, now - LONGEST_RETRY), else_=move.updated_at)
    values = {"sent_at": now, "step_at": since} if answered else {"step_at": now}
    connection.execute(migrations.update().where(move.uuid == known.uuid).values(values))


def _at(connection: sa.Connection, uuid: str, step: str, attempt: int, host: str, task_id: str) -> Move | None:
    """Return a move that is at this step, as `found_at` does."""
    found = found_at(connection, uuid, step, attempt, host, task_id)
    return None if found is None else found[0]


def found_at(
    connection: sa.Connection, uuid: str, step: str, attempt: int, host: str, task_id: str
) -> tuple[Move, bool] | None:
    """Return a move that is at this step, of this attempt on this host, and still has its server; and whether the host
    was allowed to begin the step.

    `task_id` names the request for which the host was told: a move that went back and forth comes to a step again, and
    what is late of the time before says nothing of this one.
    """
    found = connection.execute(_at_step(step), {"of_move": uuid, "asked": task_id}).first()
    if found is None:
        return None
    known = move_of(found)
    return (known, found.granted) if known.place()[:2] == (attempt, host) else None


@cache
def _at_step(name: str) -> sa.Select[Any]:
    return move_statements.at_step(STEPS[name], (*COLUMNS, move.granted))


def switched(connection: sa.Connection, known: Move, side: Side) -> dict[str, Any]:
    """Return the columns of a server that another attempt holds from now on; keep what the one before it held."""
    to, size = known.at(side), known.size(side)
    assert to.attempt is not None
    left = connection.execute(move_statements.LEFT, {"of": known.instance, "mine": to.attempt}).one()
    connection.execute(move_statements.KEEP, {"of": known.instance, "mine": left.attempt, "holds": left.allocation})
    return {
        "attempt": to.attempt,
        "highest": max(left.highest, to.attempt),
        "host": to.host,
        "node": to.node,
        "allocation": left.allocation_beside,
        **interfaces.bound_anew(left.bound_to, left.allocation, left.allocation_beside),
        "availability_zone": to.zone,
        # What the host before it had begun says nothing of how old the reports of this one are.
        "acted_id": None,
        **({} if size is None else rows.resized(left.body, left.spec, size)),
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


def _end_rebuilt(connection: sa.Connection, known: Move, power_state: PowerState, now: int) -> list[Over]:
    """The server is as it was asked to be, and nothing of what it was is needed."""
    assert known.dest_attempt is not None
    assert known.dest_host is not None
    attempts.finish(connection, known.instance, known.dest_attempt, known.dest_host, now, "built", keep_open=True)
    attempts.give_up(connection, known.instance, known.source_attempt, now)
    change_server(connection, known, rebuilds.rebuilt(connection, known, now))
    return _end(connection, known, state_after(State.ACTIVE, power_state), power_state, "done", now)


def _end_not_rebuilt(connection: sa.Connection, known: Move, power_state: PowerState, now: int) -> list[Over]:
    """The rebuild came to nothing, and the server is as it was."""
    was = State(known.was)
    state = was if was is State.ERROR else state_after(was, power_state)
    return _end(connection, known, state, power_state, "error", now, known.error)


def _end_not_reimaged(connection: sa.Connection, known: Move, power_state: PowerState, now: int) -> list[Over]:
    """The volume that the server boots from is not what it was, nor what it was to be."""
    return _end(connection, known, State.ERROR, power_state, "error", now, known.error)


def _end_lost(connection: sa.Connection, known: Move, host: str, why: BuildFailure, now: int) -> list[Over]:
    """The host has no guest of the server, and nothing to make it of: there is nothing that could be tried again."""
    said = f"{known.error}; then, on host {host}: {why.error}: {why.message}"
    return _end(connection, known, State.ERROR, PowerState.NOSTATE, "error", now, said)


def _end_live(connection: sa.Connection, known: Move, power_state: PowerState, now: int) -> list[Over]:
    """The server goes on on its target: nothing else of the move is needed."""
    assert known.dest_attempt is not None
    assert known.dest_host is not None
    attempts.finish(connection, known.instance, known.dest_attempt, known.dest_host, now, "built", keep_open=True)
    attempts.give_up(connection, known.instance, known.source_attempt, now)
    state = state_after(State(known.was), power_state)
    return _end(connection, known, state, power_state, "completed", now)


def _end_live_taken_back(connection: sa.Connection, known: Move, power_state: PowerState, now: int) -> list[Over]:
    """The live migration came to nothing, and the server goes on where it was."""
    state = state_after(State(known.was), power_state)
    return _end(connection, known, state, power_state, live_moves.status_of(known), now, known.error)


_END = {
    "live_take_up": _end_live,
    "live_take_back": _end_live_taken_back,
    "take_up": _end_taken_up,
    "evacuate_spawn": evacuations.end,
    "evacuate_take_back": _end_taken_back,
    "take_back": _end_taken_back,
    "revert_take_up": _end_reverted,
    "revert_take_back": _end_kept,
    "rebuild_spawn": _end_rebuilt,
    "rebuild_take_back": _end_not_rebuilt,
    "reimage_spawn": _end_rebuilt,
    "reimage_take_back": _end_not_reimaged,
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
    change(connection, known, over_with(status, now, error))
    values = {
        "state": state.value,
        "power_state": int(power_state),
        "task": None,
        "action_request": None,
        "secrets": None,
        "fault": None if error is None else dump(Fault(code=500, message=error, created_at=now)),
        "step_at": now,
        "changed_at": now,
        "updated_at": now,
    }
    connection.execute(move_statements.ending(state), {"of": known.instance, **values})
    return told(connection, known, error, now)


def _write_event(connection: sa.Connection, known: Move, host: str, error: str | None, now: int) -> None:
    event = known.row.event if error is None else known.row.event or known.row.failure_event
    if event is None:
        return
    actions.finish(
        connection,
        ActionEvent(
            instance=known.instance,
            request_id=known.task_id or "",
            event=event,
            host=host if known.row.event_of is None else known.at(known.row.event_of).host,
            started_at=now,
            finished_at=now,
            result="Success" if error is None else "Error",
            details=error,
        ),
    )


def _moved(connection: sa.Connection, known: Move, over: Iterable[Over], step: str | None) -> Moved:
    tells = known.row.ends or known.row.opens or known.row.closes
    instance = listing.find(connection, known.instance) if tells else None
    return Moved(before=known, step=step, instance=instance, over=tuple(over))
