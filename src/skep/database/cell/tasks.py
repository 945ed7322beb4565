"""The writes of actions that hosts carry out: a task beside the state, resumable. Their table: `domain/actions.py`.

The host asks before it begins (`may_act`). A task that was given up before that is over, and the host hears no. After a
yes only the host knows what comes of it: past the deadline the task is in doubt, and stays until the host has spoken,
a report of its guests says how the guest is, or the host is fenced.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import actions, deletion_times, interfaces, resending, resting, swaps
from skep.database.cell.asked import COLUMNS, request_of
from skep.database.cell.endings import with_instances
from skep.database.cell.resending import AGAIN_AT_ONCE, NOTHING_COUNTS
from skep.database.cell.tables import action_events, instances
from skep.database.cell.tables import actions as action_rows
from skep.database.constants import constants
from skep.database.stored import dump, load
from skep.domain.actions import (
    ACTIONS,
    ASSIST,
    BEGUN,
    ON_HOSTS,
    PLUG,
    PLUG_INTERFACE,
    REPEATED,
    SWAP,
    UNASSIST,
    UNPLUG,
    UNPLUG_INTERFACE,
    WITH_GUEST,
    Action,
    ActionRequest,
    Ended,
    Kind,
    Over,
    ShelveServer,
    of_record,
    of_task,
)
from skep.domain.context import RequestContext
from skep.domain.decoding import convert
from skep.domain.guests import Correction, GuestKnown, state_by
from skep.domain.ids import InstanceUuid, ProjectId, RequestId, UserId, new_request_id
from skep.domain.images import StoreFailure
from skep.domain.instances import Fault, PowerState, Shelved, State, Task
from skep.domain.states import BUILD_STATES, stored
from skep.domain.vifs import PlugInterface

row = instances.c

_RECORDS = sorted(
    {action.record for action in ACTIONS.values() if action.kind is Kind.GUEST} | {ACTIONS["reset_state"].record}
)
"""Of actions that say what becomes of a guest, or of its server's state."""

NO_ANSWER = "The host did not answer"
UNKNOWN = "whether it was done is unknown"
SEEN = "the server is now as its guest was found"
GONE = "InstanceNotFound: the host of the server has no guest of it"
OVERTAKEN = "It was ended for another action"

_ON_HOSTS = sa.and_(
    row.task.is_not(None),
    row.task.in_(constants(ON_HOSTS)),
    row.task_id.is_not(None),
    row.host.is_not(None),
)
"""The first part makes SQLite see that `instances_tasks` holds all of them."""

ENDS_WITHOUT_HOST = sa.or_(row.task.not_in(constants(REPEATED)), row.acted_id.is_distinct_from(row.task_id))
"""Of tasks: they may be ended while their host may come back with the guest. Of the others it alone knows which volumes
and interfaces the guest has."""

_NOT_STORED = sa.or_(*(action_events.c.details.startswith(failure.because("")) for failure in StoreFailure))

_BUSY = frozenset(stored(BUILD_STATES | {State.MOVED}))

_OF_VOLUMES = frozenset({SWAP, ASSIST, UNASSIST, PLUG, UNPLUG})
"""Actions of which a volume service waits to hear what came."""

_LEAVES_AFTER = {(PLUG_INTERFACE, False), (UNPLUG_INTERFACE, True)}
"""Actions, and whether they went well, after which the guest has their interface no more, or never got it."""

_columns = (row.attempt, row.host, row.task, *COLUMNS)


class HostTask(msgspec.Struct, frozen=True, kw_only=True):
    """An action that waits for its host."""

    instance: InstanceUuid
    attempt: int
    host: str
    task: Task
    task_id: str
    request: ActionRequest

    @property
    def action(self) -> Action:
        """The row of its table."""
        return ACTIONS[self.request.action]


Named = tuple[InstanceUuid, str]
"""A task by its instance and its id."""


