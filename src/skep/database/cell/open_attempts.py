"""Open attempts beside the rows of their instances: what an audit compares with rows, agents, reports and claims."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from skep.database.cell import unreadable
from skep.database.cell.instances import spec_of
from skep.database.cell.missing_hosts import NO_AGENT
from skep.database.cell.tables import attempts, instances
from skep.domain.claims import ClaimKey
from skep.domain.groups import GroupRule
from skep.domain.ids import CellUuid, InstanceUuid, NodeUuid
from skep.domain.instances import State, Task
from skep.domain.server_events import GIVEN_UP

row = instances.c
attempt = attempts.c


class OpenAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt of which its host may have something, with what the row of its instance says."""

    instance: InstanceUuid
    attempt: int
    node: NodeUuid
    host: str | None
    state: str | None
    """As it stands there; None: there is no row."""
    deleted_at: int | None


class NodeGuests(msgspec.Struct, frozen=True):
    """What a cell believes to run on a node."""

    built: int = 0
    busy: bool = False
    """Something is being built, undone or done there, so that figures may differ for a while."""


class OpenMember(msgspec.Struct, frozen=True):
    """A member of a group whose current attempt is open on a node."""

    key: ClaimKey
    host: str | None
    rule: GroupRule
    cell: CellUuid


_WITH_ROW = (
    sa.select(attempt.instance, attempt.attempt, attempt.node, attempt.host, row.state, row.deleted_at)
    .join_from(attempts, instances, row.uuid == attempt.instance, isouter=True)
    .where(attempt.open)
)


def of_deleted(connection: sa.Connection) -> list[OpenAttempt]:
    """Return the open attempts whose instance is deleted or has no row, but for those that were given up.

    A server may be deleted before the host that it was evacuated from has undone what it had.
    """
    deleted = sa.and_(row.deleted_at.is_not(None), attempt.outcome.is_distinct_from(GIVEN_UP))
    return _found(connection, sa.or_(row.uuid.is_(None), deleted))


def on_unknown_hosts(connection: sa.Connection) -> list[OpenAttempt]:
    """Return the open attempts on hosts that the cell does not know, but for those of staged rows."""
    return _found(connection, sa.and_(NO_AGENT, row.state.is_distinct_from(State.STAGED.value)))


def on_nodes(connection: sa.Connection, uuids: Sequence[str]) -> set[tuple[str, int, str]]:
    """Return instance, attempt and node of the open attempts of these instances."""
    query = sa.select(attempt.instance, attempt.attempt, attempt.node).where(attempt.open, attempt.instance.in_(uuids))
    return {(one.instance, one.attempt, one.node) for one in connection.execute(query)}


def guests_by_node(connection: sa.Connection) -> dict[NodeUuid, NodeGuests]:
    """Return what the cell believes to run on each node that has an open attempt."""
    built = sa.func.coalesce(attempt.outcome == "built", sa.false())
    quiet = sa.and_(built, attempt.attempt == row.attempt, row.task.is_(None), row.deleted_at.is_(None))
    query = (
        sa.select(
            attempt.node,
            sa.func.sum(sa.case((built, 1), else_=0)).label("built"),
            sa.func.min(sa.case((sa.func.coalesce(quiet, sa.false()), 1), else_=0)).label("quiet"),
        )
        .join_from(attempts, instances, row.uuid == attempt.instance, isouter=True)
        .where(attempt.open)
        .group_by(attempt.node)
    )
    return {NodeUuid(one.node): NodeGuests(built=one.built, busy=not one.quiet) for one in connection.execute(query)}


def seats(connection: sa.Connection, cell: CellUuid) -> list[OpenMember]:
    """Return the members of groups in this database, which is that of `cell`, with their current attempts."""
    query = (
        sa.select(row.uuid, row.spec, attempt.attempt, attempt.node, attempt.host)
        .join_from(attempts, instances, row.uuid == attempt.instance)
        .where(attempt.open, attempt.attempt == row.attempt, row.task.is_distinct_from(Task.DELETING.value))
    )
    found = []
    for one in connection.execute(query):
        spec = unreadable.or_none(one, spec_of)
        if spec is not None and spec.group is not None:
            key = ClaimKey(one.uuid, one.attempt, one.node, spec.group.uuid)
            found.append(OpenMember(key, one.host, spec.group, cell))
    return found


def _found(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> list[OpenAttempt]:
    return [
        OpenAttempt(
            instance=InstanceUuid(one.instance),
            attempt=one.attempt,
            node=NodeUuid(one.node),
            host=one.host,
            state=one.state,
            deleted_at=one.deleted_at,
        )
        for one in connection.execute(_WITH_ROW.where(condition))
    ]
