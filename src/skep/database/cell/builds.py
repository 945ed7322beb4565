"""The writes of a build inside a cell. Each is fenced by the attempt: what was replaced changes nothing.

Functions that answer a bool say whether the writer may go on; a repeat of what was done already may.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from skep.database.cell import (
    actions,
    agents,
    asked,
    assignments,
    attempts,
    following,
    resending,
    resting,
    travels,
    unreadable,
)
from skep.database.cell.instances import columns_of, instance_of, live_columns
from skep.database.cell.resending import NOTHING_COUNTS
from skep.database.cell.tables import UNDER_WAY, instances
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.transitions import moving
from skep.database.cell.travels import Traveller
from skep.database.constants import constants
from skep.database.stored import dump, load
from skep.database.upsert import insert
from skep.domain.actions import ACTIONS
from skep.domain.assignments import Assignment
from skep.domain.builds import Alternate, Explanation
from skep.domain.claims import ClaimKey
from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.instances import Fault, Instance, PowerState, Shelved, State, Task
from skep.domain.request_specs import RequestSpec
from skep.domain.states import BUILT_BY_HOST, check

row = instances.c


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """A server as it is written into a cell: with a host, or (cell0) with the fault that says why it has none."""

    instance: Instance
    """Without host and node: the assignment names them."""
    assignment: Assignment | None
    """None: no host, so that its fault says why."""
    spec: RequestSpec
    context: RequestContext
    epoch: str
    alternates: tuple[Alternate, ...] = ()
    explanation: Explanation | None = None
    secrets: bytes | None = None
    left_cells: tuple[CellUuid, ...] = ()
    """The cells that had no host for it."""
    traveller: Traveller | None = None
    """What comes with a server that is unshelved in this cell; None: it is created."""
    refusal: str | None = None
    """Without an assignment: what it cannot have beside a host; None: no host was found."""

    def on_host(self) -> Instance:
        """Return the instance as its row will say it."""
        if self.assignment is None:
            return self.instance
        return msgspec.structs.replace(self.instance, host=self.assignment.host, node=self.assignment.node)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """An instance whose build or task waits for something, with what is needed to do it."""

    instance: Instance
    spec: RequestSpec
    context: RequestContext
    alternates: tuple[Alternate, ...]
    secrets: bytes | None
    step_at: int
    task_id: str | None
    left_cells: tuple[CellUuid, ...]

    @property
    def shelved(self) -> Shelved | None:
        """Where the content of a server is that is being unshelved; None: it is being created."""
        return self.instance.shelved if self.instance.task in (Task.UNSHELVING, Task.SPAWNING) else None

    def to_build(self) -> Instance:
        """Return the instance as its host is to build it: no agent has to know of shelved servers for that."""
        if self.shelved is None:
            return self.instance
        plain = {"state": State.SCHEDULED, "task": None, "shelved": None}
        return msgspec.structs.replace(self.instance, image=self.shelved.image, **plain)


class DueBuild(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduled build whose host is to be told."""

    work: Work
    assignment: Assignment


def stage(connection: sa.Connection, staged: Sequence[Staged], now: int) -> set[InstanceUuid]:
    """Write servers in state `staged`, over nothing or over a staged row of a lower attempt; nobody sees them yet.

    Also over a row that was here before and moved away, when no host has anything of it any more. Return those that
    stand there now. What was placed on a host that is being deleted, or was, is not written.
    """
    shut = agents.closed(connection, {one.assignment.node for one in staged if one.assignment is not None})
    staged = [one for one in staged if one.assignment is None or one.assignment.node not in shut]
    if not staged:
        return set()
    connection.execute(_staging(connection), [_staged_columns(one, now) for one in staged])
    written = {
        (one.uuid, one.attempt)
        for one in connection.execute(
            sa.select(row.uuid, row.attempt).where(
                UNDER_WAY, row.state == State.STAGED, row.uuid.in_([one.instance.uuid for one in staged])
            )
        )
    }
    staged = [one for one in staged if (one.instance.uuid, one.instance.attempt) in written]
    overtakers = {one.instance.uuid: one.instance.attempt for one in staged if one.instance.attempt > 1}
    if overtakers:
        attempts.not_sent(connection, overtakers, now)
    # Before the attempts: the event of a chosen host names the latest request.
    for one in staged:
        if one.traveller is not None:
            travels.unpack(connection, one.instance.uuid, one.traveller)
    actions.begin(
        connection,
        [
            actions.action_of(one.instance.uuid, actions.CREATE, one.context, one.instance.created_at)
            for one in staged
            if one.traveller is None
        ],
    )
    attempts.begin(
        connection,
        (
            attempts.of_decision(
                one.instance.uuid,
                one.instance.attempt,
                one.assignment,
                one.explanation,
                now,
                "build" if one.traveller is None else "unshelve",
                one.refusal,
            )
            for one in staged
        ),
    )
    return {one.instance.uuid for one in staged}


