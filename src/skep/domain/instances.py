"""Instances: what a server is inside Skep. What is true of each state stands in `states.py`."""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from skep.domain.block_devices import BlockDevice
from skep.domain.flavors import Flavor
from skep.domain.ids import InstanceUuid, NodeUuid, ProjectId, RequestId, UserId, reservation_id
from skep.domain.images import Image
from skep.domain.key_pairs import KeyPair
from skep.domain.vifs import RequestedNetwork, Vif
from skep.domain.volumes import ServerVolume, is_volume_backed


class State(enum.StrEnum):
    """Where an instance is in its life."""

    STAGED = "staged"
    """Written into a cell; the mapping does not name the cell yet, so no user sees the row."""
    SCHEDULED = "scheduled"
    """Has a host, which has not begun."""
    BUILDING = "building"
    """The host may prepare networks and disks; the hypervisor is not touched."""
    SPAWNING = "spawning"
    """The point of no return: only this host may finish or undo it."""
    RESCHEDULING = "rescheduling"
    """An attempt failed; the cell conductor chooses another host of the cell."""
    HANDED_BACK = "handed_back"
    """No host of the cell is left; the super conductor looks for another cell."""
    LEAVING = "leaving"
    """Frozen while it moves to another cell: the mapping names the row that is the server."""
    MOVED = "moved"
    """Moved to another cell: no user sees the row, which stays until its attempts are closed."""
    AWAY = "away"
    """In another cell, by a move: this row keeps what the move has here, and the mapping names the row that counts."""
    ACTIVE = "active"
    STOPPED = "stopped"
    PAUSED = "paused"
    """The guest is frozen in memory."""
    SUSPENDED = "suspended"
    """The guest's memory is stored on disk."""
    RESCUED = "rescued"
    """The guest runs from a rescue disk, its own root disk beside it."""
    SOFT_DELETED = "soft_deleted"
    """Deleted by its user and kept, its guest off, until it is restored or its time is over."""
    SHELVED = "shelved"
    """Its content is in an image, its guest off, on its host."""
    SHELVED_OFFLOADED = "shelved_offloaded"
    """Its content is in an image, and no host has anything of it."""
    RESIZED = "resized"
    """On another host or of another size; its user confirms that, or goes back."""
    ERROR = "error"
    DELETED = "deleted"


class Task(enum.StrEnum):
    """What is being done to an instance, in Nova's words of task_state where it has one."""

    POWERING_ON = "powering-on"
    POWERING_OFF = "powering-off"
    REBOOTING = "rebooting"
    REBOOTING_HARD = "rebooting_hard"
    PAUSING = "pausing"
    UNPAUSING = "unpausing"
    SUSPENDING = "suspending"
    RESUMING = "resuming"
    RESCUING = "rescuing"
    UNRESCUING = "unrescuing"
    IMAGE_SNAPSHOT_PENDING = "image_snapshot_pending"
    IMAGE_SNAPSHOT = "image_snapshot"
    IMAGE_BACKUP = "image_backup"
    IMAGE_UPLOADING = "image_uploading"
    SOFT_DELETING = "soft-deleting"
    RESTORING = "restoring"
    UPDATING_PASSWORD = "updating_password"  # noqa: S105 - a name
    TRIGGERING_CRASH_DUMP = "triggering_crash_dump"
    """Nova shows none."""
    SWAPPING_VOLUME = "swapping_volume"
    """Nova shows none."""
    ATTACHING_VOLUME = "attaching_volume"
    """Nova shows none."""
    DETACHING_VOLUME = "detaching_volume"
    """Nova shows none."""
    ATTACHING_INTERFACE = "attaching_interface"
    """Nova shows none."""
    DETACHING_INTERFACE = "detaching_interface"
    """Nova shows none."""
    EXTENDING_VOLUME = "extending_volume"
    """Nova shows none."""
    SNAPSHOTTING_VOLUME = "snapshotting_volume"
    """Nova shows none."""
    DELETING_VOLUME_SNAPSHOT = "deleting_volume_snapshot"
    """Nova shows none."""
    SHELVING = "shelving"
    SHELVING_IMAGE_PENDING_UPLOAD = "shelving_image_pending_upload"
    SHELVING_IMAGE_UPLOADING = "shelving_image_uploading"
    SHELVING_OFFLOADING = "shelving_offloading"
    UNSHELVING = "unshelving"
    SPAWNING = "spawning"
    """Of a server that is unshelved; of one that is created its state says it."""
    RESIZE_PREP = "resize_prep"
    RESIZE_MIGRATING = "resize_migrating"
    RESIZE_FINISH = "resize_finish"
    RESIZE_REVERTING = "resize_reverting"
    REBUILDING = "rebuilding"
    REBUILD_BLOCK_DEVICE_MAPPING = "rebuild_block_device_mapping"
    REBUILD_SPAWNING = "rebuild_spawning"
    EVACUATING = "evacuating"
    """Nova's `rebuilding`: the server is still its lost host's."""
    EVACUATE_SPAWNING = "evacuate_spawning"
    """Nova's `rebuild_spawning`, on another host than before."""
    MIGRATING = "migrating"
    DELETING = "deleting"


