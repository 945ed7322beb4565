"""What was done to a server in its whole life: each action with its events, and the moves that it led to."""

from __future__ import annotations

import msgspec

from skep.admin.placement_answers import ShownActionOfLife, ShownEventOfLife, ShownMoveOfLife
from skep.database import Connection
from skep.database.cell import actions, server_migrations
from skep.database.cell.actions import Action, ActionEvent
from skep.database.cell.server_migrations import MigrationQuery
from skep.domain.clock import isoformat_micro
from skep.domain.ids import InstanceUuid
from skep.domain.server_migrations import ServerMigration

MOST_MIGRATIONS = 1000
"""Of one server; of more the newest are told."""


class LifeStory(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows of a cell say of it."""

    actions: tuple[Action, ...] = ()
    """Oldest first, as the others."""
    events: tuple[ActionEvent, ...] = ()
    migrations: tuple[ServerMigration, ...] = ()


def read(connection: Connection, instance: InstanceUuid) -> LifeStory:
    """Return the life of a server, as its cell has it."""
    query = MigrationQuery(instance=instance, limit=MOST_MIGRATIONS)
    return LifeStory(
        actions=tuple(reversed(actions.list_of(connection, instance))),
        events=tuple(actions.all_events(connection, instance)),
        migrations=tuple(reversed(server_migrations.listed(connection, query))),
    )


def view(life: LifeStory, *, admin: bool) -> list[ShownActionOfLife]:
    """Return each action with its events and moves; hosts and what they say of a failure are for admins."""
    ends: list[int | None] = [*(one.started_at for one in life.actions[1:]), None]
    return [
        {
            "action": one.action,
            "request_id": one.request_id,
            "user_id": one.user_id,
            "started_at": isoformat_micro(one.started_at),
            "updated_at": None if one.updated_at is None else isoformat_micro(one.updated_at),
            "message": one.message,
            "events": [_event(event, admin=admin) for event in life.events if event.request_id == one.request_id],
            "migrations": [
                _migration(move, admin=admin)
                for move in life.migrations
                if one.started_at <= move.created_at and (end is None or move.created_at < end)
            ],
        }
        for one, end in zip(life.actions, ends, strict=False)
    ]


def _event(event: ActionEvent, *, admin: bool) -> ShownEventOfLife:
    shown: ShownEventOfLife = {
        "event": event.event,
        "started_at": isoformat_micro(event.started_at),
        "finished_at": None if event.finished_at is None else isoformat_micro(event.finished_at),
        "result": event.result,
    }
    return {**shown, "host": event.host, "details": event.details} if admin else shown


def _migration(move: ServerMigration, *, admin: bool) -> ShownMoveOfLife:
    shown: ShownMoveOfLife = {"id": move.uuid, "type": move.type.value, "status": move.status}
    return {**shown, "source": move.source_host, "destination": move.dest_host} if admin else shown
