"""The writes of a delete inside a cell: the attempt is raised, hosts undo, the row is deleted, the API level told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import actions, asked, numbers, resting, tasks, unreadable, unshelves
from skep.database.cell.instances import spec_of
from skep.database.cell.tables import action_events, instances, migrations, recovering_instances
from skep.database.cell.tables import actions as action_rows
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.stored import dump, load
from skep.domain.actions import ACTIONS, ActionRequest, Ended
from skep.domain.context import RequestContext
from skep.domain.groups import GroupRule
from skep.domain.ids import InstanceUuid, ProjectId
from skep.domain.instances import PowerState, Shelved, State, Task
from skep.domain.server_events import GIVEN_UP
from skep.domain.server_migrations import EVACUATED, MigrationType
from skep.domain.volumes import ServerVolume

row = instances.c

DELETE = ACTIONS["delete"]


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A deleted instance that the API level has not forgotten yet."""

    instance: InstanceUuid
    group: GroupRule | None
    request_id: str | None = None
    """Of the delete."""
    project_id: ProjectId | None = None
    image_id: str | None = None
    """In which its content was, because it was shelved."""
    has_interfaces: bool = False
    """As its row says."""
    volumes: tuple[ServerVolume, ...] = ()
    """Likewise."""


def begin(connection: sa.Connection, uuid: InstanceUuid, context: RequestContext, now: int) -> list[Ended] | None:
    """Raise the attempt and mark the row as being deleted; at once deleted when no host can have anything of it.

    Return the actions that are over with it: what was under way, and the delete itself where it is done at once. None
    when there is no such row, it is deleted, or it rests (see `resting`). Repeating it changes nothing.
    """
    if connection.execute(_WAITS_FOR_HOSTS, {"of": uuid}).first() is not None:
        return None
    mine = sa.and_(row.uuid == uuid, row.deleted_at.is_(None), ~resting.undecided(row.uuid))
    over = [tasks.settle(connection, task, now, tasks.OVERTAKEN) for task in tasks.of(connection, mine)]
    over.append(unshelves.overtaken(connection, uuid, tasks.OVERTAKEN, now))
    marked = connection.execute(
        instances.update()
        .where(mine, row.task.is_distinct_from(Task.DELETING.value))
        .values(
            **numbers.raised(),
            task=Task.DELETING.value,
            task_id=context.request_id,
            action_request=dump(ActionRequest(action=DELETE.name, context=context)),
            owner=None,
            sent_at=None,
            secrets=None,
            step_at=now,
            changed_at=now,
            updated_at=now,
        )
    ).rowcount
    if marked:
        connection.execute(_LET_GO, {"of": uuid})
        actions.begin(connection, [actions.action_of(uuid, DELETE.record, context, now)])
    deleted = finish_if_closed(connection, uuid, now)
    return [one for one in (*over, deleted) if one is not None] if marked or deleted is not None else None


def refuse_if_locked(connection: sa.Connection, uuid: InstanceUuid, context: RequestContext, now: int) -> Ended | None:
    """Refuse a delete of a locked server: the action, with its error. None where no lock refuses it, or it has begun.

    Repeating it writes nothing.
    """
    found = connection.execute(
        sa.select(row.host, row.attempt).where(
            row.uuid == uuid,
            row.locked,
            row.deleted_at.is_(None),
            row.task.is_distinct_from(Task.DELETING.value),
            ~resting.undecided(row.uuid),
        )
    ).first()
    if found is None:
        return None
    refused = Ended(
        action=DELETE.name,
        context=context,
        instance=uuid,
        attempt=found.attempt,
        host=found.host,
        started_at=now,
        ended_at=now,
        error=f"Instance {uuid} is locked",
    )
    if not actions.events_of(connection, uuid, context.request_id):
        actions.begin(connection, [actions.action_of(uuid, DELETE.record, context, now)])
        actions.ended(connection, refused)
    return refused


_evacuated = sa.exists(
    sa.select(migrations.c.uuid)
    .where(
        migrations.c.instance == attempt_rows.c.instance,
        migrations.c.type == MigrationType.EVACUATION.value,
        migrations.c.status == EVACUATED,
        migrations.c.source_attempt >= attempt_rows.c.attempt,
        # A host that an earlier move left lives, and is waited for.
        migrations.c.source_node == attempt_rows.c.node,
    )
    .correlate(attempt_rows)
)
_HELD = sa.exists(
    sa.select(attempt_rows.c.attempt).where(
        attempt_rows.c.instance == row.uuid,
        attempt_rows.c.open,
        sa.or_(attempt_rows.c.outcome.is_(None), attempt_rows.c.outcome != GIVEN_UP, ~_evacuated),
    )
)
"""Says of an instance that hosts have something of it which holds up its delete. What an evacuation left behind does
not: the host is lost, and undoes it, unseen by users, should it come back."""

_WAITS_FOR_HOSTS = sa.select(row.uuid).where(
    row.uuid == sa.bindparam("of"),
    row.task == Task.DELETING.value,
    row.deleted_at.is_(None),
    _HELD,
)
"""Made once: deletes on a dead host are begun again and again."""

