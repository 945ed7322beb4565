"""What a cell's rows say of the volumes of their servers, and the host that these are connected to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import unreadable
from skep.database.cell.instances import BESIDE, ELSEWHERE, UNKNOWN, volumes_at
from skep.database.cell.tables import MISPLACED, attempts, instances, migrations
from skep.database.constants import constants
from skep.database.stored import dump, load
from skep.domain.ids import InstanceUuid, ProjectId
from skep.domain.instances import Task
from skep.domain.moves import REIMAGING
from skep.domain.volumes import NOWHERE, ServerVolume

row = instances.c


class VolumesOfRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a row says of the volumes of its server."""

    instance: InstanceUuid
    project_id: ProjectId
    host: str
    """Where the server is; empty: nowhere."""
    volumes: tuple[ServerVolume, ...]
    stored: bytes | None
    """The same as it is stored: a write is for a row that still says so."""
    is_ending: bool = False
    """Whether the server is being deleted."""
    changed_at: int = 0
    """When the row has changed last."""
    is_awaited: bool = False
    """Whether another host has an attempt that the server may go to."""

    @property
    def attachments(self) -> dict[str, str]:
        """Those by which the server has volumes, also on a second host, with their volumes."""
        second = ((one.beside, one.volume_id) for one in self.volumes if one.beside is not None)
        beside = {there.attachment_id: volume_id for there, volume_id in second if there.attachment_id}
        return {one.attachment_id: one.volume_id for one in self.volumes} | beside

    @property
    def all_attachments(self) -> set[str]:
        """Those, and such as are to stand in the place of others."""
        return {*self.attachments, *(one.swap.attachment_id for one in self.volumes if one.swap is not None)}


_REIMAGED = sa.exists(
    sa.select(migrations.c.uuid).where(migrations.c.instance == row.uuid, migrations.c.step.in_(constants(REIMAGING)))
)

_AWAITED = sa.exists(
    sa.select(attempts.c.attempt).where(
        attempts.c.instance == row.uuid, attempts.c.open, attempts.c.attempt > row.attempt
    )
)
"""Says that a host has an attempt of a server which is younger than the one that the server is: it goes there, or what
was made for that is not undone yet."""

_COLUMNS = (
    row.uuid,
    row.project_id,
    row.host,
    row.volumes,
    row.task,
    row.changed_at,
    _AWAITED.label("is_awaited"),
)


def misplaced(connection: sa.Connection, limit: int, after: str = "") -> list[VolumesOfRow]:
    """Return servers whose volumes are not all connected to their host, in the order of their ids.

    Without those whose boot volume is just filled anew: it is connected once that is done. Likewise without those that
    go to another host, or came to nothing there and are not undone yet: that host has their volumes connected.
    """
    held = sa.and_(row.volumes_at == BESIDE, _AWAITED)
    wanted = (MISPLACED, ~ELSEWHERE, ~_REIMAGED, ~held, row.uuid > after)
    query = sa.select(*_COLUMNS).where(*wanted).order_by(row.uuid).limit(limit)
    return _readable(connection.execute(query))


def told(connection: sa.Connection, uuids: Sequence[str]) -> dict[InstanceUuid, VolumesOfRow]:
    """Return what rows say of the volumes of these servers, as far as their servers are here."""
    query = sa.select(*_COLUMNS).where(row.uuid.in_(uuids), row.deleted_at.is_(None), ~ELSEWHERE)
    return {one.instance: one for one in _readable(connection.execute(query))}


def note(connection: sa.Connection, before: VolumesOfRow, volumes: Sequence[ServerVolume], now: int) -> bool:
    """Write the volumes of a server that were connected to its host, or could not be.

    False, and nothing written, where the row says something else by now. One that has another host by now is connected
    once more.
    """
    values = columns(volumes)
    if volumes:
        right = sa.func.coalesce(row.host, NOWHERE) == before.host
        where = before.host if all(one.beside is None for one in volumes) else BESIDE
        values["volumes_at"] = sa.case((right, where), else_=UNKNOWN)
    mine = (row.uuid == before.instance, row.deleted_at.is_(None), row.volumes.is_not_distinct_from(before.stored))
    return bool(connection.execute(instances.update().where(*mine).values(**values, changed_at=now)).rowcount)


