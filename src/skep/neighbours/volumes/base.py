"""The ports towards volumes: what a user may ask for, and the volumes that servers have.

A volume that is made for a server says so in its metadata from its first moment (`VolumeLabel`). An attachment names
its server and its volume. So a repeat finds whatever a request before did, also one whose answer was lost. A volume
without the label is a user's, and is deleted only where its user said so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from skep.domain.block_devices import AskedDevice, BlockDevice
from skep.domain.clock import Timestamp
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, ProjectId
from skep.neighbours.volumes.proxied import ProxiedVolumes

SERVER, POSITION, MADE = "skep_server", "skep_position", "skep_made"
"""Keys of the metadata of a volume that was made for a server."""
ITSELF = "skep_volume"
"""Key of the volume's own id, which it gets once it is there.

A backup that is restored has the metadata of the volume that was backed up. Such a copy has the id of another volume,
and is a user's.
"""


class VolumeLabel(msgspec.Struct, frozen=True, kw_only=True):
    """What of a server a volume is that was made for it."""

    server: InstanceUuid
    position: int
    """Among the disks of the server, from 0."""
    ends: bool
    """Whether it was to be deleted with the server when it was made."""

    def metadata(self) -> dict[str, str]:
        """Return it as a volume has it."""
        return {SERVER: self.server, POSITION: str(self.position), MADE: "ends" if self.ends else "stays"}

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> VolumeLabel | None:
        """Return what metadata say; None: nothing, or what no label says."""
        server, position = metadata.get(SERVER), metadata.get(POSITION, "")
        if not server or metadata.get(MADE) not in ("ends", "stays"):
            return None
        if not (position.isascii() and position.isdecimal() and len(position) < 6):
            return None
        return cls(server=InstanceUuid(server), position=int(position), ends=metadata[MADE] == "ends")


class AskedVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """What a create asks for of volumes, among its disks."""

    devices: tuple[AskedDevice, ...]
    zone: str | None = None
    """The availability zone that it names."""
    multiattach: bool = False
    """Whether clients of its microversion know that servers share volumes (2.60)."""


class BootVolume(msgspec.Struct, frozen=True, kw_only=True):
    """What the volume that a server boots from keeps of the image that it was once made of."""

    properties: dict[str, str] = {}
    min_disk: int = 0
    min_ram: int = 0


class ChosenVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """What servers are to have, once it was looked up."""

    devices: tuple[AskedDevice, ...]
    """With the sizes that volumes and snapshots have."""
    zone: str | None
    """Where servers have to be, for their volumes' sake; None: anywhere."""
    boot: BootVolume | None = None
    """Where servers boot from a volume or a snapshot that is there."""


class AskedAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that a user wants for a server that is there."""

    volume_id: str
    zone: str
    """Of the server."""
    multiattach: bool = False
    """As for a create."""
    where: str = "volumeAttachment.volumeId"
    """The field that names it."""


class UsersVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that a server may get."""

    id: str
    size: int
    """GiB"""
    multiattach: bool
    """Whether several servers may have it at a time."""
    encrypted: bool = False
    """Whether only hosts can read it that decrypt volumes."""


class VolumesOfUsers(ProxiedVolumes, Protocol):
    """Looks up what users name of volumes, with their rights. `token` is the caller's own. Nothing is changed."""

    async def choose(self, asked: AskedVolumes, context: RequestContext, token: str) -> ChosenVolumes:
        """Return what the servers of a create are to have.

        Raises BadRequest for what is not there, cannot be attached or booted, does not fit, or is in another zone than
        it has to be, naming the field; Forbidden for what the caller may not see; Unavailable when the service does
        not answer.
        """
        ...

    async def attachable(self, asked: AskedAttachment, context: RequestContext, token: str) -> UsersVolume:
        """Return a volume that a server may get now.

        Raises NotFound for one that the caller does not see, BadRequest for one that cannot be attached, Forbidden,
        Unavailable when the service does not answer.
        """
        ...


class WantedVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """The disks that a server is to have, of which some are volumes."""

    instance: InstanceUuid
    project_id: ProjectId
    """Whose the volumes are that are made."""
    devices: tuple[BlockDevice, ...]
    """All disks in their order, in every repeat the same."""
    zone: str | None = None
    """Where volumes are made; None: where the service likes."""


class DiskVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume of a server."""

    position: int
    """Of its disk among the server's, from 0."""
    volume_id: str
    is_made: bool
    """Whether it was made for the server; else it is a user's."""
    is_ready: bool
    """Whether it may be attached; one that is being made is to be looked at again."""
    size: int | None = None
    """GiB. Of a user's volume it is not looked up."""
    is_free: bool = False
    """Whether the service said just now that nothing has it. Of a user's volume it is not looked up."""
    made_at: Timestamp | None = None
    """Since when the service makes it, by its own clock. Of a user's volume it is not looked up."""


class VolumesRefused(msgspec.Struct, frozen=True):
    """There will be no such volumes or attachments, on whichever host: a word for the server's user."""

    message: str
    is_passing: bool = False
    """Whether only another attachment is refused of what the server has, by what the service just does with it."""


class WantedAttachments(msgspec.Struct, frozen=True, kw_only=True):
    """The volumes that are to be reserved for a server."""

    instance: InstanceUuid
    volume_ids: tuple[str, ...]
    beside: tuple[str, ...] = ()
    """Attachments of the same server and volumes that are none of these: of the host that the server leaves."""
    are_free: bool = False
    """Whether the service said just now that nothing has any of the volumes, so that there is no attachment yet."""