_LET_GO = recovering_instances.delete().where(
    recovering_instances.c.instance == sa.bindparam("of"), recovering_instances.c.doubt.is_not(None)
)
"""A user's delete settles what was open about a server of which nothing is anywhere."""


_FINISH = (
    instances.update()
    .where(row.uuid == sa.bindparam("of"), row.task == Task.DELETING.value, row.deleted_at.is_(None), ~_HELD)
    .values(
        state=State.DELETED.value,
        task=None,
        power_state=int(PowerState.NOSTATE),
        **dict.fromkeys(("terminated_at", "deleted_at", "changed_at", "updated_at"), sa.bindparam("now")),
    )
    .returning(*asked.COLUMNS, row.host, row.step_at, row.attempt)
)
_DELETING = (
    sa.select(row.uuid)
    .where(row.task == Task.DELETING.value, row.deleted_at.is_(None), ~_HELD)
    .order_by(row.step_at)
    .limit(sa.bindparam("most", type_=sa.Integer))
)
_UNFORGOTTEN = (
    sa.select(row.uuid, row.spec, row.task_id, row.project_id, row.shelved, row.vifs, row.volumes)
    .where(row.deleted_at.is_not(None), row.forgotten == sa.false())
    .limit(sa.bindparam("most", type_=sa.Integer))
)


def finish_if_closed(connection: sa.Connection, uuid: InstanceUuid, now: int) -> Ended | None:
    """Delete the row if it is being deleted and no host holds it up; None when it was not deleted by this."""
    found = connection.execute(_FINISH, {"of": uuid, "now": now}).first()
    if found is None:
        return None
    ended = Ended(
        action=DELETE.name,
        context=asked.request_of(found, DELETE).context,
        instance=uuid,
        attempt=found.attempt,
        host=found.host,
        started_at=found.step_at,
        ended_at=now,
    )
    actions.ended(connection, ended)
    return ended


def deleting(connection: sa.Connection, limit: int) -> list[InstanceUuid]:
    """Return instances that are being deleted and that no host holds up.

    Only `finish_if_closed` is left to do for them.
    """
    return [InstanceUuid(uuid) for uuid in connection.scalars(_DELETING, {"most": limit})]


def unforgotten(connection: sa.Connection, limit: int) -> list[Gone]:
    """Return deleted instances that the API level is to be told of; of a damaged row the group is unknown."""
    found = connection.execute(_UNFORGOTTEN, {"most": limit})
    gone = []
    for one in found:
        spec = unreadable.or_none(one, spec_of)
        group = spec.group if spec is not None else None
        shelved = unreadable.or_none(one, _shelved) if one.shelved else None
        gone.append(
            Gone(
                instance=one.uuid,
                group=group,
                request_id=one.task_id,
                project_id=ProjectId(one.project_id),
                image_id=(shelved.image_id or None) if shelved is not None else None,
                has_interfaces=one.vifs is not None,
                volumes=unreadable.or_none(one, _volumes) or () if one.volumes else (),
            )
        )
    return gone


def _volumes(found: Any) -> tuple[ServerVolume, ...]:
    volumes: tuple[ServerVolume, ...] = load(found.volumes, tuple[ServerVolume, ...])
    return volumes


def _shelved(found: Any) -> Shelved:
    shelved: Shelved = load(found.shelved, Shelved)
    return shelved


def mark_forgotten(connection: sa.Connection, uuids: Sequence[InstanceUuid]) -> None:
    """Note that the API level knows these instances as deleted."""
    connection.execute(instances.update().where(row.uuid.in_(uuids)).values(forgotten=True))


def tell_again(connection: sa.Connection, uuids: Sequence[str]) -> int:
    """Have the API level told once more of deleted rows: it gives up mapping and quota then. Return how many."""
    gone = sa.and_(row.uuid.in_(uuids), row.state == State.DELETED.value, row.deleted_at.is_not(None), row.forgotten)
    return connection.execute(instances.update().where(gone).values(forgotten=False)).rowcount


def purge(connection: sa.Connection, before: int, limit: int) -> int:
    """Remove what is left of instances deleted before `before` whose attempts are all closed; return how many."""
    open_attempts = sa.select(attempt_rows.c.attempt).where(attempt_rows.c.instance == row.uuid, attempt_rows.c.open)
    gone = connection.scalars(
        instances.delete()
        .where(
            row.uuid.in_(
                sa.select(row.uuid)
                .where(row.deleted_at < before, row.forgotten, ~sa.exists(open_attempts))
                .limit(limit)
            )
        )
        .returning(row.uuid)
    ).all()
    if gone:
        for table in (attempt_rows, action_rows, action_events, migrations):
            connection.execute(table.delete().where(table.c.instance.in_(gone)))
    return len(gone)


def is_absent(connection: sa.Connection, uuid: InstanceUuid) -> bool:
    """Tell whether the cell has no row of the instance at all: it was purged, or never settled here."""
    return connection.execute(sa.select(row.uuid).where(row.uuid == uuid)).first() is None
