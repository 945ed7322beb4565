"""Images that are being made of servers: noted before they are made, until their bytes are there or they are gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.api.tables import awaited_images, instance_mappings
from skep.database.upsert import insert
from skep.domain.ids import CellUuid, InstanceUuid, ProjectId


class AwaitedImage(msgspec.Struct, frozen=True, kw_only=True):
    """One of them."""

    image_id: str
    instance: InstanceUuid
    task_id: str
    """Of the action whose host fills it."""
    created_at: int
    project_id: ProjectId
    """Of the image."""
    backup_type: str | None = None
    """None: it is no backup."""
    rotation: int | None = None
    """How many backups of this type stay of the server, the newest."""
    of_shelved: bool = False
    """The content of a shelved server is in it, or is to be: it is deleted unless the server's row names it then."""


class LocatedImage(msgspec.Struct, frozen=True, kw_only=True):
    """One of them, and where its server is now."""

    image: AwaitedImage
    cell: CellUuid | None
    """None: nowhere any more."""


def add(connection: sa.Connection, new: AwaitedImage) -> None:
    """Note an image that is about to be made."""
    connection.execute(awaited_images.insert(), msgspec.structs.asdict(new))


def await_shelved(
    connection: sa.Connection, image_id: str, instance: InstanceUuid, task_id: str, project: ProjectId, now: int
) -> AwaitedImage:
    """Note that an action decides what becomes of the image of a shelved server, whatever was noted of it before."""
    new = AwaitedImage(
        image_id=image_id,
        instance=instance,
        task_id=task_id,
        created_at=now,
        project_id=project,
        of_shelved=True,
    )
    statement = insert(connection, awaited_images).values(msgspec.structs.asdict(new))
    changed = {"task_id": task_id, "created_at": now, "of_shelved": True}
    connection.execute(statement.on_conflict_do_update(index_elements=["image_id"], set_=changed))
    return new


def is_shelved(connection: sa.Connection, image_id: str, instance: InstanceUuid) -> bool:
    """Tell whether this is the image of a server that is being shelved or unshelved, as far as is known here."""
    image = awaited_images.c
    mine = (image.image_id == image_id, image.instance == instance, image.of_shelved)
    return connection.execute(sa.select(image.image_id).where(*mine)).first() is not None


def forget(connection: sa.Connection, seen: AwaitedImage) -> None:
    """Forget an image unless another action decides about it by now."""
    image = awaited_images.c
    mine = (image.image_id == seen.image_id, image.task_id == seen.task_id, image.created_at == seen.created_at)
    connection.execute(awaited_images.delete().where(*mine))


def remove(connection: sa.Connection, image_id: str) -> None:
    """Forget an image that waits for nothing any more; a repeat changes nothing."""
    connection.execute(awaited_images.delete().where(awaited_images.c.image_id == image_id))


def read_all(connection: sa.Connection) -> Sequence[LocatedImage]:
    """Return all of them, the oldest first."""
    return [_located(row) for row in connection.execute(_LOCATED.order_by(awaited_images.c.created_at))]


def get(connection: sa.Connection, image_id: str) -> LocatedImage | None:
    """Return one of them; None for any other image."""
    row = connection.execute(_LOCATED.where(awaited_images.c.image_id == image_id)).first()
    return None if row is None else _located(row)


_LOCATED = sa.select(awaited_images, instance_mappings.c.cell).join_from(
    awaited_images,
    instance_mappings,
    sa.and_(instance_mappings.c.instance == awaited_images.c.instance, instance_mappings.c.deleted_at.is_(None)),
    isouter=True,
)


def _located(row: sa.Row[Any]) -> LocatedImage:
    return LocatedImage(
        image=AwaitedImage(
            image_id=row.image_id,
            instance=InstanceUuid(row.instance),
            task_id=row.task_id,
            created_at=row.created_at,
            project_id=ProjectId(row.project_id),
            backup_type=row.backup_type,
            rotation=row.rotation,
            of_shelved=row.of_shelved,
        ),
        cell=None if row.cell is None else CellUuid(row.cell),
    )
