"""What lies in different databases: the rows of the cells beside the mappings and the agents' own word.

No two databases can be read at one moment, so what one look finds may be work under way: it is sorted out by looking
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from skep.audit import doubts
from skep.audit.difference import Difference
from skep.audit.sources import Sources
from skep.database import Connection
from skep.database.api import instance_mappings as mappings
from skep.database.api.instance_mappings import Mapping
from skep.database.cell import guest_secrets, open_attempts, whereabouts
from skep.database.cell.whereabouts import Whereabouts
from skep.domain.cells import Cell
from skep.domain.instances import State

PAGE = 500
"""Servers compared at once: what a statement may name."""


async def mappings_without_row(sources: Sources, cell: Cell) -> tuple[list[Difference], int]:
    """Compare the living servers mapped to a cell with its rows; return also how many there were."""
    found: list[Difference] = []
    after, checked = "", 0
    while page := await sources.api.read(partial(mappings.living_in_cell, cell=cell.uuid, after=after, limit=PAGE)):
        there = await sources.read_cell(cell.uuid, partial(whereabouts.known, uuids=page))
        checked += len(page)
        for uuid in page:
            if uuid not in there:
                found.append(Difference(kind="mapping_without_row", subject=uuid, evidence={"cell": cell.name}))
            elif there[uuid] is not None:
                evidence = {"cell": cell.name, "deleted_at": there[uuid]}
                found.append(Difference(kind="mapping_of_deleted_row", subject=uuid, evidence=evidence))
        after = page[-1]
    return found, checked


async def rows_without_mapping(sources: Sources, cell: Cell) -> list[Difference]:
    """Compare a cell's living rows, staged ones too, with the mappings."""
    found: list[Difference] = []
    after = ""
    while page := await sources.read_cell(cell.uuid, partial(whereabouts.living, after=after, limit=PAGE)):
        uuids = [row.uuid for row in page]
        placed = await sources.api.read(partial(mappings.get_many, instances=uuids))
        for row in page:
            difference = _row_difference(row, placed.get(row.uuid), cell)
            if difference is not None:
                found.append(difference)
        after = uuids[-1]
    return found


def _row_difference(row: Whereabouts, mapping: Mapping | None, cell: Cell) -> Difference | None:
    staged = row.state == State.STAGED
    if row.state == State.AWAY and mapping is not None and mapping.deleted_at is None:
        # It has what a move between cells needs here, for as long as the row of the server says that it does.
        if mapping.cell != cell.uuid:
            return None
        # While it is handed over, it is away from both for a moment.
        return Difference(kind="away_everywhere", subject=row.uuid, evidence={"cell": cell.name, "host": row.host})
    if row.lingers and mapping is not None and mapping.attempt > row.attempt:
        return None
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


def inside(connection: Connection, cell: Cell) -> list[Difference]:
    """Return what a cell's own tables do not agree on."""
    return [
        *_open_attempts_of_deleted(connection, cell),
        *_rows_without_attempt(connection, cell),
        *_attempts_without_host(connection, cell),
        *_secrets_kept(connection, cell),
        *doubts.inside(connection, cell),
    ]


def _open_attempts_of_deleted(connection: Connection, cell: Cell) -> Iterator[Difference]:
    for one in open_attempts.of_deleted(connection):
        yield Difference(
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


def _rows_without_attempt(connection: Connection, cell: Cell) -> Iterator[Difference]:
    for one in whereabouts.without_attempt(connection):
        yield Difference(
            kind="row_without_attempt",
            subject=one.uuid,
            evidence={"cell": cell.name, "state": one.state, "attempt": one.attempt, "host": one.host},
        )


def _attempts_without_host(connection: Connection, cell: Cell) -> Iterator[Difference]:
    for one in open_attempts.on_unknown_hosts(connection):
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


def _secrets_kept(connection: Connection, cell: Cell) -> Iterator[Difference]:
    for uuid, state in guest_secrets.needless(connection):
        yield Difference(kind="secrets_kept", subject=uuid, evidence={"cell": cell.name, "state": state})
