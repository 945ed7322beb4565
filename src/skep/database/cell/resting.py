"""What rests while a database that went back in time recovers: conditions of statements, all false without one."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.database.cell import numbers
from skep.database.cell.tables import instances, recovering_hosts, recovering_instances
from skep.domain.errors import Unavailable
from skep.domain.ids import InstanceUuid
from skep.domain.recovery import ENDED

host = recovering_hosts.c
held = recovering_instances.c

AWAITED = sa.and_(host.reported_at.is_(None), host.released_at.is_(None))
MISSING = "missing"
"""The doubt about a server whose host has no guest of it. It holds up nothing: there is nothing to lose."""


def resting(uuid: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Say of an instance that nothing is done about it, because what became of it is not known."""
    return sa.exists(sa.select(held.instance).where(held.instance == uuid, held.doubt.is_distinct_from(MISSING)))


def undecided(uuid: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Say of an instance that it rests, and not only because it was deleted in the time that is lost."""
    plain = sa.func.coalesce(held.doubt, "").not_in((MISSING, ENDED.reason))
    return sa.exists(sa.select(held.instance).where(held.instance == uuid, plain))


def awaited(name: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Say of a host (by its name) that it has not told yet what it has: nothing is undone there."""
    return sa.exists(sa.select(host.node).where(host.host == name, AWAITED))


def any_awaited() -> sa.ColumnElement[bool]:
    """Say that some host has not told yet what it has: what a cell does not know may still be found."""
    return sa.exists(sa.select(host.node).where(AWAITED))


def move_rests(instance: Any, source: Any, target: Any) -> sa.ColumnElement[bool]:
    """Say of a move (its columns) that nothing is done about it: a host of it has not told yet what it has."""
    return sa.or_(resting(instance), awaited(source), awaited(target))


class WentBack(Unavailable):
    """What a host says is newer than its row: the database went back in time, and nobody has noticed."""


def refuse_no(connection: sa.Connection, uuid: InstanceUuid, attempt: int, name: str) -> None:
    """Raise Unavailable where "no" could be wrong: the host would undo what it has.

    That is so of an instance or a host that waits for the end of a recovery. Raise WentBack where the row does not know
    the attempt yet.
    """
    known = connection.execute(_KNOWN, {"of": uuid, "on": name}).first()
    if known is None:
        return
    if known.rests or known.waits:
        raise Unavailable("the cell's database went back in time and has not recovered yet: try again")
    if known.attempt < attempt:
        raise WentBack(f"host {name} has attempt {attempt} of {uuid}, and the row has {known.attempt}: try again")


def holds_up(connection: sa.Connection, uuid: InstanceUuid) -> bool:
    """Tell whether an instance, or the host in its row, waits for the end of a recovery."""
    waits = sa.or_(resting(instances.c.uuid), awaited(instances.c.host))
    return connection.execute(sa.select(instances.c.uuid).where(instances.c.uuid == uuid, waits)).first() is not None


def is_unknown(connection: sa.Connection, uuid: InstanceUuid) -> bool:
    """Tell whether the cell has no row of an instance: it was lost with the time that the database went back."""
    return connection.execute(sa.select(instances.c.uuid).where(instances.c.uuid == uuid)).first() is None


_KNOWN = sa.select(
    numbers.given().label("attempt"),
    resting(instances.c.uuid).label("rests"),
    awaited(sa.bindparam("on")).label("waits"),
).where(instances.c.uuid == sa.bindparam("of"))
