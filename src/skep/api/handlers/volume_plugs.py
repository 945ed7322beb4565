"""Volumes that the host of a server gives to its guest, or takes from it, while the server is there.

So it is where the driver of the host connects volumes (capability `attach_volume`). The volume service is told first;
then the row names the volume, in the unit that begins the action of the host. The volume is in use once the guest has
it, and is let go of once the guest has it no more: a super conductor tells the volume service what came of it, since
the row says so.
"""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec

from skep.api.cells import read_cell
from skep.api.handlers.server_actions import begin_with
from skep.api.handlers.server_lookup import LocatedServer, find
from skep.api.handlers.volume_snapshots import LOOK_SECONDS, PATIENCE_SECONDS
from skep.api.handlers.volume_swaps import BODY
from skep.api.requests import ApiRequest
from skep.database import Connection
from skep.database.cell import agents, listing, swaps
from skep.database.cell.row_actions import named_volume
from skep.domain.actions import ACTIONS, PLUG, PLUGGING, UNPLUG
from skep.domain.capabilities import Capability
from skep.domain.errors import Conflict
from skep.domain.invalid_input import invalid_field
from skep.domain.volumes import PlugVolume, ServerVolume, VolumePlug, connector
from skep.neighbours.volumes.base import UsersVolume, VolumesRefused, WantedConnection


async def once_calm(request: ApiRequest) -> LocatedServer:
    """Return the server once its host gives it no volume or interface and takes none away.

    What lasts longer than `PATIENCE_SECONDS` is not waited for: clients of Nova attach one volume after another.
    """
    end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        found = await find(request)
        if found.instance.task not in PLUGGING or asyncio.get_running_loop().time() >= end:
            return found
        await asyncio.sleep(LOOK_SECONDS)


async def plugs(request: ApiRequest, found: LocatedServer, capability: Capability = Capability.ATTACH_VOLUME) -> bool:
    """Tell whether the host of a server gives volumes, or what the capability says, to its guest itself."""
    host = found.instance.host
    if host is None or found.cell is None:
        return False
    unit = partial(agents.is_able, host=host, capability=capability)
    return await read_cell(request.services, found.cell, unit)


async def check_readable(request: ApiRequest, found: LocatedServer, volume: UsersVolume) -> None:
    """Raise Conflict for an encrypted volume that the host of a server cannot have a guest read."""
    if not volume.encrypted or not await plugs(request, found):
        return
    needed = Capability.ENCRYPTED_VOLUME
    if not await plugs(request, found, needed):
        server = found.instance
        raise Conflict(
            f"Volume {volume.id} is encrypted, and the driver of the host of instance {server.uuid} lacks the "
            f"capability `{needed}`."
        )


async def plug(request: ApiRequest, found: LocatedServer, volume: ServerVolume) -> None:
    """Connect a volume that is kept for a server to its host, and have that give it to the guest.

    Raises BadRequest for what the volume service does not connect, and what `named_volume` raises; Conflict for a
    server whose row does not take it, Unavailable where the service does not answer.
    """
    server = found.instance
    assert server.host is not None
    named = msgspec.structs.replace(
        named_volume(server, volume), host=server.host, plug=VolumePlug(task_id=request.context.request_id)
    )
    wanted = WantedConnection(attachment_id=named.attachment_id, connector=dict(connector(server.host, named)))
    [connection] = await request.services.server_volumes.connect([wanted])
    if isinstance(connection, VolumesRefused):
        why = f"a volume that can be connected: {connection.message}"
        raise invalid_field(f"{BODY}.volumeId", named.volume_id, why)

    def write(connection: Connection) -> bool:
        before = listing.find(connection, server.uuid)
        return before is not None and swaps.plug(connection, server.uuid, named_volume(before, named))

    arguments = PlugVolume(volume_id=named.volume_id, attachment_id=named.attachment_id)
    await begin_with(request, found, ACTIONS[PLUG], arguments, write)


async def unplug(request: ApiRequest, found: LocatedServer, volume: ServerVolume) -> None:
    """Have the host of a server take a volume from its guest. Raises Conflict where the row does not allow it."""
    server = found.instance
    arguments = PlugVolume(volume_id=volume.volume_id, attachment_id=volume.attachment_id)
    write = partial(swaps.unplug, uuid=server.uuid, of=volume, task_id=request.context.request_id)
    await begin_with(request, found, ACTIONS[UNPLUG], arguments, write)
