"""Projects with which an image is shared, and what each says to it."""

from __future__ import annotations

from typing import Literal

import msgspec
import sqlalchemy as sa

from skep.database.api.image_tables import image_members
from skep.domain.errors import Conflict

MemberStatus = Literal["pending", "accepted", "rejected"]


class ImageMember(msgspec.Struct, frozen=True, kw_only=True):
    """One project that may see an image. Only an image that it accepted is in its lists."""

    image_id: str
    member_id: str
    status: MemberStatus = "pending"
    created_at: int
    """Microseconds since the epoch, as `updated_at`."""
    updated_at: int


def insert(connection: sa.Connection, member: ImageMember) -> None:
    """Share an image with a project.

    Raises Conflict when it is shared with it already.
    """
    if get(connection, member.image_id, member.member_id) is not None:
        raise Conflict(f"The image {member.image_id} is already associated with member {member.member_id}.")
    connection.execute(image_members.insert().values(msgspec.structs.asdict(member)))


def set_status(connection: sa.Connection, image_id: str, member_id: str, status: MemberStatus, now: int) -> bool:
    """Store what a project says to an image; false when it is not shared with it."""
    statement = image_members.update().where(*_is(image_id, member_id)).values(status=status, updated_at=now)
    return connection.execute(statement).rowcount > 0


def delete(connection: sa.Connection, image_id: str, member_id: str) -> bool:
    """Share an image with a project no longer; false when it was not."""
    return connection.execute(image_members.delete().where(*_is(image_id, member_id))).rowcount > 0


def get(connection: sa.Connection, image_id: str, member_id: str) -> ImageMember | None:
    """Return one member of an image."""
    row = connection.execute(image_members.select().where(*_is(image_id, member_id))).first()
    return None if row is None else ImageMember(**row._mapping)


def of_image(connection: sa.Connection, image_id: str) -> list[ImageMember]:
    """Return the members of an image, the first one first."""
    query = image_members.select().where(image_members.c.image_id == image_id)
    rows = connection.execute(query.order_by(image_members.c.created_at, image_members.c.member_id))
    return [ImageMember(**row._mapping) for row in rows]


def _is(image_id: str, member_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return image_members.c.image_id == image_id, image_members.c.member_id == member_id
