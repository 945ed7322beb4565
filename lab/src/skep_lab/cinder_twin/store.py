"""The volumes, snapshots and attachments of the twin, and the rules by which they change."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import msgspec

from skep.domain.ids import new_uuid

Attaching: TypeAlias = Literal["reserved", "attaching", "attached"]

USUAL_TYPE, SHARED_TYPE = "usual", "shared"
"""Volumes of the second one may be those of several servers at a time."""
ZONES = ("nova", "west")
UNLIMITED = -1

DELETABLE = frozenset({"available", "error", "error_restoring", "error_extending", "error_managing"})

ASSISTED = {"creating": ("creating", "available", "error"), "deleting": ("deleting", "error_deleting")}
"""Status of a snapshot -> those that may be said of it then."""
MOVED_NOW = frozenset({"starting", "migrating", "completing"})
"""Of volumes that are moved."""


class TwinRefuses(Exception):
    """A request that Cinder refuses."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class TwinCaller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks."""

    project_id: str
    is_admin: bool = False
    is_service: bool = False
    """Another service asks, by a token of its own."""

    def sees(self, project_id: str) -> bool:
        """Tell whether what a project has may be seen and changed."""
        return self.is_admin or self.project_id == project_id


class TwinVolume(msgspec.Struct, kw_only=True):
    """A volume."""

    id: str
    project_id: str
    size: int
    created_at: str
    status: str = "creating"
    name: str = ""
    volume_type: str = USUAL_TYPE
    zone: str = ZONES[0]
    metadata: dict[str, str] = {}
    image: dict[str, Any] = {}
    bootable: bool = False
    snapshot_id: str | None = None
    migration_status: str | None = None
    moves_to_type: str = ""
    """The type that it is to have once it was moved."""
    previous_status: str = "available"
    """The status from before it was moved, which it has again afterwards, whoever has it then."""
    looks: int = 0
    """So often it is looked at before its status is what it is to be."""
    becomes: str = ""
    """The status that it is to have; `deleted`: it goes."""


class TwinSnapshot(msgspec.Struct, kw_only=True):
    """A snapshot."""

    id: str
    project_id: str
    volume_id: str
    size: int
    created_at: str
    name: str = ""
    status: str = "available"


class TwinAttachment(msgspec.Struct, kw_only=True):
    """An attachment."""

    id: str
    volume_id: str
    instance: str
    status: Attaching = "reserved"
    connector: dict[str, Any] = {}