def _staging(connection: sa.Connection) -> sa.Executable:
    """Return the statement that writes staged rows; made once for each dialect."""
    dialect = connection.dialect.name
    known = _STAGING.get(dialect)
    if known is None:
        statement = insert(connection, instances)
        columns = {column.name: statement.excluded[column.name] for column in instances.c if column.name != "uuid"}
        known = _STAGING[dialect] = statement.on_conflict_do_update(
            index_elements=["uuid"],
            set_=columns,
            where=sa.and_(
                row.attempt < statement.excluded.attempt,
                sa.or_(
                    row.state == State.STAGED.value,
                    sa.and_(
                        row.state == State.MOVED.value,
                        row.highest < statement.excluded.attempt,
                        ~sa.exists(_OPEN),
                    ),
                ),
            ),
        )
    return known


_STAGING: dict[str, sa.Executable] = {}
_OPEN = sa.select(attempt_rows.c.attempt).where(
    attempt_rows.c.open, attempt_rows.c.instance == sa.literal_column("instances.uuid")
)
"""The row that is written over is not among the tables of this select: as its column it would become one of them."""


def _staged_columns(staged: Staged, now: int) -> dict[str, Any]:
    return {
        **columns_of(msgspec.structs.replace(staged.instance, state=State.STAGED)),
        **assignments.columns_of(staged.assignment),
        **_bound(staged),
        "highest": staged.instance.attempt,
        "task_id": None,
        "owner": None,
        "epoch": staged.epoch,
        "sent_at": None,
        "step_at": now,
        "changed_at": now,
        "terminated_at": None,
        "deleted_at": None,
        "forgotten": False,
        "context": dump(staged.context),
        "spec": dump(staged.spec),
        "alternates": dump(staged.alternates),
        "secrets": staged.secrets,
        "left_cells": dump(staged.left_cells).decode(),
    }


def _bound(staged: Staged) -> dict[str, Any]:
    """Ports of a new server were bound to its host when they were made; a build that left a cell had them there."""
    is_new = staged.traveller is None and not staged.left_cells
    if staged.assignment is None or not is_new or not staged.instance.vifs:
        return {}
    return {"bound_to": staged.assignment.host}


def settle(connection: sa.Connection, mapped: Sequence[tuple[InstanceUuid, int]], now: int) -> int:
    """Let go of staged rows whose mapping names this cell: with a host to `scheduled`, without one to `error`."""
    ready = sa.tuple_(row.uuid, row.attempt).in_(mapped)
    return connection.execute(
        instances.update()
        .where(ready, moving(State.STAGED, State.SCHEDULED, State.ERROR))
        .values(
            state=sa.case((row.host.is_(None), State.ERROR.value), else_=State.SCHEDULED.value),
            secrets=sa.case((row.host.is_(None), sa.null()), else_=row.secrets),
            step_at=now,
            changed_at=now,
            updated_at=now,
        )
    ).rowcount


def unstage(connection: sa.Connection, uuid: InstanceUuid, attempt: int) -> list[ClaimKey]:
    """Remove a staged row that its mapping does not name, and return the claims that go with it.

    Those of lower attempts too, over which it was written. Nothing is done when the row is another's by now.
    """
    removed = connection.execute(
        instances.delete()
        .where(row.uuid == uuid, row.state == State.STAGED, row.attempt == attempt)
        .returning(row.uuid, row.spec)
    ).first()
    if removed is None:
        return []
    travels.forget(connection, uuid)
    spec = unreadable.or_none(removed, _spec)
    group = spec.group.uuid if spec is not None and spec.group is not None else None
    return [msgspec.structs.replace(key, group=group) for key in attempts.remove(connection, uuid)]


def staged_before(
    connection: sa.Connection, before: int, limit: int
) -> list[tuple[InstanceUuid, int, NodeUuid | None]]:
    """Return (instance, attempt, node) of rows that have been staged since before `before`."""
    found = connection.execute(
        sa.select(row.uuid, row.attempt, row.node)
        .where(UNDER_WAY, row.state == State.STAGED, row.step_at < before, ~resting.undecided(row.uuid))
        .limit(limit)
    )
    return [(one.uuid, one.attempt, one.node) for one in found]


