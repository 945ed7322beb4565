"""What Cinder says of its resources, as far as Skep reads it."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import field

from skep.neighbours.volumes.base import ATTACHED, ITSELF, KEPT, VolumeLabel

FormT = TypeVar("FormT", bound="CinderResource")

AVAILABLE, IN_USE, RESERVED, ATTACHING = "available", "in-use", KEPT, "attaching"
DELETING = "deleting"
MAKING = frozenset({"creating", "downloading"})
"""Of a volume that will be there."""
RESERVABLE = frozenset({AVAILABLE, "downloading"})
"""Of a volume that nobody has; one of several servers may also be in use."""
PASSING = MAKING | {DELETING, IN_USE, RESERVED, ATTACHING, "detaching", "uploading", "extending", "retyping"}
"""Of a volume that cannot be deleted now, and may be later."""

ATTACHED_FIRST = (ATTACHED, ATTACHING, KEPT)
"""Of attachments, by how much a server depends on them."""


class CinderResource(msgspec.Struct, frozen=True, kw_only=True):
    """What all have."""

    id: str


class CinderType(CinderResource, frozen=True, kw_only=True):
    """A volume type."""

    name: str


class CinderUse(msgspec.Struct, frozen=True):
    """A server that has a volume."""

    server_id: str
    device: str | None = None


class CinderVolume(CinderResource, frozen=True, kw_only=True):
    """A volume. Whose it is, is shown to admins only."""

    status: str
    size: int
    created_at: str = ""
    availability_zone: str | None = None
    bootable: str | bool = False
    multiattach: bool = False
    encrypted: bool = False
    metadata: dict[str, str] = {}
    name: str | None = None
    description: str | None = None
    snapshot_id: str | None = None
    volume_type: str | None = None
    attachments: list[CinderUse] = []
    migration_status: str | None = None
    image: dict[str, Any] = field(name="volume_image_metadata", default={})
    project_id: str | None = field(name="os-vol-tenant-attr:tenant_id", default=None)

    @property
    def is_bootable(self) -> bool:
        """Whether a server may boot from it."""
        return str(self.bootable).lower() == "true"

    @property
    def label(self) -> VolumeLabel | None:
        """What of a server it is; None: nothing that Skep made."""
        return VolumeLabel.of(self.metadata) if self.metadata.get(ITSELF, self.id) == self.id else None

    @property
    def is_original(self) -> bool:
        """Whether it says of itself that it is no copy."""
        return self.metadata.get(ITSELF) == self.id


class CinderSnapshot(CinderResource, frozen=True, kw_only=True):
    """A snapshot of a volume."""

    status: str
    size: int
    volume_id: str
    created_at: str = ""
    name: str | None = None
    description: str | None = None


class CinderAttachment(CinderResource, frozen=True, kw_only=True):
    """An attachment. Where it leads to is told to those who ask for this one."""

    status: str
    volume_id: str
    instance: str | None = None
    connection_info: dict[str, Any] | None = None

    def __repr__(self) -> str:
        """Leaves out what may hold passwords."""
        return f"CinderAttachment(id={self.id!r}, status={self.status!r}, volume_id={self.volume_id!r})"


class VolumeKind(msgspec.Struct, Generic[FormT], frozen=True):
    """Resources of one kind."""

    noun: str
    """As errors call one; and the key of one, in bodies."""
    listed: str
    """Where many are listed with all that is read of them."""
    form: type[FormT]
    few_by: str | None = None
    """A list of it does not say whether there are more, but by this parameter there are few. None: it says so."""

    @property
    def members(self) -> str:
        """The path of all, and the key of many in bodies."""
        return self.listed.partition("/")[0]

    @property
    def member(self) -> str:
        """The key of one in bodies."""
        return self.members.removesuffix("s")


VOLUMES = VolumeKind("volume", "volumes/detail", CinderVolume)
SNAPSHOTS = VolumeKind("snapshot", "snapshots/detail", CinderSnapshot)
ATTACHMENTS = VolumeKind("attachment", "attachments/detail", CinderAttachment, few_by="instance_id")
TYPES = VolumeKind("volume type", "types", CinderType)
