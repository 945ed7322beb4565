"""Offloaded instances that are built again from the image they are in: how that begins, and its two ends.

Between them the row is that of any build, and goes the way of one. What tells it from a build is its column `shelved`.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import actions, asked, attempts, numbers, offloads
from skep.database.cell.instances import spec_of
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.tables import instances
from skep.database.cell.transitions import moving
from skep.database.stored import dump, load
from skep.domain.actions import ACTIONS, ActionRequest, Ended, UnshelveServer
from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.images import Image
from skep.domain.instances import Fault, Instance, PowerState, Shelved, State, Task
from skep.domain.states import BUILD_STATES, BUILT_BY_HOST, FROZEN, stored

row = instances.c

UNSHELVE = ACTIONS["unshelve_offloaded"]

_BUILT = frozenset(stored(BUILD_STATES))


_OFFLOADED = sa.and_(
    row.uuid == sa.bindparam("of"),
    row.attempt == sa.bindparam("of_attempt"),
    row.state == State.SHELVED_OFFLOADED.value,
    row.task.is_(None),
    row.deleted_at.is_(None),
    row.refused_id.is_distinct_from(sa.bindparam("asked")),
)
_READ = sa.select(
    row.uuid, row.spec, row.body, row.shelved, row.launched_at, row.left_cells, numbers.given().label("given")
).where(_OFFLOADED)
_BEGIN = instances.update().where(_OFFLOADED, moving(State.SHELVED_OFFLOADED, State.RESCHEDULING))
_BUILT_ONE = (
    instances.update()
    .where(
        row.uuid == sa.bindparam("of"),
        row.attempt == sa.bindparam("of_attempt"),
        row.host == sa.bindparam("on"),
        row.task.is_distinct_from(Task.DELETING.value),
        moving(BUILT_BY_HOST | {State.ERROR}, State.ACTIVE),
        row.launched_at.is_(None),
        row.shelved.is_not(None),
    )
    .values(
        state=State.ACTIVE.value,
        task=None,
        fault=None,
        secrets=None,
        shelved=None,
        owner=None,
        **dict.fromkeys(("step_at", "changed_at", "updated_at"), sa.bindparam("now")),
    )
    .returning(*asked.COLUMNS)
)


def begin(
    connection: sa.Connection,
    server: Instance,
    context: RequestContext,
    image: Image | None,
    wanted: UnshelveServer,
    pin: str | None,
    now: int,
    *,
    elsewhere: bool = False,
) -> bool:
    """Have an offloaded instance built from its image; False when its row is not as `server` says any more.

    `image`: None where the server boots from a volume. `pin` is the zone that it stays in from now on; None: any.
    `elsewhere`: another cell may have it if this one cannot.
    """
    mine = {"of": server.uuid, "of_attempt": server.attempt, "asked": context.request_id}
    found = connection.execute(_READ, mine).first()
    if found is None or not found.shelved:
        return False
    shelved: Shelved = load(found.shelved, Shelved)
    if shelved.image_id != ("" if image is None else image.id):
        return False
    spec = msgspec.structs.replace(
        spec_of(found),
        availability_zone=pin,
        forced_host=None,
        forced_node=None,
        requested_host=wanted.host,
        requested_node=None,
    )
    asked_for: Instance = load(found.body, Instance)
    body = msgspec.structs.replace(asked_for, pinned_availability_zone=pin)
    kept = msgspec.structs.replace(
        shelved,
        image=image,
        launched_at=found.launched_at or shelved.launched_at,
        above=found.given,
        elsewhere=elsewhere,
        left=len(load(found.left_cells, tuple[CellUuid, ...])),
    )
    request = ActionRequest(action=UNSHELVE.name, context=context, arguments=msgspec.structs.asdict(wanted))
    values = {
        "state": State.RESCHEDULING.value,
        "task_id": context.request_id,
        "action_request": dump(request),
        "shelved": dump(kept),
        "launched_at": None,
        "spec": dump(spec),
        "body": dump(body),
        "alternates": dump(()),
        "owner": None,
        "sent_at": None,
        "fault": None,
        "step_at": now,
        "changed_at": now,
        "updated_at": now,
    }
    connection.execute(_BEGIN, {**mine, **values})
    actions.begin(connection, [actions.action_of(server.uuid, UNSHELVE.record, context, now)])
    return True


def built(
    connection: sa.Connection,
    uuid: InstanceUuid,
    attempt: int,
    host: str,
    launched_at: int,
    power_state: PowerState,
    now: int,
) -> Ended | None:
    """Write that the guest of an unshelved instance runs; None when this attempt is part of no unshelve."""
    mine = {"of": uuid, "of_attempt": attempt, "on": host}
    values = {"power_state": int(power_state), "launched_at": launched_at}
    found = connection.execute(_BUILT_ONE, {**mine, **values, "now": now}).first()
    if found is None:
        return None
    attempts.finish(connection, uuid, attempt, host, now, "built", keep_open=True)
    return _ended(connection, found, attempt, host, now, None)


def give_up(
    connection: sa.Connection,
    uuid: InstanceUuid,
    attempt: int,
    why: str,
    details: str | None,
    now: int,
    taken: int | None = None,
) -> Ended | None:
    """Write that an unshelve came to nothing: the instance is offloaded, as it was. None when it was replaced.

    Also of one that is ERROR because its host was silent, once nothing of the attempt can run any more. Whatever its
    host says of the attempt later, it is to be undone. `taken`: of one that is frozen, the attempt in its mapping.
    """
    before = (BUILD_STATES - FROZEN) | {State.ERROR}
    mine = sa.and_(
        row.uuid == uuid,
        row.attempt == attempt,
        row.task.is_(None),
        moving(before if taken is None else frozenset({State.LEAVING}), State.SHELVED_OFFLOADED),
        *([] if taken is None else [row.highest == taken]),
        row.launched_at.is_(None),
        row.shelved.is_not(None),
    )
    found = connection.execute(sa.select(*asked.COLUMNS, row.shelved, row.host).where(mine)).first()
    if found is None:
        return None
    fault = Fault(code=500, message=why, details=details, created_at=now)
    again = as_it_was(load(found.shelved, Shelved), None, now)
    values = {**again, **numbers.raised(), "fault": dump(fault)}
    connection.execute(instances.update().where(mine).values(values))
    return _ended(connection, found, attempt, found.host, now, details or why)


def as_it_was(shelved: Shelved, launched_at: int | None, now: int) -> dict[str, Any]:
    """Return the columns of an instance that is offloaded again; `launched_at` as its row says it."""
    return {
        "state": State.SHELVED_OFFLOADED.value,
        "shelved": dump(
            msgspec.structs.replace(shelved, image=None, launched_at=None, above=0, elsewhere=False, left=0)
        ),
        "launched_at": launched_at or shelved.launched_at,
        "host": None,
        "node": None,
        "allocation": None,
        "owner": None,
        "sent_at": None,
        "secrets": None,
        "step_at": now,
        "changed_at": now,
        "updated_at": now,
    }


def nowhere(connection: sa.Connection, uuid: InstanceUuid) -> bool:
    """Tell whether no host has anything of an instance."""
    attempt = attempt_rows.c
    return connection.execute(sa.select(attempt.attempt).where(attempt.instance == uuid, attempt.open)).first() is None


def in_error(connection: sa.Connection, uuid: InstanceUuid, attempt: int, why: str, now: int) -> Ended | None:
    """Write that the action of an unshelve is over that ended in ERROR: its host may still have something of it."""
    mine = (row.uuid == uuid, row.attempt == attempt, row.state == State.ERROR.value, row.shelved.is_not(None))
    found = connection.execute(sa.select(*asked.COLUMNS, row.host).where(*mine)).first()
    return None if found is None else _ended(connection, found, attempt, found.host, now, why)


def overtaken(connection: sa.Connection, uuid: InstanceUuid, why: str, now: int) -> Ended | None:
    """Write that an offload or an unshelve under way is over, for another action ends it; None where there is none."""
    found = connection.execute(
        sa.select(*asked.COLUMNS, row.attempt, row.host, row.state, row.task).where(
            row.uuid == uuid, row.shelved.is_not(None), row.deleted_at.is_(None)
        )
    ).first()
    if found is None:
        return None
    if found.task == Task.SHELVING_OFFLOADING:
        return offloads.end(connection, found, now, why)
    if found.task is None and found.state in _BUILT:
        return _ended(connection, found, found.attempt, found.host, now, why)
    return None


def _ended(connection: sa.Connection, found: Any, attempt: int, host: str | None, now: int, error: str | None) -> Ended:
    started_at = actions.began_at(connection, found.uuid, found.task_id)
    request = asked.request_of(found, UNSHELVE)
    ended = Ended(
        action=UNSHELVE.name,
        context=request.context,
        instance=found.uuid,
        attempt=attempt,
        host=host,
        started_at=now if started_at is None else started_at,
        ended_at=now,
        error=error,
        arguments=request.arguments,
    )
    actions.ended(connection, ended)
    return ended
