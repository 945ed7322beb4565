"""Instance mappings: in which cell each server is, who works on those without one, and who wants which deleted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
import structlog

from skep.database import leases as lease_rows
from skep.database.api import destinations, resting
from skep.database.api.destinations import StagedMember
from skep.database.api.living import lives
from skep.database.api.tables import (
    build_requests,
    cells,
    instance_mappings,
    leases,
    quota_charges,
    request_specs,
    requests,
    server_group_members,
)
from skep.database.api.time_tables import recovering_servers
from skep.database.stored import dump, load
from skep.domain.clock import SECOND
from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid, Incarnation, InstanceUuid, ProjectId, RequestId
from skep.domain.instances import Instance
from skep.domain.request_specs import RequestSpec

mappings = instance_mappings.c

log = structlog.get_logger("skep.database")

UNREADABLE_AGAIN = 600 * SECOND

NO_CELL = ~sa.exists().where(cells.c.uuid == mappings.cell)
"""Says of a mapping that the cell that it names is not there."""

_LIVING = mappings.deleted_at.is_(None)


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is."""

    instance: InstanceUuid
    request_id: RequestId
    project_id: ProjectId
    cell: CellUuid | None
    attempt: int
    owner: str | None
    delete_intent_at: int | None
    deleted_at: int | None
    created_at: int = 0


LONGEST_GAP = 15 * SECOND

MOST_NAMED = 500
"""Servers that one statement names."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A server without a cell that is mine to place: its attempt is the one that my writes must find."""

    attempt: int
    revision: int
    instance: Instance
    spec: RequestSpec
    secrets: bytes | None
    context: RequestContext
    min_count: int
    met: bool
    created_at: int
    waited: int = 0
    """For how long, microseconds, schedulers could not decide, as long as a conductor ran to ask them."""


class DeleteIntent(msgspec.Struct, frozen=True, kw_only=True):
    """A server in a cell that somebody wants gone."""

    instance: InstanceUuid
    cell: CellUuid
    context: RequestContext
    unless_locked: bool = False
    """A lock of the server refuses it: the lock could not be read when it was asked for."""


def get(connection: sa.Connection, instance: InstanceUuid) -> Mapping | None:
    """Return where a server is, also when it is deleted and not yet purged."""
    row = connection.execute(_ONE, {"of": instance}).first()
    return None if row is None else _mapping(row)


def get_with_group(connection: sa.Connection, instance: InstanceUuid) -> tuple[Mapping, str | None] | None:
    """Return where a server is, as `get` does, and the group that it is in."""
    row = connection.execute(_ONE_WITH_GROUP, {"of": instance}).first()
    return None if row is None else (_mapping(row), row[-1])


_COLUMNS = (
    mappings.instance,
    mappings.request_id,
    mappings.project_id,
    mappings.cell,
    mappings.attempt,
    mappings.owner,
    mappings.delete_intent_at,
    mappings.deleted_at,
    mappings.created_at,
)
"""The columns that `_mapping` takes, in this order."""
_ONE = sa.select(*_COLUMNS).where(mappings.instance == sa.bindparam("of"))
_ONE_WITH_GROUP = (
    sa.select(*_COLUMNS, server_group_members.c.group_uuid)
    .outerjoin_from(instance_mappings, server_group_members, server_group_members.c.instance == mappings.instance)
    .where(mappings.instance == sa.bindparam("of"))
)
"""Made once: clients ask for single servers again and again."""


def get_many(connection: sa.Connection, instances: Sequence[str]) -> dict[str, Mapping]:
    """Return the mappings of those servers that have one."""
    rows = connection.execute(sa.select(*_COLUMNS).where(mappings.instance.in_(instances)))
    return {row.instance: _mapping(row) for row in rows}


def deleting(connection: sa.Connection, project_id: str | None = None) -> set[str]:
    """Return the servers that are to be deleted and are still there."""
    if project_id is None:
        return set(connection.scalars(_DELETING))
    return set(connection.scalars(_DELETING_OF_PROJECT, {"of": project_id}))


