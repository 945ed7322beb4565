"""A volume of a server in whose place another one is to stand (Nova: "Update a volume attachment", swap).

Only the volume service asks for it, while it moves a volume that a server uses. The other volume is kept for the server
and connected to its host first; then the row names it, in the unit that begins the action of the host. What a process
that dies before that has kept is released by a look, and the volume service itself gives its move up.
"""

from __future__ import annotations

from functools import partial

import structlog

from skep.api.cells import read_cell
from skep.api.handlers.server_actions import begin_with, check_able, check_without_task
from skep.api.handlers.server_lookup import LocatedServer
from skep.api.requests import ApiRequest
from skep.database import Connection, clocks
from skep.database.api import volume_holders
from skep.database.cell import swaps
from skep.database.cell import volumes as cell_volumes
from skep.domain.actions import ACTIONS, SWAP
from skep.domain.errors import BadRequest, Conflict, NotFound, OutcomeUnknown, SkepError
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance
from skep.domain.invalid_input import invalid_field
from skep.domain.volumes import ServerVolume, SwapVolume, VolumeSwap, connector
from skep.neighbours.volumes.base import VolumesRefused, WantedAttachments, WantedConnection

log = structlog.get_logger("skep.api.servers")

BODY = "volumeAttachment"


async def begin(request: ApiRequest, found: LocatedServer, old: ServerVolume, volume_id: str) -> None:
    """Have the host of a server copy a volume to another one, and its guest go on with that.

    Raises Conflict or BadRequest for what cannot be swapped, Unavailable where the volume service does not answer.
    """
    server, action = found.instance, ACTIONS[SWAP]
    await _check(request, server, old, volume_id)
    await check_able(request, found, action)
    assert server.host is not None
    if old.swap is not None or old.host != server.host or not old.attachment_id:
        raise Conflict(f"Volume {old.volume_id} of instance {server.uuid} is not connected to its host yet.")
    await hold(request, server.uuid)
    attachment_id = await _connected(request, found, old, volume_id)
    swap = VolumeSwap(
        volume_id=volume_id, attachment_id=attachment_id, host=server.host, task_id=request.context.request_id
    )
    arguments = SwapVolume(
        device=old.device,
        old_volume_id=old.volume_id,
        old_attachment_id=old.attachment_id,
        new_volume_id=volume_id,
        new_attachment_id=attachment_id,
    )
    try:
        await begin_with(request, found, action, arguments, partial(swaps.name, uuid=server.uuid, old=old, swap=swap))
    except OutcomeUnknown:
        # The row may name it: a look finds out.
        raise
    except SkepError:
        await give_back(request, found, attachment_id)
        raise


async def _connected(request: ApiRequest, found: LocatedServer, old: ServerVolume, volume_id: str) -> str:
    """Keep the other volume for the server and connect it to its host; return its attachment."""
    server = found.instance
    volumes, field = request.services.server_volumes, f"{BODY}.volumeId"
    assert server.host is not None
    [kept] = await volumes.reserve([WantedAttachments(instance=server.uuid, volume_ids=(volume_id,))])
    if isinstance(kept, VolumesRefused):
        raise invalid_field(field, volume_id, f"a volume that can be attached: {kept.message}")
    wanted = WantedConnection(attachment_id=kept[0], connector=dict(connector(server.host, old)))
    try:
        [connection] = await volumes.connect([wanted])
    except SkepError:
        await give_back(request, found, kept[0])
        raise
    if isinstance(connection, VolumesRefused):
        await give_back(request, found, kept[0])
        raise invalid_field(field, volume_id, f"a volume that can be connected: {connection.message}")
    return kept[0]


async def give_back(request: ApiRequest, found: LocatedServer, attachment_id: str) -> None:
    """Leave a volume to others that the row did not take, unless the row has it by another request.

    Requests for the same volume share its attachment. If no row says what the server has now, since it is deleted or
    moves to another cell, or where this fails, a look does it. A request that gets the attachment after the row was
    read, and before the service has deleted it, leaves a row whose attachment is gone: a super conductor makes that
    anew, at a look, or once the host has copied a swapped volume and before the server loses the old one.
    """
    assert found.cell is not None
    services, server = request.services, found.instance.uuid
    try:
        rows = await read_cell(services, found.cell, partial(cell_volumes.told, uuids=[server]))
        if server not in rows or attachment_id in rows[server].all_attachments:
            return
        await services.server_volumes.detach([attachment_id])
    except SkepError as error:
        log.warning(
            "volume not taken back",
            request=request.context.request_id,
            instance=server,
            attachment=attachment_id,
            error=str(error),
        )


async def hold(request: ApiRequest, instance: InstanceUuid) -> None:
    """Note that a server may have volumes. Raises NotFound where it is being deleted.

    A super conductor judges by the database's clock when what is asked for must have ended, so it is noted by that one.
    """
    services = request.services

    def unit(connection: Connection) -> bool:
        return volume_holders.hold_living(connection, instance, clocks.now(connection, services.clock))

    if not await services.database.write(unit, intake=True):
        raise NotFound(f"Instance {instance} could not be found.")


async def _check(request: ApiRequest, server: Instance, old: ServerVolume, volume_id: str) -> None:
    """Raise Conflict or BadRequest for what cannot be swapped on any host (Nova's rules).

    Only the volume service swaps volumes, while it moves one that a server uses: of others it would not know.
    """
    services, field = request.services, f"{BODY}.volumeId"
    present = await services.volumes.volume(old.volume_id, request.context, request.token)
    if not present.migration_status:
        raise Conflict(
            f"Volume {old.volume_id} is not migrated by the volume service, and only then another volume can stand "
            "in its place."
        )
    try:
        new = await services.volumes.volume(volume_id, request.context, request.token)
    except NotFound:
        raise invalid_field(field, volume_id, "a volume that is there") from None
    check_without_task(request, server, ACTIONS[SWAP])
    if new.attachments:
        raise invalid_field(field, volume_id, "a volume that no server has")
    if new.size < present.size:
        raise invalid_field(
            field, volume_id, f"a volume of at least {present.size} GiB, as the one in whose place it is"
        )
    if len(present.attachments) > 1:
        raise BadRequest(f"Volume {old.volume_id} is that of several servers, and is not swapped for one of them.")
