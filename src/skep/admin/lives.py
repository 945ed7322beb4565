"""What was done to a server in its whole life: each action with its events, and the moves that it led to."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

import msgspec

from skep.admin.placement_answers import ShownActionOfLife, ShownEventOfLife, ShownMoveOfLife
from skep.database import Connection
from skep.database.cell import actions, server_migrations
from skep.database.cell.actions import Action, ActionEvent
from skep.database.cell.server_migrations import MigrationQuery
from skep.domain.clock import isoformat_micro
from skep.domain.ids import InstanceUuid
from skep.domain.server_migrations import ServerMigration

MOST_ACTIONS = 1000
"""Of one server; of more the newest are told. A user may ask for the like of `unlock` without end."""
MOST_MIGRATIONS = 1000


class LifeStory(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows of a cell say of it."""

    actions: tuple[Action, ...] = ()
    """Oldest first, as the others."""
    events: tuple[ActionEvent, ...] = ()
    """Of these actions."""
    migrations: tuple[ServerMigration, ...] = ()
    more_actions: bool = False
    """Whether there are earlier ones, which are not told."""


def read(connection: Connection, instance: InstanceUuid) -> LifeStory:
    """Return the life of a server, as its cell has it."""
    newest = actions.list_of(connection, instance, limit=MOST_ACTIONS + 1)
    query = MigrationQuery(instance=instance, limit=MOST_MIGRATIONS)
    return LifeStory(
        actions=tuple(reversed(newest[:MOST_ACTIONS])),
        events=tuple(actions.events_of_newest(connection, instance, limit=MOST_ACTIONS)),
        migrations=tuple(reversed(server_migrations.listed(connection, query))),
        more_actions=len(newest) > MOST_ACTIONS,
    )


def view(life: LifeStory, *, admin: bool) -> list[ShownActionOfLife]:
    """Return each action with its events and moves; hosts and what they say of a failure are for admins.

    Each row is looked at once: an answer is made in the event loop.
    """
    events: defaultdict[str, list[ShownEventOfLife]] = defaultdict(list)
    for event in life.events:
        events[event.request_id].append(_event(event, admin=admin))
    began = [one.started_at for one in life.actions]
    moves: defaultdict[int, list[ShownMoveOfLife]] = defaultdict(list)
    for move in life.migrations:
        moves[bisect_right(began, move.created_at) - 1].append(_migration(move, admin=admin))
    return [
        {
            "action": one.action,
            "request_id": one.request_id,
            "user_id": one.user_id,
            "started_at": isoformat_micro(one.started_at),
            "updated_at": None if one.updated_at is None else isoformat_micro(one.updated_at),
            "message": one.message,
            "events": events[one.request_id],
            "migrations": moves[number],
        }
        for number, one in enumerate(life.actions)
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
