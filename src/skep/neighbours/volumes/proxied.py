"""Volumes and snapshots for clients that ask the compute API for them."""

from __future__ import annotations

from typing import Protocol

import msgspec

from skep.domain.context import RequestContext


class AttachedTo(msgspec.Struct, frozen=True, kw_only=True):
    """A server that has a volume."""

    server_id: str
    device: str | None


class VolumeOfUser(msgspec.Struct, frozen=True, kw_only=True):
    """A volume as its project sees it."""

    id: str
    status: str
    size: int
    """GiB"""
    availability_zone: str | None
    created_at: str
    name: str | None
    description: str | None
    snapshot_id: str | None
    volume_type: str | None
    metadata: dict[str, str]
    attachments: tuple[AttachedTo, ...]
    migration_status: str | None = None
    """How far the service is that moves it to another place of its own; None, or empty: it does not."""


class SnapshotOfUser(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot as its project sees it."""

    id: str
    volume_id: str
    status: str
    size: int
    created_at: str
    name: str | None
    description: str | None


class NewVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that a user wants."""

    size: int
    name: str | None = None
    description: str | None = None
    snapshot_id: str | None = None
    volume_type: str | None = None
    availability_zone: str | None = None
    metadata: dict[str, str] = {}


class NewSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that a user wants. `force`: also of a volume in use."""

    volume_id: str
    name: str | None = None
    description: str | None = None
    force: bool = False


class ProxiedVolumes(Protocol):
    """Volumes and snapshots of the caller's project. `token` is the caller's own.

    Each raises Forbidden where the caller may not, and Unavailable when the service does not answer; those that are
    told an id raise NotFound for what the caller does not see.
    """

    async def list_volumes(self, context: RequestContext, token: str) -> list[VolumeOfUser]:
        """Return all volumes."""
        ...

    async def volume(self, volume_id: str, context: RequestContext, token: str) -> VolumeOfUser:
        """Return one."""
        ...

    async def create_volume(self, wanted: NewVolume, context: RequestContext, token: str) -> VolumeOfUser:
        """Make one. Raises BadRequest for what cannot be, QuotaExceeded."""
        ...

    async def delete_volume(self, volume_id: str, context: RequestContext, token: str) -> None:
        """Delete one. Raises BadRequest while it is in use."""
        ...

    async def list_snapshots(self, context: RequestContext, token: str) -> list[SnapshotOfUser]:
        """Return all snapshots."""
        ...

    async def snapshot(self, snapshot_id: str, context: RequestContext, token: str) -> SnapshotOfUser:
        """Return one."""
        ...

    async def create_snapshot(self, wanted: NewSnapshot, context: RequestContext, token: str) -> SnapshotOfUser:
        """Make one. Raises BadRequest for a volume of which none can be made, QuotaExceeded."""
        ...

    async def delete_snapshot(self, snapshot_id: str, context: RequestContext, token: str) -> None:
        """Delete one. Raises BadRequest while something needs it."""
        ...
