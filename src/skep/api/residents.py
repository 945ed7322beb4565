"""The servers on hosts, gathered from their cells."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

import msgspec
import structlog

from skep.api.cells import read_cells
from skep.api.services import ApiServices
from skep.database.cell import residents
from skep.database.cell.residents import Resident
from skep.domain.ids import CellUuid

log = structlog.get_logger("skep.api.hosts")


class Residents(msgspec.Struct, frozen=True):
    """Who lives where, as far as it can be read."""

    by_host: dict[str, list[Resident]]
    """Of each host whose cell was read, also when nobody lives there."""
    unread: frozenset[CellUuid]
    """Cells that could not be read: of their hosts nothing is known, which is not that they are empty."""


async def servers_of(services: ApiServices, hosts: Mapping[str, CellUuid]) -> Residents:
    """Return the servers on each of these hosts, each asked for in its cell."""
    by_cell: dict[CellUuid, list[str]] = {}
    for host, cell in hosts.items():
        by_cell.setdefault(cell, []).append(host)
    units = {cell: partial(residents.on_hosts, hosts=names) for cell, names in by_cell.items()}
    answers, unread = await read_cells(services, units)
    for cell, error in unread.items():
        log.warning("servers of hosts not read", cell=cell, error=str(error))
    read: dict[str, list[Resident]] = {}
    for cell, found in answers.items():
        read |= {name: [] for name in by_cell[cell]}
        for resident in found:
            read[resident.host].append(resident)
    return Residents(read, frozenset(unread))


async def servers_by_host(services: ApiServices, hosts: Collection[str]) -> dict[str, list[Resident]]:
    """Return the servers on each of these hosts, looked for in every cell.

    Raises Unavailable when a cell's database cannot be read: a host must not seem empty because of that.
    """
    found: dict[str, list[Resident]] = {host: [] for host in hosts}
    if not hosts:
        return found
    unit = partial(residents.on_hosts, hosts=hosts)
    answers, unread = await read_cells(services, dict.fromkeys(services.cells, unit))
    for error in unread.values():
        raise error
    for part in answers.values():
        for resident in part:
            found[resident.host].append(resident)
    return found
