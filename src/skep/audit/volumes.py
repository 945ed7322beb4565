"""Compares what servers have of the volume service with what their rows say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypeAlias

from skep.audit.difference import Difference
from skep.audit.sources import Sources
from skep.database import Connection, clocks
from skep.database.api import instance_mappings as mappings
from skep.database.api import volume_holders
from skep.database.cell import volumes
from skep.domain.cells import Cell
from skep.domain.clock import Clock
from skep.domain.ids import InstanceUuid
from skep.neighbours.volumes.base import VolumeAttachment

PAGE = 200

Held: TypeAlias = Mapping[InstanceUuid, Sequence[VolumeAttachment]]
"""The attachments of all servers that have one."""


async def held(sources: Sources) -> Held:
    """Return what all servers have. Raises Unavailable when the service does not answer."""
    return await sources.volumes.held()


async def orphans(sources: Sources, there: Held) -> list[Difference]:
    """Return the attachments of servers that do not live, and were this cloud's."""
    if not there:
        return []
    gone = await sources.api.read(partial(mappings.ended_of, instances=[*there]))
    return [
        Difference(kind="attachment_without_server", subject=one, evidence={"attachments": _shown(there[one])})
        for one in there
        if one in gone
    ]


async def differences(sources: Sources, cell: Cell, there: Held) -> list[Difference]:
    """Compare the rows of a cell with the attachments of their servers."""
    found: list[Difference] = []
    if not sources.volumes.elsewhere:
        return found
    after = ""
    while page := await sources.api.read(partial(mappings.living_in_cell, cell=cell.uuid, after=after, limit=PAGE)):
        rows = await sources.read_cell(cell.uuid, partial(volumes.told, uuids=page))
        for server, row in rows.items():
            if any(one.swap is not None or one.leaving for one in row.volumes):
                # What it has changes just now.
                continue
            named = row.attachments
            has = _shown(there.get(server, ()))
            if named != has:
                evidence = {"cell": cell.name, "row": named, "attachments": has}
                found.append(Difference(kind="volumes_differ", subject=server, evidence=evidence))
        after = page[-1]
    return found


async def look(sources: Sources, difference: Difference) -> bool:
    """Have a server looked at.

    One that does not live loses what it has. Of one that lives what its row does not name is released, and what is gone
    is attached anew.
    """
    subject = InstanceUuid(difference.subject)

    def unit(connection: Connection) -> bool:
        return volume_holders.have_looked_at(connection, subject, clocks.now(connection, Clock()))

    return await sources.api.write(unit)


def _shown(attachments: Sequence[VolumeAttachment]) -> dict[str, str]:
    """Return volumes by their attachments."""
    return {one.id: one.volume_id for one in attachments}
