"""Credentials of programs. Only a hash of each secret is stored."""

from __future__ import annotations

import sqlalchemy as sa

from skep.database.api.service_tables import credentials
from skep.domain.clock import SECOND
from skep.domain.credentials import Credential, Scope, Token

USED_SECONDS = 600
"""How exactly the last use is known: a row is written at most so often."""
MOST_OF_SCOPE = 100

row = credentials.c


def add(connection: sa.Connection, new: Credential, token: Token) -> bool:
    """Store a credential; tell whether its scope has room for another one."""
    if len(of_scope(connection, new.scope)) >= MOST_OF_SCOPE:
        return False
    connection.execute(
        sa.insert(credentials).values(
            id=new.id,
            scope_kind=new.scope.kind,
            scope=new.scope.name,
            description=new.description,
            secret_hash=token.digest,
            created_at=new.created_at,
            created_by=new.created_by,
            expires_at=new.expires_at,
        )
    )
    return True


def of_scope(connection: sa.Connection, scope: Scope) -> tuple[Credential, ...]:
    """Return the credentials of a cell or a namespace, oldest first."""
    query = sa.select(credentials).where(row.scope_kind == scope.kind, row.scope == scope.name)
    return tuple(_credential(one) for one in connection.execute(query.order_by(row.created_at, row.id)))


def find(connection: sa.Connection, token: Token, now: int) -> Credential | None:
    """Return the credential whose token this is, unless it has expired by `now`."""
    found = connection.execute(sa.select(credentials).where(row.id == token.id)).first()
    right = token.matches(found.secret_hash if found is not None else bytes(32))
    if found is None or not right or (found.expires_at is not None and found.expires_at <= now):
        return None
    return _credential(found)


def needs_mark(credential: Credential, now: int) -> bool:
    """Tell whether the stored last use is older than it may be."""
    return credential.last_used_at is None or now - credential.last_used_at >= USED_SECONDS * SECOND


def mark_used(connection: sa.Connection, id_: str, now: int) -> None:
    """Note that a credential was used."""
    connection.execute(sa.update(credentials).where(row.id == id_).values(last_used_at=now))


def remove(connection: sa.Connection, scope: Scope, id_: str) -> bool:
    """Take a credential back; tell whether the scope had it."""
    gone = sa.delete(credentials).where(row.id == id_, row.scope_kind == scope.kind, row.scope == scope.name)
    return connection.execute(gone).rowcount > 0


def remove_of(connection: sa.Connection, scope: Scope) -> None:
    """Take all credentials back of a cell or namespace that goes."""
    connection.execute(sa.delete(credentials).where(row.scope_kind == scope.kind, row.scope == scope.name))


def _credential(found: sa.Row[tuple[object, ...]]) -> Credential:
    return Credential(
        id=found.id,
        scope=Scope(found.scope_kind, found.scope),
        description=found.description,
        created_at=found.created_at,
        created_by=found.created_by,
        expires_at=found.expires_at,
        last_used_at=found.last_used_at,
    )
