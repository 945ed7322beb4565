"""Rebuilds of servers on their hosts, by an attempt that takes the place of the one that holds the server.

A rebuild goes the way of a move (`move_steps.py`) whose two attempts are on one host. The row of the server says what
it was until the new guest is there; what it is to be stands in the arguments of the action.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import asked, attempts, builds, instances, numbers, tasks
from skep.database.cell.attempts import NewAttempt
from skep.database.cell.cold_moves import Move, allocation_of
from skep.database.cell.tables import attempts as attempt_rows
from skep.database.cell.tables import instances as instance_rows
from skep.database.cell.tables import migrations
from skep.database.stored import dump
from skep.domain.actions import ACTIONS, Over, Rebuild
from skep.domain.builds import BuildFailure
from skep.domain.context import RequestContext
from skep.domain.decoding import convert
from skep.domain.errors import Conflict
from skep.domain.ids import new_uuid
from skep.domain.instances import Instance, PowerState, State
from skep.domain.moves import STEPS
from skep.domain.server_migrations import MigrationType

row = instance_rows.c

REBUILD = ACTIONS["rebuild"]

NO_GUEST = "InstanceNotFound"
"""The error of a host that has nothing of which it could make the guest again."""

_FACTS = ("name", "hostname", "description", "metadata", "access_ip_v4", "access_ip_v6", "image_id", "body")
"""Columns that a rebuild may change."""


def begin(
    connection: sa.Connection,
    server: Instance,
    context: RequestContext,
    now: int,
    arguments: Rebuild,
    secrets: bytes | None,
) -> list[Over] | None:
    """Begin a rebuild of a server; return what that ended, None when the row does not allow it.

    Raises Conflict where its host may have lost what it had of the server.
    """
    over = tasks.begin_over(connection, server.uuid, REBUILD, context, now, arguments)
    if over is None:
        return None
    number = numbers.next_target(connection, server.uuid, server.attempt)
    attempt = attempt_rows.c
    holder = sa.select(row.allocation).join(attempt_rows, attempt.instance == row.uuid)
    held = connection.execute(
        holder.where(
            row.uuid == server.uuid, attempt.attempt == server.attempt, attempt.host == server.host, attempt.open
        )
    ).first()
    if held is None or number is None:
        raise Conflict(f"Cannot 'rebuild' instance {server.uuid}: its host has lost it")
    first = STEPS["rebuild_prepare" if arguments.reimage is None else "reimage_prepare"]
    connection.execute(instance_rows.update().where(row.uuid == server.uuid).values(secrets=secrets))
    connection.execute(
        migrations.insert().values(
            uuid=new_uuid(),
            instance=server.uuid,
            project_id=context.project_id,
            user_id=context.user_id,
            type=MigrationType.REBUILD.value,
            status=first.status,
            source_host=server.host,
            source_node=server.node,
            source_attempt=server.attempt,
            source_zone=server.availability_zone,
            dest_host=server.host,
            dest_node=server.node,
            dest_attempt=number,
            dest_zone=server.availability_zone,
            was=server.state.value,
            task_id=context.request_id,
            step=first.name,
            step_at=now,
            created_at=now,
        )
    )
    beside = NewAttempt(
        instance=server.uuid,
        attempt=number,
        node=server.node,
        host=server.host,
        now=now,
        role="move_target",
        allocation=allocation_of(held.allocation),
    )
    attempts.begin(connection, [beside])
    return over


def arguments(connection: sa.Connection, known: Move) -> Rebuild:
    """Return what was asked for."""
    found = connection.execute(sa.select(*asked.COLUMNS).where(row.uuid == known.instance)).one()
    return convert({"changes": {}, **asked.request_of(found, REBUILD).arguments}, Rebuild)


def starts(known: Move, server: Instance) -> bool:
    """Tell whether the guest that a step makes is to run: the new one unless its server was stopped, the old one if it
    ran and boots from what it did."""
    was = State(known.was)
    if known.step == "reimage_take_back":
        return False
    if known.row.side == "target":
        return was is not State.STOPPED
    return was is State.ACTIVE or (was is State.ERROR and server.power_state is PowerState.RUNNING)


def is_lost(known: Move, why: BuildFailure) -> bool:
    """Tell whether the guest that was there before cannot be made again, whoever tries."""
    return known.step in ("rebuild_take_back", "reimage_take_back") and why.error == NO_GUEST


def rebuilt(connection: sa.Connection, known: Move, now: int) -> dict[str, Any]:
    """Return the columns of a server whose new guest is there."""
    work = builds.work(connection, known.instance)
    assert work is not None
    asked_for = arguments(connection, known)
    after = asked_for.rebuilt(work.instance)
    columns = instances.columns_of(after)
    # What a server that boots from a volume was made of stays true, unless the volume was filled anew.
    image = asked_for.reimage or (work.spec.image if after.is_volume_backed else after.image)
    spec = msgspec.structs.replace(work.spec, image=image)
    return {**{name: columns[name] for name in _FACTS}, "spec": dump(spec), "launched_at": now}
