"""Volumes and snapshots of users, of Cinder, with their own tokens."""

from __future__ import annotations

from typing import Any, TypeVar

from skep.domain.context import RequestContext
from skep.domain.errors import NotFound
from skep.neighbours.volumes.cinder.calls import CinderCalls
from skep.neighbours.volumes.cinder.forms import (
    SNAPSHOTS,
    VOLUMES,
    CinderResource,
    CinderSnapshot,
    CinderVolume,
    VolumeKind,
)
from skep.neighbours.volumes.cinder.refusals import told_to_users
from skep.neighbours.volumes.proxied import AttachedTo, NewSnapshot, NewVolume, SnapshotOfUser, VolumeOfUser

FoundT = TypeVar("FoundT", bound=CinderResource)


class CinderProxies:
    """A `ProxiedVolumes` over Cinder's v3 API."""

    def __init__(self, skep: CinderCalls) -> None:
        self._skep = skep

    async def list_volumes(self, _context: RequestContext, token: str) -> list[VolumeOfUser]:
        """Return all volumes."""
        with told_to_users():
            return [_volume(one) for one in await self._skep.of_user(token).listed(VOLUMES)]

    async def volume(self, volume_id: str, _context: RequestContext, token: str) -> VolumeOfUser:
        """Return one."""
        return _volume(await self._one(VOLUMES, volume_id, token))

    async def create_volume(self, wanted: NewVolume, _context: RequestContext, token: str) -> VolumeOfUser:
        """Make one."""
        fields: dict[str, Any] = {
            "size": wanted.size,
            "name": wanted.name,
            "description": wanted.description,
            "snapshot_id": wanted.snapshot_id,
            "volume_type": wanted.volume_type,
            "availability_zone": wanted.availability_zone,
            "metadata": wanted.metadata,
        }
        with told_to_users():
            made = await self._skep.of_user(token).made(
                VOLUMES, **{key: value for key, value in fields.items() if value is not None}
            )
        return _volume(made)

    async def delete_volume(self, volume_id: str, _context: RequestContext, token: str) -> None:
        """Delete one."""
        await self._delete(VOLUMES, volume_id, token)

    async def list_snapshots(self, _context: RequestContext, token: str) -> list[SnapshotOfUser]:
        """Return all snapshots."""
        with told_to_users():
            return [_snapshot(one) for one in await self._skep.of_user(token).listed(SNAPSHOTS)]

    async def snapshot(self, snapshot_id: str, _context: RequestContext, token: str) -> SnapshotOfUser:
        """Return one."""
        return _snapshot(await self._one(SNAPSHOTS, snapshot_id, token))

    async def create_snapshot(self, wanted: NewSnapshot, _context: RequestContext, token: str) -> SnapshotOfUser:
        """Make one."""
        named = {"name": wanted.name, "description": wanted.description}
        with told_to_users():
            made = await self._skep.of_user(token).made(
                SNAPSHOTS, volume_id=wanted.volume_id, force=wanted.force, **named
            )
        return _snapshot(made)

    async def delete_snapshot(self, snapshot_id: str, _context: RequestContext, token: str) -> None:
        """Delete one."""
        await self._delete(SNAPSHOTS, snapshot_id, token)

    async def _one(self, kind: VolumeKind[FoundT], resource_id: str, token: str) -> FoundT:
        with told_to_users():
            found = await self._skep.of_user(token).shown(kind, resource_id)
        if found is None:
            raise _absent(kind, resource_id)
        return found

    async def _delete(self, kind: VolumeKind[FoundT], resource_id: str, token: str) -> None:
        with told_to_users():
            was_there = await self._skep.of_user(token).deleted(kind, resource_id)
        if not was_there:
            raise _absent(kind, resource_id)


def _absent(kind: VolumeKind[FoundT], resource_id: str) -> NotFound:
    return NotFound(f"{kind.noun.capitalize()} {resource_id[:80]} could not be found.")


def _volume(found: CinderVolume) -> VolumeOfUser:
    return VolumeOfUser(
        id=found.id,
        status=found.status,
        size=found.size,
        availability_zone=found.availability_zone,
        created_at=found.created_at,
        name=found.name,
        description=found.description,
        snapshot_id=found.snapshot_id,
        volume_type=found.volume_type,
        metadata=found.metadata,
        attachments=tuple(AttachedTo(server_id=one.server_id, device=one.device) for one in found.attachments),
        migration_status=found.migration_status,
    )


def _snapshot(found: CinderSnapshot) -> SnapshotOfUser:
    return SnapshotOfUser(
        id=found.id,
        volume_id=found.volume_id,
        status=found.status,
        size=found.size,
        created_at=found.created_at,
        name=found.name,
        description=found.description,
    )
