"""Images of the embedded store: what is known of each, its tags and its own properties."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.api.image_tables import image_ids, image_members, image_properties, image_tags, images
from skep.database.byte_length import byte_length
from skep.database.compiled import KEPT, UNKEPT
from skep.database.markers import SortKey, behind
from skep.database.upsert import insert as insert_or
from skep.domain.errors import Conflict


class StoredImage(msgspec.Struct, frozen=True, kw_only=True):
    """One image. `owner` is a project id; sizes are bytes, `min_disk` GiB, `min_ram` MiB."""

    id: str
    name: str | None = None
    status: str = "queued"
    visibility: str = "shared"
    owner: str | None = None
    protected: bool = False
    os_hidden: bool = False
    container_format: str | None = None
    disk_format: str | None = None
    min_disk: int = 0
    min_ram: int = 0
    size: int | None = None
    checksum: str | None = None
    os_hash_algo: str | None = None
    os_hash_value: str | None = None
    created_at: int = 0
    updated_at: int = 0
    tags: tuple[str, ...] = ()
    properties: dict[str, str] = {}


class Viewer(msgspec.Struct, frozen=True, kw_only=True):
    """For whom images are looked up."""

    project_id: str | None
    is_admin: bool = False


class Usage(msgspec.Struct, frozen=True):
    """What a project has in the store."""

    images: int
    bytes: int


class ImagePage(msgspec.Struct, frozen=True):
    """Part of a list of images."""

    images: list[StoredImage]
    ended_early: bool = False
    """Whether it is shorter than was asked for, because it would have become too large."""


class ImageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which images, in which order. What is None does not narrow the list."""

    one_of: dict[str, tuple[str, ...] | tuple[int, ...]] = {}
    """Column -> values of which it must have one."""
    visibility: str | None = None
    """A visibility, `all`, or None: all that the viewer may see but for other projects' community images."""
    member_status: str = "accepted"
    """What the viewer's project said to the images that are shared with it, or `all`."""
    tags: tuple[str, ...] = ()
    """The image has all of these."""
    properties: dict[str, str] = {}
    protected: bool | None = None
    os_hidden: bool = False
    size_min: int | None = None
    size_max: int | None = None
    times: tuple[tuple[str, str, int], ...] = ()
    """Column, comparison (`gt gte lt lte eq neq`), microseconds since the epoch."""
    sort: tuple[tuple[str, bool], ...] = ()
    """Column and whether it descends. The id always decides last."""
    limit: int = 25
    most_bytes: int | None = None
    """The page ends before descriptions that are together larger than that, but holds one image at least."""
    marker: StoredImage | None = None
    """The list begins behind this image."""


ACTIVE, DEACTIVATED = "active", "deactivated"
"""Statuses of images that have all their bytes; of the latter only admins get them."""

_STATUS: sa.ColumnElement[str] = sa.case((images.c.deactivated, DEACTIVATED), else_=images.c.status)

ROW_BYTES, PART_BYTES = 1536, 4
"""What an image's own fields are counted as in a page, and what stands around each text of its tags and properties."""

COMMON_FILTERS = 2
"""Lists with more of them are rare, and of more shapes than compiled statements are kept."""

_SEEN_BY_ALL = ("public", "community")
"""Visibilities of images that everybody may look at who knows their id."""

SORTABLE = ("name", "status", "container_format", "disk_format", "size", "id", "created_at", "updated_at")


def insert(connection: sa.Connection, image: StoredImage) -> None:
    """Store a new image.

    Raises Conflict when an image has the id, or ever had it: a server that is told to boot from an id must not get
    the bytes of another project.
    """
    used = sa.select(images.c.id).where(images.c.id == image.id)
    if not _use(connection, image.id) or connection.execute(used).first() is not None:
        raise Conflict(f"Image ID {image.id} already exists!")
    connection.execute(images.insert().values(_columns(image)))
    _insert_parts(connection, image)


def update(connection: sa.Connection, image: StoredImage) -> None:
    """Store what changed of an image, its tags and properties included."""
    connection.execute(images.update().where(images.c.id == image.id).values(_columns(image)))
    connection.execute(image_tags.delete().where(image_tags.c.image_id == image.id))
    connection.execute(image_properties.delete().where(image_properties.c.image_id == image.id))
    _insert_parts(connection, image)


def delete(connection: sa.Connection, image_id: str) -> None:
    """Remove an image. Its id stays used, also where an older release made it without saying so."""
    _use(connection, image_id)
    connection.execute(images.delete().where(images.c.id == image_id))


def activate(connection: sa.Connection, image: StoredImage, *, size: int, md5: str, sha512: str, now: int) -> bool:
    """Say that the bytes are stored; false when the image is gone (or made anew) or has its bytes already."""
    mine = {"of": image.id, "made_at": image.created_at}
    values = {"size": size, "checksum": md5, "os_hash_value": sha512, "updated_at": now}
    return connection.execute(_ACTIVATE, {**mine, **values}).rowcount > 0


