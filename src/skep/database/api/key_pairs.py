"""Key pairs of users."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api.tables import key_pairs
from skep.database.upsert import insert
from skep.domain.ids import UserId
from skep.domain.key_pairs import KeyPair

row = key_pairs.c


class StoredKeyPair(KeyPair, frozen=True, kw_only=True):
    """A key pair, and whose it is."""

    id: int
    user_id: UserId
    created_at: int


def get(connection: sa.Connection, user: str, name: str) -> StoredKeyPair | None:
    """Return one key pair of a user."""
    found = connection.execute(sa.select(key_pairs).where(row.user_id == user, row.name == name)).first()
    return None if found is None else _key_pair(found)


def page(connection: sa.Connection, user: str, *, limit: int, after: str | None = None) -> tuple[StoredKeyPair, ...]:
    """Return key pairs of a user in the order of their names, those behind the name `after`."""
    statement = sa.select(key_pairs).where(row.user_id == user).order_by(row.name).limit(limit)
    if after is not None:
        statement = statement.where(row.name > after)
    return tuple(_key_pair(found) for found in connection.execute(statement))


def count(connection: sa.Connection, user: str) -> int:
    """Return how many key pairs a user has."""
    statement = sa.select(sa.func.count()).select_from(key_pairs).where(row.user_id == user)
    return connection.execute(statement).scalar_one()


def add(connection: sa.Connection, user: UserId, pair: KeyPair, now: int) -> StoredKeyPair | None:
    """Store a new key pair; None where the user has one of this name."""
    values = {**msgspec.structs.asdict(pair), "user_id": user, "created_at": now}
    if not connection.execute(insert(connection, key_pairs).values(values).on_conflict_do_nothing()).rowcount:
        return None
    return get(connection, user, pair.name)


def remove(connection: sa.Connection, user: str, name: str) -> bool:
    """Delete a key pair; servers keep their copies. Tell whether it was there."""
    return connection.execute(sa.delete(key_pairs).where(row.user_id == user, row.name == name)).rowcount > 0


def _key_pair(found: sa.Row[tuple[object, ...]]) -> StoredKeyPair:
    return StoredKeyPair(
        id=found.id,
        user_id=UserId(found.user_id),
        name=found.name,
        type=found.type,
        public_key=found.public_key,
        fingerprint=found.fingerprint,
        created_at=found.created_at,
    )
