"""Deleting hosts and cells while work goes on: marked first, then emptied, then gone.

The mark stands in the row that is looked at whenever a server is mapped, and (of a host) in the row that its cell looks
at when a server is staged or rescheduled. So after the marks nothing new gets there. What was on its way is refused
where it would land, and placed elsewhere; when nothing is left the host or cell goes. Each step may be repeated.
Whoever stops between two leaves a host or cell that is being deleted: operators see it, and the super conductor goes
on.
"""

from __future__ import annotations

from functools import partial

import msgspec

from skep.database import Connection
from skep.database.api import cells, host_mappings, retired_hosts
from skep.database.api import instance_mappings as mappings
from skep.database.api.retired_hosts import RetiredHost
from skep.database.cell import agents, residents
from skep.database.cell.agents import RegisteredAgent
from skep.database.cell.residents import LeftInCell, OnNode
from skep.database.engine import Database
from skep.domain.cells import HostMapping
from skep.domain.ids import CellUuid


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What a host that is being deleted still has."""

    agent: RegisteredAgent | None
    servers: int = 0
    held: int = 0
    """Attempts of which the host has not said yet that nothing is left."""
    coming: int = 0
    """Servers that were on their way there, and are not mapped: they are placed elsewhere."""

    @property
    def stays(self) -> bool:
        """Whether something keeps the host from being deleted until an operator or its agent acts."""
        return bool(self.servers or self.held)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left."""
        return not (self.stays or self.coming)


async def look_at_host(api: Database, cell: Database, host: HostMapping, *, within: float) -> Left:
    """Look at what a host still has. Raises StorageUnavailable when its cell cannot be asked."""
    agent, on_node = await cell.read(partial(_seen, host=host), within=within)
    return await _left(api, host, agent, on_node)


async def close_host(api: Database, cell: Database, host: HostMapping, now: int, *, within: float) -> Left:
    """Mark a host in its cell, after it was marked above, and look at what it still has.

    Raises StorageUnavailable when its cell cannot be asked.
    """
    agent, on_node = await cell.write(partial(_closed, host=host, now=now), within=within)
    return await _left(api, host, agent, on_node)


async def retire_host(api: Database, host: HostMapping, agent: RegisteredAgent | None, now: int) -> bool:
    """Take a host that is empty out of the mappings, and note that its cell is to forget it.

    False when its deletion was taken back or begun anew.
    """
    retired = RetiredHost(
        node=host.node,
        host=host.host,
        cell=host.cell,
        process=agent.process if agent is not None else "",
        retired_at=now,
    )
    return await api.write(partial(_retire, retired=retired, began_at=host.deleting_at), intake=True)


async def take_back(api: Database, cell: Database, host: HostMapping, left: Left, *, within: float) -> None:
    """Let builds go to a host again: it is not empty. Raises StorageUnavailable; the super conductor goes on then."""
    assert host.deleting_at is not None
    await api.write(partial(host_mappings.take_deletion_back, node=host.node, began_at=host.deleting_at), intake=True)
    if left.agent is not None and left.agent.deleting_at is not None:
        unit = partial(agents.take_deletion_back, node=host.node, began_at=left.agent.deleting_at)
        await cell.write(unit, within=within)


async def end_cell(
    api: Database, cell: Database, uuid: CellUuid, *, within: float
) -> tuple[LeftInCell, list[str] | None]:
    """Forget a cell that was marked above, if its database holds nothing.

    Return what its database holds, and the hosts that went with the cell; None while it stays. Raises
    StorageUnavailable when its database cannot be asked.
    """
    left = await cell.read(residents.in_cell, within=within)
    hosts = await api.write(partial(cells.remove_deleted, uuid=uuid), intake=True) if left.is_empty else None
    return left, hosts


def _seen(connection: Connection, host: HostMapping) -> tuple[RegisteredAgent | None, OnNode]:
    return agents.get(connection, host.node), residents.on_node(connection, host.node)


def _closed(connection: Connection, host: HostMapping, now: int) -> tuple[RegisteredAgent | None, OnNode]:
    return agents.begin_deletion(connection, host.node, now), residents.on_node(connection, host.node)


async def _left(api: Database, host: HostMapping, agent: RegisteredAgent | None, on_node: OnNode) -> Left:
    """Tell staged rows that their mapping names from those that it never will."""
    found = await api.read(partial(mappings.get_many, instances=on_node.staged)) if on_node.staged else {}
    mapped = sum(one.cell == host.cell for one in found.values())
    return Left(agent=agent, servers=on_node.servers + mapped, held=on_node.held, coming=len(on_node.staged) - mapped)


def _retire(connection: Connection, retired: RetiredHost, began_at: int | None) -> bool:
    now = host_mappings.get(connection, retired.node)
    if now is None or now.deleting_at is None or now.deleting_at != began_at:
        return False
    retired_hosts.add(connection, retired)
    return True