def dispatch_due(
    connection: sa.Connection,
    home: CellUuid,
    now: int,
    resend_before: int,
    limit: int,
    progress_before: int = NOTHING_COUNTS,
    epoch: str | None = None,
    unfollowed_before: int = following.NOTHING_WAITS,
) -> list[DueBuild]:
    """Return scheduled builds of the cell `home` whose host is to be told now, and note that it was told.

    With `epoch`, only those whose host was chosen (or has been asserted) under it.

    Those that their host has in hand are left out, as `resending.due` says, and so are those that began after
    `unfollowed_before` and whose volumes are not there yet (`following`).
    """
    asked: dict[str, Any] = {
        **resending.asked_at(now, resend_before, progress_before),
        "most": limit,
        "unfollowed_before": unfollowed_before,
    }
    if epoch is not None:
        asked["under"] = epoch
    due = connection.execute(_due(of_epoch=epoch is not None), asked).all()
    return unreadable.sifted(connection, due, partial(_due_build, home=home), now)


@cache
def _due(*, of_epoch: bool) -> sa.Executable:
    due = (
        sa.select(row.uuid)
        .where(
            UNDER_WAY,
            row.state == State.SCHEDULED,
            row.task.is_(None),
            ~resting.resting(row.uuid),
            resending.due(row.sent_at, row.step_at),
            following.VOLUMES_OF_BUILD,
        )
        .order_by(row.step_at)
        .limit(sa.bindparam("most", type_=sa.Integer))
    )
    if of_epoch:
        due = due.where(row.epoch == sa.bindparam("under"))
    return (
        instances.update()
        .where(row.uuid.in_(due))
        .values(**resending.told(row.sent_at, row.step_at))
        .returning(*_work_columns, row.allocation)
    )


def progressed(connection: sa.Connection, host: str, builds: Sequence[tuple[InstanceUuid, int]], now: int) -> int:
    """Note that a host has these attempts in hand: their deadlines begin anew. Return how many are still its own."""
    return connection.execute(
        instances.update()
        .where(
            sa.tuple_(row.uuid, row.attempt).in_(builds),
            row.host == host,
            row.task.is_(None),
            row.state.in_(constants(BUILT_BY_HOST)),
        )
        .values(step_at=now)
    ).rowcount


def may_build(connection: sa.Connection, uuid: InstanceUuid, attempt: int, host: str, now: int) -> bool:
    """Write scheduled -> building for this attempt on this host."""
    return _advance(connection, uuid, attempt, host, State.SCHEDULED, State.BUILDING, now)


def may_spawn(connection: sa.Connection, uuid: InstanceUuid, attempt: int, host: str, now: int) -> bool:
    """Write building -> spawning for this attempt on this host: the point of no return.

    A row that went back in time to `scheduled` has lost that its host may build, but not the host.
    """
    states = (State.BUILDING, State.SCHEDULED)
    return any(_advance(connection, uuid, attempt, host, before, State.SPAWNING, now) for before in states)


def _advance(
    connection: sa.Connection,
    uuid: InstanceUuid,
    attempt: int,
    host: str,
    before: State,
    after: State,
    now: int,
) -> bool:
    check((before,), after)
    mine = {"of": uuid, "mine": attempt, "on": host}
    if connection.execute(_ADVANCE, {**mine, "before": before, "after": after.value, "now": now}).rowcount:
        return True
    later = (after,) if after is State.SPAWNING else (after, State.SPAWNING)
    return connection.execute(_ADVANCED.where(row.state.in_(later)), mine).first() is not None


_MINE = (row.uuid == sa.bindparam("of"), row.attempt == sa.bindparam("mine"), row.host == sa.bindparam("on"))
_ADVANCE = (
    instances.update()
    .where(*_MINE, row.task.is_(None), row.state == sa.bindparam("before"), ~resting.resting(row.uuid))
    .values(state=sa.bindparam("after"), step_at=sa.bindparam("now"), changed_at=sa.bindparam("now"))
)
_ADVANCED = sa.select(row.uuid).where(*_MINE, row.task.is_(None), ~resting.resting(row.uuid))
_BUILT = (
    instances.update()
    .where(
        *_MINE,
        row.task.is_distinct_from(Task.DELETING.value),
        moving(BUILT_BY_HOST | {State.ERROR}, State.ACTIVE),
        row.launched_at.is_(None),
    )
    .values(
        state=State.ACTIVE.value,
        power_state=sa.bindparam("power"),
        launched_at=sa.bindparam("launched"),
        fault=None,
        secrets=None,
        step_at=sa.bindparam("now"),
        changed_at=sa.bindparam("now"),
        updated_at=sa.bindparam("now"),
    )
)
_WAS_BUILT = sa.select(row.uuid).where(*_MINE, row.launched_at.is_not(None))
"""Statements of every build are made once: making one costs more than running it."""


