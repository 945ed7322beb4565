"""Volumes and snapshots as old clients ask the compute API for them, in the words of nova-volume."""

from __future__ import annotations

from typing import Any

from skep.api.requests import Answer, ApiRequest
from skep.neighbours.volumes.proxied import NewSnapshot, NewVolume, SnapshotOfUser, VolumeOfUser

Json = dict[str, Any]


async def index(request: ApiRequest) -> Answer:
    """`GET /os-volumes`, `GET /os-volumes/detail`: both say the same, as in Nova."""
    found = await request.services.volumes.list_volumes(request.context, request.token)
    return Answer({"volumes": [_volume(one) for one in request.part(found)]})


async def show(request: ApiRequest) -> Answer:
    """`GET /os-volumes/{volume_id}`."""
    found = await request.services.volumes.volume(request.params["volume_id"], request.context, request.token)
    return Answer({"volume": _volume(found)})


async def create(request: ApiRequest) -> Answer:
    """`POST /os-volumes`."""
    said = request.body["volume"]
    wanted = NewVolume(
        size=said["size"],
        name=said.get("display_name"),
        description=said.get("display_description"),
        snapshot_id=said.get("snapshot_id"),
        volume_type=said.get("volume_type"),
        availability_zone=said.get("availability_zone"),
        metadata=said.get("metadata") or {},
    )
    made = await request.services.volumes.create_volume(wanted, request.context, request.token)
    return Answer({"volume": _volume(made)}, headers={"Location": f"{request.links.own('os-volumes', made.id)}"})


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /os-volumes/{volume_id}`."""
    await request.services.volumes.delete_volume(request.params["volume_id"], request.context, request.token)
    return Answer()


async def index_of_snapshots(request: ApiRequest) -> Answer:
    """`GET /os-snapshots`, `GET /os-snapshots/detail`."""
    found = await request.services.volumes.list_snapshots(request.context, request.token)
    return Answer({"snapshots": [_snapshot(one) for one in request.part(found)]})


async def show_snapshot(request: ApiRequest) -> Answer:
    """`GET /os-snapshots/{snapshot_id}`."""
    found = await request.services.volumes.snapshot(request.params["snapshot_id"], request.context, request.token)
    return Answer({"snapshot": _snapshot(found)})


async def create_snapshot(request: ApiRequest) -> Answer:
    """`POST /os-snapshots`."""
    said = request.body["snapshot"]
    wanted = NewSnapshot(
        volume_id=said["volume_id"],
        name=said.get("display_name"),
        description=said.get("display_description"),
        force=said.get("force", False),
    )
    made = await request.services.volumes.create_snapshot(wanted, request.context, request.token)
    return Answer({"snapshot": _snapshot(made)})


async def delete_snapshot(request: ApiRequest) -> Answer:
    """`DELETE /os-snapshots/{snapshot_id}`."""
    await request.services.volumes.delete_snapshot(request.params["snapshot_id"], request.context, request.token)
    return Answer()


def _volume(volume: VolumeOfUser) -> Json:
    """Show a volume; one that no server has says so by an empty object, and of several servers one is told."""
    uses = [
        {"id": volume.id, "volumeId": volume.id, "serverId": one.server_id, **_device(one.device)}
        for one in volume.attachments[:1]
    ]
    return {
        "id": volume.id,
        "status": volume.status,
        "size": volume.size,
        "availabilityZone": volume.availability_zone,
        "createdAt": volume.created_at,
        "displayName": volume.name,
        "displayDescription": volume.description,
        "snapshotId": volume.snapshot_id,
        "volumeType": volume.volume_type,
        "metadata": volume.metadata,
        "attachments": uses or [{}],
    }


def _device(name: str | None) -> Json:
    return {} if name is None else {"device": name}


def _snapshot(snapshot: SnapshotOfUser) -> Json:
    return {
        "id": snapshot.id,
        "volumeId": snapshot.volume_id,
        "status": snapshot.status,
        "size": snapshot.size,
        "createdAt": snapshot.created_at,
        "displayName": snapshot.name,
        "displayDescription": snapshot.description,
    }
