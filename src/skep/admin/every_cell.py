"""One question to the databases of all cells at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from skep.admin.services import CELL_SECONDS, AdminServices
from skep.database.engine import T, Unit
from skep.database.of_cells import read_each
from skep.domain.errors import Unavailable
from skep.domain.ids import CellUuid


async def ask_all(services: AdminServices, unit: Unit[T]) -> Mapping[CellUuid, T]:
    """Return what each cell answers, in the order of their names. Raises Unavailable when one cannot be read."""
    answered, unread = await ask_each(services, unit)
    for error in unread.values():
        raise error
    return answered


async def ask_each(
    services: AdminServices, unit: Unit[T], *, among: Collection[CellUuid] | None = None
) -> tuple[Mapping[CellUuid, T], Mapping[CellUuid, Unavailable]]:
    """Return what each cell answers, in the order of their names, and why others could not be read.

    `among`: only these of the cells are asked.
    """
    wanted = [uuid for uuid in services.cells if among is None or uuid in among]
    cells = sorted(wanted, key=lambda uuid: str(services.cell_name(uuid)))
    return await read_each(services.cells, dict.fromkeys(cells, unit), within=CELL_SECONDS)
