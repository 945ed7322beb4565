"""What projects owe for servers: the level above settles charges by it, once the tasks that they bear are over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.database.cell import unreadable
from skep.database.cell.cold_moves import FINISHED
from skep.database.cell.tables import SOFT_DELETED, actions, instances, migrations
from skep.database.cell.tasks import Named
from skep.database.constants import constants
from skep.database.stored import load
from skep.domain.ids import InstanceUuid
from skep.domain.instances import RequestedServer, State
from skep.domain.moves import Size
from skep.domain.quotas import NOTHING, QuotaCharge, charge_of, larger
from skep.domain.request_specs import RequestSpec
from skep.domain.states import FROZEN

row = instances.c
move = migrations.c


class Owed(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is, now that a task is over."""

    charge: QuotaCharge
    spec: RequestSpec


def settle(connection: sa.Connection, uuid: InstanceUuid, task_id: str, *, give_up: bool) -> Owed | None:
    """Tell what is owed for an instance now that a task is over; None: it may not be over.

    A resize is not over before it was confirmed or reverted: until then its hosts hold what both flavors need. A task
    that the cell has not heard of is over only if the caller gives it up. Once this has told, the task begins no more.
    """
    over = _over([(uuid, task_id)], give_up=give_up)
    found = connection.execute(sa.select(row.uuid, row.state, row.body, row.spec).where(over)).first()
    told = None if found is None else unreadable.or_none(found, _owed)
    if told is not None:
        connection.execute(instances.update().where(row.uuid == uuid).values(refused_id=task_id))
    return told


def now(connection: sa.Connection, uuid: InstanceUuid) -> QuotaCharge | None:
    """Return what is owed for an instance as it stands; None where something is under way or rests that changes it."""
    at_rest = sa.and_(row.uuid == uuid, *_AT_REST, ~_RESTS)
    found = connection.execute(sa.select(row.uuid, row.state, row.body, row.spec).where(at_rest)).first()
    told = None if found is None else unreadable.or_none(found, _owed)
    return None if told is None else told.charge


def soft_deleted(connection: sa.Connection) -> list[InstanceUuid]:
    """Return the soft-deleted instances: nothing is owed for them."""
    found = connection.scalars(sa.select(row.uuid).where(SOFT_DELETED, row.task.is_(None), row.deleted_at.is_(None)))
    return [InstanceUuid(one) for one in found]


def charged(connection: sa.Connection, uuids: Sequence[InstanceUuid]) -> list[InstanceUuid]:
    """Return those of these instances for which something is owed."""
    there = sa.and_(row.uuid.in_(uuids), *_AT_REST, row.state != State.SOFT_DELETED.value)
    return [InstanceUuid(one) for one in connection.scalars(sa.select(row.uuid).where(there).order_by(row.uuid))]


def all_over(connection: sa.Connection, named: Sequence[Named], *, given_up: Sequence[Named]) -> set[InstanceUuid]:
    """Return the instances of which `settle` would tell now; `given_up`: those whose tasks the caller gives up."""
    found: set[InstanceUuid] = set()
    for tasks, give_up in ((named, False), (given_up, True)):
        if tasks:
            over = sa.select(row.uuid).where(_over(tasks, give_up=give_up))
            found |= {InstanceUuid(one) for one in connection.scalars(over)}
    return found


def resting(connection: sa.Connection, uuids: Sequence[InstanceUuid]) -> dict[InstanceUuid, QuotaCharge]:
    """Return what is owed for those of these instances whose resize rests: what suffices for both flavors.

    A resize that was refused while another one began may have raised the charge beyond that.
    """
    rests = sa.and_(
        move.instance.in_(uuids),
        move.status == FINISHED,
        move.step.is_(None),
        move.new_size.is_not(None),
        row.attempt == move.dest_attempt,
        row.state == State.RESIZED.value,
        row.task.is_(None),
        row.deleted_at.is_(None),
    )
    found = connection.execute(
        sa.select(move.instance, move.old_size, move.new_size).join(instances, row.uuid == move.instance).where(rests)
    )
    return {InstanceUuid(one.instance): larger(_charge_of(one.old_size), _charge_of(one.new_size)) for one in found}


def _charge_of(size: bytes) -> QuotaCharge:
    return charge_of(load(size, Size).flavor)


def _owed(found: Any) -> Owed:
    spec: RequestSpec = load(found.spec, RequestSpec)
    if found.state == State.SOFT_DELETED:
        return Owed(charge=NOTHING, spec=spec)
    server: RequestedServer = load(found.body, RequestedServer)
    return Owed(charge=charge_of(server.flavor), spec=spec)


_RESTS = sa.exists().where(
    move.instance == row.uuid, move.status == FINISHED, move.step.is_(None), move.new_size.is_not(None)
)
_AT_REST = (row.deleted_at.is_(None), row.task.is_(None), row.state.not_in(constants(FROZEN)))


def _over(named: Sequence[Named], *, give_up: bool) -> sa.ColumnElement[bool]:
    over = sa.and_(row.uuid.in_([uuid for uuid, _ in named]), *_AT_REST, ~_RESTS)
    if give_up:
        return over
    of = actions.c
    begun = sa.exists().where(of.instance == row.uuid, sa.tuple_(of.instance, of.request_id).in_(named))
    return sa.and_(over, sa.or_(sa.tuple_(row.uuid, row.task_id).in_(named), begun))
