"""What rows say of the interfaces of their servers, beside what the network service has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from skep.audit.difference import Difference
from skep.audit.sources import Sources
from skep.database import Connection
from skep.database.api import instance_mappings as mappings
from skep.database.api import server_ports
from skep.database.cell import instances, interfaces
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.vifs import Vif, wireless

PAGE = 500
"""Servers compared at once: what a statement may name."""


async def differences(sources: Sources, cell: Cell) -> list[Difference]:
    """Compare the rows of a cell with the ports of their servers; what is to be told anyhow is none."""
    found: list[Difference] = []
    after = ""
    while page := await sources.api.read(partial(mappings.living_in_cell, cell=cell.uuid, after=after, limit=PAGE)):
        found += await _of(sources, cell.uuid, cell.name, page)
        found += await _bound(sources, cell.uuid, cell.name, page)
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


async def tell(sources: Sources, difference: Difference) -> bool:
    """Have the row of a server told of its interfaces, once the ports are made again that only the row knows.

    What changes of ports is noted with it, so that such a port was forgotten by a database that went back in time.
    """
    name = difference.evidence["cell"]
    cell = next((one for one, known in sources.names.items() if known.name == name), None)
    if cell is None or not await _of(sources, cell, name, [InstanceUuid(difference.subject)]):
        return False
    server = await sources.read_cell(cell, partial(instances.get, uuid=InstanceUuid(difference.subject)))
    if server is not None:
        await sources.networks.remake(server)
    await sources.api.write(partial(server_ports.note_server, now=Clock().now(), instance=difference.subject))
    return True


async def bind(sources: Sources, difference: Difference) -> bool:
    """Have the ports of a server bound to the host that its row names, and to no other."""
    name = difference.evidence["cell"]
    cell = next((one for one, known in sources.names.items() if known.name == name), None)
    if cell is None or not await _bound(sources, cell, name, [InstanceUuid(difference.subject)]):
        return False
    doubt = partial(interfaces.doubt_bindings, uuids=[InstanceUuid(difference.subject)])
    return bool(await sources.cell_named(name).write(doubt))


async def _bound(sources: Sources, cell: CellUuid, name: str, servers: Sequence[InstanceUuid]) -> list[Difference]:
    """Compare the hosts of servers with those that their ports are bound to; what is to be bound anyhow is none."""

    def said(connection: Connection) -> tuple[dict[InstanceUuid, str], set[InstanceUuid]]:
        return interfaces.settled(connection, servers), interfaces.migrated_live(connection, servers)

    hosts, moved = await sources.read_cell(cell, said)
    bound = await sources.networks.bound_to([*hosts], [one for one in hosts if one in moved])
    wrong = {
        server: {port: list(found) for port, found in ports.items() if found != (hosts[server],)}
        for server, ports in bound.items()
    }
    return [
        Difference(
            kind="bindings_differ", subject=server, evidence={"cell": name, "host": hosts[server], "ports": ports}
        )
        for server, ports in wrong.items()
        if ports
    ]


async def _of(sources: Sources, cell: CellUuid, name: str, servers: Sequence[InstanceUuid]) -> list[Difference]:
    rows = await sources.read_cell(cell, partial(interfaces.told, uuids=servers))
    right = await sources.networks.of_servers([*rows])
    noted = await sources.api.read(partial(server_ports.noted, instances=[*rows]))
    return [
        Difference(
            kind="interfaces_differ",
            subject=server,
            evidence={"cell": name, "row": _shown(rows[server]), "ports": _shown(vifs)},
        )
        for server, vifs in right.items()
        if wireless(rows[server]) != wireless(vifs) and server not in noted
    ]


def _shown(vifs: Sequence[Vif]) -> dict[str, list[str]]:
    """Return the addresses of interfaces by their ports."""
    return {vif.id: [one.address for subnet in vif.subnets for one in subnet.addresses] for vif in vifs}