class WantedConnection(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment that a host is to use."""

    attachment_id: str
    connector: dict[str, Any]
    """What the host says of itself: name, address, initiator; and where the volume is to be in the guest."""


class WantedBeside(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that a server has, and is to have on a second host besides."""

    instance: InstanceUuid
    volume_id: str
    connector: dict[str, Any]
    """As `WantedConnection.connector`, of the second host."""


class VolumeConnection(msgspec.Struct, frozen=True, kw_only=True):
    """How a host reaches a volume. There may be passwords in it, so it is not shown."""

    attachment_id: str
    driver: str
    """What kind of connection it is: `iscsi`, `rbd` ..."""
    data: dict[str, Any]
    shared: bool = False
    """Whether several servers may have it at a time; `connections` says it."""

    def __repr__(self) -> str:
        """Leaves the data out."""
        return f"VolumeConnection(attachment_id={self.attachment_id!r}, driver={self.driver!r})"


FILLING = "downloading"
"""Status of a volume that is filled with an image."""
DETACHING = "detaching"
"""Status of a volume that is being taken from a server."""
KEPT, CONNECTING, ATTACHED = "reserved", "attaching", "attached"
"""Status of an attachment that no host uses, and of one that a guest may use."""


class VolumeAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment as the service has it."""

    id: str
    volume_id: str
    status: str
    """`reserved`, `attaching`, `attached` ..."""


class EndedVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """A server that needs the volumes that were made for it no more."""

    instance: InstanceUuid
    project_id: ProjectId
    kept: tuple[str, ...] = ()
    """Volumes that were made for it and stay, whatever was said of them when they were made. Another one for the same
    disk was made twice, and goes."""
    ended: tuple[str, ...] = ()
    """Volumes that go, likewise; also one of a user who said that it is to go with the server."""
    made: tuple[str, ...] = ()
    """Those of `ended` that were made for it, and stay if they are let go by now."""


class LeftVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that was to be deleted and is there."""

    volume_id: str
    message: str
    is_passing: bool
    """Whether it may go later by itself, so that it is to be asked again: it is being made, or is still attached."""


class ServerVolumes(Protocol):
    """Makes, attaches and deletes the volumes of servers, in Skep's own name.

    Each call is for many servers at once and may be repeated: a repeat finds what is there and does what is missing. No
    call waits for a volume to become what it is to be. Each raises Unavailable when the service does not answer: then
    any part may be done, and the call is to be repeated.
    """

    elsewhere: bool
    """Whether there is a volume service: servers are noted before they get volumes, and looked at."""

    async def make(self, wanted: Sequence[WantedVolumes]) -> list[tuple[DiskVolume, ...] | VolumesRefused]:
        """Make what is missing of the volumes of servers; return all that each has, in the order of `wanted`.

        A server whose volumes are refused may have some of them; `discard` deletes these. So it does with a volume that
        was asked for twice because the first request was slow.
        """
        ...

    async def reserve(self, wanted: Sequence[WantedAttachments]) -> list[tuple[str, ...] | VolumesRefused]:
        """Keep volumes for servers; return the attachment of each volume, in their order. All of a server, or none."""
        ...

    async def connect(self, wanted: Sequence[WantedConnection]) -> list[VolumeConnection | VolumesRefused]:
        """Tell the service which host uses an attachment; return how it reaches the volume.

        One that was made twice may be refused, so a repeat begins with `reserve`. A volume that another host of the
        server is connected to is refused: that attachment has to go first.
        """
        ...

    async def connect_beside(self, wanted: Sequence[WantedBeside]) -> list[VolumeConnection | VolumesRefused]:
        """Connect volumes to a second host, by a new attachment each; return how it reaches them.

        The host before keeps its own. A repeat makes others: those whose answer was lost are to be deleted.
        """
        ...

    async def connections(self, attachments: Sequence[str]) -> list[VolumeConnection | VolumesRefused]:
        """Return how hosts reach volumes that were connected to them before. Nothing is changed."""
        ...

    async def complete(self, attachments: Sequence[str]) -> list[VolumesRefused | None]:
        """Tell the service that volumes are in use. None: it knows."""
        ...

    async def detach(self, attachments: Sequence[str]) -> None:
        """Delete attachments. What is gone stays gone."""
        ...

    async def of_servers(self, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, tuple[VolumeAttachment, ...]]:
        """Return the attachments of servers; every server has an entry."""
        ...

    async def held(self) -> dict[InstanceUuid, tuple[VolumeAttachment, ...]]:
        """Return the attachments of all servers that have one, also of those that are not this cloud's."""
        ...

    async def status(self, volume_id: str) -> str | None:
        """Return the status of a volume, as the service has it; None: it is gone."""
        ...

    async def begin_detaching(self, volume_id: str) -> VolumesRefused | None:
        """Say that a volume which is in use is taken from a server; None: it is `DETACHING` until it is detached.

        Meanwhile it is refused to say so once more.
        """
        ...

    async def roll_detaching(self, volume_id: str) -> None:
        """Say that a volume stays that was to be taken from a server. One that is not `DETACHING` stays as it is."""
        ...

    async def reimage(self, volume_id: str, image_id: str) -> VolumesRefused | None:
        """Begin to fill a volume anew with an image; None: it has begun.

        The volume is kept for one server and connected to no host. It is `FILLING` meanwhile, and then what it was.
        """
        ...

    async def end_move(self, volume_id: str, other_id: str, *, failed: bool) -> VolumesRefused | None:
        """Say what came of the copying of a volume that the service moves, to another one of its own; None: it knows.

        Once it is `failed`, the other volume goes, and must be free. Otherwise what is attached of the other volume is
        attached of this one, which has its content then: the other one's id goes. A move that is over stays so. What is
        refused is so for good: an operator has to see to both volumes.
        """
        ...

    async def assisted(self, snapshot_id: str, *, deletes: bool, failed: bool) -> VolumesRefused | None:
        """Say what came of a snapshot that the service had a host make, or delete (`deletes`); None: it has heard it.

        It goes on with it then. One that it does not wait for is refused, as after an answer that was lost.
        """
        ...

    async def let_go(self, project_id: ProjectId, volume_id: str) -> None:
        """Leave a volume that was made for a server to its project: it does not end with the server any more."""
        ...

    async def is_let_go(self, instance: InstanceUuid, volume_id: str) -> bool:
        """Tell whether a volume that was made for a server is there, and was let go."""
        ...

    async def discard(self, servers: Sequence[EndedVolumes]) -> list[tuple[LeftVolume, ...]]:
        """Delete the volumes that end with servers; return what is left of each server's.

        The volume of a user is among them only where `ended` names it and no other server has it.
        """
        ...