_DELETING = sa.select(mappings.instance).where(mappings.delete_intent_at.is_not(None), mappings.deleted_at.is_(None))
_DELETING_OF_PROJECT = _DELETING.where(mappings.project_id == sa.bindparam("of"))


def in_cell(
    connection: sa.Connection,
    cell: CellUuid,
    *,
    project_id: str | None = None,
    after: tuple[int, str] | None = None,
    limit: int | None = None,
) -> list[Mapping]:
    """Return what is known above a cell of its servers, newest first: for lists while the cell cannot be read."""
    query = (
        sa.select(*_COLUMNS)
        .where(mappings.cell == cell, mappings.deleted_at.is_(None))
        .order_by(mappings.created_at.desc(), mappings.instance.desc())
        .limit(limit)
    )
    if project_id is not None:
        query = query.where(mappings.project_id == project_id)
    if after is not None:
        query = query.where(sa.tuple_(mappings.created_at, mappings.instance) < sa.tuple_(*after))
    return [_mapping(row) for row in connection.execute(query)]


def living_in_cell(connection: sa.Connection, cell: CellUuid, after: str, limit: int) -> list[InstanceUuid]:
    """Return the servers that are mapped to a cell and not deleted, by their UUIDs, some at a time."""
    query = sa.select(mappings.instance).where(mappings.cell == cell, _LIVING, mappings.instance > after)
    return [InstanceUuid(one) for one in connection.scalars(query.order_by(mappings.instance).limit(limit))]


def ended_of(connection: sa.Connection, instances: Sequence[InstanceUuid]) -> set[InstanceUuid]:
    """Return those of these servers that were this cloud's and are deleted."""
    found: set[InstanceUuid] = set()
    for first in range(0, len(instances), MOST_NAMED):
        named = mappings.instance.in_(instances[first : first + MOST_NAMED])
        query = sa.select(mappings.instance).where(named, mappings.deleted_at.is_not(None))
        found |= {InstanceUuid(one) for one in connection.scalars(query)}
    return found


def is_living(connection: sa.Connection, instance: str) -> bool:
    """Tell whether a server is mapped and not deleted."""
    return bool(connection.execute(sa.select(lives(instance))).scalar())


def without_request(connection: sa.Connection) -> list[Mapping]:
    """Return living servers that have neither a cell nor a build request."""
    requested = sa.exists().where(build_requests.c.instance == mappings.instance)
    return _where(connection, _LIVING, mappings.cell.is_(None), ~requested)


def without_cell(connection: sa.Connection) -> list[Mapping]:
    """Return living servers that are mapped to a cell that is not there."""
    return _where(connection, _LIVING, mappings.cell.is_not(None), NO_CELL)


def without_spec(connection: sa.Connection) -> list[Mapping]:
    """Return servers that wait for a cell and of which is not known what was asked for."""
    spec = sa.exists().where(request_specs.c.instance == mappings.instance)
    return _where(connection, _LIVING, mappings.cell.is_(None), ~spec)


def without_charge(connection: sa.Connection) -> list[Mapping]:
    """Return living servers that are charged to no project."""
    charge = sa.exists().where(quota_charges.c.instance == mappings.instance)
    return _where(connection, _LIVING, ~charge)


def _where(connection: sa.Connection, *conditions: sa.ColumnElement[bool]) -> list[Mapping]:
    return [_mapping(row) for row in connection.execute(sa.select(*_COLUMNS).where(*conditions))]


