"""The servers on hosts, gathered from all cells."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from skep.api.services import ApiServices
from skep.database.cell import residents
from skep.database.cell.residents import Resident


async def servers_by_host(services: ApiServices, hosts: Collection[str]) -> dict[str, list[Resident]]:
    """Return the servers on each of these hosts.

    Raises Unavailable when a cell's database cannot be read: a host must not seem empty because of that.
    """
    found: dict[str, list[Resident]] = {host: [] for host in hosts}
    if not hosts:
        return found
    cells = services.cells.values()
    for part in await asyncio.gather(*(cell.read(lambda c: residents.on_hosts(c, hosts)) for cell in cells)):
        for resident in part:
            found[resident.host].append(resident)
    return found
