"""What a database that went back in time leaves to an operator: silent hosts, servers and guests in doubt."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import sqlalchemy as sa

from skep.audit.difference import Difference, Kind
from skep.database.api.time_tables import recovering_servers
from skep.database.cell import recovery
from skep.database.cell.recovery import AwaitedHost
from skep.database.cell.resting import MISSING
from skep.database.cell.tables import found_guests, instances, recovering_instances
from skep.domain.cells import Cell
from skep.domain.recovery import ENDED, FoundGuest


def above(connection: sa.Connection) -> Iterator[Difference]:
    """Return servers without a cell that nobody places, because something of them is somewhere."""
    held = recovering_servers.c
    for one in connection.execute(sa.select(held.instance, held.doubt).where(held.doubt.is_not(None))):
        kind = _KINDS.get(one.doubt, "server_in_doubt")
        yield Difference(kind=kind, subject=one.instance, evidence={"doubt": one.doubt})


def inside(connection: sa.Connection, cell: Cell) -> list[Difference]:
    """Return what a cell's database that went back waits for, and what it leaves to an operator."""
    awaited = (_awaited(cell, one) for one in recovery.awaited_hosts(connection))
    named = (msgspec.structs.replace(one, evidence={"cell": cell.name, **one.evidence}) for one in left(connection))
    return [*awaited, *named]


def left(connection: sa.Connection) -> list[Difference]:
    """Return the servers and guests about which an operator has to decide."""
    held, found = recovering_instances.c, found_guests.c
    lives = sa.exists(
        sa.select(instances.c.uuid).where(instances.c.uuid == held.instance, instances.c.deleted_at.is_(None))
    )
    doubts = connection.execute(sa.select(held.instance, held.doubt).where(held.doubt.is_not(None), lives)).all()
    known = sa.exists(sa.select(instances.c.uuid).where(instances.c.uuid == found.instance))
    odd = sa.select(found.instance).where(found.phase.not_in(("none", recovery.UNDO)), ~known).distinct()
    strangers = list(connection.scalars(odd))
    guests = recovery.guests_of(connection, [*(one.instance for one in doubts), *strangers])
    return [
        *(
            Difference(
                kind=_KINDS.get(one.doubt, "server_in_doubt"),
                subject=one.instance,
                evidence={"doubt": one.doubt, "guests": _named(guests.get(one.instance, []))},
            )
            for one in doubts
        ),
        *(
            Difference(kind="guest_unknown", subject=uuid, evidence={"guests": _named(guests.get(uuid, []))})
            for uuid in strangers
        ),
    ]


_KINDS: dict[str, Kind] = {MISSING: "guest_missing", ENDED.reason: "server_deleted_since"}


def _awaited(cell: Cell, one: AwaitedHost) -> Difference:
    return Difference(kind="host_not_told", subject=one.host, evidence={"cell": cell.name, "node": one.node})


def _named(guests: list[FoundGuest]) -> list[dict[str, object]]:
    return [
        {
            "host": one.host,
            "attempt": one.attempt,
            "phase": "deleted" if one.deleted and one.phase == "none" else one.phase,
            **({"name": one.described.name, "project": one.described.project_id} if one.described is not None else {}),
        }
        for one in sorted(guests, key=lambda one: (one.host, one.attempt))
        if one.phase != "none" or one.deleted
    ]
