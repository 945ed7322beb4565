"""The story of connections: a host is told how it reaches the volumes of a server, passwords among it.

The host asks its conductor, which asks here. What goes down is sealed for the run of the agent, so that conductors pass
on what they cannot read, and it is stored nowhere above the host. A host hears only of volumes that the server's row
says are connected to it, and only while an attempt of the server is open there. To a host that makes ready for a server
which comes live they are connected when it asks (`second_attachments.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from skep.database import Connection
from skep.database.cell import guest_secrets, second_attachments
from skep.database.cell import volumes as cell_volumes
from skep.database.cell.volumes import VolumesOfRow
from skep.domain.context import RequestContext
from skep.domain.errors import Forbidden, Unavailable
from skep.domain.ids import CellUuid
from skep.domain.sessions import connections_label, seal_to_run
from skep.domain.volumes import ConnectedVolume, ConnectedVolumes, ServerVolume, staying
from skep.messages.to_cell_conductor import SealedConnections
from skep.messages.to_super_conductor import ReadConnections
from skep.neighbours.volumes.base import VolumesRefused
from skep.super_conductor.parts import Parts
from skep.super_conductor.second_attachments import SecondAttachments
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

NOT_HERE = SealedConnections(sealed=None, reason="the host has no attempt of this server")
NO_SESSION = SealedConnections(sealed=None, reason="the agent of the host has begun no session")
NOT_ITS = SealedConnections(sealed=None, reason="the server has no volume by an attachment that was named")


class _Asked(NamedTuple):
    """What a cell knows of a host that asks, and of the server."""

    key: bytes | None = None
    """Of the host's agent."""
    row: VolumesOfRow | None = None
    """None: the host has no attempt of the server."""
    prepares: bool = False
    """Whether the server is to come to the host live."""


class Connections:
    """Tells hosts of the volumes of servers that they have."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._second = SecondAttachments(parts)

    async def read(
        self, cell: CellUuid, message: ReadConnections, _context: RequestContext | None
    ) -> SealedConnections:
        """Answer a conductor of `cell`.

        Raises Forbidden when it asks for another cell, Unavailable without it or where the volume service does not
        answer.
        """
        parts = self._parts
        if message.cell != cell:
            raise Forbidden(f"cell: cell {cell} may not request connections of cell {message.cell}.")
        access = parts.cells.get(cell)
        if access is None:
            raise Unavailable(f"This process does not know cell {cell}.")
        key, row, prepares = await access.read(partial(_asked, message=message))
        if row is None or not (prepares or row.host == message.host):
            return NOT_HERE
        if key is None:
            return NO_SESSION
        volumes: Sequence[ServerVolume] | VolumesRefused = row.volumes
        if prepares:
            volumes = await self._second.made(access, message.instance, message.host, message.attempt)
        if isinstance(volumes, VolumesRefused):
            return SealedConnections(sealed=None, reason=volumes.message)
        wanted = list(_named(volumes, message.attachments) if message.attachments else staying(volumes))
        if len(wanted) < len(message.attachments):
            return NOT_ITS
        elsewhere = next((one for one in wanted if one.host != message.host), None)
        if elsewhere is not None:
            return SealedConnections(sealed=None, reason=f"volume {elsewhere.volume_id} is not connected to the host")
        found = await self._found(wanted)
        if isinstance(found, VolumesRefused):
            return SealedConnections(sealed=None, reason=found.message)
        about = connections_label(message.instance, message.attempt)
        try:
            return SealedConnections(sealed=seal_to_run(key, about, msgspec.json.encode(found)))
        except ValueError as error:
            log.error("an agent's session has no key", cell=cell, host=message.host, error=str(error))
            return NO_SESSION

    async def _found(self, wanted: list[ServerVolume]) -> ConnectedVolumes | VolumesRefused:
        """Ask the volume service. Raises Unavailable."""
        told = []
        connections = await self._parts.volumes.connections([one.attachment_id for one in wanted])
        for volume, connection in zip(wanted, connections, strict=True):
            if isinstance(connection, VolumesRefused):
                return connection
            told.append(
                ConnectedVolume(
                    volume_id=volume.volume_id,
                    attachment_id=volume.attachment_id,
                    device=volume.device,
                    boot_index=volume.boot_index,
                    driver=connection.driver,
                    data=connection.data,
                    shared=connection.shared,
                )
            )
        return ConnectedVolumes(tuple(told))


def _named(volumes: Sequence[ServerVolume], attachments: Sequence[str]) -> Iterator[ServerVolume]:
    """Give what the server has by these attachments, also what is to stand in the place of another."""
    for one in volumes:
        if one.attachment_id in attachments:
            yield one
        swap = one.swap
        if swap is not None and swap.attachment_id in attachments:
            other = {"volume_id": swap.volume_id, "attachment_id": swap.attachment_id, "host": swap.host}
            yield msgspec.structs.replace(one, **other, swap=None)


def _asked(connection: Connection, message: ReadConnections) -> _Asked:
    place = (message.instance, message.attempt, message.host)
    if not guest_secrets.is_open(connection, *place):
        return _Asked()
    row = cell_volumes.told(connection, [message.instance]).get(message.instance)
    key = guest_secrets.exchange_key_of_host(connection, message.host)
    return _Asked(key, row, prepares=second_attachments.are_wanted(connection, *place))
