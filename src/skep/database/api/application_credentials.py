"""Application credentials of the embedded identity service: a part of what a user may, for a program of his.

With them go the access rules of a user, which several of his credentials may have.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from skep.database.api.identity_tables import (
    access_rules,
    application_credential_roles,
    application_credential_rules,
    application_credentials,
)
from skep.domain.errors import Conflict


class StoredRule(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of request that credentials of a user may be limited to."""

    id: str
    service: str
    method: str
    path: str


class ApplicationCredential(msgspec.Struct, frozen=True, kw_only=True):
    """What a program signs in with. It is good for one project of its user."""

    id: str
    user_id: str
    project_id: str
    name: str
    description: str = ""
    secret_hash: str
    expires_at: int | None = None
    """Microseconds since the epoch; None: it does not expire."""
    unrestricted: bool = False
    """Whether it may make and delete others."""
    role_ids: frozenset[str]
    access_rules: tuple[StoredRule, ...] | None = None
    """None: it is good for every request."""
    created_at: int

    def __repr__(self) -> str:
        """Leaves the hash of the secret out."""
        return f"ApplicationCredential(id={self.id!r}, user_id={self.user_id!r}, name={self.name!r})"


def insert(connection: sa.Connection, credential: ApplicationCredential) -> None:
    """Store a new credential, whose roles and rules are there.

    Raises Conflict when its user has one of that name.
    """
    table = application_credentials
    taken = sa.select(table.c.id).where(table.c.user_id == credential.user_id, table.c.name == credential.name)
    if connection.execute(taken).first() is not None:
        raise Conflict(f"an application credential named {credential.name!r} exists already")
    values = msgspec.structs.asdict(credential)
    role_ids, rules = values.pop("role_ids"), values.pop("access_rules")
    connection.execute(table.insert().values(**values, has_rules=rules is not None))
    if role_ids:
        rows = [{"credential_id": credential.id, "role_id": role_id} for role_id in sorted(role_ids)]
        connection.execute(application_credential_roles.insert(), rows)
    if rules:
        rows = [{"credential_id": credential.id, "rule_id": rule.id} for rule in rules]
        connection.execute(application_credential_rules.insert(), rows)


def delete(connection: sa.Connection, credential_id: str) -> None:
    """Remove a credential; its rules stay."""
    connection.execute(application_credentials.delete().where(application_credentials.c.id == credential_id))


def get(connection: sa.Connection, credential_id: str) -> ApplicationCredential | None:
    """Return one credential by its id."""
    return next(iter(_select(connection, application_credentials.c.id == credential_id)), None)


def of_user(connection: sa.Connection, user_id: str, *, name: str | None = None) -> list[ApplicationCredential]:
    """Return the credentials of a user by name, or the one called `name`."""
    condition = application_credentials.c.user_id == user_id
    if name is not None:
        condition = sa.and_(condition, application_credentials.c.name == name)
    return _select(connection, condition)


def rules_of(connection: sa.Connection, user_id: str) -> list[StoredRule]:
    """Return the access rules of a user."""
    query = access_rules.select().where(access_rules.c.user_id == user_id)
    return [_rule(row) for row in connection.execute(query.order_by(access_rules.c.service, access_rules.c.path))]


def insert_rule(connection: sa.Connection, user_id: str, rule: StoredRule) -> None:
    """Store a new access rule, of which its user has no equal."""
    connection.execute(access_rules.insert().values(user_id=user_id, **msgspec.structs.asdict(rule)))


def delete_rule(connection: sa.Connection, user_id: str, rule_id: str) -> bool:
    """Remove an access rule; false when its user has none.

    Raises Conflict while a credential has it.
    """
    used = application_credential_rules.c
    if connection.execute(sa.select(used.rule_id).where(used.rule_id == rule_id).limit(1)).first() is not None:
        raise Conflict("the access rule belongs to an application credential")
    is_it = access_rules.c.id == rule_id, access_rules.c.user_id == user_id
    return connection.execute(access_rules.delete().where(*is_it)).rowcount > 0


def _select(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> list[ApplicationCredential]:
    query = application_credentials.select().where(condition).order_by(application_credentials.c.name)
    rows = connection.execute(query).all()
    ids = [row.id for row in rows]
    role_ids: dict[str, set[str]] = {one: set() for one in ids}
    rules: dict[str, list[StoredRule]] = {one: [] for one in ids}
    if ids:
        held = application_credential_roles
        for row in connection.execute(held.select().where(held.c.credential_id.in_(ids))):
            role_ids[row.credential_id].add(row.role_id)
    limited = [row.id for row in rows if row.has_rules]
    if limited:
        of = application_credential_rules
        joined = sa.select(of.c.credential_id, access_rules).join(access_rules, access_rules.c.id == of.c.rule_id)
        for row in connection.execute(joined.where(of.c.credential_id.in_(limited)).order_by(access_rules.c.id)):
            rules[row.credential_id].append(_rule(row))
    return [_credential(row, role_ids[row.id], rules[row.id]) for row in rows]


def _credential(
    row: sa.Row[tuple[object, ...]], role_ids: set[str], rules: Sequence[StoredRule]
) -> ApplicationCredential:
    values = dict(row._mapping)
    has_rules = values.pop("has_rules")
    return ApplicationCredential(
        **values, role_ids=frozenset(role_ids), access_rules=tuple(rules) if has_rules else None
    )


def _rule(row: sa.Row[tuple[object, ...]]) -> StoredRule:
    return StoredRule(id=row.id, service=row.service, method=row.method, path=row.path)