def attach_anew(connection: sa.Connection, before: VolumesOfRow, volumes: Sequence[ServerVolume], now: int) -> None:
    """Write the volumes of a server of which some are to be attached anew, unless the row says something else now."""
    if note(connection, before, volumes, now):
        loosen(connection, before.instance)


def columns(volumes: Sequence[ServerVolume]) -> dict[str, Any]:
    """Return what a row says of its server's volumes."""
    return {"volumes": dump(tuple(volumes)) if volumes else None, "volumes_at": volumes_at(volumes)}


def keep_or_end(connection: sa.Connection, before: VolumesOfRow, volumes: Sequence[ServerVolume], now: int) -> bool:
    """Write which volumes of a server go with it; False, and nothing written, where the row says something else by now.

    Where they are connected to is left alone.
    """
    mine = (row.uuid == before.instance, row.deleted_at.is_(None), row.volumes.is_not_distinct_from(before.stored))
    values = {"volumes": dump(tuple(volumes)), "changed_at": now}
    return bool(connection.execute(instances.update().where(*mine, ~ELSEWHERE).values(values)).rowcount)


def names(connection: sa.Connection, uuid: InstanceUuid, id_: str) -> bool:
    """Tell whether the row of a server names a volume of this id (`ServerVolume.id`)."""
    return any(one.id == id_ for said in told(connection, [uuid]).values() for one in said.volumes)


def lose(connection: sa.Connection, uuid: InstanceUuid, id_: str, now: int) -> None:
    """Write that the volume service has let go of a volume that leaves, unless the row says so already."""
    said = told(connection, [uuid]).get(uuid)
    if said is None or all(one.id != id_ for one in said.volumes):
        return
    left = [one for one in said.volumes if one.id != id_]
    mine = (row.uuid == uuid, row.volumes.is_not_distinct_from(said.stored))
    connection.execute(instances.update().where(*mine).values(**columns(left), changed_at=now))


def loosen(connection: sa.Connection, uuid: InstanceUuid) -> None:
    """Have a row looked at whose volumes are not all connected."""
    connection.execute(instances.update().where(row.uuid == uuid, row.volumes.is_not(None)).values(volumes_at=UNKNOWN))


def connect_again(connection: sa.Connection, uuid: InstanceUuid, now: int) -> None:
    """Have all volumes of a server connected anew: another process may have connected them for a former attempt."""
    query = sa.select(*_COLUMNS).where(row.uuid == uuid, row.deleted_at.is_(None), row.volumes.is_not(None))
    found = connection.execute(query).first()
    if found is None:
        return
    loose = [
        one if one.leaving else msgspec.structs.replace(one, host=NOWHERE, attachment_id="")
        for one in _of(found).volumes
    ]
    connection.execute(instances.update().where(row.uuid == uuid).values(**columns(loose), changed_at=now))


def _readable(found: Iterable[Any]) -> list[VolumesOfRow]:
    """Return what rows say, without those that are damaged."""
    return [said for said in (unreadable.or_none(one, _of) for one in found) if said is not None]


def _of(found: Any) -> VolumesOfRow:
    return VolumesOfRow(
        instance=InstanceUuid(found.uuid),
        project_id=ProjectId(found.project_id),
        host=found.host or NOWHERE,
        volumes=load(found.volumes, tuple[ServerVolume, ...]) if found.volumes else (),
        stored=found.volumes,
        is_ending=found.task == Task.DELETING.value,
        changed_at=found.changed_at,
        is_awaited=bool(found.is_awaited),
    )
