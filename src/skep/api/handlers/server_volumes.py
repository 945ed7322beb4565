"""Volumes that a server has, gets and loses after its build (Nova: "Servers with volume attachments")."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import structlog

from skep.api.cells import read_cell, write_cell
from skep.api.handlers import volume_swaps
from skep.api.handlers.server_actions import carry_out, check_without_task
from skep.api.handlers.server_lookup import LocatedServer, find
from skep.api.handlers.volume_plugs import check_readable, once_calm, plug, plugs, unplug
from skep.api.handlers.volume_snapshots import once_free
from skep.api.handlers.volume_swaps import BODY, give_back, hold
from skep.api.requests import Answer, ApiRequest
from skep.database.cell import volumes as cell_volumes
from skep.domain.actions import ACTIONS, Action
from skep.domain.errors import BadRequest, Conflict, NotFound, OutcomeUnknown, SkepError, Unavailable
from skep.domain.ids import new_uuid
from skep.domain.instances import Instance, State
from skep.domain.invalid_input import invalid_field
from skep.domain.states import vm_state
from skep.domain.volumes import NOWHERE, ServerVolume, staying
from skep.neighbours.volumes import leaving
from skep.neighbours.volumes.base import AskedAttachment, UsersVolume, VolumesRefused, WantedAttachments

log = structlog.get_logger("skep.api.servers")

ATTACH, DETACH = ACTIONS["attach_volume"], ACTIONS["detach_volume"]
SWAP = "os_compute_api:os-volumes-attachments:swap"

SHELVED_SINCE = 20
"""Since then servers that are shelved get and lose volumes."""
SHARED_SINCE = 60
"""Since then clients know that servers share volumes."""
CHANGED_SINCE = 85
"""Since then a PUT changes what becomes of a volume at the end of its server; before, it only swaps volumes."""
ATTACHED_SINCE = 89
"""Since then a volume that is just being attached anew is not shown."""
SILENT_SINCE = 101
"""Since then the answer to an attach says nothing."""


async def index(request: ApiRequest) -> Answer:
    """Return the volumes of a server."""
    server = (await find(request)).instance
    shown = [_shown(server, one) for one in staying(server.volumes) if _is_seen(request, one)]
    return Answer({"volumeAttachments": request.part(shown)})


async def show(request: ApiRequest) -> Answer:
    """Return one volume of a server."""
    server = (await find(request)).instance
    found = _volume(server, request.params["volume_id"])
    if not _is_seen(request, found):
        raise _not_attached(server, found.volume_id)
    return Answer({BODY: _shown(server, found)})


async def attach(request: ApiRequest) -> Answer:
    """Give a server one more volume: it is kept for the server first, then its row has it.

    A super conductor connects it to the host of the server; where that connects volumes itself, it has the guest get
    the volume. A row that does not take it leaves it to others.
    """
    asked = request.body[BODY]
    found = await once_calm(request)
    server, volume_id = found.instance, asked["volumeId"]
    _check(request, server, ATTACH)
    if asked.get("tag") is not None and server.host is None:
        raise invalid_field(f"{BODY}.tag", asked["tag"], "none, since no host tells a shelved server of its tags")
    if any(one.volume_id == volume_id for one in server.volumes):
        raise invalid_field(f"{BODY}.volumeId", volume_id, "a volume that the server does not have")
    volume = await _attachable(request, server, volume_id)
    if volume.multiattach and server.host is None:
        raise invalid_field(f"{BODY}.volumeId", volume_id, "a volume of one server alone, while the server is shelved")
    await check_readable(request, found, volume)
    wanted = await _kept(request, found, asked)
    try:
        if await plugs(request, found):
            await plug(request, found, wanted)
        elif not await carry_out(request, found, ATTACH, {"volume": wanted, "volume_id": volume_id}):
            raise Conflict(f"Instance {server.uuid} is not ready")
    except OutcomeUnknown:
        # The row may have it: a look finds out.
        raise
    except SkepError:
        await give_back(request, found, wanted.attachment_id)
        raise
    if request.version >= SILENT_SINCE:
        return Answer()
    made = next((one for one in (await find(request)).instance.volumes if one.id == wanted.id), wanted)
    return Answer({BODY: _shown(server, made)})


async def _attachable(request: ApiRequest, server: Instance, volume_id: str) -> UsersVolume:
    """Look the volume up in the name of the user."""
    asked = AskedAttachment(
        volume_id=volume_id,
        zone=server.availability_zone or "",
        multiattach=request.version >= SHARED_SINCE,
    )
    return await request.services.volumes.attachable(asked, request.context, request.token)


async def _kept(request: ApiRequest, found: LocatedServer, asked: dict[str, Any]) -> ServerVolume:
    """Keep a volume for a server; where that is on no host, the volume is in use at once.

    It is noted before that the server may have one, so that a look finds what a process that died has left.
    """
    services, server, volume_id = request.services, found.instance, asked["volumeId"]
    await hold(request, server.uuid)
    wanted = WantedAttachments(instance=server.uuid, volume_ids=(volume_id,))
    [kept] = await services.server_volumes.reserve([wanted])
    if isinstance(kept, VolumesRefused):
        raise invalid_field(f"{BODY}.volumeId", volume_id, f"a volume that can be attached: {kept.message}")
    [attachment_id] = kept
    if server.host is None:
        await _completed(request, found, volume_id, attachment_id)
    return ServerVolume(
        id=new_uuid(),
        volume_id=volume_id,
        attachment_id=attachment_id,
        device=asked.get("device") or "",
        delete_on_termination=bool(asked.get("delete_on_termination")),
        tag=asked.get("tag"),
    )


async def _completed(request: ApiRequest, found: LocatedServer, volume_id: str, attachment_id: str) -> None:
    """Tell that a volume is in use by a server without a host; where that is refused or not known, it is given back."""
    try:
        [refused] = await request.services.server_volumes.complete([attachment_id])
    except SkepError:
        await give_back(request, found, attachment_id)
        raise
    if refused is not None:
        await give_back(request, found, attachment_id)
        raise invalid_field(f"{BODY}.volumeId", volume_id, f"a volume that can be attached: {refused.message}")


async def detach(request: ApiRequest) -> Answer:
    """Take a volume from a server: its row decides that it leaves, and then the volume service lets go of it. A host
    that connects volumes itself takes it from the guest before that.

    Before that the service shows it as being detached, so that others are refused meanwhile; what the row refuses is
    in use as before, and a look says so where this process cannot. Once the row has decided, a super conductor does
    what this process leaves undone.
    """
    found, volume = await once_free(partial(_found, request))
    server = found.instance
    if volume.is_root:
        raise BadRequest("Cannot detach a root device volume")
    _check(request, server, DETACH)
    if volume.is_promised:
        raise Conflict(f"Volume {volume.volume_id} of instance {server.uuid} is in the hands of the volume service.")
    await hold(request, server.uuid)
    has_begun = await _begun(request, server, volume)
    try:
        if volume.host == server.host and await plugs(request, found):
            await unplug(request, found, volume)
            return Answer()
        if not await carry_out(request, found, DETACH, {"volume_id": volume.volume_id}):
            raise Conflict(f"Instance {server.uuid} is not ready")
    except OutcomeUnknown:
        # The row may have decided it: a super conductor finds out, or a look.
        raise
    except SkepError:
        if has_begun:
            await _rolled_back(request, volume)
        raise
    await _released(request, found, volume)
    return Answer()


async def _found(request: ApiRequest) -> tuple[LocatedServer, ServerVolume]:
    found = await find(request)
    return found, _volume(found.instance, request.params["volume_id"])


async def _begun(request: ApiRequest, server: Instance, volume: ServerVolume) -> bool:
    """Have the service show a volume as being detached; False where it has nothing to show.

    Raises BadRequest for what cannot be detached now, Unavailable where the service does not answer.
    """
    volumes = request.services.server_volumes
    if volume.host == NOWHERE or volume.host != server.host:
        # One that is about to follow its server is not in use as its service sees it.
        return False
    try:
        refused = await volumes.begin_detaching(volume.volume_id)
        # One that is gone is taken from the row: nothing else ever would.
        if refused is not None and await volumes.status(volume.volume_id) is not None:
            raise BadRequest(f"Volume {volume.volume_id} cannot be detached: {refused.message}")
    except Unavailable:
        await _rolled_back(request, volume)
        raise
    return refused is None


async def _rolled_back(request: ApiRequest, volume: ServerVolume) -> None:
    """Have a volume in use as before. Where that fails, too, a look does it."""
    with contextlib.suppress(SkepError):
        await request.services.server_volumes.roll_detaching(volume.volume_id)


async def _released(request: ApiRequest, found: LocatedServer, volume: ServerVolume) -> None:
    """Have the service let go of a volume that leaves, and the row lose it; else a super conductor does it."""
    services, server, cell = request.services, found.instance, found.cell
    assert cell is not None

    async def is_named() -> bool:
        return await read_cell(services, cell, partial(cell_volumes.names, uuid=server.uuid, id_=volume.id))

    try:
        await leaving.release(services.server_volumes, server.uuid, server.project_id, volume, is_named)
        unit = partial(cell_volumes.lose, uuid=server.uuid, id_=volume.id, now=services.clock.now())
        await write_cell(services, cell, unit)
    except SkepError as error:
        log.warning(
            "volume leaves later",
            request=request.context.request_id,
            instance=server.uuid,
            volume=volume.volume_id,
            error=str(error),
        )


async def update(request: ApiRequest) -> Answer:
    """Have another volume stand in the place of one, or change whether one is deleted with its server (2.85)."""
    asked = request.body[BODY]
    swaps = request.version < CHANGED_SINCE or asked["volumeId"] != request.params["volume_id"]
    found = await find(request, rule=SWAP if swaps else None)
    server = found.instance
    volume = _volume(server, request.params["volume_id"])
    if swaps:
        await volume_swaps.begin(request, found, volume, asked["volumeId"])
        return Answer()
    same = {"device": volume.device, "tag": volume.tag, "serverId": server.uuid, "id": volume.volume_id}
    for key, value in same.items():
        if key in asked and asked[key] != value:
            raise invalid_field(f"{BODY}.{key}", asked[key], f"{value}, since only delete_on_termination changes")
    if "delete_on_termination" in asked:
        if volume.is_made and not asked["delete_on_termination"]:
            # Its label says that it ends with the server.
            await request.services.server_volumes.let_go(server.project_id, volume.volume_id)
        await _end_with_server(request, found, volume.volume_id, ends=asked["delete_on_termination"])
    return Answer()


async def _end_with_server(request: ApiRequest, found: LocatedServer, volume_id: str, *, ends: bool) -> None:
    """Write whether a volume goes with its server. Raises Conflict where the row is written by others all the time."""
    services, server = request.services, found.instance.uuid
    assert found.cell is not None
    for _ in range(3):
        row = (await read_cell(services, found.cell, partial(cell_volumes.told, uuids=[server]))).get(server)
        if row is None:
            break
        if all(one.volume_id != volume_id for one in staying(row.volumes)):
            raise _not_attached(found.instance, volume_id)
        changed = _changed(row.volumes, volume_id, ends=ends)
        unit = partial(cell_volumes.keep_or_end, before=row, volumes=changed, now=services.clock.now())
        if await write_cell(services, found.cell, unit):
            return
    raise Conflict(f"Instance {server} is not ready")


def _changed(volumes: Sequence[ServerVolume], volume_id: str, *, ends: bool) -> list[ServerVolume]:
    # One that stays is its project's: it has no label any more.
    return [
        msgspec.structs.replace(one, delete_on_termination=ends, is_made=one.is_made and ends)
        if one.volume_id == volume_id
        else one
        for one in volumes
    ]


def _check(request: ApiRequest, server: Instance, action: Action) -> None:
    """Raise Conflict for a server whose volumes cannot be changed now."""
    if request.version < SHELVED_SINCE and server.state in (State.SHELVED, State.SHELVED_OFFLOADED):
        raise Conflict(
            f"Cannot '{action.record}' instance {server.uuid} while it is in vm_state {vm_state(server.state)}"
        )
    check_without_task(request, server, action)


def _volume(server: Instance, volume_id: str) -> ServerVolume:
    """Return a volume of a server. Raises NotFound."""
    found = next((one for one in staying(server.volumes) if one.volume_id == volume_id), None)
    if found is None:
        raise _not_attached(server, volume_id)
    return found


def _not_attached(server: Instance, volume_id: str) -> NotFound:
    return NotFound(f"Volume {volume_id[:80]} is not attached to instance {server.uuid}.")


def _is_seen(request: ApiRequest, volume: ServerVolume) -> bool:
    return request.version < ATTACHED_SINCE or bool(volume.attachment_id)


def _shown(server: Instance, volume: ServerVolume) -> dict[str, Any]:
    """Return a volume as users see it."""
    shown = {
        "id": volume.volume_id,
        "volumeId": volume.volume_id,
        "serverId": server.uuid,
        "tag": volume.tag,
        "delete_on_termination": volume.delete_on_termination,
        "attachment_id": volume.attachment_id or None,
        "bdm_uuid": volume.id,
    }
    return {**shown, "device": volume.device} if volume.device else shown