def take(connection: sa.Connection, owner: Incarnation, now: int, limit: int) -> list[Taken]:
    """Take servers that wait for a cell and that nobody living works on, raising their attempt.

    Members of one request are taken together, however many: about `limit` in all, oldest first. Rows that `owner`
    holds already are taken too: a process places in one pass at a time, so those are what a failed pass left.
    Members of one request stand together in the answer.
    """
    waiting = sa.and_(_waiting(owner, now), mappings.request_id.not_in(_incomplete(owner, now)))
    oldest = connection.scalars(
        sa.select(mappings.request_id).where(waiting).order_by(mappings.created_at).limit(limit)
    ).all()
    if not oldest:
        return []
    taken = connection.execute(
        instance_mappings.update()
        .where(waiting, mappings.request_id.in_(set(oldest)))
        .values(owner=owner, attempt=mappings.attempt + 1)
        .returning(mappings.instance, mappings.attempt)
    ).all()
    attempts = {row.instance: row.attempt for row in taken}
    rows = connection.execute(
        sa.select(
            build_requests.c.instance,
            build_requests.c.revision,
            build_requests.c.body,
            build_requests.c.secrets,
            request_specs.c.body.label("spec"),
            requests.c.context,
            requests.c.min_count,
            requests.c.met,
            requests.c.created_at,
            mappings.waited,
        )
        .join(request_specs, request_specs.c.instance == build_requests.c.instance)
        .join(instance_mappings, mappings.instance == build_requests.c.instance)
        .join(requests, requests.c.request_id == mappings.request_id)
        .where(build_requests.c.instance.in_(list(attempts)))
        .order_by(build_requests.c.created_at, mappings.request_id, build_requests.c.instance)
    )
    found = {row.instance: _taken(row, attempts[row.instance]) for row in rows}
    unreadable = [instance for instance in attempts if found.get(instance) is None]
    if unreadable:
        _put_aside(connection, unreadable, now)
    return [one for one in found.values() if one is not None]


def _taken(row: Any, attempt: int) -> Taken | None:
    """Decode a row; None when it holds something else than this release knows, which must not stop all others."""
    try:
        return Taken(
            attempt=attempt,
            revision=row.revision,
            instance=load(row.body, Instance),
            spec=load(row.spec, RequestSpec),
            secrets=row.secrets,
            context=load(row.context, RequestContext),
            min_count=row.min_count,
            met=row.met,
            created_at=row.created_at,
            waited=row.waited,
        )
    except msgspec.DecodeError as error:
        log.error("build request cannot be read", instance=row.instance, error=str(error))
        return None


def _put_aside(connection: sa.Connection, instances: Sequence[str], now: int) -> None:
    """Leave servers whose rows cannot be read to somebody who can; they are looked at again from time to time."""
    connection.execute(
        instance_mappings.update()
        .where(mappings.instance.in_(instances))
        .values(owner=None, not_before=now + UNREADABLE_AGAIN)
    )


def any_waiting(connection: sa.Connection, owner: Incarnation, now: int) -> bool:
    """Tell whether `take` might find something."""
    return connection.execute(sa.select(mappings.instance).where(_waiting(owner, now)).limit(1)).first() is not None


def _incomplete(owner: Incarnation, now: int) -> sa.Select[tuple[str]]:
    """Select requests that have not met their minimum and some of whose members cannot be taken now.

    The scheduler must see all members that are left of such a request at once, or it cannot keep `min_count`.
    """
    held = sa.or_(
        mappings.not_before > now,
        sa.and_(mappings.owner != owner, sa.not_(lease_rows.unowned(leases, mappings.owner, now))),
    )
    return (
        sa.select(mappings.request_id)
        .join(requests, requests.c.request_id == mappings.request_id)
        .where(
            mappings.cell.is_(None),
            mappings.deleted_at.is_(None),
            requests.c.met.is_(False),
            requests.c.min_count > 1,
            held,
        )
    )


def _waiting(owner: Incarnation, now: int) -> sa.ColumnElement[bool]:
    return sa.and_(
        mappings.cell.is_(None),
        mappings.deleted_at.is_(None),
        mappings.not_before <= now,
        ~resting.RESTS,
        sa.or_(mappings.owner == owner, lease_rows.unowned(leases, mappings.owner, now)),
    )


