"""A cloud without a volume service: what names a volume is refused."""

from __future__ import annotations

from collections.abc import Sequence

from skep.domain.block_devices import V1, AskedDevice
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, NotFound
from skep.domain.ids import InstanceUuid, ProjectId
from skep.domain.invalid_input import invalid_field
from skep.neighbours.volumes.base import (
    AskedAttachment,
    AskedVolumes,
    ChosenVolumes,
    DiskVolume,
    EndedVolumes,
    LeftVolume,
    UsersVolume,
    VolumeAttachment,
    VolumeConnection,
    VolumesRefused,
    WantedAttachments,
    WantedBeside,
    WantedConnection,
    WantedVolumes,
)
from skep.neighbours.volumes.proxied import NewSnapshot, NewVolume, SnapshotOfUser, VolumeOfUser

NOT_CONFIGURED = "no volume service is configured"
NO_VOLUMES = f"nothing of volumes, since {NOT_CONFIGURED}"
GONE = VolumesRefused("there is no volume service any more")
"""For servers that were asked for while there was one."""


class NoVolumes:
    """A `VolumesOfUsers` and `ServerVolumes` where there are none."""

    elsewhere = False

    async def choose(self, asked: AskedVolumes, _context: RequestContext, _token: str) -> ChosenVolumes:
        """Take what names no volume."""
        for one in asked.devices:
            if one.device.destination_type == "volume":
                raise _refused(one)
        return ChosenVolumes(devices=asked.devices, zone=asked.zone)

    async def attachable(self, asked: AskedAttachment, _context: RequestContext, _token: str) -> UsersVolume:
        """Refuse: there is no volume."""
        raise NotFound(f"Volume {asked.volume_id[:80]} could not be found: {NOT_CONFIGURED}.")

    async def list_volumes(self, _context: RequestContext, _token: str) -> list[VolumeOfUser]:
        """There is no list of volumes."""
        raise _no_proxy("volumes")

    async def volume(self, _volume_id: str, _context: RequestContext, _token: str) -> VolumeOfUser:
        """There is no volume."""
        raise _no_proxy("volumes")

    async def create_volume(self, _wanted: NewVolume, _context: RequestContext, _token: str) -> VolumeOfUser:
        """Nothing makes volumes."""
        raise _no_proxy("volumes")

    async def delete_volume(self, _volume_id: str, _context: RequestContext, _token: str) -> None:
        """There is no volume."""
        raise _no_proxy("volumes")

    async def list_snapshots(self, _context: RequestContext, _token: str) -> list[SnapshotOfUser]:
        """There is no list of snapshots."""
        raise _no_proxy("volume snapshots")

    async def snapshot(self, _snapshot_id: str, _context: RequestContext, _token: str) -> SnapshotOfUser:
        """There is no snapshot."""
        raise _no_proxy("volume snapshots")

    async def create_snapshot(self, _wanted: NewSnapshot, _context: RequestContext, _token: str) -> SnapshotOfUser:
        """Nothing makes snapshots."""
        raise _no_proxy("volume snapshots")

    async def delete_snapshot(self, _snapshot_id: str, _context: RequestContext, _token: str) -> None:
        """There is no snapshot."""
        raise _no_proxy("volume snapshots")

    async def make(self, wanted: Sequence[WantedVolumes]) -> list[tuple[DiskVolume, ...] | VolumesRefused]:
        """Make nothing."""
        return [GONE if any(d.destination_type == "volume" for d in one.devices) else () for one in wanted]

    async def reserve(self, wanted: Sequence[WantedAttachments]) -> list[tuple[str, ...] | VolumesRefused]:
        """Keep nothing."""
        return [GONE if one.volume_ids else () for one in wanted]

    async def connect(self, wanted: Sequence[WantedConnection]) -> list[VolumeConnection | VolumesRefused]:
        """There is nothing to connect."""
        return [GONE for _ in wanted]

    async def connect_beside(self, wanted: Sequence[WantedBeside]) -> list[VolumeConnection | VolumesRefused]:
        """There is nothing to connect."""
        return [GONE for _ in wanted]

    async def connections(self, attachments: Sequence[str]) -> list[VolumeConnection | VolumesRefused]:
        """There is nothing connected."""
        return [GONE for _ in attachments]

    async def complete(self, attachments: Sequence[str]) -> list[VolumesRefused | None]:
        """There is nothing to complete."""
        return [GONE for _ in attachments]

    async def detach(self, _attachments: Sequence[str]) -> None:
        """There is nothing to detach."""

    async def of_servers(self, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, tuple[VolumeAttachment, ...]]:
        """Return that no server has any."""
        return dict.fromkeys(servers, ())

    async def held(self) -> dict[InstanceUuid, tuple[VolumeAttachment, ...]]:
        """Return that no server has any."""
        return {}

    async def status(self, _volume_id: str) -> str | None:
        """There is no volume."""
        return None

    async def begin_detaching(self, _volume_id: str) -> VolumesRefused | None:
        """There is nothing to detach."""
        return GONE

    async def roll_detaching(self, _volume_id: str) -> None:
        """There is nothing that stays."""

    async def reimage(self, _volume_id: str, _image_id: str) -> VolumesRefused | None:
        """There is nothing to fill."""
        return GONE

    async def end_move(self, _volume_id: str, _other_id: str, *, failed: bool) -> VolumesRefused | None:  # noqa: ARG002
        """Nothing is moved."""
        return GONE

    async def assisted(self, _snapshot_id: str, *, deletes: bool, failed: bool) -> VolumesRefused | None:  # noqa: ARG002
        """There is no snapshot."""
        return GONE

    async def let_go(self, _project_id: ProjectId, _volume_id: str) -> None:
        """There is nothing to let go."""

    async def is_let_go(self, _instance: InstanceUuid, _volume_id: str) -> bool:
        """Know of no volume."""
        return False

    async def discard(self, servers: Sequence[EndedVolumes]) -> list[tuple[LeftVolume, ...]]:
        """There is nothing to delete."""
        return [() for _ in servers]


def _no_proxy(noun: str) -> NotFound:
    return NotFound(f"The resource could not be found: {noun} are not part of this release.")


def _refused(asked: AskedDevice) -> BadRequest:
    """Return the error that names the key by which a disk is a volume."""
    device, where = asked.device, asked.where
    if where.startswith(f"{V1}["):
        return invalid_field(f"{where}.{device.source_type}_id", device.uuid, NO_VOLUMES)
    if not where.endswith("]"):
        return invalid_field(
            where, device.source_type, f"an image without disks that are volumes, since {NOT_CONFIGURED}"
        )
    if device.source_type in ("snapshot", "volume"):
        return invalid_field(f"{where}.source_type", device.source_type, NO_VOLUMES)
    return invalid_field(f"{where}.destination_type", device.destination_type, NO_VOLUMES)
