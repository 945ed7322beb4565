"""What servers are charged beside their rows: those that are soft-deleted nothing, all others something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from skep.audit.difference import Difference
from skep.audit.sources import Sources
from skep.database.api import quotas
from skep.database.cell import owed
from skep.domain.cells import Cell
from skep.domain.ids import InstanceUuid

PAGE = 500
"""Servers compared at once: what a statement may name."""


async def differences(sources: Sources, cell: Cell) -> list[Difference]:
    """Compare soft-deleted servers of a cell with their charges, and servers that are charged nothing with rows."""
    found: list[InstanceUuid] = []
    for page in _pages(await sources.read_cell(cell.uuid, owed.soft_deleted)):
        found += await sources.api.read(partial(quotas.charging, instances=page))
    charged = [_differs(one, cell, soft_deleted=True) for one in found]
    found = []
    for page in _pages(await sources.api.read(partial(quotas.free_of_charge, cell=cell.uuid))):
        found += await sources.read_cell(cell.uuid, partial(owed.charged, uuids=page))
    return [*charged, *(_differs(one, cell, soft_deleted=False) for one in found)]


def _differs(one: InstanceUuid, cell: Cell, *, soft_deleted: bool) -> Difference:
    evidence = {"cell": cell.name, "soft_deleted": soft_deleted, "charged": soft_deleted}
    return Difference(kind="quota_charge_differs", subject=one, evidence=evidence)


def _pages(uuids: Sequence[InstanceUuid]) -> Iterator[Sequence[InstanceUuid]]:
    return (uuids[start : start + PAGE] for start in range(0, len(uuids), PAGE))
