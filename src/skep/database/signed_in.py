"""Who is signed in to a PostgreSQL database, as its server knows."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa


class SignedIn(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions of one role from one address."""

    role: str
    """As it signed in, whoever it acts as."""
    sessions: int
    address: str
    """`-`: a socket of the machine."""


_QUERY = sa.text(
    """
    SELECT usename, coalesce(host(client_addr), '-') AS address, count(*) AS sessions
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND usename IS NOT NULL
    GROUP BY usename, address ORDER BY usename, address
    """
)


def signed_in(connection: sa.Connection) -> list[SignedIn]:
    """Return the sessions of the database, but for the one that asks."""
    return [
        SignedIn(role=row.usename, sessions=row.sessions, address=row.address) for row in connection.execute(_QUERY)
    ]
