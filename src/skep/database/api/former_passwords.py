"""Hashes of passwords that users had before, so that they choose new ones."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.identity_tables import former_passwords


def latest(connection: sa.Connection, user_id: str, most: int) -> list[str]:
    """Return the hashes of the latest former passwords of a user, so many at most."""
    table = former_passwords
    query = sa.select(table.c.password_hash).where(table.c.user_id == user_id)
    return list(connection.execute(query.order_by(table.c.ended_at.desc()).limit(most)).scalars())


def add(connection: sa.Connection, user_id: str, password_hash: str, now: int, most: int) -> None:
    """Keep the hash of a password that ends now (microseconds); of a user's so many are kept."""
    table = former_passwords
    of_user = table.c.user_id == user_id
    connection.execute(table.delete().where(of_user, table.c.ended_at == now))
    if most > 0:
        connection.execute(table.insert().values(user_id=user_id, ended_at=now, password_hash=password_hash))
    kept = sa.select(table.c.ended_at).where(of_user).order_by(table.c.ended_at.desc()).limit(most)
    oldest = min(connection.execute(kept).scalars(), default=now + 1)
    connection.execute(table.delete().where(of_user, table.c.ended_at < oldest))