class VolumeStore:
    """Everything that the twin knows."""

    def __init__(self, images: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """`images`: what is said of each image of which a volume may be made."""
        self.images = dict(images or {})
        self.volumes: dict[str, TwinVolume] = {}
        self.snapshots: dict[str, TwinSnapshot] = {}
        self.attachments: dict[str, TwinAttachment] = {}
        self.types = {USUAL_TYPE: new_uuid(), SHARED_TYPE: new_uuid()}
        self.reached: dict[str, dict[str, Any]] = {}
        """How hosts reach volumes, by their ids; all others are at an iSCSI target."""
        self.limits: dict[str, int] = {}
        """Volumes that a project may have."""
        self.looks = 1
        """So often new volumes are looked at while they are made."""
        self.becomes = "available"
        """What new volumes become."""
        self.fails = False
        """Whether volumes that are filled anew become errors."""
        self.on_delete: Callable[[TwinVolume], None] = lambda _volume: None
        """Told of each volume that is deleted."""
        self.on_move: Callable[[TwinVolume, TwinVolume, list[str]], None] = lambda _old, _new, _servers: None
        """Told of each volume that is to be moved, of the other one, and of the servers that use it."""

    def forget(self) -> None:
        """Lose all volumes, as a restart does."""
        self.volumes.clear()
        self.snapshots.clear()
        self.attachments.clear()

    def begin_anew(self) -> None:
        """End as a process does, and begin with what was written: volumes that were being made are errors."""
        for one in self.volumes.values():
            if one.status == "creating":
                one.status, one.becomes = "error", ""

    def create_volume(self, caller: TwinCaller, fields: Mapping[str, Any]) -> TwinVolume:
        """Begin to make a volume of the caller's project."""
        limit = self.limits.get(caller.project_id, UNLIMITED)
        if limit != UNLIMITED and sum(one.project_id == caller.project_id for one in self.volumes.values()) >= limit:
            raise TwinRefuses(413, f"VolumeLimitExceeded: Maximum number of volumes allowed ({limit}) exceeded")
        volume = TwinVolume(
            id=new_uuid(),
            project_id=caller.project_id,
            size=0,
            created_at=_now(),
            name=fields.get("name") or "",
            volume_type=self._type(fields.get("volume_type")),
            zone=_zone(fields.get("availability_zone")),
            metadata=dict(fields.get("metadata") or {}),
            looks=self.looks,
            becomes=self.becomes,
        )
        least = self._fill(caller, volume, fields)
        size = fields.get("size") or least
        if not isinstance(size, int) or size < max(1, least):
            raise TwinRefuses(400, f"Invalid input for field/attribute size. Value: {size}. At least {max(1, least)}")
        volume.size = size
        self.volumes[volume.id] = volume
        return volume

    def _fill(self, caller: TwinCaller, volume: TwinVolume, fields: Mapping[str, Any]) -> int:
        """Say what a new volume is made of; return the size that it has at least."""
        if fields.get("snapshot_id"):
            snapshot = self.snapshot(caller, fields["snapshot_id"])
            source = self.volumes[snapshot.volume_id]
            volume.snapshot_id, volume.bootable, volume.image = snapshot.id, source.bootable, dict(source.image)
            return snapshot.size
        if fields.get("imageRef"):
            image = self.images.get(fields["imageRef"])
            if image is None:
                raise TwinRefuses(400, "Invalid image identifier or unable to access requested image.")
            volume.bootable, volume.image = True, {**image, "image_id": fields["imageRef"]}
            return int(image.get("min_disk", 0))
        return 0

    def _type(self, wanted: str | None) -> str:
        for name, id_ in self.types.items():
            if wanted in (name, id_):
                return name
        if wanted:
            raise TwinRefuses(404, f"Volume type with name {wanted} could not be found.")
        return USUAL_TYPE

    def volume(self, caller: TwinCaller, volume_id: str) -> TwinVolume:
        """Return a volume, which goes on with what it does."""
        volume = self.volumes.get(volume_id)
        if volume is not None:
            volume = self._looked_at(volume)
        if volume is None or not caller.sees(volume.project_id):
            raise TwinRefuses(404, f"Volume {volume_id} could not be found.")
        return volume

    def listed(self, caller: TwinCaller, *, of_all: bool, metadata: Mapping[str, str]) -> Iterator[TwinVolume]:
        """Give the volumes of the caller's project, or of all, that have such metadata."""
        for one in list(self.volumes.values()):
            if one.project_id != caller.project_id and not (of_all and caller.is_admin):
                continue
            if metadata.items() <= one.metadata.items() and (volume := self._looked_at(one)) is not None:
                yield volume

    def _looked_at(self, volume: TwinVolume) -> TwinVolume | None:
        if volume.becomes:
            if volume.looks > 0:
                volume.looks -= 1
            elif volume.becomes == "deleted":
                del self.volumes[volume.id]
                return None
            else:
                volume.status, volume.becomes = volume.becomes, ""
        return volume

    def begin_detaching(self, volume: TwinVolume) -> None:
        """Note that a volume is taken from a server."""
        if volume.status != "in-use":
            message = f"Volume {volume.id} status must be in-use, but it is {volume.status}."
            raise TwinRefuses(400, f"Invalid volume: {message}")
        volume.status = "detaching"

    def roll_detaching(self, volume: TwinVolume) -> None:
        """Note that it stays."""
        if volume.status == "detaching":
            volume.status = "in-use"

    def retype(self, volume: TwinVolume, new_type: str, policy: str) -> None:
        """Begin to move a volume to another one of a new type; the server that uses it is to go on with that one.

        Of one that no server has, the twin moves nothing: it is of the new type at once.
        """
        wanted = self._type(new_type)
        if wanted == volume.volume_type or policy != "on-demand":
            raise TwinRefuses(400, f"Retype requires migration but is not allowed: the policy is {policy}.")
        if volume.status not in ("available", "in-use") or volume.migration_status in MOVED_NOW:
            raise TwinRefuses(400, f"Invalid volume: Volume {volume.id} status must be available or in-use to retype.")
        if volume.status == "available":
            volume.volume_type = wanted
            return
        other = TwinVolume(
            id=new_uuid(),
            project_id=volume.project_id,
            size=volume.size,
            created_at=_now(),
            status="available",
            name=volume.name,
            volume_type=wanted,
            migration_status=f"target:{volume.id}",
        )
        self.volumes[other.id] = other
        volume.previous_status, volume.status = volume.status, "retyping"
        volume.migration_status, volume.moves_to_type = "migrating", wanted
        self.on_move(volume, other, [one.instance for one in self._of_volume(volume.id)])

    def end_move(self, volume: TwinVolume, other_id: str, *, failed: bool) -> str:
        """End a move; return the id of the volume that stays: what its server has now is known by the old id."""
        other = self.volumes.get(other_id)
        if other is None:
            raise TwinRefuses(404, f"Volume {other_id} could not be found.")
        if not volume.migration_status and not other.migration_status:
            return other.id
        if not volume.migration_status or other.migration_status != f"target:{volume.id}":
            raise TwinRefuses(400, "Invalid volume: Destination volume not mid-migration.")
        if failed:
            if self._of_volume(other.id):
                raise TwinRefuses(400, f"Invalid volume: Volume {other.id} is still attached.")
            volume.migration_status = "error"
        else:
            for one in self._of_volume(other.id):
                one.volume_id = volume.id
            volume.volume_type, volume.migration_status = volume.moves_to_type, "success"
        del self.volumes[other.id]
        volume.moves_to_type = ""
        volume.status = volume.previous_status
        return volume.id

    def give_up_move(self, volume: TwinVolume, other_id: str) -> None:
        """Give a move up whose swap was not answered; what is kept of the other volume for a server stays."""
        volume.status, volume.migration_status, volume.moves_to_type = volume.previous_status, "error", ""
        self.volumes[other_id].migration_status = None

    def reimage(self, volume: TwinVolume, image_id: str, *, reserved: bool) -> None:
        """Begin to fill a volume anew; `reserved`: also one that is kept for a server."""
        image = self.images.get(image_id)
        if image is None:
            raise TwinRefuses(404, f"Image {image_id} could not be found.")
        if len(self._of_volume(volume.id)) > 1:
            raise TwinRefuses(409, f"Resource conflict: volume {volume.id} has more than one attachment.")
        may = {"available", "error"} | ({"reserved"} if reserved else set())
        if volume.status not in may:
            message = f"Volume {volume.id} status must be {' or '.join(sorted(may))}, but it is {volume.status}."
            raise TwinRefuses(400, f"Invalid volume: {message}")
        volume.becomes = "error" if self.fails else volume.status
        volume.status, volume.looks = "downloading", self.looks
        volume.bootable, volume.image = True, {**image, "image_id": image_id}

    def delete_volume(self, caller: TwinCaller, volume_id: str) -> None:
        """Begin to delete a volume."""
        volume = self.volume(caller, volume_id)
        has_snapshots = any(one.volume_id == volume_id for one in self.snapshots.values())
        if volume.status not in DELETABLE or has_snapshots or self._of_volume(volume_id):
            message = f"Invalid volume: Volume status must be {' or '.join(sorted(DELETABLE))}, without snapshots."
            raise TwinRefuses(400, message)
        self.on_delete(volume)
        volume.status, volume.becomes, volume.looks = "deleting", "deleted", self.looks

    def create_snapshot(self, caller: TwinCaller, fields: Mapping[str, Any]) -> TwinSnapshot:
        """Make a snapshot of a volume."""
        volume = self.volume(caller, fields["volume_id"])
        if volume.status != "available" and not fields.get("force"):
            raise TwinRefuses(400, f"Invalid volume: Volume {volume.id} status must be available.")
        snapshot = TwinSnapshot(
            id=new_uuid(),
            project_id=volume.project_id,
            volume_id=volume.id,
            size=volume.size,
            created_at=_now(),
            name=fields.get("name") or "",
        )
        self.snapshots[snapshot.id] = snapshot
        return snapshot

    def snapshot(self, caller: TwinCaller, snapshot_id: str) -> TwinSnapshot:
        """Return a snapshot."""
        snapshot = self.snapshots.get(snapshot_id)
        if snapshot is None or not caller.sees(snapshot.project_id):
            raise TwinRefuses(404, f"Snapshot {snapshot_id} could not be found.")
        return snapshot

    def assist(self, volume: TwinVolume, snapshot_id: str = "") -> TwinSnapshot:
        """Begin a snapshot that a host makes of a volume which its guest uses, or the delete of one made so."""
        if snapshot_id:
            self.snapshots[snapshot_id].status = "deleting"
            return self.snapshots[snapshot_id]
        made = TwinSnapshot(
            id=new_uuid(),
            project_id=volume.project_id,
            volume_id=volume.id,
            size=volume.size,
            created_at=_now(),
            status="creating",
        )
        self.snapshots[made.id] = made
        return made

    def assisted(self, snapshot: TwinSnapshot, status: str, progress: str | None) -> None:
        """Hear what came of it: with its part done, the rest is done here at once."""
        if status not in ASSISTED.get(snapshot.status, ()):
            message = f"Provided snapshot status {status} not allowed for snapshot with status {snapshot.status}."
            raise TwinRefuses(400, message)
        if status != snapshot.status:
            snapshot.status = status
        elif progress == "90%" and status == "creating":
            snapshot.status = "available"
        elif progress == "90%":
            del self.snapshots[snapshot.id]

    def is_shared(self, volume: TwinVolume) -> bool:
        """Tell whether several servers may have a volume at a time."""
        return volume.volume_type == SHARED_TYPE

    def create_attachment(self, caller: TwinCaller, fields: Mapping[str, Any]) -> TwinAttachment:
        """Keep a volume for a server."""
        volume = self.volume(caller, fields["volume_uuid"])
        instance = fields["instance_uuid"]
        free = {"available", "downloading"} | ({"in-use"} if self.is_shared(volume) else set())
        own = any(one.instance == instance for one in self._of_volume(volume.id))
        if volume.status not in free and not (own and volume.status in ("in-use", "reserved")):
            message = f"Volume {volume.id} status must be {' or '.join(sorted(free))}, but it is {volume.status}."
            raise TwinRefuses(400, f"Invalid volume: {message}")
        attachment = TwinAttachment(id=new_uuid(), volume_id=volume.id, instance=instance)
        self.attachments[attachment.id] = attachment
        if volume.status in free:
            volume.status = "reserved"
        if fields.get("connector"):
            self._connected(attachment, fields["connector"])
        return attachment

    def attachment(self, caller: TwinCaller, attachment_id: str) -> TwinAttachment:
        """Return an attachment."""
        found = self.attachments.get(attachment_id)
        if found is None or not caller.sees(self.volumes[found.volume_id].project_id):
            message = f"Volume attachment could not be found with filter: attachment_id = {attachment_id}."
            raise TwinRefuses(404, message)
        return found

    def attachments_of(self, caller: TwinCaller, instance: str | None, *, of_all: bool) -> Iterator[TwinAttachment]:
        """Give the attachments of a server, or of all, to volumes of the caller's project, or of any."""
        for one in self.attachments.values():
            is_own = self.volumes[one.volume_id].project_id == caller.project_id
            if (is_own or (of_all and caller.is_admin)) and instance in (None, one.instance):
                yield one

    def connect(self, caller: TwinCaller, attachment_id: str, connector: Mapping[str, Any]) -> TwinAttachment:
        """Tell from which host an attachment is used."""
        attachment = self.attachment(caller, attachment_id)
        volume = self.volumes[attachment.volume_id]
        beside = self._of_volume(volume.id)
        if "error" in volume.status:
            raise TwinRefuses(409, f"Resource conflict: The volume is {volume.status}.")
        if len(beside) > 1 and not self.is_shared(volume) and any(one.connector for one in beside):
            raise TwinRefuses(409, f"Resource conflict: duplicate connectors detected on volume {volume.id}")
        self._connected(attachment, connector)
        return attachment

    def _connected(self, attachment: TwinAttachment, connector: Mapping[str, Any]) -> None:
        attachment.connector = dict(connector)
        # Also what a guest uses already: until it is completed again.
        attachment.status = self.volumes[attachment.volume_id].status = "attaching"

    def complete(self, caller: TwinCaller, attachment_id: str) -> None:
        """Tell that a guest has the volume."""
        attachment = self.attachment(caller, attachment_id)
        attachment.status = "attached"
        self.volumes[attachment.volume_id].status = "in-use"

    def delete_attachment(self, caller: TwinCaller, attachment_id: str) -> list[TwinAttachment]:
        """Release a volume from a server; return what is left of its attachments."""
        attachment = self.attachment(caller, attachment_id)
        if attachment.connector and not caller.is_service:
            raise TwinRefuses(409, "Resource conflict: only a service detaches a volume from a server.")
        del self.attachments[attachment_id]
        self.volumes[attachment.volume_id].status = self._by_attachments(attachment.volume_id)
        return self._of_volume(attachment.volume_id)

    def _by_attachments(self, volume_id: str) -> str:
        """Return the status of a volume by who has it."""
        statuses = {one.status for one in self._of_volume(volume_id)}
        following = (("attached", "in-use"), ("attaching", "attaching"), ("reserved", "reserved"))
        return next((status for of_it, status in following if of_it in statuses), "available")

    def _of_volume(self, volume_id: str) -> list[TwinAttachment]:
        return [one for one in self.attachments.values() if one.volume_id == volume_id]


def _zone(wanted: str | None) -> str:
    if wanted and wanted not in ZONES:
        raise TwinRefuses(400, f"Availability zone '{wanted}' is invalid.")
    return wanted or ZONES[0]


def _now() -> str:
    return datetime.now(UTC).replace(tzinfo=None).isoformat()
