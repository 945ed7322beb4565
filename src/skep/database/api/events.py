"""The event log: what is copied into it, read of it and pruned.

Units of all processes that write are serial, so serials grow in the order of commits: who has read up to one never
misses an event that is committed later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.api.event_tables import events, events_pruned
from skep.database.api.tables import cells
from skep.database.stored import dump
from skep.database.upsert import insert, new_only
from skep.domain.errors import BadRequest, Withdrawn
from skep.domain.server_events import NewEvent

MOST_SCANNED = 10_000
"""Events that one answer looks at, whatever it is asked for."""

BEGINNING = "0"
"""The cursor before the first event of all."""

_row = events.c


class StoredEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event in its place."""

    serial: int
    event_key: str
    time: int
    type: str
    instance: str
    project_id: str
    user_id: str | None
    request_id: str | None
    cell: str | None
    host: str | None
    attempt: int | None
    data: bytes | None
    hidden: bytes | None
    before_cell: str | None

    @property
    def cursor(self) -> str:
        """Where a reader stands that has read it."""
        return f"{self.serial}-{self.event_key}"


class EventsWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which events are asked for."""

    after: str | None = None
    limit: int = 100
    types: frozenset[str] = frozenset()
    server: str | None = None
    project: str | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Some events, and the cursor behind all that were looked at."""

    events: tuple[StoredEvent, ...]
    next: str
    more: bool
    """Whether there are events behind the cursor already."""
    cells: dict[str, str]
    """The names of all cells, by their ids."""


def add(connection: sa.Connection, new: Sequence[NewEvent], now: int) -> int:
    """Append events; those that are there already stay where they are. Return how many there are more."""
    if not new:
        return 0
    values = [
        {
            **msgspec.structs.asdict(one),
            "stored_at": now,
            "data": dump(one.data) if one.data else None,
            "hidden": dump(one.hidden) if one.hidden else None,
        }
        for one in new
    ]
    return connection.execute(new_only(connection, events), values).rowcount


def prune(connection: sa.Connection, before: int, now: int, limit: int) -> int:
    """Remove the oldest events that were stored before a time, in their order; return how many.

    What a wrong clock stored later than now goes with what is behind it.
    """
    oldest = connection.execute(
        sa.select(_row.serial, _row.event_key, _row.stored_at).order_by(_row.serial).limit(limit)
    ).all()
    last = None
    gone = 0
    for number, one in enumerate(oldest, 1):
        if before <= one.stored_at <= now:
            break
        if one.stored_at < before:
            last, gone = one, number
    if last is None:
        return 0
    connection.execute(sa.delete(events).where(_row.serial <= last.serial))
    note = insert(connection, events_pruned).values(only=1, serial=last.serial, event_key=last.event_key)
    connection.execute(
        note.on_conflict_do_update(
            index_elements=["only"], set_={"serial": note.excluded.serial, "event_key": note.excluded.event_key}
        )
    )
    return gone


def page(connection: sa.Connection, wanted: EventsWanted) -> Page:
    """Return the events behind a cursor.

    Raises BadRequest for what is no cursor, Withdrawn for one whose events are pruned or that this history has not.
    """
    begin = _begin(connection)
    after = begin[0] if wanted.after is None else _checked(connection, wanted.after, begin)
    start = begin[1] if wanted.after is None else wanted.after
    end = _newest(connection)
    names = {one.uuid: one.name for one in connection.execute(sa.select(cells.c.uuid, cells.c.name))}
    if end is None or end.serial <= after:
        return Page(events=(), next=start, more=False, cells=names)
    edge = end
    if end.serial > after + MOST_SCANNED:
        nearer = (
            sa.select(_row.serial, _row.event_key)
            .where(_row.serial > after, _row.serial <= after + MOST_SCANNED)
            .order_by(_row.serial.desc())
            .limit(1)
        )
        edge = connection.execute(nearer).first() or _first_behind(connection, after)
    found = _between(connection, wanted, after, edge.serial)
    reached: StoredEvent | sa.Row[Any, Any] = found[-1] if len(found) == wanted.limit else edge
    behind = f"{reached.serial}-{reached.event_key}"
    return Page(events=tuple(found), next=behind, more=end.serial > reached.serial, cells=names)


def end(connection: sa.Connection) -> str:
    """Return the cursor behind which there is nothing yet."""
    found = _newest(connection)
    return f"{found.serial}-{found.event_key}" if found is not None else _begin(connection)[1]


def _newest(connection: sa.Connection) -> sa.Row[Any, Any] | None:
    newest = sa.select(_row.serial, _row.event_key).order_by(_row.serial.desc()).limit(1)
    return connection.execute(newest).first()


def _begin(connection: sa.Connection) -> tuple[int, str]:
    """Return the serial and the cursor behind which the kept events begin."""
    pruned = connection.execute(sa.select(events_pruned.c.serial, events_pruned.c.event_key)).first()
    return (pruned.serial, f"{pruned.serial}-{pruned.event_key}") if pruned is not None else (0, BEGINNING)


def last(connection: sa.Connection) -> int:
    """Return the serial of the last event that is kept; 0: there is none."""
    return int(connection.execute(sa.select(sa.func.coalesce(sa.func.max(_row.serial), 0))).scalar_one())


def _first_behind(connection: sa.Connection, after: int) -> sa.Row[Any, Any]:
    behind = sa.select(_row.serial, _row.event_key).where(_row.serial > after).order_by(_row.serial).limit(1)
    return connection.execute(behind).one()


def _between(connection: sa.Connection, wanted: EventsWanted, after: int, last: int) -> list[StoredEvent]:
    columns = [events.c[name] for name in StoredEvent.__struct_fields__]
    statement = sa.select(*columns).where(_row.serial > after, _row.serial <= last)
    if wanted.types:
        statement = statement.where(_row.type.in_(sorted(wanted.types)))
    if wanted.server is not None:
        statement = statement.where(_row.instance == wanted.server)
    if wanted.project is not None:
        statement = statement.where(_row.project_id == wanted.project)
    found = connection.execute(statement.order_by(_row.serial).limit(wanted.limit)).mappings()
    return [StoredEvent(**one) for one in found]


_KEY = re.compile(r"[A-Za-z0-9_-]+")


def _checked(connection: sa.Connection, cursor: str, begin: tuple[int, str]) -> int:
    """Return the serial of a cursor from which a reader misses nothing."""
    number, _, key = cursor.partition("-")
    if (
        not number.isascii()
        or not number.isdigit()
        or len(number) > 18
        or (cursor != BEGINNING and not _KEY.fullmatch(key))
    ):
        raise BadRequest(f"after: expected a cursor as an answer had it in `next`, got {cursor[:80]!r}.")
    serial = int(number)
    if cursor == begin[1]:
        return serial
    if serial <= begin[0]:
        raise Withdrawn(f"after: events behind this cursor are no longer kept; the oldest are behind {begin[1]}.")
    if connection.execute(sa.select(_row.event_key).where(_row.serial == serial)).scalar_one_or_none() != key:
        raise Withdrawn(
            "after: this database has no such event: the cursor was changed, or it went back in time. What it has "
            f"begins behind {begin[1]}; some events that were told may be missing."
        )
    return serial


def any_before(connection: sa.Connection, before: int, now: int) -> bool:
    """Tell whether the oldest event was stored before a time; what was stored later than now by a wrong clock aside."""
    sure = sa.select(_row.stored_at).where(_row.stored_at <= now)
    oldest = connection.execute(sure.order_by(_row.serial).limit(1)).scalar_one_or_none()
    return oldest is not None and oldest < before
