"""How far each webhook is in the event log, and which super conductor tells it."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from skep.database.api import events
from skep.database.api.event_tables import event_webhooks
from skep.database.upsert import new_only
from skep.domain.ids import Incarnation

_row = event_webhooks.c


class WebhookPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a webhook stands."""

    cursor: str
    """Behind what it was told last."""
    failures: int
    """Since it took something."""
    next_at: int
    """When it is told again, microseconds since the epoch."""
    holder: str
    """The super conductor that tells it; empty: none."""
    until: int
    """For how long, if it does not say so again; microseconds since the epoch."""


NEW = WebhookPlace(cursor="", failures=0, next_at=0, holder="", until=0)
"""Where one stands that was never told anything."""


def find(connection: sa.Connection, name: str) -> WebhookPlace | None:
    """Return where a webhook stands; None for one that is new."""
    found = connection.execute(sa.select(event_webhooks).where(_row.name == name)).mappings().first()
    return None if found is None else WebhookPlace(**{key: found[key] for key in WebhookPlace.__struct_fields__})


def hold(connection: sa.Connection, name: str, owner: Incarnation, now: int, until: int) -> bool:
    """Have a super conductor tell a webhook; False while another one does. A new webhook begins at the end."""
    values = {"name": name, **msgspec.structs.asdict(NEW), "cursor": events.end(connection)}
    connection.execute(new_only(connection, event_webhooks), values)
    mine = sa.or_(_row.holder == owner, _row.until <= now)
    held = event_webhooks.update().where(_row.name == name, mine).values(holder=owner, until=until)
    return bool(connection.execute(held).rowcount)


def advance(connection: sa.Connection, name: str, owner: Incarnation, cursor: str) -> bool:
    """Note how far a webhook is; False where another super conductor tells it by now."""
    return _note(connection, name, owner, cursor=cursor, failures=0, next_at=0)


def fail(connection: sa.Connection, name: str, owner: Incarnation, failures: int, next_at: int) -> bool:
    """Note that a webhook took nothing, and when it is tried again."""
    return _note(connection, name, owner, failures=failures, next_at=next_at)


def _note(connection: sa.Connection, name: str, owner: Incarnation, **values: object) -> bool:
    mine = event_webhooks.update().where(_row.name == name, _row.holder == owner)
    return bool(connection.execute(mine.values(**values)).rowcount)
