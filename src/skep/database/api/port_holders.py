"""Servers that have ports of a network service that is not Skep's own, or may have some.

A server is noted before a port is asked for, in a transaction that knows whether it may have one. The note stays until
the server is gone, its ports were released, and what was under way then has had time to end. Each is looked at soon
after such a request, and now and then: one whose answer was lost may have done something, and what others change of
ports is not always told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import sqlalchemy as sa

from skep.database.api import instance_mappings
from skep.database.api.instance_mappings import Mapping as InstanceMapping
from skep.database.api.network_rows import portions
from skep.database.api.network_tables import port_holders
from skep.database.api.tables import instance_mappings as mappings
from skep.database.upsert import insert
from skep.domain.clock import SECOND
from skep.domain.ids import InstanceUuid

SETTLE = 240 * SECOND
"""After this time a request that had no answer has ended, whatever it did."""

FIRST_LOOK = 15 * SECOND
"""After a request, or the end of a server; each further look comes after four times as long, until `SETTLE`."""

LEASE = 60 * SECOND
"""One process looks at a server at a time."""

_row = port_holders.c


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is to be looked at."""

    instance: InstanceUuid
    attempt: int
    lives: bool
    since: int
    """When a port was asked for, or the server ended."""


def hold(connection: sa.Connection, wanted: Mapping[InstanceUuid, int], now: int) -> list[InstanceUuid]:
    """Note that attempts of builds make ports; return the servers for which they may."""
    found = instance_mappings.get_many(connection, list(wanted))
    may = [one for one in wanted if one in found and _stays(found[one]) and found[one].attempt == wanted[one]]
    _note(connection, may, now)
    return may


def hold_living(connection: sa.Connection, instance: InstanceUuid, now: int) -> bool:
    """Note that a server gets a port; return whether it may."""
    mapping = instance_mappings.get(connection, instance)
    if mapping is None or not _stays(mapping):
        return False
    _note(connection, [instance], now)
    return True


def releasable(connection: sa.Connection, held: Mapping[InstanceUuid, int]) -> list[InstanceUuid]:
    """Return those servers that may have ports and may lose them: they are gone, or no cell has this attempt."""
    may_have = noted(connection, held)
    found = instance_mappings.get_many(connection, may_have)
    return [one for one in may_have if _may_lose(found.get(one), held[one])]


def noted(connection: sa.Connection, servers: Collection[InstanceUuid]) -> list[InstanceUuid]:
    """Return those of these servers that may have ports."""
    found: list[InstanceUuid] = []
    for some in portions([*map(str, servers)]):
        found += connection.scalars(sa.select(_row.instance).where(_row.instance.in_(some)))
    return found


def hold_ended(connection: sa.Connection, servers: Mapping[InstanceUuid, bool], now: int) -> list[InstanceUuid]:
    """Return those servers that may have ports; those of which it is said that they have some are noted.

    A database that went back in time has forgotten some; their rows in the cells have not.
    """
    known = noted(connection, servers)
    forgotten = [one for one, has_ports in servers.items() if has_ports and one not in set(known)]
    _note(connection, forgotten, now)
    return [*known, *forgotten]


def look_soon(connection: sa.Connection, servers: Collection[InstanceUuid], now: int) -> None:
    """Have servers looked at next, those of them that may have ports."""
    _look_at(connection, servers, now)


def end(connection: sa.Connection, servers: Collection[InstanceUuid], now: int) -> None:
    """Have servers looked at next that end, and again until what was under way has ended."""
    for some in portions([*map(str, servers)]):
        connection.execute(port_holders.update().where(_row.instance.in_(some)).values(look_at=now, since=now))


def take_due(connection: sa.Connection, now: int, limit: int) -> list[Holder]:
    """Return servers that are to be looked at, the longest waiting first; no other process gets them for a while."""
    query = (
        sa.select(_row.instance, _row.since, mappings.c.attempt, mappings.c.deleted_at)
        .outerjoin_from(port_holders, mappings, mappings.c.instance == _row.instance)
        .where(_row.look_at <= now)
        .order_by(_row.look_at, _row.instance)
        .limit(limit)
    )
    due = [
        Holder(
            instance=InstanceUuid(one.instance),
            attempt=one.attempt or 0,
            lives=one.attempt is not None and one.deleted_at is None,
            since=one.since,
        )
        for one in connection.execute(query)
    ]
    _look_at(connection, [one.instance for one in due], now + LEASE)
    return due


def looked_at(connection: sa.Connection, servers: Sequence[Holder], now: int, later: int) -> None:
    """Note that servers were looked at: the ports of those that are gone were released.

    Those that live are looked at `later`, once what was asked for has ended; those that are gone are forgotten then.
    """
    for one in servers:
        # A port that was asked for meanwhile begins it anew.
        same = (_row.instance == one.instance, _row.since == one.since)
        if one.since + SETTLE > now:
            pause = min(SETTLE, max(FIRST_LOOK, 4 * (now - one.since)))
            connection.execute(port_holders.update().where(*same).values(look_at=one.since + pause))
        elif one.lives:
            connection.execute(port_holders.update().where(*same).values(look_at=later))
        else:
            connection.execute(port_holders.delete().where(*same))


def gone(connection: sa.Connection, servers: Sequence[InstanceUuid]) -> set[InstanceUuid]:
    """Return those servers that do not live."""
    living = sa.select(mappings.c.instance).where(mappings.c.deleted_at.is_(None))
    found = set(servers)
    for some in portions([*map(str, servers)]):
        found -= {InstanceUuid(one) for one in connection.scalars(living.where(mappings.c.instance.in_(some)))}
    return found


def hold_gone(connection: sa.Connection, instance: InstanceUuid, now: int) -> bool:
    """Note that a server that is gone may have ports; False where it lives, or was none of this cloud's."""
    mapping = instance_mappings.get(connection, instance)
    if mapping is None:
        return bool(noted(connection, [instance]))
    if mapping.deleted_at is None:
        return False
    _note(connection, [instance], now)
    return True


def _stays(mapping: InstanceMapping) -> bool:
    return not mapping.delete_intent_at and not mapping.deleted_at


def _may_lose(mapping: InstanceMapping | None, attempt: int) -> bool:
    if mapping is None or mapping.deleted_at is not None:
        return True
    return mapping.cell is None and mapping.attempt == attempt


def _note(connection: sa.Connection, servers: Sequence[InstanceUuid], now: int) -> None:
    if servers:
        values = {"since": now, "look_at": now + FIRST_LOOK}
        statement = insert(connection, port_holders).on_conflict_do_update(index_elements=["instance"], set_=values)
        connection.execute(statement, [{"instance": one, **values} for one in servers])


def _look_at(connection: sa.Connection, servers: Collection[InstanceUuid], when: int) -> None:
    for some in portions([*map(str, servers)]):
        connection.execute(port_holders.update().where(_row.instance.in_(some)).values(look_at=when))
