"""What goes to the host that builds a server or acts on it, and to that host alone: sealed secrets, tickets."""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import evacuations, sessions
from skep.database.cell.asked import COLUMNS, request_of
from skep.database.cell.tables import attempts as tried
from skep.database.cell.tables import instances, migrations
from skep.database.constants import constants
from skep.domain.actions import ACTIONS, SECRET_TASKS, of_task
from skep.domain.ids import InstanceUuid, NodeUuid
from skep.domain.instances import Task
from skep.domain.moves import STEPS
from skep.domain.states import BUILD_OVER, BUILT_BY_HOST

row = instances.c

_SECRET_TASK = sa.and_(row.task.is_not(None), row.task.in_(constants(SECRET_TASKS)), row.deleted_at.is_(None))
"""The first part makes SQLite see that `instances_tasks` holds all of them."""

REBUILD = ACTIONS["rebuild"]
_REBUILT_BY_HOST = frozenset(one.name for one in STEPS.values() if one.task in REBUILD.tasks and one.side == "target")
_NEEDLESS = sa.and_(
    row.state.in_(constants(BUILD_OVER)),
    row.secrets.is_not(None),
    sa.or_(row.task.is_(None), row.task.not_in(constants(REBUILD.tasks))),
)


class GuestSecrets(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be opened, and for whom."""

    sealed: bytes
    exchange_key: bytes | None
    """Of the latest run of the host's agent; None for one that has begun no session."""


def for_host(
    connection: sa.Connection, instance: InstanceUuid, attempt: int, host: str, task_id: str = ""
) -> GuestSecrets | None:
    """Return the secrets of a server that this host builds by this attempt; None when it does not, or has none.

    With `task_id` those of the action that it carries out.
    """
    if task_id:
        return _of_task(connection, instance, attempt, host, task_id)
    query = sa.select(row.secrets, row.node).where(*_builds(instance, attempt, host), row.secrets.is_not(None))
    found = connection.execute(query).first()
    if found is None:
        return None
    return GuestSecrets(sealed=found.secrets, exchange_key=_exchange_key(connection, found.node))


def _of_task(
    connection: sa.Connection, instance: InstanceUuid, attempt: int, host: str, task_id: str
) -> GuestSecrets | None:
    mine = _acts(instance, attempt, host, task_id)
    found = connection.execute(sa.select(row.node, row.task, *COLUMNS).where(*mine, _SECRET_TASK)).first()
    if found is None:
        return None
    secrets = request_of(found, of_task(Task(found.task))).secrets
    if secrets is None:
        return None
    return GuestSecrets(sealed=secrets, exchange_key=_exchange_key(connection, found.node))


def exchange_key_of_builder(connection: sa.Connection, instance: InstanceUuid, attempt: int, host: str) -> bytes | None:
    """Return the key for what only the host's agent may read; None unless it builds this server by this attempt."""
    found = connection.execute(sa.select(row.node).where(*_builds(instance, attempt, host))).first()
    if found is None:
        found = connection.execute(_of_evacuation(instance, attempt, host)).first()
    return None if found is None else _exchange_key(connection, found.node)


def exchange_key_of_actor(
    connection: sa.Connection, instance: InstanceUuid, attempt: int, host: str, task_id: str
) -> bytes | None:
    """Return the key for what only the host's agent may read; None unless this task of this attempt's guest runs."""
    found = connection.execute(sa.select(row.node).where(*_acts(instance, attempt, host, task_id))).first()
    return None if found is None else _exchange_key(connection, found.node)


def exchange_key_of_host(connection: sa.Connection, host: str) -> bytes | None:
    """Return the key for what only the agent of a host may read; None for one that has begun no session."""
    session = sessions.of_host(connection, host)
    return None if session is None else session.exchange_key


def is_open(connection: sa.Connection, instance: InstanceUuid, attempt: int, host: str) -> bool:
    """Tell whether a host has an attempt of a server that is not over."""
    mine = (tried.c.instance == instance, tried.c.attempt == attempt, tried.c.host == host, tried.c.open)
    return connection.execute(sa.select(tried.c.attempt).where(*mine)).first() is not None


def _of_evacuation(instance: InstanceUuid, attempt: int, host: str) -> sa.Select[Any]:
    mine = sa.and_(tried.c.instance == instance, tried.c.attempt == attempt, tried.c.host == host, tried.c.open)
    return sa.select(tried.c.node).where(mine, evacuations.is_target(instance, attempt, host))


def _builds(instance: InstanceUuid, attempt: int, host: str) -> tuple[sa.ColumnElement[bool], ...]:
    # A host asks once it may build; a row that was restored from a backup may be behind it.
    built = sa.and_(row.attempt == attempt, row.host == host, row.state.in_(constants(BUILT_BY_HOST)))
    move = migrations.c
    rebuilt = sa.exists(
        sa.select(move.uuid).where(
            move.instance == row.uuid,
            move.step.in_(constants(_REBUILT_BY_HOST)),
            move.task_id == row.task_id,
            move.dest_attempt == attempt,
            move.dest_host == host,
        )
    )
    return (row.uuid == instance, sa.or_(built, sa.and_(row.task.in_(constants(REBUILD.tasks)), rebuilt)))


def _acts(instance: InstanceUuid, attempt: int, host: str, task_id: str) -> tuple[sa.ColumnElement[bool], ...]:
    return (row.uuid == instance, row.attempt == attempt, row.host == host, row.task_id == task_id)


def _exchange_key(connection: sa.Connection, node: str | None) -> bytes | None:
    session = sessions.of_node(connection, NodeUuid(node)) if node else None
    return session.exchange_key if session is not None else None


def needless(connection: sa.Connection) -> list[tuple[InstanceUuid, str]]:
    """Return the instances whose secrets are still stored although their build is over, each with its state."""
    rows = connection.execute(sa.select(row.uuid, row.state).where(_NEEDLESS))
    return [(InstanceUuid(one.uuid), one.state) for one in rows]


def erase_needless(connection: sa.Connection, uuid: str) -> bool:
    """Erase the secrets of an instance if its build is over; tell whether it had any."""
    return connection.execute(instances.update().where(row.uuid == uuid, _NEEDLESS).values(secrets=None)).rowcount > 0


def sealed(connection: sa.Connection) -> list[bytes]:
    """Return the secrets of all instances, and of all actions under way."""
    of_builds = connection.scalars(sa.select(row.secrets).where(row.secrets.is_not(None)))
    under_way = connection.execute(sa.select(row.task, *COLUMNS).where(_SECRET_TASK)).all()
    of_actions = [request_of(found, of_task(Task(found.task))).secrets for found in under_way]
    return [*of_builds, *(one for one in of_actions if one is not None)]