def give_back(
    connection: sa.Connection,
    owner: Incarnation,
    held: Sequence[tuple[InstanceUuid, int]],
    not_before: int,
    undecided_at: int | None = None,
) -> None:
    """Let anybody take these servers, which `owner` holds under these attempts, again from `not_before` on.

    `undecided_at`: now, where no scheduler could decide; how long that has been so is counted. What lies between the
    time from which they could be asked for again and now counts up to `LONGEST_GAP`: longer, nobody ran who could ask.
    """
    values: dict[str, Any] = {"owner": None, "not_before": not_before}
    if undecided_at is not None:
        since = undecided_at - mappings.not_before
        gap = sa.case((mappings.not_before == 0, 0), (since > LONGEST_GAP, LONGEST_GAP), (since < 0, 0), else_=since)
        values["waited"] = mappings.waited + gap + (not_before - undecided_at)
    mine = sa.and_(sa.tuple_(mappings.instance, mappings.attempt).in_(held), mappings.owner == owner)
    connection.execute(instance_mappings.update().where(mine, mappings.cell.is_(None)).values(**values))


def map_to_cell(connection: sa.Connection, cell: CellUuid, placements: Sequence[StagedMember]) -> set[InstanceUuid]:
    """Map staged servers to their cell and remove their build requests; return those for which it was so.

    A server is left alone when its attempt was raised, its build request changed since it was copied, somebody wants
    it deleted or it has a cell already; and when the cell or its host takes no builds any more.
    """
    placements = destinations.still_open(connection, cell, placements)
    if not placements:
        return set()
    copied = sa.tuple_(mappings.instance, mappings.attempt, build_requests.c.revision).in_(
        [(placement.instance, placement.attempt, placement.revision) for placement in placements]
    )
    current = sa.select(mappings.instance).join(build_requests, build_requests.c.instance == mappings.instance)
    mapped = connection.scalars(
        instance_mappings.update()
        .where(
            mappings.instance.in_(current.where(copied)),
            mappings.cell.is_(None),
            mappings.delete_intent_at.is_(None),
        )
        .values(cell=cell, owner=None)
        .returning(mappings.instance)
    ).all()
    if mapped:
        connection.execute(build_requests.delete().where(build_requests.c.instance.in_(mapped)))
    return {InstanceUuid(instance) for instance in mapped}


def mark_met(connection: sa.Connection, request_ids: Sequence[RequestId]) -> None:
    """Note that a request has its minimum: from now on each member stands alone."""
    connection.execute(requests.update().where(requests.c.request_id.in_(request_ids)).values(met=True))


def intend_delete(
    connection: sa.Connection,
    instance: InstanceUuid,
    context: RequestContext,
    now: int,
    *,
    unless_locked: bool = False,
) -> None:
    """Note that a server is to be deleted, or (`unless_locked`) that it is unless its row says that it is locked.

    Repeating it changes nothing. A delete that no lock refuses takes the place of one that a lock may refuse.
    """
    new = mappings.delete_intent_at.is_(None)
    connection.execute(
        instance_mappings.update()
        .where(
            mappings.instance == instance,
            new if unless_locked else sa.or_(new, mappings.delete_unless_locked),
            mappings.deleted_at.is_(None),
        )
        .values(delete_intent_at=now, delete_context=dump(context), delete_unless_locked=unless_locked, not_before=0)
    )


def withdraw_deletes(connection: sa.Connection, instances: Sequence[InstanceUuid]) -> None:
    """Forget deletes that a lock refused; one that no lock refuses, and that was asked for meanwhile, stays."""
    connection.execute(
        instance_mappings.update()
        .where(mappings.instance.in_(instances), mappings.delete_unless_locked, mappings.deleted_at.is_(None))
        .values(delete_intent_at=None, delete_context=None, delete_unless_locked=False, not_before=0)
    )


