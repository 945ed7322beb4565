"""Images of servers that boot from a volume: snapshots of their volumes, and an image without bytes that names them.

Nova calls them volume-backed snapshots. No host takes part. The image is awaited while it is made, so that it goes
where this comes to nothing; so do the snapshots, unless the process dies: they are the user's then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import structlog

from skep.api.awaited_images import end
from skep.api.handlers import server_images
from skep.api.handlers.server_lookup import LocatedServer
from skep.api.requests import Answer, ApiRequest
from skep.database.api import awaited_images, build_requests
from skep.database.api.awaited_images import AwaitedImage
from skep.domain.block_devices import IS_V2, OF_IMAGE, ROOT_NAME, BlockDevice
from skep.domain.errors import QuotaExceeded, SkepError, TooLarge, Unavailable
from skep.domain.ids import new_uuid
from skep.domain.images import NewImage
from skep.domain.instances import Instance
from skep.domain.volumes import ServerVolume, root_of, staying
from skep.neighbours.volumes.proxied import NewSnapshot, SnapshotOfUser

log = structlog.get_logger("skep.api.servers")

LONGEST_NAME = 255


async def create(request: ApiRequest, found: LocatedServer, asked: dict[str, Any]) -> tuple[str, Answer]:
    """Make the image of a server that boots from a volume; return its id and what the client is told.

    Raises as `server_images.create_image`; QuotaExceeded where the volume service takes no more snapshots.
    """
    services, instance = request.services, found.instance
    await server_images.check_metadata_of(request, asked.get("metadata", {}))
    awaited = AwaitedImage(
        image_id=new_uuid(),
        instance=instance.uuid,
        task_id=request.context.request_id,
        created_at=services.clock.now(),
        project_id=request.context.project_id,
        backup_type=None,
        rotation=None,
        of_shelved=False,
    )
    await services.database.write(partial(awaited_images.add, new=awaited), intake=True)
    snapshots: list[SnapshotOfUser] = []
    try:
        for volume in staying(instance.volumes):
            wanted = NewSnapshot(
                volume_id=volume.volume_id, name=f"snapshot for {asked['name']}"[:LONGEST_NAME], force=True
            )
            snapshots.append(await services.volumes.create_snapshot(wanted, request.context, request.token))
        new = await _image(request, instance, asked, awaited.image_id, snapshots)
        await services.image_records.create(new)
        await services.image_records.activate(new.id, request.context)
    except SkepError as error:
        await _undo(request, awaited, snapshots)
        if isinstance(error, TooLarge):
            raise QuotaExceeded(str(error)) from error
        raise
    return awaited.image_id, server_images.answer_of(request, awaited.image_id)


async def _image(
    request: ApiRequest,
    instance: Instance,
    asked: dict[str, Any],
    image_id: str,
    snapshots: Sequence[SnapshotOfUser],
) -> NewImage:
    """Return the image, whose properties say all disks of the server."""
    spec = await request.services.database.read(partial(build_requests.spec_of, instance=instance.uuid))
    base = None if spec is None or spec.image is None else msgspec.structs.replace(spec.image, min_disk=0)
    disks = [_of_volume(*pair) for pair in zip(staying(instance.volumes), snapshots, strict=True)]
    disks += [_of_host(one) for one in instance.block_devices if one.destination_type == "local"]
    facts = {
        OF_IMAGE: msgspec.json.encode(disks).decode(),
        IS_V2: "True",
        ROOT_NAME: root_of(instance.block_devices),
    }
    bare = msgspec.structs.replace(instance, image=base, flavor=msgspec.structs.replace(instance.flavor, root_gb=0))
    owner = request.context.project_id
    return server_images.image_of(bare, image_id, asked["name"], owner, {**facts, **asked.get("metadata", {})})


def _of_volume(volume: ServerVolume, snapshot: SnapshotOfUser) -> dict[str, Any]:
    """Return how an image says a disk that is made of the snapshot of a volume."""
    return {
        "source_type": "snapshot",
        "destination_type": "volume",
        "snapshot_id": snapshot.id,
        "volume_size": snapshot.size,
        "boot_index": volume.boot_index,
        "device_name": volume.device,
        "delete_on_termination": volume.delete_on_termination,
        "tag": volume.tag,
    }


def _of_host(device: BlockDevice) -> dict[str, Any]:
    """Return how an image says an empty disk of the server's host."""
    return {
        "source_type": device.source_type,
        "destination_type": "local",
        "guest_format": device.guest_format,
        "volume_size": device.volume_size or None,
        "boot_index": device.boot_index,
        "device_name": device.device_name,
        "delete_on_termination": True,
    }


async def _undo(request: ApiRequest, awaited: AwaitedImage, snapshots: Sequence[SnapshotOfUser]) -> None:
    """Leave nothing of it; what cannot be deleted now is the user's, and the image goes by the loop."""
    services = request.services
    for one in snapshots:
        try:
            await services.volumes.delete_snapshot(one.id, request.context, request.token)
        except SkepError as error:
            log.warning("snapshot stays", request=request.context.request_id, snapshot=one.id, error=str(error))
    try:
        await end(services, awaited)
    except Unavailable:
        return
