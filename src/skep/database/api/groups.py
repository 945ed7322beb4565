"""Groups of users of the embedded identity service: what a group is given, its members have."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api import names_in_domains
from skep.database.api.identity_tables import group_members, groups
from skep.database.api.names_in_domains import FIRST_DOMAIN
from skep.domain.errors import Conflict


class UserGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Several users under one name."""

    id: str
    name: str
    description: str = ""
    domain_id: str = FIRST_DOMAIN
    created_at: int = 0


def insert(connection: sa.Connection, group: UserGroup) -> None:
    """Store a new group.

    Raises Conflict when the name is taken in its domain.
    """
    _refuse_taken_name(connection, group)
    connection.execute(groups.insert().values(_columns(group)))


def update(connection: sa.Connection, group: UserGroup) -> None:
    """Store what changed of a group.

    Raises Conflict when the name is taken by another of its domain.
    """
    _refuse_taken_name(connection, group)
    connection.execute(groups.update().where(groups.c.id == group.id).values(_columns(group)))


def delete(connection: sa.Connection, group_id: str) -> None:
    """Remove a group and its roles; its members stay."""
    connection.execute(groups.delete().where(groups.c.id == group_id))


def get(connection: sa.Connection, group_id: str) -> UserGroup | None:
    """Return one group by its id."""
    row = connection.execute(groups.select().where(groups.c.id == group_id)).first()
    return None if row is None else _group(row)


def select(
    connection: sa.Connection,
    *,
    name: str | None = None,
    domain_id: str | None = None,
    member: str | None = None,
    ids: set[str] | None = None,
) -> list[UserGroup]:
    """Return groups by name; every argument that is given narrows the list, `member` to those of a user."""
    query = groups.select().order_by(groups.c.name)
    if name is not None:
        query = query.where(names_in_domains.is_named(groups.c.name, name))
    if domain_id is not None:
        query = query.where(groups.c.domain_id == domain_id)
    if member is not None:
        query = query.where(groups.c.id.in_(of_member(member)))
    if ids is not None:
        query = query.where(groups.c.id.in_(ids))
    return [_group(row) for row in connection.execute(query)]


def of_member(user_id: str | sa.BindParameter[str]) -> sa.Select[tuple[str]]:
    """Return the statement for the ids of a user's groups."""
    return sa.select(group_members.c.group_id).where(group_members.c.user_id == user_id)


def add_member(connection: sa.Connection, group_id: str, user_id: str) -> None:
    """Make a user a member; a second time changes nothing."""
    if not is_member(connection, group_id, user_id):
        connection.execute(group_members.insert().values(group_id=group_id, user_id=user_id))


def remove_member(connection: sa.Connection, group_id: str, user_id: str) -> bool:
    """Take a user out; false when he was no member."""
    return connection.execute(group_members.delete().where(*_is(group_id, user_id))).rowcount > 0


def is_member(connection: sa.Connection, group_id: str, user_id: str) -> bool:
    """Tell whether a user is a member."""
    query = sa.select(group_members.c.user_id).where(*_is(group_id, user_id))
    return connection.execute(query).first() is not None


def members(connection: sa.Connection) -> dict[str, set[str]]:
    """Return the ids of the members of each group that has any."""
    found: dict[str, set[str]] = {}
    for row in connection.execute(group_members.select()):
        found.setdefault(row.group_id, set()).add(row.user_id)
    return found


def _is(group_id: str, user_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return group_members.c.group_id == group_id, group_members.c.user_id == user_id


def _refuse_taken_name(connection: sa.Connection, group: UserGroup) -> None:
    name = names_in_domains.stored(group.name, group.domain_id)
    taken = connection.execute(sa.select(groups.c.id).where(groups.c.name == name, groups.c.id != group.id)).first()
    if taken is not None:
        raise Conflict(f"a group named {group.name!r} exists already")


def _columns(group: UserGroup) -> dict[str, object]:
    return {**msgspec.structs.asdict(group), "name": names_in_domains.stored(group.name, group.domain_id)}


def _group(row: sa.Row[tuple[object, ...]]) -> UserGroup:
    return UserGroup(**{**row._mapping, "name": names_in_domains.shown(row.name)})