_ACTIVATE = (
    images.update()
    .where(
        images.c.id == sa.bindparam("of"),
        images.c.created_at == sa.bindparam("made_at"),
        images.c.status == "queued",
    )
    .values(status=ACTIVE, os_hash_algo="sha512")
)


def active(connection: sa.Connection) -> list[tuple[str, int]]:
    """Return id and time of creation of the images that have bytes."""
    query = sa.select(images.c.id, images.c.created_at).where(images.c.status == ACTIVE)
    return [(row.id, row.created_at) for row in connection.execute(query)]


def get(connection: sa.Connection, image_id: str, viewer: Viewer) -> StoredImage | None:
    """Return an image that the viewer may see."""
    row = connection.execute(_ONE, {"of": image_id}).first()
    if row is None or not (_sees(viewer, row) or _is_shared_with(connection, viewer, row)):
        return None
    return _with_parts(connection, [row])[0]


_ONE = images.select().where(images.c.id == sa.bindparam("of"))


def _sees(viewer: Viewer, row: Any) -> bool:
    """Tell of a row what `_visible` says of a column, but for members."""
    own = viewer.project_id is not None and row.owner == viewer.project_id
    return viewer.is_admin or own or row.visibility in _SEEN_BY_ALL


_MEMBER = sa.select(image_members.c.status).where(
    image_members.c.image_id == sa.bindparam("of"), image_members.c.member_id == sa.bindparam("member")
)


def _is_shared_with(connection: sa.Connection, viewer: Viewer, row: Any) -> bool:
    """Tell whether an image is shared with the viewer's project, whatever that said to it."""
    if viewer.project_id is None or row.visibility != "shared":
        return False
    return connection.execute(_MEMBER, {"of": row.id, "member": viewer.project_id}).first() is not None


def usage(connection: sa.Connection, project: str | None) -> Usage:
    """Return what a project has."""
    if project is None:
        number, size = connection.execute(_USAGE.where(images.c.owner.is_(None))).one()
    else:
        number, size = connection.execute(_USAGE_OF, {"by": project}).one()
    return Usage(int(number), int(size))


_USAGE = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(images.c.size), 0))
_USAGE_OF = _USAGE.where(images.c.owner == sa.bindparam("by"))


def select(connection: sa.Connection, query: ImageQuery, viewer: Viewer) -> ImagePage:
    """Return a page of the images that the viewer may see."""
    sort = (*query.sort, ("id", query.sort[-1][1] if query.sort else True))
    statement = images.select().where(_visible(viewer), *_conditions(query, viewer))
    if query.marker is not None:
        marker = query.marker
        keys = [SortKey(_key(name), _marker_value(marker, name), descends) for name, descends in sort]
        statement = statement.where(behind(keys))
    order = [_key(name).desc() if descending else _key(name).asc() for name, descending in sort]
    options = KEPT if _is_common(query) else UNKEPT
    rows = connection.execute(statement.order_by(*order).limit(query.limit), execution_options=options).all()
    kept = _that_fit(connection, rows, query.most_bytes)
    return ImagePage(_with_parts(connection, rows[:kept]), ended_early=kept < len(rows))


def _is_common(query: ImageQuery) -> bool:
    """Tell whether the shape of a statement is one of few."""
    narrowed = len(query.one_of) + len(query.tags) + len(query.properties) + len(query.times)
    return narrowed <= COMMON_FILTERS and len(query.sort) <= 1


def _that_fit(connection: sa.Connection, rows: Any, most_bytes: int | None) -> int:
    """Return how many of the first rows fit into that many bytes; one always does."""
    if most_bytes is None or not rows:
        return len(rows)
    ids = [row.id for row in rows]
    sizes = dict.fromkeys(ids, ROW_BYTES)
    for table, columns in ((image_tags, ("tag",)), (image_properties, ("name", "value"))):
        size = sum((byte_length(table.c[name]) + PART_BYTES for name in columns), sa.literal(0))
        statement = sa.select(table.c.image_id, sa.func.sum(size)).where(table.c.image_id.in_(ids))
        for image_id, found in connection.execute(statement.group_by(table.c.image_id)):
            sizes[image_id] += int(found)
    total = 0
    for kept, image_id in enumerate(ids):
        total += sizes[image_id]
        if total > most_bytes and kept:
            return kept
    return len(ids)


def _use(connection: sa.Connection, image_id: str) -> bool:
    """Write down that an id was used; false when it was before."""
    return (
        connection.execute(insert_or(connection, image_ids).values(id=image_id).on_conflict_do_nothing()).rowcount > 0
    )


