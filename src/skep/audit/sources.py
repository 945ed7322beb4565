"""Where an audit reads: the API database, the cells' databases, the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec

from skep.database.api import build_requests
from skep.database.cell import instances
from skep.database.engine import Database, T, Unit
from skep.domain.actions import Over
from skep.domain.cells import Cell
from skep.domain.errors import StorageUnavailable, Unavailable
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.instances import Instance
from skep.messages.to_scheduler import GetHostStates, ListClaims, ListClaimsReply
from skep.neighbours.networks.base import NetworkPorts
from skep.neighbours.volumes.base import ServerVolumes
from skep.transport.base import SCHEDULER, Transport

CELL_SECONDS = 10.0
"""A cell that does not answer in this time was not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Everything that is compared. A cell whose database this process cannot reach is not among `cells`."""

    api: Database
    cells: Mapping[CellUuid, Database]
    names: Mapping[CellUuid, Cell]
    transport: Transport
    networks: NetworkPorts
    volumes: ServerVolumes
    ended: Callable[[Iterable[Over]], None]
    """Is told of actions that are over with a mend."""

    async def read_cell(self, cell: CellUuid, unit: Unit[T]) -> T:
        """Read in a cell's database.

        Raises StorageUnavailable when this process does not know the cell, or it does not answer or not as expected.
        """
        database = self.cells.get(cell)
        if database is None:
            raise StorageUnavailable("this process does not know the cell")
        # Of another release, say: an audit says so and goes on with the other cells.
        return await database.read_as_it_is(unit, within=CELL_SECONDS)

    def cell_named(self, name: str) -> Database:
        """Return the database of a cell.

        Raises StorageUnavailable when this process does not know the cell.
        """
        for uuid, cell in self.names.items():
            if cell.name == name and uuid in self.cells:
                return self.cells[uuid]
        raise StorageUnavailable(f"this process does not know cell {name}")

    async def claims(self) -> ListClaimsReply:
        """Return all claims and slots that schedulers hold, page by page.

        Raises Unavailable when no scheduler answers, or another epoch begins meanwhile.
        """
        first = await self.transport.call(SCHEDULER, ListClaims())
        claims, slots, marker = list(first.claims), list(first.slots), first.next_marker
        while marker is not None:
            page = await self.transport.call(SCHEDULER, ListClaims(marker=marker))
            if page.epoch != first.epoch:
                raise Unavailable("the host states began a new epoch while claims were read")
            claims += page.claims
            slots += page.slots
            marker = page.next_marker
        return msgspec.structs.replace(first, claims=tuple(claims), slots=tuple(slots), next_marker=None)

    async def epoch(self) -> str:
        """Return the epoch in which schedulers are. Raises Unreachable when none answers."""
        return (await self.transport.call(SCHEDULER, GetHostStates(nodes=()))).epoch

    async def server(self, uuid: InstanceUuid, cell: CellUuid | None) -> Instance | None:
        """Return a living server: from its cell, or from its build request while it has none."""
        if cell is not None:
            return await self.read_cell(cell, partial(instances.get, uuid=uuid))
        request = await self.api.read(partial(build_requests.get, instance=uuid))
        return None if request is None else request.instance
