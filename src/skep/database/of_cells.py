"""The databases of cells, as a process above the cells knows them: one of them, or one question to each at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

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
    return await ask_each(units, lambda cell: database_of(cells, cell).read(units[cell], within=within))


async def ask_each(
    cells: Iterable[CellUuid], ask: Callable[[CellUuid], Awaitable[T]]
) -> tuple[dict[CellUuid, T], dict[CellUuid, Unavailable]]:
    """Return what comes of asking each cell, all at once, in the order of the cells, and why others cannot be read."""
    cells = list(cells)
    answered: dict[CellUuid, T] = {}
    unread: dict[CellUuid, Unavailable] = {}

    async def of(cell: CellUuid) -> None:
        try:
            answered[cell] = await ask(cell)
        except Unavailable as error:
            unread[cell] = error

    await asyncio.gather(*(of(cell) for cell in cells))
    return (
        {cell: answered[cell] for cell in cells if cell in answered},
        {cell: unread[cell] for cell in cells if cell in unread},
    )