def _columns(image: StoredImage) -> dict[str, Any]:
    values = msgspec.structs.asdict(image)
    del values["tags"], values["properties"]
    values["deactivated"] = image.status == DEACTIVATED
    if values["deactivated"]:
        values["status"] = ACTIVE
    return values


def _insert_parts(connection: sa.Connection, image: StoredImage) -> None:
    if image.tags:
        connection.execute(image_tags.insert(), [{"image_id": image.id, "tag": tag} for tag in image.tags])
    if image.properties:
        rows = [{"image_id": image.id, "name": name, "value": value} for name, value in image.properties.items()]
        connection.execute(image_properties.insert(), rows)


_TAGS = image_tags.select().where(image_tags.c.image_id.in_(sa.bindparam("ids", expanding=True)))
_PROPERTIES = image_properties.select().where(image_properties.c.image_id.in_(sa.bindparam("ids", expanding=True)))


def _with_parts(connection: sa.Connection, rows: Any) -> list[StoredImage]:
    ids = [row.id for row in rows]
    tags: dict[str, list[str]] = {image_id: [] for image_id in ids}
    properties: dict[str, dict[str, str]] = {image_id: {} for image_id in ids}
    if ids:
        for row in connection.execute(_TAGS, {"ids": ids}):
            tags[row.image_id].append(row.tag)
        for row in connection.execute(_PROPERTIES, {"ids": ids}):
            properties[row.image_id][row.name] = row.value
    return [_image(row, tags[row.id], properties[row.id]) for row in rows]


def _image(row: Any, tags: list[str], properties: dict[str, str]) -> StoredImage:
    values = dict(row._mapping)
    if values.pop("deactivated"):
        values["status"] = DEACTIVATED
    return StoredImage(**values, tags=tuple(sorted(tags)), properties=properties)


def _visible(viewer: Viewer) -> sa.ColumnElement[bool]:
    if viewer.is_admin:
        return sa.true()
    return sa.or_(images.c.visibility.in_(_SEEN_BY_ALL), _own(viewer), _shared_with(viewer))


def _shared_with(viewer: Viewer, status: str = "all") -> sa.ColumnElement[bool]:
    """Return the condition that an image is shared with the viewer's project, which said that to it."""
    if viewer.project_id is None:
        return sa.false()
    member = sa.exists().where(image_members.c.image_id == images.c.id, image_members.c.member_id == viewer.project_id)
    if status != "all":
        member = member.where(image_members.c.status == status)
    return sa.and_(images.c.visibility == "shared", member)


def _own(viewer: Viewer) -> sa.ColumnElement[bool]:
    return sa.false() if viewer.project_id is None else images.c.owner == viewer.project_id


def _conditions(query: ImageQuery, viewer: Viewer) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = [images.c.os_hidden == query.os_hidden]
    found += [_column(name).in_(values) for name, values in query.one_of.items()]
    if not viewer.is_admin or query.member_status != "accepted":
        # Admins see all images anyway, unless they ask for what is shared with their own project.
        seen = sa.or_(images.c.visibility != "shared", sa.func.coalesce(_own(viewer), sa.false()))
        found.append(sa.or_(seen, _shared_with(viewer, query.member_status)))
    if query.visibility is None:
        found.append(sa.or_(images.c.visibility != "community", sa.func.coalesce(_own(viewer), sa.false())))
    elif query.visibility != "all":
        found.append(images.c.visibility == query.visibility)
    if query.protected is not None:
        found.append(images.c.protected == query.protected)
    if query.size_min is not None:
        found.append(images.c.size >= query.size_min)
    if query.size_max is not None:
        found.append(images.c.size <= query.size_max)
    found += [_compared(images.c[name], comparison, at) for name, comparison, at in query.times]
    found += [_has(image_tags, image_tags.c.tag == tag) for tag in query.tags]
    for name, value in query.properties.items():
        found.append(_has(image_properties, image_properties.c.name == name, image_properties.c.value == value))
    return found


def _has(table: sa.Table, *conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.exists().where(table.c.image_id == images.c.id, *conditions)


def _compared(column: sa.ColumnElement[int], comparison: str, at: int) -> sa.ColumnElement[bool]:
    return {
        "gt": column > at,
        "gte": column >= at,
        "lt": column < at,
        "lte": column <= at,
        "eq": column == at,
        "neq": column != at,
    }[comparison]


def _column(name: str) -> sa.ColumnElement[Any]:
    """Return what is shown under a name."""
    return _STATUS if name == "status" else images.c[name]


def _key(name: str) -> sa.ColumnElement[Any]:
    """Return what is compared when sorting: absent values as the least one, so that a marker has its place."""
    if name == "size":
        return sa.func.coalesce(images.c.size, -1)
    return sa.func.coalesce(images.c[name], "") if images.c[name].nullable else _column(name)


def _marker_value(marker: StoredImage, name: str) -> Any:
    value = getattr(marker, name)
    return value if value is not None else (-1 if name == "size" else "")