def delete_unplaced(connection: sa.Connection, instance: InstanceUuid, now: int) -> bool:
    """Delete a server that has no cell: whoever is placing it finds its attempt gone. False when it has a cell."""
    result = connection.execute(
        instance_mappings.update()
        .where(mappings.instance == instance, mappings.cell.is_(None), mappings.deleted_at.is_(None), resting.MAY_END)
        .values(attempt=mappings.attempt + 1, owner=None, delete_intent_at=now, deleted_at=now)
    )
    if result.rowcount == 0:
        return False
    connection.execute(recovering_servers.delete().where(recovering_servers.c.instance == instance))
    _forget_request(connection, [instance])
    return True


def deletes_due(
    connection: sa.Connection, now: int, again_at: int, limit: int, without: Sequence[CellUuid] = ()
) -> list[DeleteIntent]:
    """Return servers in cells, `without` some cells, whose delete intent is to be acted on now; they come again at
    `again_at`.
    """
    rows = connection.execute(
        instance_mappings.update()
        .where(
            mappings.instance.in_(
                sa.select(mappings.instance)
                .where(
                    mappings.delete_intent_at.is_not(None),
                    mappings.deleted_at.is_(None),
                    mappings.cell.is_not(None),
                    *([mappings.cell.not_in(without)] if without else ()),
                    mappings.not_before <= now,
                )
                .order_by(mappings.delete_intent_at)
                .limit(limit)
            )
        )
        .values(not_before=again_at)
        .returning(mappings.instance, mappings.cell, mappings.delete_context, mappings.delete_unless_locked)
    ).all()
    return [
        DeleteIntent(
            instance=row.instance,
            cell=row.cell,
            context=load(row.delete_context, RequestContext),
            unless_locked=row.delete_unless_locked,
        )
        for row in rows
    ]


def close(connection: sa.Connection, instances: Sequence[InstanceUuid], now: int) -> None:
    """Note that servers are gone from their cell. A conductor that was moving one owns it no longer."""
    connection.execute(
        instance_mappings.update()
        .where(mappings.instance.in_(instances), mappings.deleted_at.is_(None))
        .values(deleted_at=now, delete_intent_at=sa.func.coalesce(mappings.delete_intent_at, now), owner=None)
    )
    _forget_request(connection, instances)


def purge(connection: sa.Connection, before: int, limit: int) -> int:
    """Remove mappings of servers deleted before `before`, and requests without members; return how many went."""
    gone = connection.scalars(
        instance_mappings.delete()
        .where(
            mappings.instance.in_(
                sa.select(mappings.instance)
                .where(mappings.deleted_at.is_not(None), mappings.deleted_at < before)
                .limit(limit)
            )
        )
        .returning(mappings.request_id)
    ).all()
    if gone:
        left = sa.select(mappings.instance).where(mappings.request_id == requests.c.request_id)
        connection.execute(requests.delete().where(requests.c.request_id.in_(set(gone)), ~sa.exists(left)))
    return len(gone)


def _forget_request(connection: sa.Connection, instances: Sequence[InstanceUuid]) -> None:
    connection.execute(build_requests.delete().where(build_requests.c.instance.in_(instances)))
    connection.execute(request_specs.delete().where(request_specs.c.instance.in_(instances)))


def _mapping(row: Any) -> Mapping:
    """Return the mapping of a row whose first columns are `_COLUMNS`."""
    instance, request_id, project_id, cell, attempt, owner, delete_intent_at, deleted_at, created_at = row[
        : len(_COLUMNS)
    ]  # by position: lookups by name take several times as long
    return Mapping(
        instance=instance,
        request_id=request_id,
        project_id=project_id,
        cell=cell,
        attempt=attempt,
        owner=owner,
        delete_intent_at=delete_intent_at,
        deleted_at=deleted_at,
        created_at=created_at,
    )
