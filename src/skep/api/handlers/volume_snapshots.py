"""Snapshots of volumes that are files, which the volume service has a host make or delete while a guest uses one.

The volume service asks for them (Nova: "Assisted volume snapshots") and waits to be told what came of it
(`os-update_snapshot_status`): by a super conductor, since the row of the server says so until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import msgspec

from skep.api.handlers.server_actions import begin_with, check_able, check_without_task
from skep.api.handlers.server_lookup import LocatedServer, look_up
from skep.api.requests import Answer, ApiRequest
from skep.database.cell import swaps
from skep.domain.actions import ACTIONS, ASSIST, PLUGGING, UNASSIST
from skep.domain.decoding import json_decoder
from skep.domain.errors import BadRequest, Conflict, NotFound
from skep.domain.ids import InstanceUuid
from skep.domain.volumes import AssistedSnapshot, AssistSnapshot, ServerVolume, staying

PATIENCE_SECONDS = 10.0
"""How long a request waits for a snapshot of its volume that is under way: Nova's hosts queue what they are asked."""
LOOK_SECONDS = 0.2
LONGEST_ID = 255
"""Characters of the id of a snapshot, as where one is made."""


class _DeleteInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the query of a delete says, in JSON."""

    volume_id: str
    file_to_merge: str | None = None
    merge_target_file: str | None = None


async def create(request: ApiRequest) -> Answer:
    """`POST /os-assisted-volume-snapshots`."""
    asked = request.body["snapshot"]
    info, volume_id = asked["create_info"], asked["volume_id"]
    found, volume = await _found(request, volume_id)
    wanted = AssistSnapshot(
        device=volume.device,
        volume_id=volume_id,
        attachment_id=volume.attachment_id,
        snapshot_id=info["snapshot_id"],
        new_file=info["new_file"],
    )
    await _begin(request, found, volume, wanted, deletes=False)
    return Answer({"snapshot": {"id": info.get("id"), "volumeId": volume_id}})


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /os-assisted-volume-snapshots/{snapshot_id}`."""
    said = request.first("delete_info")
    if not said:
        raise BadRequest("query parameter delete_info: expected a JSON object with volume_id, got nothing")
    if len(request.params["snapshot_id"]) > LONGEST_ID:
        raise BadRequest(f"snapshot_id: expected at most {LONGEST_ID} characters")
    try:
        info = json_decoder(_DeleteInfo).decode(said)
    except msgspec.DecodeError as error:
        raise BadRequest(f"query parameter delete_info: expected a JSON object with volume_id: {error}") from None
    found, volume = await _found(request, info.volume_id)
    wanted = AssistSnapshot(
        device=volume.device,
        volume_id=info.volume_id,
        attachment_id=volume.attachment_id,
        snapshot_id=request.params["snapshot_id"],
        file_to_merge=info.file_to_merge,
        merge_target_file=info.merge_target_file,
    )
    await _begin(request, found, volume, wanted, deletes=True)
    return Answer()


async def _found(request: ApiRequest, volume_id: str) -> tuple[LocatedServer, ServerVolume]:
    """Return the server that uses a volume, and the volume as its row has it, once no snapshot of it is under way.

    Raises BadRequest for a volume that is not there, or is that of no server of this cloud, or of several.
    """
    try:
        told = await request.services.volumes.volume(volume_id, request.context, request.token)
    except NotFound as error:
        raise BadRequest(f"volume_id: {error}") from None
    if len(told.attachments) > 1:
        raise BadRequest(f"volume_id: volume {volume_id} is that of several servers, of which none assists.")
    servers = [InstanceUuid(one.server_id) for one in told.attachments]
    return await once_free(partial(_of_row, request, servers, volume_id))


async def once_free(
    look: Callable[[], Awaitable[tuple[LocatedServer, ServerVolume]]],
) -> tuple[LocatedServer, ServerVolume]:
    """Return what `look` finds once no snapshot of the volume is under way, and no volume of its server on its way.

    One that lasts longer than `PATIENCE_SECONDS` is not waited for.
    """
    end = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        found, volume = await look()
        is_free = volume.snapshot is None and found.instance.task not in PLUGGING
        if is_free or asyncio.get_running_loop().time() >= end:
            return found, volume
        await asyncio.sleep(LOOK_SECONDS)


async def _of_row(
    request: ApiRequest, servers: Sequence[InstanceUuid], volume_id: str
) -> tuple[LocatedServer, ServerVolume]:
    for server in servers:
        found = await look_up(request.services, server)
        volumes = () if found is None or found.cell is None else staying(found.instance.volumes)
        volume = next((volume for volume in volumes if volume.volume_id == volume_id), None)
        if found is not None and volume is not None:
            return found, volume
    raise BadRequest(f"volume_id: volume {volume_id[:80]} is that of no server of this cloud.")


async def _begin(
    request: ApiRequest, found: LocatedServer, volume: ServerVolume, wanted: AssistSnapshot, *, deletes: bool
) -> None:
    """Have the host of a server make or delete a snapshot. Raises Conflict for a server that is not ready for it."""
    server, action = found.instance, ACTIONS[UNASSIST if deletes else ASSIST]
    check_without_task(request, server, action)
    if server.host is None or volume.host != server.host or not volume.attachment_id:
        raise Conflict(f"Volume {volume.volume_id} of instance {server.uuid} is not connected to its host.")
    await check_able(request, found, action)
    snapshot = AssistedSnapshot(snapshot_id=wanted.snapshot_id, task_id=request.context.request_id, deletes=deletes)
    also = partial(swaps.assist, uuid=server.uuid, of=volume, snapshot=snapshot)
    await begin_with(request, found, action, wanted, also)
