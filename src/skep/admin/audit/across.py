"""What lies in different databases and in the host states: cells' rows, mappings, attempts, claims.

No two databases can be read at one moment, so the order matters. Claims are read first, then the API database, then the
cells: a server on its way down is then always seen in one of them. What remains is sorted out by looking twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.admin.audit.difference import Difference
from skep.admin.services import AdminServices
from skep.database.api import instance_mappings as mappings
from skep.database.api.instance_mappings import Mapping
from skep.database.api.tables import instance_mappings
from skep.database.cell.tables import attempts, instances
from skep.database.engine import Database
from skep.domain.cells import Cell
from skep.domain.claims import Claim
from skep.domain.ids import CellUuid
from skep.domain.instances import State
from skep.messages.to_scheduler import GetHostStates
from skep.transport.base import SCHEDULER

PAGE = 500
"""Servers compared at once: what a statement may name."""


class ClaimSeen(msgspec.Struct, frozen=True):
    """A claim and the host it is on."""

    claim: Claim
    host: str
    cell: CellUuid


async def claims(services: AdminServices) -> list[ClaimSeen]:
    """Return all claims that schedulers hold. Raises Unreachable when none answers."""
    reply = await services.transport.call(SCHEDULER, GetHostStates())
    return [ClaimSeen(claim, state.usage.host, state.cell) for state in reply.hosts for claim in state.claims]


async def unnamed_claims(services: AdminServices, seen: Sequence[ClaimSeen], unread: set[str]) -> list[Difference]:
    """Return claims that nothing names. A cell that could not be read keeps its claims."""
    found: list[Difference] = []
    for page in _pages(seen):
        uuids = sorted({one.claim.instance for one in page})
        placed = await services.database.read(partial(mappings.get_many, instances=uuids))
        open_nodes: set[tuple[str, int, str]] = set()
        for uuid, database in services.cells.items():
            if uuid not in unread:
                open_nodes |= await database.read(partial(_open_attempts, instances=uuids))
        for one in page:
            claim, mapping = one.claim, placed.get(one.claim.instance)
            named = (claim.instance, claim.attempt, claim.node) in open_nodes or _is_current(claim, mapping)
            if not named and one.cell not in unread:
                found.append(_unnamed(one, mapping))
    return found


def _is_current(claim: Claim, mapping: Mapping | None) -> bool:
    """Whether placement chose this for an attempt that has not reached its cell yet."""
    return (
        mapping is not None and mapping.cell is None and mapping.deleted_at is None and mapping.attempt == claim.attempt
    )


def _unnamed(one: ClaimSeen, mapping: Mapping | None) -> Difference:
    claim = one.claim
    return Difference(
        kind="claim_unnamed",
        subject=claim.instance,
        evidence={
            "host": one.host,
            "node": claim.node,
            "attempt": claim.attempt,
            "role": claim.role,
            "resources": claim.resources,
            "mapping": None if mapping is None else {"cell": mapping.cell, "attempt": mapping.attempt},
        },
    )


def _open_attempts(connection: sa.Connection, instances: Sequence[str]) -> set[tuple[str, int, str]]:
    row = attempts.c
    query = sa.select(row.instance, row.attempt, row.node).where(row.open, row.instance.in_(instances))
    return {(one.instance, one.attempt, one.node) for one in connection.execute(query)}


async def mappings_without_row(services: AdminServices, cell: Cell, database: Database) -> tuple[list[Difference], int]:
    """Compare the living servers mapped to a cell with its rows; return also how many there were."""
    found: list[Difference] = []
    after, checked = "", 0
    while page := await services.database.read(partial(_mapped_to, cell=cell.uuid, after=after)):
        there = await database.read(partial(_existing, uuids=page))
        checked += len(page)
        found += [
            Difference(kind="mapping_without_row", subject=uuid, evidence={"cell": cell.name})
            for uuid in page
            if uuid not in there
        ]
        after = page[-1]
    return found, checked


def _mapped_to(connection: sa.Connection, cell: CellUuid, after: str) -> Sequence[str]:
    row = instance_mappings.c
    query = sa.select(row.instance).where(row.cell == cell, row.deleted_at.is_(None), row.instance > after)
    return connection.scalars(query.order_by(row.instance).limit(PAGE)).all()


def _existing(connection: sa.Connection, uuids: Sequence[str]) -> set[str]:
    return set(connection.scalars(sa.select(instances.c.uuid).where(instances.c.uuid.in_(uuids))))


async def rows_without_mapping(services: AdminServices, cell: Cell, database: Database) -> list[Difference]:
    """Compare a cell's living rows, staged ones too, with the mappings."""
    found: list[Difference] = []
    after = ""
    while page := await database.read(partial(_living_rows, after=after)):
        uuids = [row.uuid for row in page]
        placed = await services.database.read(partial(mappings.get_many, instances=uuids))
        for row in page:
            difference = _row_difference(row, placed.get(row.uuid), cell)
            if difference is not None:
                found.append(difference)
        after = uuids[-1]
    return found


def _living_rows(connection: sa.Connection, after: str) -> Sequence[Any]:
    row = instances.c
    query = sa.select(row.uuid, row.state, row.attempt, row.host).where(row.deleted_at.is_(None), row.uuid > after)
    return connection.execute(query.order_by(row.uuid).limit(PAGE)).all()


def _row_difference(row: Any, mapping: Mapping | None, cell: Cell) -> Difference | None:
    staged = row.state == State.STAGED
    if mapping is not None and mapping.deleted_at is None:
        on_its_way = staged and mapping.cell is None and row.attempt >= mapping.attempt
        if mapping.cell == cell.uuid or on_its_way:
            return None
    return Difference(
        kind="staged_elsewhere" if staged else "row_without_mapping",
        subject=row.uuid,
        evidence={
            "row": {"cell": cell.name, "state": row.state, "attempt": row.attempt, "host": row.host},
            "mapping": None
            if mapping is None
            else {"cell": mapping.cell, "attempt": mapping.attempt, "deleted_at": mapping.deleted_at},
        },
    )


def open_attempts_of_deleted(connection: sa.Connection, cell: Cell) -> list[Difference]:
    """Return open attempts in a cell whose instance is deleted or has no row there."""
    attempt, row = attempts.c, instances.c
    query = (
        sa.select(attempt.instance, attempt.attempt, attempt.host, attempt.node, row.deleted_at)
        .join_from(attempts, instances, row.uuid == attempt.instance, isouter=True)
        .where(attempt.open, sa.or_(row.uuid.is_(None), row.deleted_at.is_not(None)))
    )
    return [
        Difference(
            kind="open_attempt_of_deleted",
            subject=one.instance,
            evidence={
                "cell": cell.name,
                "attempt": one.attempt,
                "host": one.host,
                "node": one.node,
                "deleted_at": one.deleted_at,
            },
        )
        for one in connection.execute(query)
    ]


def _pages(seen: Sequence[ClaimSeen]) -> Iterator[Sequence[ClaimSeen]]:
    for start in range(0, len(seen), PAGE):
        yield seen[start : start + PAGE]
