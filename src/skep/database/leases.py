"""Leases: which process runs own work in a database. The same table stands in the API's and in each cell's.

Processes of the API own nothing; they hold one that they are known, and their clocks with them.
"""

from __future__ import annotations

from functools import cache

import msgspec
import sqlalchemy as sa

from skep.database.upsert import written
from skep.domain.clock import SECOND
from skep.domain.ids import Incarnation

Leases = sa.Table
"""The table of leases of the API database, or of a cell's."""

API = "api"
"""The role of leases under which nothing is owned."""


class LeaseRow(msgspec.Struct, frozen=True, kw_only=True):
    """One process that lives, or did until a short while ago."""

    owner: Incarnation
    role: str
    host: str
    """Where it runs; empty when a release wrote it that did not tell."""
    lapses_at: int
    ahead: float | None = None
    """Seconds by which the process' clock is ahead of the database's; None: it does not tell."""


LONGEST_OF_OLDER = 600 * SECOND
"""A lease of a release that does not say its length is believed so far ahead at most."""


def renew(
    connection: sa.Connection,
    leases: Leases,
    owner: Incarnation,
    role: str,
    lapses_at: int,
    host: str = "",
    *,
    length: int | None = None,
    ahead: float | None = None,
    understands: str | None = None,
) -> None:
    """Say that `owner`, which runs on `host`, lives until `lapses_at` (microseconds since the epoch).

    `length`: of the lease, microseconds; `ahead`: seconds by which the process' clock is ahead of the database's.
    `understands`: what it can go on with, in a database whose table says it.
    """
    clock_ahead = None if ahead is None else round(ahead * SECOND)
    values = {
        "owner": owner,
        "role": role,
        "lapses_at": lapses_at,
        "host": host,
        "length": length,
        "clock_ahead": clock_ahead,
    }
    changed = ("lapses_at", "length", "clock_ahead")
    if understands is not None:
        values["understands"] = understands
    connection.execute(written(connection, leases, "owner", *changed), values)


def drop(connection: sa.Connection, leases: Leases, owner: Incarnation) -> None:
    """End a lease at once: a process that stops in good order leaves its work to others."""
    connection.execute(leases.delete().where(leases.c.owner == owner))


def remove_lapsed(connection: sa.Connection, leases: Leases, before: int) -> int:
    """Remove leases that lapsed before `before`; return how many."""
    return connection.execute(_lapsed(leases), {"before": before}).rowcount


@cache
def _lapsed(leases: Leases) -> sa.Delete:
    return leases.delete().where(leases.c.lapses_at < sa.bindparam("before"))


def every(connection: sa.Connection, leases: Leases) -> tuple[LeaseRow, ...]:
    """Return all leases, those that lapsed a short while ago too."""
    rows = connection.execute(sa.select(leases).order_by(leases.c.role, leases.c.host, leases.c.owner))
    return tuple(
        LeaseRow(
            owner=Incarnation(row.owner),
            role=row.role,
            host=row.host,
            lapses_at=row.lapses_at,
            ahead=None if row.clock_ahead is None else row.clock_ahead / SECOND,
        )
        for row in rows
    )


NOW = sa.bindparam("now", type_=sa.BigInteger)


def unowned(
    leases: Leases, owner: sa.ColumnElement[str | None], now: int | sa.ColumnElement[int] = NOW
) -> sa.ColumnElement[bool]:
    """Return the condition that `owner` is nobody or somebody whose lease has lapsed.

    `now`: of a statement that is made once, its parameter of this name. A lease that lies further ahead than twice its
    length was written by a wrong clock, and says nothing.
    """
    believed = sa.func.coalesce(2 * leases.c.length, LONGEST_OF_OLDER)
    living = sa.select(leases.c.owner).where(leases.c.lapses_at > now, leases.c.lapses_at <= now + believed)
    return sa.or_(owner.is_(None), owner.not_in(living))
