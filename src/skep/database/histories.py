"""The attempts of a server in all cells that it was in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from skep.database.cell import attempts
from skep.database.engine import Database
from skep.database.of_cells import read_each
from skep.domain.builds import AttemptRecord
from skep.domain.ids import CellUuid, InstanceUuid


async def with_earlier(
    databases: Mapping[CellUuid, Database],
    here: list[AttemptRecord],
    left: Iterable[CellUuid],
    instance: InstanceUuid,
    *,
    within: float,
) -> list[AttemptRecord]:
    """Return the attempts of its cell with those in cells that it `left`, by their numbers.

    Those of a cell that cannot say it in time are left out.
    """
    units = {cell: partial(attempts.history, instance=instance) for cell in left if cell in databases}
    if not units:
        return here
    found, _ = await read_each(databases, units, within=within)
    return sorted([*here, *(one for records in found.values() for one in records)], key=lambda one: one.attempt)
