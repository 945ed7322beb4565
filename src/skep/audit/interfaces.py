"""What rows say of the interfaces of their servers, beside what the network service has."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from skep.audit.difference import Difference
from skep.audit.sources import Sources
from skep.database.api import instance_mappings as mappings
from skep.database.api import server_ports
from skep.database.cell import interfaces
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.vifs import Vif

PAGE = 500
"""Servers compared at once: what a statement may name."""


async def differences(sources: Sources, cell: Cell) -> list[Difference]:
    """Compare the rows of a cell with the ports of their servers; what is to be told anyhow is none."""
    found: list[Difference] = []
    after = ""
    while page := await sources.api.read(partial(mappings.living_in_cell, cell=cell.uuid, after=after, limit=PAGE)):
        found += await _of(sources, cell.uuid, cell.name, page)
        after = page[-1]
    return found


async def tell(sources: Sources, difference: Difference) -> bool:
    """Have the row of a server told of its interfaces."""
    name = difference.evidence["cell"]
    cell = next((one for one, known in sources.names.items() if known.name == name), None)
    if cell is None or not await _of(sources, cell, name, [InstanceUuid(difference.subject)]):
        return False
    note = partial(server_ports.note_server, now=Clock().now(), instance=difference.subject)
    await sources.api.write(note)
    return True


async def _of(sources: Sources, cell: CellUuid, name: str, servers: Sequence[InstanceUuid]) -> list[Difference]:
    rows = await sources.read_cell(cell, partial(interfaces.told, uuids=servers))
    right = await sources.api.read(partial(server_ports.settled, instances=[*rows]))
    return [
        Difference(
            kind="interfaces_differ",
            subject=server,
            evidence={"cell": name, "row": _shown(rows[server]), "ports": _shown(vifs)},
        )
        for server, vifs in right.items()
        if rows[server] != vifs
    ]


def _shown(vifs: Sequence[Vif]) -> dict[str, list[str]]:
    """Return the addresses of interfaces by their ports."""
    return {vif.id: [one.address for subnet in vif.subnets for one in subnet.addresses] for vif in vifs}
