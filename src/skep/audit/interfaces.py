"""What rows say of the interfaces of their servers, beside what the network service has."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial

import msgspec

from skep.audit.difference import Difference
from skep.audit.sources import Sources
from skep.database import Connection
from skep.database.api import instance_mappings as mappings
from skep.database.api import server_ports
from skep.database.cell import actions, instances, interfaces
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.vifs import Vif, wireless
from skep.neighbours.networks.base import PortsOfServers

PAGE = 500
"""Servers compared at once: what a statement may name."""


async def differences(sources: Sources, cell: Cell) -> list[Difference]:
    """Compare the rows of a cell with the ports of their servers; what is to be told anyhow is none."""
    found: list[Difference] = []
    after = ""
    while page := await sources.api.read(partial(mappings.living_in_cell, cell=cell.uuid, after=after, limit=PAGE)):
        found += await _of_page(sources, cell.uuid, cell.name, page)
        after = page[-1]
    return found


async def orphans(sources: Sources) -> list[Difference]:
    """Return the ports of servers that do not live."""
    found = await sources.networks.orphans()
    return [
        Difference(kind="port_without_server", subject=server, evidence={"ports": ports})
        for server, ports in found.items()
    ]


async def release(sources: Sources, difference: Difference) -> bool:
    """Release the ports of a server that does not live."""
    return await sources.networks.release_orphans(InstanceUuid(difference.subject))


async def tell(sources: Sources, difference: Difference) -> bool | str:
    """Have the row of a server told of its interfaces, once the ports are made again that only the row knows.

    What changes of ports is noted with it, so that such a port was forgotten by a database that went back in time. Its
    owner is told of those that cannot be made, and a sentence about them returned.
    """
    name = difference.evidence["cell"]
    cell = next((one for one, known in sources.names.items() if known.name == name), None)
    if cell is None or not await _is_still(sources, cell, difference):
        return False
    server = await sources.read_cell(cell, partial(instances.get, uuid=InstanceUuid(difference.subject)))
    now = Clock().now()
    lost = [] if server is None else await sources.networks.remake(server)
    if server is not None and lost:
        await sources.cell_named(name).write(partial(actions.tell_lost, server=server, lost=lost, now=now))
    await sources.api.write(partial(server_ports.note_server, now=now, instance=difference.subject))
    return "; ".join(one.for_operator for one in lost) or True


async def bind(sources: Sources, difference: Difference) -> bool:
    """Have the ports of a server bound to the host that its row names, and to no other."""
    name = difference.evidence["cell"]
    cell = next((one for one, known in sources.names.items() if known.name == name), None)
    if cell is None or not await _is_still(sources, cell, difference):
        return False
    doubt = partial(interfaces.doubt_bindings, uuids=[InstanceUuid(difference.subject)])
    return bool(await sources.cell_named(name).write(doubt))


async def _is_still(sources: Sources, cell: CellUuid, difference: Difference) -> bool:
    """Tell whether the same kind of difference is there now."""
    found = await _of_page(sources, cell, difference.evidence["cell"], [InstanceUuid(difference.subject)])
    return any(one.kind == difference.kind for one in found)


async def _of_page(sources: Sources, cell: CellUuid, name: str, servers: Sequence[InstanceUuid]) -> list[Difference]:
    """Compare rows with the ports of their servers, which are looked at once for both kinds of differences."""

    def said(connection: Connection) -> _Said:
        return _Said(
            rows=interfaces.told(connection, servers),
            hosts=interfaces.settled(connection, servers),
            moved=interfaces.migrated_live(connection, servers),
        )

    known = await sources.read_cell(cell, said)
    several = [one for one in known.hosts if one in known.moved]
    ports = await sources.networks.look_at([*known.rows], [*known.hosts], several)
    noted = await sources.api.read(partial(server_ports.noted, instances=[*known.rows]))
    return [*_differing(name, known, ports, noted), *_misbound(name, known, ports)]


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """What the rows of some servers say."""

    rows: dict[InstanceUuid, tuple[Vif, ...]]
    hosts: dict[InstanceUuid, str]
    """Where their ports are said to be, of those of them that are not to be bound anyhow."""
    moved: set[InstanceUuid]
    """Those that were migrated live."""


def _differing(name: str, known: _Said, ports: PortsOfServers, noted: Collection[str]) -> Iterator[Difference]:
    """Compare the interfaces in rows with those that servers have; what is to be told anyhow is none."""
    for server, vifs in ports.vifs.items():
        if wireless(known.rows[server]) != wireless(vifs) and server not in noted:
            evidence = {"cell": name, "row": _shown(known.rows[server]), "ports": _shown(vifs)}
            yield Difference(kind="interfaces_differ", subject=server, evidence=evidence)


def _misbound(name: str, known: _Said, ports: PortsOfServers) -> Iterator[Difference]:
    """Compare the hosts of servers with those that their ports are bound to; what is to be bound anyhow is none."""
    for server, of_ports in ports.hosts.items():
        host = known.hosts[server]
        wrong = {port: list(found) for port, found in of_ports.items() if found != (host,)}
        if wrong:
            evidence = {"cell": name, "host": host, "ports": wrong}
            yield Difference(kind="bindings_differ", subject=server, evidence=evidence)


def _shown(vifs: Sequence[Vif]) -> dict[str, list[str]]:
    """Return the addresses of interfaces by their ports."""
    return {vif.id: [one.address for subnet in vif.subnets for one in subnet.addresses] for vif in vifs}
