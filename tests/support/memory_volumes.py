"""A volume service in memory, with Cinder's rules for who may have a volume, for tests without HTTP beside them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec

from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, NotFound
from skep.domain.ids import InstanceUuid, ProjectId, new_uuid
from skep.domain.invalid_input import invalid_field
from skep.neighbours.volumes.absent import NoVolumes
from skep.neighbours.volumes.base import (
    DETACHING,
    AskedAttachment,
    AskedVolumes,
    BootVolume,
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
from skep.neighbours.volumes.proxied import AttachedTo, NewSnapshot, NewVolume, SnapshotOfUser, VolumeOfUser


async def _nothing() -> None:
    return None


class Kept(msgspec.Struct, kw_only=True):
    """An attachment."""

    id: str
    server: InstanceUuid
    volume_id: str
    status: str = "reserved"
    host: str = ""


class MemoryVolumes(NoVolumes):
    """Volumes that are there for every user, at once when they are made."""

    elsewhere = True

    def __init__(self) -> None:
        self.volumes: dict[str, UsersVolume] = {}
        self.attachments: dict[str, Kept] = {}
        self.zone: str | None = None
        """Where servers have to be."""
        self.kept = BootVolume()
        """What every volume keeps of its image."""
        self.made: dict[tuple[InstanceUuid, int], str] = {}
        """Volumes that were made for servers, by the positions of their disks."""
        self.wanted: dict[str, NewVolume] = {}
        """What users said of the volumes that they made."""
        self.snapshots: dict[str, SnapshotOfUser] = {}
        self.left: list[str] = []
        """Volumes that were made for a server and do not end with it any more."""
        self.migrating: set[str] = set()
        """Volumes that the service itself moves."""
        self.assisted_in: list[tuple[str, bool, bool]] = []
        """What came of snapshots that hosts made, as it was told: the snapshot, whether it goes, whether it failed."""
        self.moved: list[tuple[str, str, bool]] = []
        """What came of moves, as it was told: volume, the other one, whether it failed."""
        self.detaching: list[str] = []
        """Volumes that are being taken from a server."""
        self.meanwhile: Callable[[], Awaitable[object]] = _nothing
        """What happens once, before the next answer to `reserve`."""
        self.once_begun: Callable[[], Awaitable[object]] = _nothing
        """Likewise before the next answer to `begin_detaching`."""
        self.before_listing: Callable[[], Awaitable[object]] = _nothing
        """What happens once, before the attachments of servers are listed."""
        self.before_detach: Callable[[], Awaitable[object]] = _nothing
        """Likewise before attachments are deleted."""
        self.once_beside: Callable[[], Awaitable[object]] = _nothing
        """What happens once, before the next answer to `connect_beside`."""
        self.reached: dict[str, tuple[str, dict[str, Any]]] = {}
        """How hosts reach volumes: the kind of connection, and its data."""
        self.unreached: set[str] = set()
        """Volumes that no second host of a server reaches."""
        self.failing: dict[str, Exception] = {}
        """By the name of a call: what it raises."""

    def new_volume(self, *, shared: bool = False, size: int = 1) -> str:
        """Make a volume and return its id."""
        made = UsersVolume(id=new_uuid(), size=size, multiattach=shared)
        self.volumes[made.id] = made
        return made.id

    async def choose(self, asked: AskedVolumes, _context: RequestContext, _token: str) -> ChosenVolumes:
        devices, boot = [], None
        for one in asked.devices:
            found = self.volumes.get(one.device.uuid or "")
            if one.device.source_type == "volume":
                if found is None:
                    raise invalid_field(f"{one.where}.uuid", one.device.uuid, "the id of a volume of yours")
                boot = self.kept if one.device.boot_index == 0 else boot
                sized = msgspec.structs.replace(one.device, volume_size=found.size)
                devices.append(msgspec.structs.replace(one, device=sized))
            else:
                devices.append(one)
        return ChosenVolumes(devices=tuple(devices), zone=self.zone or asked.zone, boot=boot)

    def of(self, volume_id: str) -> list[tuple[str, str, str]]:
        """Return server, status and host of each attachment of a volume."""
        return [(one.server, one.status, one.host) for one in self.attachments.values() if one.volume_id == volume_id]

    async def attachable(self, asked: AskedAttachment, _context: RequestContext, _token: str) -> UsersVolume:
        found = self.volumes.get(asked.volume_id)
        if found is None:
            raise NotFound(f"Volume {asked.volume_id} could not be found.")
        if found.multiattach and not asked.multiattach:
            raise invalid_field(asked.where, asked.volume_id, "a volume of one server alone before 2.60")
        if self.of(found.id) and not found.multiattach:
            raise BadRequest(f"Invalid volume: volume {found.id} status must be available")
        return found

    async def list_volumes(self, _context: RequestContext, _token: str) -> list[VolumeOfUser]:
        self._fail("list_volumes")
        return [self._told(one) for one in self.volumes]

    async def volume(self, volume_id: str, _context: RequestContext, _token: str) -> VolumeOfUser:
        if volume_id not in self.volumes:
            raise NotFound(f"Volume {volume_id} could not be found.")
        return self._told(volume_id)

    async def create_volume(self, wanted: NewVolume, _context: RequestContext, _token: str) -> VolumeOfUser:
        made = self.new_volume(size=wanted.size)
        self.wanted[made] = wanted
        return self._told(made)

    async def delete_volume(self, volume_id: str, _context: RequestContext, _token: str) -> None:
        await self.volume(volume_id, _context, _token)
        if self.of(volume_id):
            raise BadRequest(f"Invalid volume: volume {volume_id} is in use")
        del self.volumes[volume_id]

    async def create_snapshot(self, wanted: NewSnapshot, _context: RequestContext, _token: str) -> SnapshotOfUser:
        self._fail("create_snapshot")
        made = SnapshotOfUser(
            id=new_uuid(),
            volume_id=wanted.volume_id,
            status="available",
            size=self.volumes[wanted.volume_id].size,
            created_at="2026-11-29T00:00:00.000000",
            name=wanted.name,
            description=wanted.description,
        )
        self.snapshots[made.id] = made
        return made

    async def delete_snapshot(self, snapshot_id: str, _context: RequestContext, _token: str) -> None:
        del self.snapshots[snapshot_id]

    def _told(self, volume_id: str) -> VolumeOfUser:
        wanted = self.wanted.get(volume_id, NewVolume(size=self.volumes[volume_id].size))
        mine = [one for one in self.attachments.values() if one.volume_id == volume_id]
        uses = tuple(AttachedTo(server_id=one.server, device=None) for one in mine)
        return VolumeOfUser(
            id=volume_id,
            status="in-use" if uses else "available",
            size=wanted.size,
            availability_zone=wanted.availability_zone,
            created_at="2026-11-29T00:00:00.000000",
            name=wanted.name,
            description=wanted.description,
            snapshot_id=wanted.snapshot_id,
            volume_type=wanted.volume_type,
            metadata=wanted.metadata,
            attachments=uses,
            migration_status="migrating" if volume_id in self.migrating else None,
        )

    async def make(self, wanted: Sequence[WantedVolumes]) -> list[tuple[DiskVolume, ...] | VolumesRefused]:
        self._fail("make")
        return [tuple(self._made(one)) for one in wanted]

    def _made(self, wanted: WantedVolumes) -> Iterator[DiskVolume]:
        for position, device in enumerate(wanted.devices):
            if device.destination_type == "volume":
                key = (wanted.instance, position)
                is_made = device.source_type != "volume"
                if is_made and key not in self.made:
                    self.made[key] = self.new_volume(size=device.volume_size or 1)
                volume_id = self.made[key] if is_made else device.uuid or ""
                yield DiskVolume(position=position, volume_id=volume_id, is_made=is_made, is_ready=True)

    async def discard(self, servers: Sequence[EndedVolumes]) -> list[tuple[LeftVolume, ...]]:
        self._fail("discard")
        for one in servers:
            made = {volume_id for (server, _), volume_id in self.made.items() if server == one.instance}
            for volume_id in {*one.ended, *made} - {*one.kept, *self.left}:
                self.volumes.pop(volume_id, None)
        return [() for _ in servers]

    async def reserve(self, wanted: Sequence[WantedAttachments]) -> list[tuple[str, ...] | VolumesRefused]:
        self._fail("reserve")
        found = [self._reserve(one) for one in wanted]
        meanwhile, self.meanwhile = self.meanwhile, _nothing
        await meanwhile()
        return found

    def _reserve(self, wanted: WantedAttachments) -> tuple[str, ...] | VolumesRefused:
        kept: list[str] = []
        for volume_id in wanted.volume_ids:
            others = [one for one in self.attachments.values() if one.volume_id == volume_id]
            mine = next((one for one in others if one.server == wanted.instance and one.id not in wanted.beside), None)
            foreign = [one for one in others if one.server != wanted.instance]
            if mine is None and foreign and not self.volumes[volume_id].multiattach:
                return VolumesRefused(f"Volume {volume_id} is not available.")
            if mine is None:
                mine = Kept(id=new_uuid(), server=wanted.instance, volume_id=volume_id)
                self.attachments[mine.id] = mine
            kept.append(mine.id)
        return tuple(kept)

    async def connect(self, wanted: Sequence[WantedConnection]) -> list[VolumeConnection | VolumesRefused]:
        self._fail("connect")
        for one in wanted:
            self.attachments[one.attachment_id].host = one.connector["host"]
        return [self._connection(self.attachments[one.attachment_id]) for one in wanted]

    async def connect_beside(self, wanted: Sequence[WantedBeside]) -> list[VolumeConnection | VolumesRefused]:
        self._fail("connect_beside")
        made = [self._connect_beside(one) for one in wanted]
        then, self.once_beside = self.once_beside, _nothing
        await then()
        return made

    def _connect_beside(self, wanted: WantedBeside) -> VolumeConnection | VolumesRefused:
        if all(one.server != wanted.instance for one in self.attachments.values() if one.volume_id == wanted.volume_id):
            return VolumesRefused(f"Volume {wanted.volume_id} is not the server's.")
        if wanted.volume_id in self.unreached:
            return VolumesRefused(f"Volume {wanted.volume_id} is not reached.")
        made = Kept(id=new_uuid(), server=wanted.instance, volume_id=wanted.volume_id, host=wanted.connector["host"])
        self.attachments[made.id] = made
        return self._connection(made)

    async def connections(self, attachments: Sequence[str]) -> list[VolumeConnection | VolumesRefused]:
        self._fail("connections")
        found = [self.attachments.get(one) for one in attachments]
        return [
            VolumesRefused("it is connected to no host") if one is None or not one.host else self._connection(one)
            for one in found
        ]

    def _connection(self, kept: Kept) -> VolumeConnection:
        driver, data = self.reached.get(kept.volume_id, ("memory", {}))
        shared = self.volumes[kept.volume_id].multiattach
        return VolumeConnection(attachment_id=kept.id, driver=driver, data=data, shared=shared)

    async def complete(self, attachments: Sequence[str]) -> list[VolumesRefused | None]:
        self._fail("complete")
        for one in attachments:
            self.attachments[one].status = "attached"
        return [None for _ in attachments]

    async def held(self) -> dict[InstanceUuid, tuple[VolumeAttachment, ...]]:
        self._fail("held")
        return await self.of_servers([*{one.server for one in self.attachments.values()}])

    async def detach(self, attachments: Sequence[str]) -> None:
        self._fail("detach")
        first, self.before_detach = self.before_detach, _nothing
        await first()
        for one in attachments:
            self.attachments.pop(one, None)

    async def of_servers(self, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, tuple[VolumeAttachment, ...]]:
        self._fail("of_servers")
        first, self.before_listing = self.before_listing, _nothing
        await first()
        return {
            server: tuple(
                VolumeAttachment(id=one.id, volume_id=one.volume_id, status=one.status)
                for one in self.attachments.values()
                if one.server == server
            )
            for server in servers
        }

    async def status(self, volume_id: str) -> str | None:
        self._fail("status")
        if volume_id not in self.volumes:
            return None
        if volume_id in self.detaching:
            return DETACHING
        return "in-use" if self.of(volume_id) else "available"

    async def begin_detaching(self, volume_id: str) -> VolumesRefused | None:
        self._fail("begin_detaching")
        if volume_id not in self.volumes:
            return VolumesRefused(f"Volume {volume_id} could not be found.")
        if volume_id in self.detaching:
            return VolumesRefused(f"Invalid volume: volume {volume_id} status must be in-use")
        self.detaching.append(volume_id)
        then, self.once_begun = self.once_begun, _nothing
        await then()
        return None

    async def roll_detaching(self, volume_id: str) -> None:
        self._fail("roll_detaching")
        if volume_id in self.detaching:
            self.detaching.remove(volume_id)

    async def end_move(self, volume_id: str, other_id: str, *, failed: bool) -> VolumesRefused | None:
        self._fail("end_move")
        if volume_id not in self.migrating:
            return None
        others = [one for one in self.attachments.values() if one.volume_id == other_id]
        if failed and others:
            return VolumesRefused(f"Volume {other_id} is attached.")
        for one in others:
            one.volume_id = volume_id
        self.migrating.discard(volume_id)
        self.volumes.pop(other_id)
        self.moved.append((volume_id, other_id, failed))
        return None

    async def assisted(self, snapshot_id: str, *, deletes: bool, failed: bool) -> VolumesRefused | None:
        self._fail("assisted")
        self.assisted_in.append((snapshot_id, deletes, failed))
        return None

    async def let_go(self, _project_id: ProjectId, volume_id: str) -> None:
        self._fail("let_go")
        self.left.append(volume_id)

    async def is_let_go(self, _instance: InstanceUuid, volume_id: str) -> bool:
        self._fail("is_let_go")
        return volume_id in self.left

    def _fail(self, call: str) -> None:
        if call in self.failing:
            raise self.failing[call]
