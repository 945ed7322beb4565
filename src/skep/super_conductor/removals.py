"""Hosts and cells that are being deleted, until they are gone.

Whoever began has marked them. What was on its way there when it was marked is refused where it would land; here is seen
that nothing is left, by whichever super conductor looks first, also when the process that began is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from skep.database import Connection
from skep.database.api import cells, host_mappings
from skep.database.cell import agents
from skep.domain.cells import HostMapping
from skep.domain.errors import SkepError
from skep.domain.ids import CellUuid, NodeUuid
from skep.reconciler import deletions
from skep.reconciler.operator_state import tell_schedulers
from skep.super_conductor.parts import CELL_SECONDS, CellAccess, Parts
from skep.telemetry.logs import get_logger

log = get_logger(__name__)


class Removals:
    """Ends what operators began to delete."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self) -> bool:
        """Look at all hosts and cells that are being deleted."""
        await self._parts.in_each_cell("deleting of hosts", self._hosts_of)
        for cell in await self._parts.api.read(cells.deleting):
            try:
                await self._end_cell(cell)
            except SkepError as error:
                log.warning("cell not deleted yet", cell=str(cell), error=str(error))
        return False

    async def _hosts_of(self, access: CellAccess) -> bool:
        if access.transport is None:
            return False
        # The cell first: what is marked there and not above by then was taken back, for the mark above is the older.
        marked = await access.read(agents.deleting)
        unit = partial(_concerned, cell=access.cell.uuid, nodes=[agent.node for agent in marked])
        every = {one.node: one for one in await self._parts.api.read(unit)}
        for agent in marked:
            host = every.get(agent.node)
            if host is not None and host.deleting_at is None and agent.deleting_at is not None:
                opened = partial(agents.take_deletion_back, node=agent.node, began_at=agent.deleting_at)
                await access.write(opened)
        for host in every.values():
            if host.deleting_at is not None:
                await self._end_host(access, host)
        return False

    async def _end_host(self, access: CellAccess, host: HostMapping) -> None:
        parts = self._parts
        left = await deletions.look_at_host(parts.api, access.database, host, within=CELL_SECONDS)
        marked = left.agent is None or left.agent.deleting_at is not None
        if marked and not left.is_empty:
            return
        left = await deletions.close_host(parts.api, access.database, host, parts.clock.now(), within=CELL_SECONDS)
        if left.is_empty and await deletions.retire_host(parts.api, host, left.agent, parts.clock.now()):
            log.info("host deleted", host=host.host, node=host.node, cell=access.cell.name)
            await tell_schedulers(parts.api, parts.transport)

    async def _end_cell(self, cell: CellUuid) -> None:
        parts = self._parts
        access = parts.cell(cell)
        _, hosts = await deletions.end_cell(parts.api, access.database, cell, within=CELL_SECONDS)
        if hosts is not None:
            log.info("cell deleted", cell=access.cell.name, hosts=len(hosts))
            await tell_schedulers(parts.api, parts.transport)


def _concerned(connection: Connection, cell: CellUuid, nodes: Sequence[NodeUuid]) -> list[HostMapping]:
    """Return the hosts of a cell that are being deleted, or are `nodes`."""
    named = [found for node in nodes if (found := host_mappings.get(connection, node)) is not None]
    return [one for one in (*host_mappings.deleting(connection), *named) if one.cell == cell]
