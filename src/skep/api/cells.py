"""Cells as the API asks them: a list waits for none of them longer than a user would wait for all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from skep.api.services import ApiServices
from skep.database.engine import Database, Unit
from skep.database.of_cells import database_of, read_each
from skep.domain.errors import Unavailable
from skep.domain.ids import CellUuid

T = TypeVar("T")

ANSWER_SECONDS = 3.0
"""How long an answer is waited for without which there is none: the database of the one cell that has the server."""
LIST_SECONDS = 0.7
"""How long each cell's part of a list is waited for: lists of all cells come within a second."""
STORE_SECONDS = 3.0
"""How long a change in a cell may take. After it the user is told that nobody knows what became of it."""


async def read_cell(services: ApiServices, cell: CellUuid, unit: Unit[T]) -> T:
    """Read in a cell.

    Raises StorageUnavailable when it is not known here, cannot be read, or not in time.
    """
    return await cell_database(services, cell).read(unit, within=ANSWER_SECONDS)


async def read_cells(
    services: ApiServices, units: Mapping[CellUuid, Unit[T]]
) -> tuple[dict[CellUuid, T], dict[CellUuid, Unavailable]]:
    """Return what each cell that has a unit answers, and why others cannot be read, or not in time."""
    return await read_each(services.cells, units, within=LIST_SECONDS)


async def write_cell(services: ApiServices, cell: CellUuid, unit: Unit[T]) -> T:
    """Write in a cell for a user who waits.

    Raises StorageUnavailable as `read_cell` does. What had begun may be stored all the same.
    """
    return await cell_database(services, cell).write(unit, intake=True, within=STORE_SECONDS)


def cell_database(services: ApiServices, cell: CellUuid) -> Database:
    """Return the database of a cell. Raises StorageUnavailable when it is not known here."""
    return database_of(services.cells, cell)