class PowerState(enum.IntEnum):
    """Nova's numbers of the hypervisor's power states."""

    NOSTATE = 0
    RUNNING = 1
    PAUSED = 3
    SHUTDOWN = 4
    CRASHED = 6
    SUSPENDED = 7


def instance_name(uuid: str) -> str:
    """Return the guest's name in the form of Nova's default template, `instance-%08x`."""
    return f"instance-{uuid[:8]}"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Why a server is in ERROR: `message` for its owner, `details` for admins."""

    code: int
    message: str
    created_at: int
    details: str | None = None


class RequestedServer(msgspec.Struct, frozen=True, kw_only=True):
    """What a server was asked to be: facts that no build or action writes."""

    project_id: ProjectId
    user_id: UserId
    flavor: Flavor
    created_at: int
    request_id: RequestId
    """The request that made it: also its reservation id (API: `OS-EXT-SRV-ATTR:reservation_id`)."""
    image: Image | None = None
    key_name: str | None = None
    key_pair: KeyPair | None = None
    """A copy: the server has the key whatever becomes of the pair. Releases before 0.8.0 leave it out."""
    block_devices: tuple[BlockDevice, ...] = ()
    config_drive: bool = False
    disk_config: Literal["AUTO", "MANUAL"] = "MANUAL"
    """API: `OS-DCF:diskConfig`"""
    user_data: str | None = None
    networks: str = "auto"
    """`auto`, `none`, or `named` where `requested_networks` says which."""
    requested_networks: tuple[RequestedNetwork, ...] = ()
    """Releases before 0.10.0 leave them out, and the security groups."""
    security_groups: tuple[str, ...] = ()
    """Ids of those that the ports have which are made for it; none: what the project has by default."""
    launch_index: int = 0
    pinned_availability_zone: str | None = None
    scheduler_hints: dict[str, object] = {}
    boot_roles: tuple[str, ...] = ()
    """Roles of who asked for it, for the operator's own services. Releases before 0.9.0 leave them out."""

    @property
    def is_volume_backed(self) -> bool:
        """Whether it boots from a volume: it has no image, and no root disk on its host."""
        return is_volume_backed(self.block_devices)


class Shelved(msgspec.Struct, frozen=True, kw_only=True):
    """Where the content of a shelved server is."""

    image_id: str
    """Empty: it boots from a volume, which has all of it."""
    shelved_at: int
    host: str | None = None
    """Where it was shelved."""
    launched_at: int | None = None
    """While it is unshelved: when it was launched before, which holds again if that comes to nothing."""
    above: int = 0
    """While it is unshelved: its attempts that are part of that have higher numbers."""
    image: Image | None = None
    """While it is unshelved: as the image service describes it."""
    elsewhere: bool = False
    """While it is unshelved: another cell may have it if its own has no room."""
    left: int = 0
    """While it is unshelved: so many cells it had left before that."""


class Instance(RequestedServer, frozen=True, kw_only=True):
    """A server: in a BuildRequest before it has a cell, a row of its cell after."""

    uuid: InstanceUuid
    name: str
    hostname: str
    description: str | None = None
    metadata: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    access_ip_v4: str | None = None
    access_ip_v6: str | None = None
    availability_zone: str | None = None
    """The zone of its host; before it has one, the zone that was asked for."""
    state: State = State.SCHEDULED
    task: Task | None = None
    power_state: PowerState = PowerState.NOSTATE
    attempt: int = 0
    host: str | None = None
    node: NodeUuid | None = None
    locked: bool = False
    locked_by: Literal["owner", "admin"] | None = None
    """`owner`: a user of its project; `admin`: a user of another."""
    locked_reason: str | None = None
    shelved: Shelved | None = None
    vifs: tuple[Vif, ...] = ()
    """Its interfaces. Releases before 0.10.0 leave them out."""
    volumes: tuple[ServerVolume, ...] = ()
    """Those that it has, in the order in which it got them. Releases before 0.10.0 leave them out."""
    fault: Fault | None = None
    updated_at: int | None = None
    launched_at: int | None = None
    terminated_at: int | None = None
    deleted_at: int | None = None

    @property
    def reservation_id(self) -> str:
        """The id that the API shows for all servers of one request."""
        return reservation_id(self.request_id)
