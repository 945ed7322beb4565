"""What a database that went back in time leaves to an operator: silent hosts, servers and guests in doubt."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from skep.audit.difference import Difference, Kind
from skep.database import Connection
from skep.database.api import recovery as above_recovery
from skep.database.cell import recovery
from skep.database.cell.recovery import AwaitedHost
from skep.database.cell.resting import MISSING
from skep.domain.cells import Cell
from skep.domain.recovery import ENDED, FoundGuest


def above(connection: Connection) -> Iterator[Difference]:
    """Return servers without a cell that nobody places, because something of them is somewhere."""
    for instance, doubt in above_recovery.doubtful(connection):
        yield Difference(kind=_KINDS.get(doubt, "server_in_doubt"), subject=instance, evidence={"doubt": doubt})


def inside(connection: Connection, cell: Cell) -> list[Difference]:
    """Return what a cell's database that went back waits for, and what it leaves to an operator."""
    awaited = (_awaited(cell, one) for one in recovery.awaited_hosts(connection))
    named = (msgspec.structs.replace(one, evidence={"cell": cell.name, **one.evidence}) for one in left(connection))
    return [*awaited, *named]


def left(connection: Connection) -> list[Difference]:
    """Return the servers and guests about which an operator has to decide."""
    doubts, strangers = recovery.doubtful(connection), recovery.strangers(connection)
    guests = recovery.guests_of(connection, [*(instance for instance, _ in doubts), *strangers])
    return [
        *(
            Difference(
                kind=_KINDS.get(doubt, "server_in_doubt"),
                subject=instance,
                evidence={"doubt": doubt, "guests": _named(guests.get(instance, []))},
            )
            for instance, doubt in doubts
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
