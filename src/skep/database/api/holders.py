"""Servers that have something of a service that is not Skep's own, or may have it: ports, volumes.

A server is noted before such a thing is asked for, in a transaction that knows whether it may have one. The note stays
until the server is gone, its things were released, and what was under way then has had time to end. Each is looked at
soon after such a request, and now and then: one whose answer was lost may have done something, and what others change
is not always told.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import sqlalchemy as sa

from skep.database.api import instance_mappings
from skep.database.api.instance_mappings import Mapping as InstanceMapping
from skep.database.api.network_rows import portions
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


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is to be looked at."""

    instance: InstanceUuid
    attempt: int
    lives: bool
    since: int
    """When something was asked for, or the server ended."""


class Holders:
    """The servers that may have things of one service."""

    def __init__(self, table: sa.Table) -> None:
        """`table` has the columns `instance`, `since` and `look_at`."""
        self.table = table
        self._row = table.c

    def hold(self, connection: sa.Connection, wanted: Mapping[InstanceUuid, int], now: int) -> list[InstanceUuid]:
        """Note that attempts of builds ask for something; return the servers for which they may."""
        found = instance_mappings.get_many(connection, list(wanted))
        may = [one for one in wanted if one in found and _stays(found[one]) and found[one].attempt == wanted[one]]
        self._note(connection, may, now)
        return may

    def hold_living(self, connection: sa.Connection, instance: InstanceUuid, now: int) -> bool:
        """Note that a server gets something; return whether it may."""
        return bool(self.hold_those(connection, [instance], now))

    def hold_those(self, connection: sa.Connection, servers: Sequence[InstanceUuid], now: int) -> list[InstanceUuid]:
        """Note that servers get something; return those that may."""
        found = instance_mappings.get_many(connection, list(servers))
        may = [one for one in servers if one in found and _stays(found[one])]
        self._note(connection, may, now)
        return may

    def releasable(self, connection: sa.Connection, held: Mapping[InstanceUuid, int]) -> list[InstanceUuid]:
        """Return those servers that may have something and may lose it: they are gone, or no cell has this attempt."""
        may_have = self.noted(connection, held)
        found = instance_mappings.get_many(connection, may_have)
        return [one for one in may_have if _may_lose(found.get(one), held[one])]

    def noted(self, connection: sa.Connection, servers: Collection[InstanceUuid]) -> list[InstanceUuid]:
        """Return those of these servers that may have something."""
        found: list[InstanceUuid] = []
        for some in portions([*map(str, servers)]):
            found += connection.scalars(sa.select(self._row.instance).where(self._row.instance.in_(some)))
        return found

    def hold_ended(
        self, connection: sa.Connection, servers: Mapping[InstanceUuid, bool], now: int
    ) -> list[InstanceUuid]:
        """Return those servers that may have something; those of which it is said that they have it are noted.

        A database that went back in time has forgotten some; their rows in the cells have not.
        """
        known = self.noted(connection, servers)
        forgotten = [one for one, has_some in servers.items() if has_some and one not in set(known)]
        self._note(connection, forgotten, now)
        return [*known, *forgotten]

    def look_soon(self, connection: sa.Connection, servers: Collection[InstanceUuid], now: int) -> None:
        """Have servers looked at next, those of them that may have something."""
        self._look_at(connection, servers, now)

    def end(self, connection: sa.Connection, servers: Collection[InstanceUuid], now: int) -> None:
        """Have servers looked at next that end, and again until what was under way has ended."""
        for some in portions([*map(str, servers)]):
            connection.execute(self.table.update().where(self._row.instance.in_(some)).values(look_at=now, since=now))

    def take_due(self, connection: sa.Connection, now: int, limit: int) -> list[Holder]:
        """Return servers that are to be looked at, the longest waiting first; no other process gets them soon."""
        query = (
            sa.select(self._row.instance, self._row.since, mappings.c.attempt, mappings.c.deleted_at)
            .outerjoin_from(self.table, mappings, mappings.c.instance == self._row.instance)
            .where(self._row.look_at <= now)
            .order_by(self._row.look_at, self._row.instance)
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
        self._look_at(connection, [one.instance for one in due], now + LEASE)
        return due

    def looked_at(self, connection: sa.Connection, servers: Sequence[Holder], now: int, later: int) -> None:
        """Note that servers were looked at: what those had that are gone was released.

        Those that live are looked at `later`, once what was asked for has ended; those that are gone are forgotten.
        """
        for one in servers:
            # What was asked for meanwhile begins it anew.
            same = (self._row.instance == one.instance, self._row.since == one.since)
            if one.since + SETTLE > now:
                pause = min(SETTLE, max(FIRST_LOOK, 4 * (now - one.since)))
                connection.execute(self.table.update().where(*same).values(look_at=one.since + pause))
            elif one.lives:
                connection.execute(self.table.update().where(*same).values(look_at=later))
            else:
                connection.execute(self.table.delete().where(*same))

    def put_off(self, connection: sa.Connection, servers: Sequence[Holder], now: int, later: int) -> None:
        """Look less and less often at servers whose things could not be released: by `later` at the latest.

        So it is where a service lets nobody do it, as in a project that is gone.
        """
        for one in servers:
            same = (self._row.instance == one.instance, self._row.since == one.since)
            pause = max(LEASE, (now - one.since) // 4)
            connection.execute(self.table.update().where(*same).values(look_at=min(later, now + pause)))

    def gone(self, connection: sa.Connection, servers: Sequence[InstanceUuid]) -> set[InstanceUuid]:
        """Return those servers that do not live."""
        living = sa.select(mappings.c.instance).where(mappings.c.deleted_at.is_(None))
        found = set(servers)
        for some in portions([*map(str, servers)]):
            found -= {InstanceUuid(one) for one in connection.scalars(living.where(mappings.c.instance.in_(some)))}
        return found

    def hold_gone(self, connection: sa.Connection, instance: InstanceUuid, now: int) -> bool:
        """Note that a server that is gone may have something; False where it lives, or was none of this cloud's."""
        mapping = instance_mappings.get(connection, instance)
        if mapping is None:
            return bool(self.noted(connection, [instance]))
        if mapping.deleted_at is None:
            return False
        self._note(connection, [instance], now)
        return True

    def _note(self, connection: sa.Connection, servers: Sequence[InstanceUuid], now: int) -> None:
        if servers:
            values = {"since": now, "look_at": now + FIRST_LOOK}
            statement = insert(connection, self.table).on_conflict_do_update(index_elements=["instance"], set_=values)
            connection.execute(statement, [{"instance": one, **values} for one in servers])

    def _look_at(self, connection: sa.Connection, servers: Collection[InstanceUuid], when: int) -> None:
        for some in portions([*map(str, servers)]):
            connection.execute(self.table.update().where(self._row.instance.in_(some)).values(look_at=when))


def _stays(mapping: InstanceMapping) -> bool:
    return not mapping.delete_intent_at and not mapping.deleted_at


def _may_lose(mapping: InstanceMapping | None, attempt: int) -> bool:
    if mapping is None or mapping.deleted_at is not None:
        return True
    return mapping.cell is None and mapping.attempt == attempt
