"""Domains of the embedded identity service: each has users, groups and projects of its own."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api.identity_tables import domains, groups, projects, users
from skep.domain.errors import Conflict


class Domain(msgspec.Struct, frozen=True, kw_only=True):
    """What names are unique in."""

    id: str
    name: str
    description: str = ""
    enabled: bool = True
    created_at: int = 0


def insert(connection: sa.Connection, domain: Domain) -> None:
    """Store a new domain.

    Raises Conflict when the name is taken.
    """
    _refuse_taken_name(connection, domain)
    connection.execute(domains.insert().values(msgspec.structs.asdict(domain)))


def update(connection: sa.Connection, domain: Domain) -> None:
    """Store what changed of a domain.

    Raises Conflict when the name is taken by another.
    """
    _refuse_taken_name(connection, domain)
    connection.execute(domains.update().where(domains.c.id == domain.id).values(msgspec.structs.asdict(domain)))


def delete(connection: sa.Connection, domain_id: str) -> None:
    """Remove a domain with its users, groups and projects, and all roles of these and in these."""
    for table in (users, groups, projects):
        connection.execute(table.delete().where(table.c.domain_id == domain_id))
    connection.execute(domains.delete().where(domains.c.id == domain_id))


def get(connection: sa.Connection, domain_id: str) -> Domain | None:
    """Return one domain by its id."""
    return _first(connection, domains.c.id == domain_id)


def by_name(connection: sa.Connection, name: str) -> Domain | None:
    """Return one domain by its name."""
    return _first(connection, domains.c.name == name)


def select(
    connection: sa.Connection, *, name: str | None = None, enabled: bool | None = None, ids: set[str] | None = None
) -> list[Domain]:
    """Return domains by name; every argument that is given narrows the list."""
    query = domains.select().order_by(domains.c.name)
    if name is not None:
        query = query.where(domains.c.name == name)
    if enabled is not None:
        query = query.where(domains.c.enabled == enabled)
    if ids is not None:
        query = query.where(domains.c.id.in_(ids))
    return [Domain(**row._mapping) for row in connection.execute(query)]


def enabled_among(connection: sa.Connection, ids: set[str]) -> dict[str, Domain]:
    """Return those of these domains that are enabled, by their ids."""
    rows = connection.execute(_ENABLED_AMONG, {"ids": sorted(ids)})
    return {one.id: one for one in (Domain(**row._mapping) for row in rows)}


_ENABLED_AMONG = domains.select().where(
    domains.c.enabled == sa.true(), domains.c.id.in_(sa.bindparam("ids", expanding=True))
)
"""Made once: it is asked of each token again and again."""


def _refuse_taken_name(connection: sa.Connection, domain: Domain) -> None:
    other = by_name(connection, domain.name)
    if other is not None and other.id != domain.id:
        raise Conflict(f"a domain named {domain.name!r} exists already")


def _first(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> Domain | None:
    row = connection.execute(domains.select().where(condition)).first()
    return None if row is None else Domain(**row._mapping)
