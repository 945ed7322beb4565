"""Images that are being made of servers: noted before they are made, until their bytes are there or they are gone."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from skep.database.api.tables import awaited_images, instance_mappings
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


class LocatedImage(msgspec.Struct, frozen=True, kw_only=True):
    """One of them, and where its server is now."""

    image: AwaitedImage
    cell: CellUuid | None
    """None: nowhere any more."""


def add(connection: sa.Connection, new: AwaitedImage) -> None:
    """Note an image that is about to be made."""
    connection.execute(awaited_images.insert(), msgspec.structs.asdict(new))


def remove(connection: sa.Connection, image_id: str) -> None:
    """Forget an image that waits for nothing any more; a repeat changes nothing."""
    connection.execute(awaited_images.delete().where(awaited_images.c.image_id == image_id))


def read_all(connection: sa.Connection) -> Sequence[LocatedImage]:
    """Return all of them, the oldest first."""
    mapping = instance_mappings.c
    lives = sa.and_(mapping.instance == awaited_images.c.instance, mapping.deleted_at.is_(None))
    query = sa.select(awaited_images, mapping.cell).join_from(awaited_images, instance_mappings, lives, isouter=True)
    return [
        LocatedImage(
            image=AwaitedImage(
                image_id=row.image_id,
                instance=InstanceUuid(row.instance),
                task_id=row.task_id,
                created_at=row.created_at,
                project_id=ProjectId(row.project_id),
                backup_type=row.backup_type,
                rotation=row.rotation,
            ),
            cell=None if row.cell is None else CellUuid(row.cell),
        )
        for row in connection.execute(query.order_by(awaited_images.c.created_at))
    ]
