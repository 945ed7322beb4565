"""Ports of servers that are migrated live: bound to the target, too, before that is told of the guest.

A cell reaches no network service. So its row says what is wanted, and a super conductor does it. `dest_binding`:

- `wanted`: the target is chosen, and waits for the bindings.
- `asked`: a super conductor asks for them. There may be some from here on.
- `made`: they are there, and the row of the server says how its ports are plugged on the target (`Vif.beside`), which
  is told now. So it is where none that was asked for was heard of for too long.

Whatever becomes of the migration, a row that is over, or waits for another target, says so until the ports of its
server are looked at once more: they are bound to the host that has the server then, and to no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import sqlalchemy as sa

from skep.database.cell import interfaces
from skep.database.cell.instances import UNKNOWN
from skep.database.cell.tables import attempts, instances, migrations
from skep.database.constants import constants
from skep.database.stored import load
from skep.domain.ids import InstanceUuid
from skep.domain.providers import Allocation
from skep.domain.vifs import VifBeside

row = instances.c
move = migrations.c

WANTED, ASKED, MADE = "wanted", "asked", "made"

SELECTING, PREPARING, COPYING = "live_select", "live_prepare", "live_copy"

_BEFORE_SWITCH = move.step.in_(constants((PREPARING, COPYING)))
"""Says of a move that its server may be bound to two hosts. Releases before 0.11.0 ask for that before the copying."""

PENDING = sa.and_(_BEFORE_SWITCH, move.dest_binding.in_((WANTED, ASKED)))
"""Says of a move that it waits for bindings: no host is told of its step."""

MAY_BE_TOLD = sa.or_(~_BEFORE_SWITCH, move.dest_binding.is_(None), move.dest_binding == MADE)
"""Says of a move under way that it does not wait so."""


class SecondBinding(msgspec.Struct, frozen=True, kw_only=True):
    """A live migration that waits for the bindings of its server's ports."""

    move: str
    instance: InstanceUuid
    host: str
    """To which the ports are to be bound besides."""
    since: int
    providers: dict[str, str] = {}
    """By the groups of resources that the ports ask for, the UUIDs of the providers of that host that serve them."""


def wanted(connection: sa.Connection, instance: InstanceUuid) -> str | None:
    """Return what a migration says of the bindings of a server whose target is chosen; None: it has no ports."""
    has_ports = sa.select(row.uuid).where(row.uuid == instance, row.vifs.is_not(None))
    return None if connection.execute(has_ports).first() is None else WANTED


def are_noted(connection: sa.Connection) -> bool:
    """Tell whether any row says something of bindings."""
    return connection.execute(sa.select(move.uuid).where(move.dest_binding.is_not(None)).limit(1)).first() is not None


def take(connection: sa.Connection, limit: int) -> list[SecondBinding]:
    """Return migrations that wait for bindings, and note of each that there may be some from now on."""
    waiting = sa.select(move.uuid).where(move.dest_binding.is_not(None), PENDING).order_by(move.step_at).limit(limit)
    asking = migrations.update().where(move.uuid.in_(waiting), PENDING).values(dest_binding=ASKED)
    columns = (move.uuid, move.instance, move.dest_host, move.dest_attempt, move.step_at)
    found = [one for one in connection.execute(asking.returning(*columns)).all() if one.dest_host is not None]
    return [
        SecondBinding(
            move=one.uuid,
            instance=InstanceUuid(one.instance),
            host=one.dest_host,
            since=one.step_at,
            providers=_providers(connection, InstanceUuid(one.instance), one.dest_attempt),
        )
        for one in found
    ]


def _providers(connection: sa.Connection, instance: InstanceUuid, attempt: int) -> dict[str, str]:
    """Return which providers serve the ports of a server where this attempt of it is."""
    held = connection.scalar(_HELD, {"of": instance, "mine": attempt})
    return load(held, Allocation).ports if held else {}


_HELD = sa.select(attempts.c.allocation).where(
    attempts.c.instance == sa.bindparam("of"), attempts.c.attempt == sa.bindparam("mine")
)


def made(
    connection: sa.Connection, uuids: Sequence[str], beside: Mapping[InstanceUuid, Mapping[str, VifBeside]]
) -> None:
    """Have migrations go on whose ports are bound to both hosts; `beside`: how they are plugged on the targets."""
    going_on = migrations.update().where(move.uuid.in_(uuids), PENDING).values(dest_binding=MADE)
    servers = [InstanceUuid(one) for one in connection.scalars(going_on.returning(move.instance))]
    interfaces.note_beside(connection, {one: beside.get(one, {}) for one in servers})


def go_on_without(connection: sa.Connection, before: int, asked_before: int) -> int:
    """Have migrations go on for whose ports nobody has asked since `before`: no super conductor knows how.

    Also those that are `asked` for and wait since a time before `asked_before`, which has to be so long ago that a
    super conductor that knows how would have ended the migration: the one that asked is gone, and none came after it.
    What it made of bindings stays noted, so their ports are looked at again once the migration is over.

    Their ports follow them after the switch. Return how many.
    """
    unheard = sa.and_(_BEFORE_SWITCH, move.dest_binding == WANTED, move.step_at < before)
    number = connection.execute(migrations.update().where(unheard).values(dest_binding=None)).rowcount
    left = sa.and_(_BEFORE_SWITCH, move.dest_binding == ASKED, move.step_at < asked_before)
    return number + connection.execute(migrations.update().where(left).values(dest_binding=MADE)).rowcount


def beside(connection: sa.Connection, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, str]:
    """Return to which hosts the ports of servers are bound besides, for the migrations that are under way."""
    noted = sa.and_(move.dest_binding.is_not(None), _BEFORE_SWITCH)
    query = sa.select(move.instance, move.dest_host).where(noted, move.instance.in_(servers))
    return {InstanceUuid(one.instance): one.dest_host for one in connection.execute(query) if one.dest_host}


def look_again(connection: sa.Connection, limit: int) -> int:
    """Have the ports of servers bound anew whose migration is over, however it ended, or has lost its target.

    Return how many.
    """
    over = sa.or_(move.step.is_(None), move.step == SELECTING)
    noted = sa.select(move.uuid, move.instance).where(move.dest_binding.is_not(None), over).limit(limit)
    found = connection.execute(noted).all()
    if found:
        interfaces.note_beside(connection, {InstanceUuid(one.instance): {} for one in found})
        loose = instances.update().where(row.uuid.in_([one.instance for one in found]), row.bound_to.is_not(None))
        connection.execute(loose.values(bound_to=UNKNOWN))
        done = migrations.update().where(move.uuid.in_([one.uuid for one in found]), over)
        connection.execute(done.values(dest_binding=None))
    return len(found)
