"""Instances as rows: reading them, listing them, and what users change about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell.tables import instances
from skep.database.stored import dump, load
from skep.domain.ids import InstanceUuid, reservation_id
from skep.domain.instances import Fault, Instance, PowerState, State, Task

row = instances.c

_LIVE = (
    row.uuid,
    row.body,
    row.name,
    row.description,
    row.metadata,
    row.tags,
    row.access_ip_v4,
    row.access_ip_v6,
    row.locked,
    row.locked_reason,
    row.availability_zone,
    row.state,
    row.task,
    row.power_state,
    row.attempt,
    row.host,
    row.node,
    row.fault,
    row.updated_at,
    row.launched_at,
    row.terminated_at,
    row.deleted_at,
)


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What of a cell's instances is asked for. Without `changed_since` the order is created_at, uuid descending."""

    project_id: str | None = None
    user_id: str | None = None
    deleted: bool = False
    """Only deleted ones; otherwise only living ones, unless `changed_since` is given: then both."""
    changed_since: int | None = None
    changed_before: int | None = None
    name: str | None = None
    """A regular expression, as Nova takes it; matched after the rows are read."""
    states: tuple[State, ...] | None = None
    host: str | None = None
    node: str | None = None
    flavorid: str | None = None
    image_id: str | None = None
    reservation_id: str | None = None
    uuids: tuple[str, ...] | None = None
    after: tuple[int, str] | None = None
    """(created_at, uuid) of the marker: only what comes after it."""
    limit: int | None = None


def get(connection: sa.Connection, uuid: InstanceUuid, *, deleted: bool = False) -> Instance | None:
    """Return an instance, staged ones too; deleted ones only when asked."""
    query = sa.select(*_LIVE).where(row.uuid == uuid)
    if not deleted:
        query = query.where(row.deleted_at.is_(None))
    found = connection.execute(query).first()
    return None if found is None else instance_of(found)


def get_many(connection: sa.Connection, uuids: Sequence[str]) -> list[Instance]:
    """Return those of these instances that the cell has, deleted ones too."""
    return [instance_of(found) for found in connection.execute(sa.select(*_LIVE).where(row.uuid.in_(uuids)))]


def list_all(connection: sa.Connection, query: ListQuery) -> list[Instance]:
    """List instances, staged ones too: whether those are shown is the mapping's to say."""
    statement = sa.select(*_LIVE).order_by(row.created_at.desc(), row.uuid.desc())
    statement = statement.where(*_conditions(query))
    if query.limit is not None:
        statement = statement.limit(query.limit)
    return [instance_of(found) for found in connection.execute(statement)]


def _conditions(query: ListQuery) -> list[sa.ColumnElement[bool]]:
    wanted: list[sa.ColumnElement[bool]] = []
    for column, value in (
        (row.project_id, query.project_id),
        (row.user_id, query.user_id),
        (row.host, query.host),
        (row.node, query.node),
        (row.flavorid, query.flavorid),
        (row.image_id, query.image_id),
        (row.reservation_id, query.reservation_id),
    ):
        if value is not None:
            wanted.append(column == value)
    if query.uuids is not None:
        wanted.append(row.uuid.in_(query.uuids))
    if query.states is not None:
        wanted.append(row.state.in_([state.value for state in query.states]))
    if query.deleted:
        wanted.append(row.deleted_at.is_not(None))
    elif query.changed_since is None:
        wanted.append(row.deleted_at.is_(None))
    if query.changed_since is not None:
        wanted.append(row.changed_at >= query.changed_since)
    if query.changed_before is not None:
        wanted.append(row.changed_at <= query.changed_before)
    if query.after is not None:
        created_at, uuid = query.after
        wanted.append(sa.or_(row.created_at < created_at, sa.and_(row.created_at == created_at, row.uuid < uuid)))
    return wanted


def update(connection: sa.Connection, uuid: InstanceUuid, now: int, **values: Any) -> bool:
    """Write what users may change (name, description, access addresses, lock); False when there is no such row."""
    return _write(connection, uuid, now, values)


def set_metadata(connection: sa.Connection, uuid: InstanceUuid, metadata: dict[str, str], now: int) -> bool:
    """Replace the metadata; False when there is no such row."""
    return _write(connection, uuid, now, {"metadata": dump(metadata)})


def set_tags(connection: sa.Connection, uuid: InstanceUuid, tags: Sequence[str], now: int) -> bool:
    """Replace the tags; False when there is no such row."""
    return _write(connection, uuid, now, {"tags": dump(tags).decode()})


def _write(connection: sa.Connection, uuid: InstanceUuid, now: int, values: dict[str, Any]) -> bool:
    result = connection.execute(
        instances.update()
        .where(row.uuid == uuid, row.deleted_at.is_(None), row.state != State.STAGED)
        .values(updated_at=now, changed_at=now, **values)
    )
    return result.rowcount == 1


def columns_of(instance: Instance) -> dict[str, Any]:
    """Return the columns of a row for `instance`; those of the build (context, spec, ...) are the caller's."""
    return {
        "uuid": instance.uuid,
        "project_id": instance.project_id,
        "user_id": instance.user_id,
        "name": instance.name,
        "hostname": instance.hostname,
        "description": instance.description,
        "reservation_id": reservation_id(instance.request_id),
        "flavorid": instance.flavor.flavorid,
        "image_id": instance.image.id if instance.image else None,
        "metadata": dump(instance.metadata),
        "tags": dump(instance.tags).decode(),
        "access_ip_v4": instance.access_ip_v4,
        "access_ip_v6": instance.access_ip_v6,
        "locked": instance.locked,
        "locked_reason": instance.locked_reason,
        "availability_zone": instance.availability_zone,
        "state": instance.state.value,
        "task": instance.task.value if instance.task else None,
        "power_state": int(instance.power_state),
        "attempt": instance.attempt,
        "host": instance.host,
        "node": instance.node,
        "fault": dump(instance.fault) if instance.fault else None,
        "created_at": instance.created_at,
        "updated_at": instance.updated_at,
        "launched_at": instance.launched_at,
        "body": dump(instance),
    }


def instance_of(found: Any) -> Instance:
    """Return the instance of a row that has the columns of `live_columns`."""
    staged: Instance = load(found.body, Instance)
    return msgspec.structs.replace(
        staged,
        name=found.name,
        description=found.description,
        metadata=load(found.metadata, dict[str, str]),
        tags=load(found.tags, tuple[str, ...]),
        access_ip_v4=found.access_ip_v4,
        access_ip_v6=found.access_ip_v6,
        locked=found.locked,
        locked_reason=found.locked_reason,
        availability_zone=found.availability_zone,
        state=State(found.state),
        task=Task(found.task) if found.task else None,
        power_state=PowerState(found.power_state),
        attempt=found.attempt,
        host=found.host,
        node=found.node,
        fault=load(found.fault, Fault) if found.fault else None,
        updated_at=found.updated_at,
        launched_at=found.launched_at,
        terminated_at=found.terminated_at,
        deleted_at=found.deleted_at,
    )


live_columns = _LIVE
