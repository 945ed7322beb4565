"""Cells as the API asks them: none is waited for longer than a user would wait for all of them."""

from __future__ import annotations

from typing import TypeVar

from skep.api.services import ApiServices
from skep.database.engine import Database, Unit
from skep.domain.errors import StorageUnavailable
from skep.domain.ids import CellUuid

T = TypeVar("T")

ANSWER_SECONDS = 0.7
"""How long an answer of a cell's database is waited for: lists of all cells come within a second."""
STORE_SECONDS = 3.0
"""How long a change in a cell may take. After it the user is told that nobody knows what became of it."""


async def read_cell(services: ApiServices, cell: CellUuid, unit: Unit[T]) -> T:
    """Read in a cell.

    Raises StorageUnavailable when it is not known here, cannot be read, or not in time.
    """
    return await cell_database(services, cell).read(unit, within=ANSWER_SECONDS)


async def write_cell(services: ApiServices, cell: CellUuid, unit: Unit[T]) -> T:
    """Write in a cell for a user who waits.

    Raises StorageUnavailable as `read_cell` does. What had begun may be stored all the same.
    """
    return await cell_database(services, cell).write(unit, intake=True, within=STORE_SECONDS)


def cell_database(services: ApiServices, cell: CellUuid) -> Database:
    """Return the database of a cell. Raises StorageUnavailable when it is not known here."""
    database = services.cells.get(cell)
    if database is None:
        raise StorageUnavailable("The cell is not known here.")
    return database
