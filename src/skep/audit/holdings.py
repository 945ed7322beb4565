"""Claims and group slots that nothing names: room that nobody uses, and that time alone never frees.

No two databases can be read at one moment, so the order matters. What schedulers hold is read first, then the API
database, then the cells: an attempt that is on its way down is then always seen in one of them. Attempts only grow, so
what was read later is never older. Whoever frees asks twice, with a pause: what only one look found was work under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from skep.audit.sources import Sources
from skep.database import Connection
from skep.database.api import instance_mappings as mappings
from skep.database.api.instance_mappings import Mapping
from skep.database.cell import open_attempts, whereabouts
from skep.database.engine import Unit
from skep.domain.errors import SkepError
from skep.domain.ids import CellUuid
from skep.domain.instances import State
from skep.messages.to_scheduler import Holding

PAGE = 500
"""Servers compared at once: what a statement may name."""

AttemptOnNode = tuple[str, int, str]


class Unnamed(msgspec.Struct, frozen=True):
    """A claim or slot that no open attempt and no current one without a host names."""

    holding: Holding
    mapping: Mapping | None


class InCell(msgspec.Struct, frozen=True):
    """What one cell says of some servers."""

    open: set[AttemptOnNode]
    selecting: dict[str, tuple[State, int]]
    """Rows for which a host may be chosen right now, and what is chosen stands in none yet: state and attempt."""
    moving: set[tuple[str, int]]
    """Instances for whose moves a host may be chosen right now, with the attempts that are to be there."""


async def unnamed(sources: Sources, seen: Sequence[Holding]) -> list[Unnamed]:
    """Return those of `seen` that nothing names. What a cell that cannot be read may name stays."""
    found: list[Unnamed] = []
    for start in range(0, len(seen), PAGE):
        page = seen[start : start + PAGE]
        cells = await _read_cells(sources, page)
        page = [one for one in page if not _is_open(one, cells)]
        if not page:
            continue
        uuids = sorted({one.key.instance for one in page})
        placed = await sources.api.read(partial(mappings.get_many, instances=uuids))
        cells = await _read_cells(sources, page)
        for one in page:
            mapping = placed.get(one.key.instance)
            if not _is_live(one, mapping, cells) and not (_concerned(one, mapping, sources) - cells.keys()):
                found.append(Unnamed(one, mapping))
    return found


async def _read_cells(sources: Sources, page: Sequence[Holding]) -> dict[CellUuid, InCell]:
    """Read what the cells say of these servers; those that cannot be read are left out."""
    unit = partial(_in_cell, uuids=sorted({one.key.instance for one in page}))
    cells = list(sources.names)
    answers = await asyncio.gather(*(_read_cell(sources, cell, unit) for cell in cells))
    return {cell: answer for cell, answer in zip(cells, answers, strict=True) if answer is not None}


async def _read_cell(sources: Sources, cell: CellUuid, unit: Unit[InCell]) -> InCell | None:
    try:
        return await sources.read_cell(cell, unit)
    except SkepError:
        return None


def _in_cell(connection: Connection, uuids: Sequence[str]) -> InCell:
    return InCell(
        open=open_attempts.on_nodes(connection, uuids),
        moving=whereabouts.chosen_for_moves(connection, uuids),
        selecting={one.uuid: (State(one.state), one.attempt) for one in whereabouts.placeless(connection, uuids)},
    )


def _is_open(holding: Holding, cells: dict[CellUuid, InCell]) -> bool:
    key = holding.key
    return any((key.instance, key.attempt, key.node) in cell.open for cell in cells.values())


def _is_live(holding: Holding, mapping: Mapping | None, cells: dict[CellUuid, InCell]) -> bool:
    """Whether the attempt is open on the node, or is current and has no host yet."""
    if _is_open(holding, cells):
        return True
    key = holding.key
    if any((key.instance, key.attempt) in cell.moving for cell in cells.values()):
        return True
    if any(cell.selecting.get(key.instance) == (State.RESCHEDULING, key.attempt) for cell in cells.values()):
        return True
    if mapping is None or mapping.deleted_at is not None or mapping.attempt != key.attempt:
        return False
    if mapping.cell is None:
        return True
    state, _ = cells[mapping.cell].selecting.get(key.instance, (None, 0)) if mapping.cell in cells else (None, 0)
    return state in (State.HANDED_BACK, State.LEAVING)


def _concerned(holding: Holding, mapping: Mapping | None, sources: Sources) -> set[CellUuid]:
    """Return the cells without whose word nothing is concluded."""
    cells = set(_node_cells(holding, sources))
    if mapping is not None and mapping.cell is not None:
        cells.add(mapping.cell)
    return cells


def _node_cells(holding: Holding, sources: Sources) -> Iterator[CellUuid]:
    """Yield the cell of the node; all of them where nobody knows it (a host that was removed)."""
    if holding.cell is not None:
        yield holding.cell
    else:
        yield from sources.names