class KnownTasks(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of some tasks."""

    begun: set[Named]
    under_way: set[Named]
    not_stored: set[Named]
    """Those whose host said that it could not store the image which they make."""
    busy: set[InstanceUuid]
    """Instances under any task, or being built, or gone to another cell: that one says the rest."""
    shelved: dict[InstanceUuid, str]
    """Shelved instances, and those that are being unshelved: the image that each is in."""


def begin(
    connection: sa.Connection,
    uuid: InstanceUuid,
    action: Action,
    context: RequestContext,
    now: int,
    *,
    arguments: msgspec.Struct | None = None,
    secrets: bytes | None = None,
) -> bool:
    """Begin an action on an instance that is in a state that allows it and under no task; False when it may not."""
    assert action.task is not None
    told = {} if arguments is None else msgspec.to_builtins(arguments)
    request = ActionRequest(action=action.name, context=context, arguments=told, secrets=secrets)
    values = {
        "task": action.task.value,
        "task_id": context.request_id,
        "action_request": dump(request),
        "sent_at": None,
        "in_doubt_at": None,
        "step_at": now,
        "changed_at": now,
        "updated_at": now,
    }
    begun = connection.execute(
        _beginning(action.begins_in), {"of": uuid, "asked": context.request_id, **values}
    ).rowcount
    if begun:
        actions.begin(connection, [actions.action_of(uuid, action.record, context, now)])
    return begun == 1


@cache
def _beginning(states: frozenset[State] | None) -> sa.Update:
    """Return the statement that begins an action on a server in one of these states; made once for each."""
    of = sa.and_(row.uuid == sa.bindparam("of"), row.deleted_at.is_(None), row.host.is_not(None))
    allowed = of if states is None else sa.and_(of, row.state.in_(constants(states)))
    return instances.update().where(
        allowed, row.task.is_(None), row.refused_id.is_distinct_from(sa.bindparam("asked", type_=sa.Text))
    )


def begin_over(
    connection: sa.Connection,
    uuid: InstanceUuid,
    action: Action,
    context: RequestContext,
    now: int,
    arguments: msgspec.Struct | None = None,
    secrets: bytes | None = None,
) -> list[Over] | None:
    """Begin an action and end what it overrides: return that. None when it may not begin; nothing is ended then."""
    ended = overtake(connection, uuid, action, now) if action.overrides else []
    if not begin(connection, uuid, action, context, now, arguments=arguments, secrets=secrets):
        return None
    return with_instances(connection, ended)


def overtake(connection: sa.Connection, uuid: InstanceUuid, action: Action, now: int) -> list[Ended]:
    """End the task that an action may end to begin, with an error as by its deadline; none where it may not begin."""
    overridden = sa.and_(_may_begin(uuid, action), row.task.in_(constants(action.overrides)))
    over = [settle(connection, task, now, OVERTAKEN, overridden) for task in of(connection, overridden)]
    return [one for one in over if one is not None]


def _may_begin(uuid: InstanceUuid, action: Action) -> sa.ColumnElement[bool]:
    mine = sa.and_(row.uuid == uuid, row.deleted_at.is_(None), row.host.is_not(None))
    return mine if action.begins_in is None else sa.and_(mine, row.state.in_(constants(action.begins_in)))


def due(
    connection: sa.Connection, now: int, resend_before: int, limit: int, progress_before: int = NOTHING_COUNTS
) -> list[HostTask]:
    """Return tasks whose host is to be told of them now, and note that it was told.

    Those that their host has in hand are left out, as `resending.due` says.
    """
    asked = {**resending.asked_at(now, resend_before, progress_before), "most": limit}
    return [_task(found) for found in connection.execute(_DUE, asked)]


_DUE = (
    instances.update()
    .where(
        row.uuid.in_(
            sa.select(row.uuid)
            .where(_ON_HOSTS, ~resting.awaited(row.host), resending.due(row.sent_at, row.step_at))
            .limit(sa.bindparam("most", type_=sa.Integer))
        )
    )
    .values(**resending.told(row.sent_at, row.step_at))
    .returning(*_columns)
)


def progressed(connection: sa.Connection, host: str, tasks: Sequence[tuple[InstanceUuid, str]], now: int) -> int:
    """Note that a host has these tasks in hand: their deadlines begin anew. Return how many are still its own."""
    return connection.execute(
        instances.update()
        .where(sa.tuple_(row.uuid, row.task_id).in_(tasks), row.host == host, _ON_HOSTS)
        .values(step_at=now)
    ).rowcount


def enter(connection: sa.Connection, host: str, phases: Mapping[tuple[InstanceUuid, str], str], now: int) -> None:
    """Note the phases that a host's tasks (by instance and id) are in; users see them."""
    mine = sa.and_(sa.tuple_(row.uuid, row.task_id).in_(list(phases)), row.host == host)
    for task in of(connection, mine):
        entered = task.action.phases.get(phases[task.instance, task.task_id])
        if entered not in (None, task.task):
            values = {"task": entered, "changed_at": now, "updated_at": now}
            connection.execute(_ENTER, {**_named(task), **values})


def known(connection: sa.Connection, named: Sequence[Named]) -> KnownTasks:
    """Return which of these tasks were begun, which are under way, and what the rows of their instances say else."""
    ids = list(named)
    action = action_rows.c
    known = sa.select(action.instance, action.request_id).where(sa.tuple_(action.instance, action.request_id).in_(ids))
    event = action_events.c
    failed = sa.select(event.instance, event.request_id).where(
        sa.tuple_(event.instance, event.request_id).in_(ids), event.result == "Error", _NOT_STORED
    )
    bearing = sa.select(row.uuid, row.task_id).where(sa.tuple_(row.uuid, row.task_id).in_(ids), row.task.is_not(None))
    of_rows = sa.select(row.uuid, row.task, row.state, row.shelved).where(
        row.uuid.in_([uuid for uuid, _ in ids]), sa.or_(row.deleted_at.is_(None), row.state == State.MOVED.value)
    )
    rows = connection.execute(of_rows).all()
    return KnownTasks(
        begun={(InstanceUuid(uuid), str(task_id)) for uuid, task_id in connection.execute(known)},
        under_way={(InstanceUuid(uuid), str(task_id)) for uuid, task_id in connection.execute(bearing)},
        not_stored={(InstanceUuid(uuid), str(task_id)) for uuid, task_id in connection.execute(failed)},
        busy={InstanceUuid(one.uuid) for one in rows if one.task is not None or one.state in _BUSY},
        shelved={InstanceUuid(one.uuid): load(one.shelved, Shelved).image_id for one in rows if one.shelved},
    )


def not_begun(connection: sa.Connection, uuid: InstanceUuid, task_id: str) -> list[HostTask]:
    """Return this task of an instance, if its host was not yet allowed to begin it."""
    return [_task(one) for one in connection.execute(_NOT_BEGUN, {"of": uuid, "asked": task_id})]


_asked = sa.bindparam("asked", type_=sa.Text)
_NOT_BEGUN = (
    sa.select(*_columns)
    .where(_ON_HOSTS, row.uuid == sa.bindparam("of"), row.task_id == _asked, row.acted_id.is_distinct_from(_asked))
    .limit(1)
)


def may_act(
    connection: sa.Connection, uuid: InstanceUuid, attempt: int, host: str, task: str, task_id: str, now: int
) -> bool:
    """Let a host begin a task, unless it is over, in doubt or another's by now; a repeat gets the same answer.

    What leaves the guest as it is says nothing of the host's reports: they count as before.
    """
    mine = {"of": uuid, "mine": attempt, "on": host, "asked": task_id, "now": now}
    return connection.execute(_letting(task), mine).rowcount == 1


@lru_cache(maxsize=64)
def _letting(task: str) -> sa.Update:
    """Return the statement that lets a host begin a task; made once for each."""
    action = next((of_task(known) for known in ON_HOSTS if known == task), None)
    names = [task] if action is None else [one.value for one in action.tasks]
    values: dict[str, Any] = {"step_at": sa.bindparam("now")}
    repeated = action is not None and action.is_repeated
    if repeated:
        values["in_doubt_at"] = None
    if action is None or not action.leaves_guest:
        values["acted_id"] = _asked
    if action is not None and BEGUN in action.phases:
        values["task"] = sa.case((row.task == task, action.phases[BEGUN].value), else_=row.task)
    return (
        instances.update()
        .where(
            row.uuid == sa.bindparam("of"),
            row.attempt == sa.bindparam("mine"),
            row.host == sa.bindparam("on"),
            row.task.in_(names),
            row.task_id == _asked,
            *([] if repeated else [row.in_doubt_at.is_(None)]),
            row.deleted_at.is_(None),
        )
        .values(**values)
    )


def overdue(connection: sa.Connection, before: int, limit: int, tasks: Collection[Task] = ON_HOSTS) -> list[HostTask]:
    """Return those of `tasks` whose host was told and has been silent since before `before`; none that is in doubt."""
    told = sa.and_(row.sent_at > AGAIN_AT_ONCE, row.step_at < before, row.task.in_(constants(tasks)))
    return of(connection, sa.and_(told, row.in_doubt_at.is_(None), ~resting.awaited(row.host)), limit)


def of(connection: sa.Connection, wanted: sa.ColumnElement[bool], limit: int | None = None) -> list[HostTask]:
    """Return the tasks of the instances that are `wanted`."""
    return [_task(one) for one in connection.execute(sa.select(*_columns).where(_ON_HOSTS, wanted).limit(limit))]


def give_up(connection: sa.Connection, task: HostTask, now: int) -> Ended | None:
    """End a task whose host is silent: an error for the action, the server as it was. None when it is over.

    One that the host was allowed to begin is not ended but in doubt, unless it leaves the guest as it is.
    """
    if task.action.leaves_guest:
        return settle(connection, task, now, NO_ANSWER)
    ended = refuse(connection, task, now, NO_ANSWER)
    if ended is not None:
        return ended
    doubted = connection.execute(
        instances.update()
        .where(_is(task), row.acted_id == task.task_id, row.in_doubt_at.is_(None))
        .values(in_doubt_at=now, changed_at=now, updated_at=now)
    ).rowcount
    return _finish(connection, task, now, f"{NO_ANSWER}: {UNKNOWN}", in_doubt=True) if doubted else None


def refuse(connection: sa.Connection, task: HostTask, now: int, why: str) -> Ended | None:
    """End a task, unless its host was allowed to begin it: an error for the action. None when it is not ended."""
    return settle(connection, task, now, why, row.acted_id.is_distinct_from(task.task_id))


def settle(
    connection: sa.Connection, task: HostTask, now: int, why: str, only_if: sa.ColumnElement[bool] | None = None
) -> Ended | None:
    """End a task that its host does not end: an error for the action, the server as it was. None when it is over."""
    ended = connection.execute(
        instances.update()
        .where(_is(task), *([] if only_if is None else [only_if]))
        .values(
            task=None,
            task_id=None,
            action_request=None,
            sent_at=None,
            in_doubt_at=None,
            step_at=now,
            changed_at=now,
            updated_at=now,
        )
    ).rowcount
    return _finish(connection, task, now, why) if ended else None


def _is(task: HostTask) -> sa.ColumnElement[bool]:
    return sa.and_(
        row.uuid == task.instance,
        row.attempt == task.attempt,
        row.task_id == task.task_id,
        row.task.in_(constants({task.task, *task.action.tasks})),
    )


_ENTER = instances.update().where(
    row.uuid == sa.bindparam("of"),
    row.attempt == sa.bindparam("of_attempt"),
    row.task_id == sa.bindparam("asked"),
    row.task.in_(sa.bindparam("doing", expanding=True)),
)


def _named(task: HostTask) -> dict[str, Any]:
    """Name the parameters of `_ENTER`, which writes the columns of a row that still has this task."""
    doing = sorted({task.task, *task.action.tasks})
    return {"of": task.instance, "of_attempt": task.attempt, "asked": task.task_id, "doing": doing}


def done(
    connection: sa.Connection,
    uuid: InstanceUuid,
    attempt: int,
    task_id: str,
    power_state: PowerState,
    error: str | None,
    now: int,
    *,
    begun: bool = True,
    gone: bool = False,
    rescued: bool = False,
) -> Ended | None:
    """End a task: the state follows the power state, an error becomes the action's result and a fault.

    A server whose host looked and has no guest of it (`gone`) becomes ERROR.

    Of a server that its host has not reported as built (ERROR, its host was silent) the state stays: `built` says what
    becomes of it, whichever of the host's two messages comes first. A task that was given up is none any more; its
    host, which has carried it out all the same (agents of before 0.6.0 do not ask), says how the guest is now. A host
    that was allowed to begin and did not (`begun` is false) never names the task in its reports, which count again.
    None when it is over already.
    """
    started = connection.execute(_STARTED[begun], {"of": uuid, "mine": attempt, "asked": task_id}).first()
    if started is None:
        return None
    task = _task(started) if started.task is not None else _late(connection, started, task_id)
    fault = None
    if error and begun:
        message, details = (GONE, error) if gone else (error, None)
        fault = dump(Fault(code=500, message=message, details=details, created_at=now))
    built, before = started.launched_at is not None, State(started.state)
    well = error is None and started.task is not None
    after = state_by(task.action.becomes, before, power_state, well=well, rescued=rescued)
    if begun and gone:
        after = State.ERROR
    shelved = _shelved(task, before, after, started, now)
    acted_before = None if started.acted_id == task_id else started.acted_id
    values = {
        "state": after.value if built else started.state,
        "task": None,
        "task_id": task_id,
        "action_request": None,
        "acted_id": task_id if begun else acted_before,
        "shelved": shelved,
        "power_state": int(power_state),
        "fault": fault if built and begun else started.fault,
        "sent_at": None,
        "in_doubt_at": None,
        "step_at": now,
        "changed_at": now,
        "updated_at": now,
    }
    connection.execute(_CHANGE, {"of": uuid, **values})
    over = _finish(connection, task, now, error)
    if started.task is not None and after is State.STOPPED:
        _start_again(connection, task, now)
    return over


def _shelved(task: HostTask, before: State, after: State, found: Any, now: int) -> bytes | None:
    """Return where the content of a server is after a task: a shelve that went well puts it into its image."""
    if after is State.SHELVED and before is not State.SHELVED:
        image = convert(task.request.arguments, ShelveServer).image_id
        return dump(Shelved(image_id=image, shelved_at=now, host=task.host))
    kept: bytes | None = found.shelved
    return None if after in WITH_GUEST else kept


def _start_again(connection: sa.Connection, task: HostTask, now: int) -> None:
    """Have a server started that was shut down to be shelved, ran before, and was left off when that failed."""
    if task.request.action == "shelve" and convert(task.request.arguments, ShelveServer).was is State.ACTIVE:
        begin(connection, task.instance, ACTIONS["start"], _own_context(), now)


def _late(connection: sa.Connection, found: Any, task_id: str) -> HostTask:
    """Return the task that a row had before it was given up, as the record of its action tells."""
    mine = sa.and_(action_rows.c.instance == found.uuid, action_rows.c.request_id == task_id)
    begun = connection.execute(sa.select(action_rows).where(mine)).one()
    action = of_record(begun.action)
    assert action.task is not None
    context = RequestContext(request_id=RequestId(task_id), project_id=begun.project_id, user_id=begun.user_id)
    return HostTask(
        instance=found.uuid,
        attempt=found.attempt,
        host=found.host,
        task=action.task,
        task_id=task_id,
        request=ActionRequest(action=action.name, context=context),
    )


def _is_late(*, begun: bool) -> sa.ColumnElement[bool]:
    """Say of a row that the task `asked`, which was given up, is the latest thing that was asked of it."""
    action = action_rows.c
    newest = (
        sa.select(action.request_id)
        .where(action.instance == row.uuid, action.action.in_(constants(_RECORDS)))
        .order_by(action.started_at.desc())
        .limit(1)
        .scalar_subquery()
    )
    return sa.and_(sa.literal(begun), row.task.is_(None), row.task_id.is_(None), newest == _asked)


_STARTED = {
    begun: sa.select(*_columns, row.state, row.launched_at, row.fault, row.acted_id, row.shelved).where(
        row.uuid == sa.bindparam("of"),
        row.attempt == sa.bindparam("mine"),
        sa.or_(sa.and_(_ON_HOSTS, row.task_id == _asked), _is_late(begun=begun)),
    )
    for begun in (True, False)
}
_CHANGE = instances.update().where(row.uuid == sa.bindparam("of"))
"""Made once: making a statement costs more than running it."""


def correct(connection: sa.Connection, known: GuestKnown, found: Correction, host: str, now: int) -> Ended | None:
    """Write how a guest really is, if the row is still as `known` says; return the action that this settled.

    A guest that runs although its server is stopped is stopped by a task of its own.
    """
    doubt = row.in_doubt_at.is_not(None) if known.in_doubt else row.task.is_(None)
    still = sa.and_(row.uuid == known.instance, row.attempt == known.attempt, row.host == host, doubt)
    unchanged = sa.and_(row.state == known.state.value, row.acted_id.is_not_distinct_from(known.acted_id))
    settled = of(connection, sa.and_(still, unchanged))
    lets_go = found.state in WITH_GUEST
    written = connection.execute(
        instances.update()
        .where(still, unchanged)
        .values(
            state=found.state.value,
            power_state=int(found.power_state),
            task=None,
            action_request=None,
            sent_at=None,
            in_doubt_at=None,
            changed_at=now,
            updated_at=now,
            **({"shelved": None} if lets_go else {}),
        )
    ).rowcount
    ended = [_finish(connection, task, now, f"{NO_ANSWER}: {SEEN}") for task in settled]
    if written and found.stop:
        stop_running(connection, known.instance, known.state, now)
    if written and found.state is State.STOPPED:
        for task in settled:
            _start_again(connection, task, now)
    return ended[0] if ended else None


def stop_running(connection: sa.Connection, uuid: InstanceUuid, state: State, now: int) -> bool:
    """Have the guest of a server that is stopped, shelved or soft-deleted stopped: Skep asks for it by itself."""
    action = ACTIONS["soft_delete" if state is State.SOFT_DELETED else "stop"]
    again = msgspec.structs.replace(action, begins_in=frozenset({state}))
    return begin(connection, uuid, again, _own_context(), now)


def _own_context() -> RequestContext:
    """Return the context of what Skep asks for by itself."""
    return RequestContext(request_id=new_request_id(), project_id=ProjectId(""), user_id=UserId(""))


def _finish(connection: sa.Connection, task: HostTask, now: int, error: str | None, *, in_doubt: bool = False) -> Ended:
    started_at = actions.began_at(connection, task.instance, task.task_id)
    ended = Ended(
        action=task.request.action,
        context=task.request.context,
        instance=task.instance,
        attempt=task.attempt,
        host=task.host,
        started_at=now if started_at is None else started_at,
        ended_at=now,
        error=error,
        arguments=task.request.arguments,
        in_doubt=in_doubt,
    )
    actions.ended(connection, ended)
    if task.request.action in _OF_VOLUMES and not in_doubt:
        swaps.over(connection, task.instance, task.task_id, well=error is None)
    if (task.request.action, error is None) in _LEAVES_AFTER and task.request.arguments and not in_doubt:
        interfaces.leave(connection, task.instance, convert(task.request.arguments, PlugInterface).vif.id)
    if task.request.action in deletion_times.COUNTED:
        deletion_times.keep(connection, task.instance)
    return ended


def _task(found: Any) -> HostTask:
    return HostTask(
        instance=found.uuid,
        attempt=found.attempt,
        host=found.host,
        task=Task(found.task),
        task_id=found.task_id,
        request=request_of(found, of_task(Task(found.task))),
    )
