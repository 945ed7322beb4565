"""The databases of cells, as a process above the cells knows them: one of them, or one question to each at once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from skep.database.engine import Database, T, Unit
from skep.domain.errors import StorageUnavailable, Unavailable
from skep.domain.ids import CellUuid


def database_of(cells: Mapping[CellUuid, Database], cell: CellUuid) -> Database:
    """Return the database of a cell. Raises StorageUnavailable when this process does not know it."""
    database = cells.get(cell)
    if database is None:
        raise StorageUnavailable(f"This process does not know cell {cell}.")
    return database


async def read_each(
    cells: Mapping[CellUuid, Database], units: Mapping[CellUuid, Unit[T]], *, within: float
) -> tuple[dict[CellUuid, T], dict[CellUuid, Unavailable]]:
    """Return what each cell that has a unit answers, in the order of the units, and why others cannot be read.

    `within`: seconds that each has for its answer.
    """
    answered: dict[CellUuid, T] = {}
    unread: dict[CellUuid, Unavailable] = {}

    async def read(cell: CellUuid, unit: Unit[T]) -> None:
        try:
            answered[cell] = await database_of(cells, cell).read(unit, within=within)
        except Unavailable as error:
            unread[cell] = error

    await asyncio.gather(*(read(cell, unit) for cell, unit in units.items()))
    return (
        {cell: answered[cell] for cell in units if cell in answered},
        {cell: unread[cell] for cell in units if cell in unread},
    )
