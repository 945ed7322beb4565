"""Aggregates: named sets of hosts with metadata. One with `availability_zone` in its metadata is a zone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import sqlalchemy as sa

from skep.database.api.tables import aggregate_hosts, aggregates, host_mappings
from skep.database.stored import dump, load
from skep.database.upsert import insert

ZONE = "availability_zone"
"""The metadata key that names a zone."""


class Aggregate(msgspec.Struct, frozen=True, kw_only=True):
    """One aggregate with the names of its hosts."""

    id: int
    uuid: str
    name: str
    hosts: tuple[str, ...] = ()
    metadata: dict[str, str] = {}
    created_at: int
    updated_at: int | None = None

    @property
    def zone(self) -> str | None:
        """The availability zone that its hosts are in."""
        return self.metadata.get(ZONE)


def every(connection: sa.Connection) -> tuple[Aggregate, ...]:
    """Return all aggregates by id."""
    hosts: dict[int, list[str]] = {}
    for row in connection.execute(sa.select(aggregate_hosts).order_by(aggregate_hosts.c.host)):
        hosts.setdefault(row.aggregate_id, []).append(row.host)
    rows = connection.execute(sa.select(aggregates).order_by(aggregates.c.id))
    return tuple(_aggregate(row, hosts.get(row.id, [])) for row in rows)


def get(connection: sa.Connection, identifier: int) -> Aggregate | None:
    """Return one aggregate."""
    row = connection.execute(sa.select(aggregates).where(aggregates.c.id == identifier)).first()
    if row is None:
        return None
    members = sa.select(aggregate_hosts.c.host).where(aggregate_hosts.c.aggregate_id == identifier)
    return _aggregate(row, connection.execute(members.order_by(aggregate_hosts.c.host)).scalars())


def named(connection: sa.Connection, name: str) -> Aggregate | None:
    """Return the aggregate with this name."""
    identifier = connection.execute(sa.select(aggregates.c.id).where(aggregates.c.name == name)).scalar()
    return None if identifier is None else get(connection, identifier)


def add(connection: sa.Connection, *, uuid: str, name: str, metadata: Mapping[str, str], now: int) -> Aggregate | None:
    """Store a new aggregate and return it; None when the name is taken."""
    if named(connection, name) is not None:
        return None
    result = connection.execute(
        sa.insert(aggregates).values(uuid=uuid, name=name, metadata=dump(metadata), created_at=now)
    )
    assert result.inserted_primary_key is not None
    return get(connection, result.inserted_primary_key[0])


def change(
    connection: sa.Connection, identifier: int, now: int, *, name: str | None, metadata: Mapping[str, str] | None
) -> None:
    """Set the name and all of the metadata; None leaves them."""
    values: dict[str, object] = {"updated_at": now}
    if name is not None:
        values["name"] = name
    if metadata is not None:
        values["metadata"] = dump(metadata)
    connection.execute(sa.update(aggregates).where(aggregates.c.id == identifier).values(**values))


def remove(connection: sa.Connection, identifier: int) -> bool:
    """Delete an aggregate; tell whether it was there."""
    return connection.execute(sa.delete(aggregates).where(aggregates.c.id == identifier)).rowcount > 0


def add_host(connection: sa.Connection, identifier: int, host: str) -> bool:
    """Put a host into an aggregate; tell whether it was not in it."""
    statement = insert(connection, aggregate_hosts).values(aggregate_id=identifier, host=host)
    return connection.execute(statement.on_conflict_do_nothing()).rowcount > 0


def remove_host(connection: sa.Connection, identifier: int, host: str) -> bool:
    """Take a host out of an aggregate; tell whether it was in it."""
    there = (aggregate_hosts.c.aggregate_id == identifier) & (aggregate_hosts.c.host == host)
    return connection.execute(sa.delete(aggregate_hosts).where(there)).rowcount > 0


def forget_host(connection: sa.Connection, host: str) -> None:
    """Take a host out of all aggregates."""
    connection.execute(sa.delete(aggregate_hosts).where(aggregate_hosts.c.host == host))


def zones_of(known: Iterable[Aggregate], hosts: Iterable[str], *, other_than: int | None = None) -> dict[str, str]:
    """Return the zone of each of these hosts that is in one, by any aggregate but `other_than`."""
    wanted = set(hosts)
    return {
        host: one.zone
        for one in known
        if one.zone is not None and one.id != other_than
        for host in one.hosts
        if host in wanted
    }


def zone_has_host(connection: sa.Connection, zone: str, default: str) -> bool:
    """Tell whether an enabled host is in a zone; `default` is the zone of hosts that no aggregate puts into one."""
    zones: dict[int, str | None] = {}
    for row in connection.execute(sa.select(aggregates)):
        metadata: dict[str, str] = load(row.metadata, dict[str, str])
        zones[row.id] = metadata.get(ZONE)
    hosts = host_mappings.c
    enabled = sa.select(hosts.node).where(hosts.disabled == sa.false()).limit(1)
    members = [identifier for identifier, name in zones.items() if name == zone]
    if connection.execute(enabled.where(hosts.host.in_(_in(members)))).first() is not None:
        return True
    zoned = [identifier for identifier, name in zones.items() if name is not None]
    return zone == default and connection.execute(enabled.where(hosts.host.not_in(_in(zoned)))).first() is not None


def _in(identifiers: list[int]) -> sa.Select[tuple[str]]:
    return sa.select(aggregate_hosts.c.host).where(aggregate_hosts.c.aggregate_id.in_(identifiers))


def _aggregate(row: sa.Row[tuple[object, ...]], hosts: Iterable[str]) -> Aggregate:
    return Aggregate(
        id=row.id,
        uuid=row.uuid,
        name=row.name,
        hosts=tuple(hosts),
        metadata=load(row.metadata, dict[str, str]),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
