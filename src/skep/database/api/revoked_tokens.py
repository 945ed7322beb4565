"""Tokens that were taken back before they expired, by audit id: the token itself is never stored."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.identity_tables import revoked_tokens


def insert(connection: sa.Connection, audit_id: str, expires_at: int, now: int) -> None:
    """Take a token back, and forget those that have expired by `now` (microseconds)."""
    connection.execute(revoked_tokens.delete().where(revoked_tokens.c.expires_at <= now))
    if not exists(connection, audit_id):
        connection.execute(revoked_tokens.insert().values(audit_id=audit_id, expires_at=expires_at))


def exists(connection: sa.Connection, audit_id: str) -> bool:
    """Tell whether the token with this audit id was taken back."""
    return connection.execute(_ONE, {"of": audit_id}).first() is not None


_ONE = sa.select(revoked_tokens.c.audit_id).where(revoked_tokens.c.audit_id == sa.bindparam("of"))
"""Made once: it is asked of each token again and again."""
