"""What lies in different databases: the rows of the cells beside the mappings and the agents' own word.

No two databases can be read at one moment, so what one look finds may be work under way: it is sorted out by looking
twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from skep.audit import doubts
from skep.audit.difference import Difference
from skep.audit.sources import Sources
from skep.database.api import instance_mappings as mappings
from skep.database.api.instance_mappings import Mapping
from skep.database.api.tables import instance_mappings
from skep.database.cell.missing_hosts import NO_AGENT
from skep.database.cell.tables import attempts, instances
from skep.domain.cells import Cell
from skep.domain.ids import CellUuid
from skep.domain.instances import State, Task
from skep.domain.states import BUILD_OVER, ON_HOST, stored

PAGE = 500
"""Servers compared at once: what a statement may name."""


async def mappings_without_row(sources: Sources, cell: Cell) -> tuple[list[Difference], int]:
    """Compare the living servers mapped to a cell with its rows; return also how many there were."""
    found: list[Difference] = []
    after, checked = "", 0
    while page := await sources.api.read(partial(_mapped_to, cell=cell.uuid, after=after)):
        there = await sources.read_cell(cell.uuid, partial(_existing, uuids=page))
        checked += len(page)
        for uuid in page:
            if uuid not in there:
                found.append(Difference(kind="mapping_without_row", subject=uuid, evidence={"cell": cell.name}))
            elif there[uuid] is not None:
                evidence = {"cell": cell.name, "deleted_at": there[uuid]}
                found.append(Difference(kind="mapping_of_deleted_row", subject=uuid, evidence=evidence))
        after = page[-1]
    return found, checked


def _mapped_to(connection: sa.Connection, cell: CellUuid, after: str) -> Sequence[str]:
    row = instance_mappings.c
    query = sa.select(row.instance).where(row.cell == cell, row.deleted_at.is_(None), row.instance > after)
    return connection.scalars(query.order_by(row.instance).limit(PAGE)).all()


def _existing(connection: sa.Connection, uuids: Sequence[str]) -> dict[str, int | None]:
    """Return which rows there are, with when they were deleted if the cell believes that this is known above."""
    row = instances.c
    query = sa.select(row.uuid, row.deleted_at, row.forgotten).where(row.uuid.in_(uuids))
    return {one.uuid: one.deleted_at if one.forgotten else None for one in connection.execute(query)}


async def rows_without_mapping(sources: Sources, cell: Cell) -> list[Difference]:
    """Compare a cell's living rows, staged ones too, with the mappings."""
    found: list[Difference] = []
    after = ""
    while page := await sources.read_cell(cell.uuid, partial(_living_rows, after=after)):
        uuids = [row.uuid for row in page]
        placed = await sources.api.read(partial(mappings.get_many, instances=uuids))
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
        on_its_way = staged and row.attempt >= mapping.attempt
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


def inside(connection: sa.Connection, cell: Cell) -> list[Difference]:
    """Return what a cell's own tables do not agree on."""
    return [
        *open_attempts_of_deleted(connection, cell),
        *_rows_without_attempt(connection, cell),
        *_attempts_without_host(connection, cell),
        *_secrets_kept(connection, cell),
        *doubts.inside(connection, cell),
    ]


def _rows_without_attempt(connection: sa.Connection, cell: Cell) -> Iterator[Difference]:
    row, attempt = instances.c, attempts.c
    opened = sa.exists().where(
        attempt.instance == row.uuid, attempt.attempt == row.attempt, attempt.host == row.host, attempt.open
    )
    query = sa.select(row.uuid, row.state, row.attempt, row.host).where(
        row.deleted_at.is_(None),
        row.state.in_(stored(ON_HOST)),
        row.task.is_distinct_from(Task.DELETING.value),
        ~opened,
    )
    for one in connection.execute(query):
        yield Difference(
            kind="row_without_attempt",
            subject=one.uuid,
            evidence={"cell": cell.name, "state": one.state, "attempt": one.attempt, "host": one.host},
        )


def _attempts_without_host(connection: sa.Connection, cell: Cell) -> Iterator[Difference]:
    attempt, row = attempts.c, instances.c
    query = (
        sa.select(attempt.instance, attempt.attempt, attempt.node, attempt.host, row.state)
        .join_from(attempts, instances, row.uuid == attempt.instance, isouter=True)
        .where(attempt.open, NO_AGENT, row.state.is_distinct_from(State.STAGED.value))
    )
    for one in connection.execute(query):
        yield Difference(
            kind="attempt_without_host",
            subject=one.instance,
            evidence={
                "cell": cell.name,
                "attempt": one.attempt,
                "node": one.node,
                "host": one.host,
                "state": one.state,
            },
        )


def _secrets_kept(connection: sa.Connection, cell: Cell) -> Iterator[Difference]:
    row = instances.c
    query = sa.select(row.uuid, row.state).where(row.secrets.is_not(None), row.state.in_(stored(BUILD_OVER)))
    for one in connection.execute(query):
        yield Difference(kind="secrets_kept", subject=one.uuid, evidence={"cell": cell.name, "state": one.state})