def built(
    connection: sa.Connection,
    uuid: InstanceUuid,
    attempt: int,
    host: str,
    launched_at: int,
    power_state: PowerState,
    now: int,
) -> Literal["now", "before"] | None:
    """Write spawning -> active. A host that was given up (ERROR) and is heard again with a whole guest clears it.
    So does that of a row which went back in time to `scheduled` or `building`.

    Return since when the row says so; None: the attempt was replaced.

    A task that was asked of the ERROR meanwhile is none of this write's business: it stays, and its host ends it.
    """
    mine = {"of": uuid, "mine": attempt, "on": host}
    values = {**mine, "power": int(power_state), "launched": launched_at, "now": now}
    if connection.execute(_BUILT, values).rowcount:
        attempts.finish(connection, uuid, attempt, host, now, "built", keep_open=True)
        return "now"
    return None if connection.execute(_WAS_BUILT, mine).first() is None else "before"


def fail(connection: sa.Connection, uuid: InstanceUuid, attempt: int, host: str, fault: Fault | None, now: int) -> bool:
    """End an attempt that its host undid: `error` with a fault, `rescheduling` without. False when it was replaced."""
    return (
        connection.execute(
            instances.update()
            .where(
                row.uuid == uuid,
                row.attempt == attempt,
                row.host == host,
                row.task.is_(None),
                moving(BUILT_BY_HOST, State.RESCHEDULING, State.ERROR),
            )
            .values(**ended(fault, now))
        ).rowcount
        == 1
    )


def ended(fault: Fault | None, now: int) -> dict[str, Any]:
    """Return the columns of an attempt's end: `error` with a fault, `rescheduling` without."""
    values: dict[str, Any] = {
        "step_at": now,
        "changed_at": now,
        "updated_at": now,
        "owner": None,
        "sent_at": None,
    }
    if fault is None:
        return {**values, "state": State.RESCHEDULING.value}
    return {
        **values,
        "state": State.ERROR.value,
        "fault": dump(fault),
        "secrets": None,
        "host": None,
        "node": None,
    }


_work_columns = (
    *live_columns,
    row.spec,
    row.context,
    row.alternates,
    row.secrets,
    row.step_at,
    row.left_cells,
    row.task_id,
    row.project_id,
    row.user_id,
    row.action_request,
)


def _work(found: Any) -> Work:
    instance = instance_of(found)
    return Work(
        instance=instance,
        spec=load(found.spec, RequestSpec),
        context=_context(found, instance),
        alternates=load(found.alternates, tuple[Alternate, ...]),
        secrets=found.secrets,
        step_at=found.step_at,
        task_id=found.task_id,
        left_cells=load(found.left_cells, tuple[CellUuid, ...]),
    )


def _context(found: Any, instance: Instance) -> RequestContext:
    """Return who asked for what is under way: the create, or an unshelve by whomever, of its own project's image."""
    if instance.shelved is None or instance.task not in (Task.UNSHELVING, Task.SPAWNING):
        context: RequestContext = load(found.context, RequestContext)
        return context
    request = asked.request_of(found, ACTIONS["unshelve_offloaded"])
    return msgspec.structs.replace(request.context, project_id=instance.project_id)


def _due_build(found: Any, home: CellUuid) -> DueBuild:
    work = _work(found)
    return DueBuild(work=work, assignment=assignments.of_row(found, work.spec, home))


work_columns = _work_columns
work_of = _work


def work(connection: sa.Connection, uuid: InstanceUuid) -> Work | None:
    """Return an instance with all that its build needs, whatever its state; None also when it cannot be read."""
    found = connection.execute(_ONE, {"of": uuid}).first()
    return None if found is None else readable(found)


def readable(found: Any) -> Work | None:
    """Return what is built, of a row that has `work_columns`; None when it cannot be read."""
    return unreadable.or_none(found, _work)


_ONE = sa.select(*_work_columns).where(row.uuid == sa.bindparam("of"))


def _spec(found: Any) -> RequestSpec:
    spec: RequestSpec = load(found.spec, RequestSpec)
    return spec
