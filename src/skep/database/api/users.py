"""Users of the embedded identity service."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api import names_in_domains
from skep.database.api.identity_tables import group_members, users
from skep.database.api.names_in_domains import FIRST_DOMAIN
from skep.domain.errors import Conflict


class User(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who may ask for tokens."""

    id: str
    name: str
    email: str | None = None
    description: str = ""
    enabled: bool = True
    default_project_id: str | None = None
    password_hash: str | None = None
    """Without one nobody can sign in as this user."""
    tokens_invalid_before: int = 0
    """Tokens issued at this time or before are no longer valid."""
    created_at: int = 0
    domain_id: str = FIRST_DOMAIN
    password_expires_at: int | None = None
    """Microseconds since the epoch; None: the password does not end."""

    def __repr__(self) -> str:
        """Leaves the password's hash out, so that no log line can hold it."""
        return f"User(id={self.id!r}, name={self.name!r}, enabled={self.enabled})"


def insert(connection: sa.Connection, user: User) -> None:
    """Store a new user.

    Raises Conflict when the name is taken in its domain.
    """
    _refuse_taken_name(connection, user)
    connection.execute(users.insert().values(_columns(user)))


def update(connection: sa.Connection, user: User) -> None:
    """Store what changed of a user.

    Raises Conflict when the name is taken by another of its domain.
    """
    _refuse_taken_name(connection, user)
    connection.execute(users.update().where(users.c.id == user.id).values(_columns(user)))


def delete(connection: sa.Connection, user_id: str) -> bool:
    """Remove a user and its roles; false when there is none."""
    return connection.execute(users.delete().where(users.c.id == user_id)).rowcount > 0


def get(connection: sa.Connection, user_id: str) -> User | None:
    """Return one user by its id."""
    row = connection.execute(_ONE, {"of": user_id}).first()
    return None if row is None else _user(row)


_ONE = users.select().where(users.c.id == sa.bindparam("of"))
"""Made once: each process asks for the users of tokens again and again."""


def by_name(connection: sa.Connection, name: str, domain_id: str = FIRST_DOMAIN) -> User | None:
    """Return one user by its name and domain."""
    return _first(connection, users.c.name == names_in_domains.stored(name, domain_id))


def any_exists(connection: sa.Connection) -> bool:
    """Tell whether there is any user: without one nobody can sign in, and the cloud is new."""
    return connection.execute(sa.select(users.c.id).limit(1)).first() is not None


def select(
    connection: sa.Connection,
    *,
    name: str | None = None,
    enabled: bool | None = None,
    ids: set[str] | None = None,
    domain_id: str | None = None,
    group_id: str | None = None,
) -> list[User]:
    """Return users by name; every argument that is given narrows the list."""
    query = users.select().order_by(users.c.name)
    if name is not None:
        query = query.where(names_in_domains.is_named(users.c.name, name))
    if enabled is not None:
        query = query.where(users.c.enabled == enabled)
    if ids is not None:
        query = query.where(users.c.id.in_(ids))
    if domain_id is not None:
        query = query.where(users.c.domain_id == domain_id)
    if group_id is not None:
        of_group = sa.select(group_members.c.user_id).where(group_members.c.group_id == group_id)
        query = query.where(users.c.id.in_(of_group))
    return [_user(row) for row in connection.execute(query)]


def _refuse_taken_name(connection: sa.Connection, user: User) -> None:
    other = by_name(connection, user.name, user.domain_id)
    if other is not None and other.id != user.id:
        raise Conflict(f"a user named {user.name!r} exists already")


def _columns(user: User) -> dict[str, object]:
    return {**msgspec.structs.asdict(user), "name": names_in_domains.stored(user.name, user.domain_id)}


def _first(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> User | None:
    row = connection.execute(users.select().where(condition)).first()
    return None if row is None else _user(row)


def _user(row: sa.Row[tuple[object, ...]]) -> User:
    return User(**{**row._mapping, "name": names_in_domains.shown(row.name)})
