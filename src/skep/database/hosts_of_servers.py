"""Where servers are, by asking the mappings and then the cells: schedulers know hosts only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from skep.database.api import instance_mappings as mappings
from skep.database.cell import instances
from skep.database.engine import Database
from skep.domain.ids import CellUuid


async def hosts_of(
    api: Database, cells: Mapping[CellUuid, Database], servers: Sequence[str], *, within: float
) -> dict[str, str]:
    """Return server -> name of its host for those that have one. `within`: seconds that a cell has for its answer.

    Raises StorageUnavailable when a cell that is asked does not answer.
    """
    if not servers:
        return {}
    found = await api.read(partial(mappings.get_many, instances=servers))
    by_cell: dict[CellUuid, list[str]] = {}
    for uuid, mapping in found.items():
        if mapping.cell is not None and mapping.cell in cells and mapping.deleted_at is None:
            by_cell.setdefault(mapping.cell, []).append(uuid)
    answers = await asyncio.gather(
        *(
            cells[cell].read(partial(instances.get_many, uuids=members), within=within)
            for cell, members in by_cell.items()
        )
    )
    return {
        one.uuid: one.host for answer in answers for one in answer if one.host is not None and one.deleted_at is None
    }
