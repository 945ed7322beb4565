"""What users name of volumes, looked up with their own rights."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from skep.domain.block_devices import V1, V2, AskedDevice
from skep.domain.errors import BadRequest, NotFound
from skep.domain.images import FIELDS
from skep.domain.invalid_input import invalid_field
from skep.neighbours.volumes.base import AskedAttachment, AskedVolumes, BootVolume, ChosenVolumes, UsersVolume
from skep.neighbours.volumes.cinder.calls import CinderCalls
from skep.neighbours.volumes.cinder.forms import (
    AVAILABLE,
    IN_USE,
    RESERVABLE,
    SNAPSHOTS,
    TYPES,
    VOLUMES,
    CinderResource,
    CinderSnapshot,
    CinderVolume,
    VolumeKind,
)

FoundT = TypeVar("FoundT", bound=CinderResource)

SHARED = "a volume of one server at a time; volumes that servers share need microversion 2.60"


class ZoneRules(msgspec.Struct, frozen=True, kw_only=True):
    """What zones mean for volumes."""

    cross_zone_attach: bool = True
    """Whether a server may have volumes of other zones."""
    default_zone: str = ""
    """Of a server whose request names none: where its volumes are, that is no wish of the user's."""


class VolumeChooser:
    """Looks up what a create names. Raises what `VolumesOfUsers` does, and CinderRefused."""

    def __init__(self, calls: CinderCalls, rules: ZoneRules) -> None:
        self._calls = calls
        self._rules = rules
        self._types: frozenset[str] | None = None

    async def choose(self, asked: AskedVolumes) -> ChosenVolumes:
        """Return what servers are to have."""
        devices: list[AskedDevice] = []
        zone = asked.zone
        boot: BootVolume | None = None
        for one in asked.devices:
            volume: CinderVolume | None = None
            if one.device.source_type == "volume":
                volume = await self._volume(one, multiattach=asked.multiattach)
                zone = self._zone(one, volume, zone)
                devices.append(_sized(one, volume.size))
            elif one.device.source_type == "snapshot":
                snapshot = await self._snapshot(one)
                if one.device.boot_index == 0:
                    volume = await self._found(one, VOLUMES, snapshot.volume_id)
                devices.append(_sized(one, one.device.volume_size or snapshot.size))
            else:
                devices.append(one)
            if volume is not None and one.device.boot_index == 0:
                boot = _boot_volume(one, volume)
            await self._check_type(one)
        if asked.zone is None and zone == self._rules.default_zone:
            zone = None
        return ChosenVolumes(devices=tuple(devices), zone=zone, boot=boot)

    async def attachable(self, asked: AskedAttachment) -> UsersVolume:
        """Return a volume that a server may get now."""
        volume = await self._calls.shown(VOLUMES, asked.volume_id)
        if volume is None:
            raise NotFound(f"Volume {asked.volume_id[:80]} could not be found.")
        _check_state(asked.where, volume, multiattach=asked.multiattach)
        zone = asked.zone or self._rules.default_zone
        if not self._rules.cross_zone_attach and volume.availability_zone != zone:
            raise _wrong_zone(asked.where, volume, zone)
        return UsersVolume(id=volume.id, size=volume.size, multiattach=volume.multiattach, encrypted=volume.encrypted)

    async def _volume(self, asked: AskedDevice, *, multiattach: bool) -> CinderVolume:
        volume = await self._found(asked, VOLUMES, asked.device.uuid or "")
        _check_state(_field(asked, "uuid"), volume, multiattach=multiattach)
        return volume

    async def _snapshot(self, asked: AskedDevice) -> CinderSnapshot:
        snapshot = await self._found(asked, SNAPSHOTS, asked.device.uuid or "")
        if snapshot.status != AVAILABLE:
            expected = f"a snapshot that is available, this one is {snapshot.status}"
            raise invalid_field(_field(asked, "uuid"), snapshot.id, expected)
        size = asked.device.volume_size
        if size is not None and size < snapshot.size:
            raise invalid_field(_field(asked, "volume_size"), size, f"at least {snapshot.size} GiB for this snapshot")
        return snapshot

    async def _found(self, asked: AskedDevice, kind: VolumeKind[FoundT], resource_id: str) -> FoundT:
        found = await self._calls.shown(kind, resource_id)
        if found is None:
            raise invalid_field(_field(asked, "uuid"), resource_id, f"the id of a {kind.noun} of yours")
        return found

    async def _check_type(self, asked: AskedDevice) -> None:
        wanted = asked.device.volume_type
        if wanted is None:
            return
        if self._types is None:
            listed = await self._calls.listed(TYPES)
            self._types = frozenset(name for one in listed for name in (one.id, one.name))
        if wanted not in self._types:
            raise invalid_field(_field(asked, "volume_type"), wanted, "the name or id of a volume type")

    def _zone(self, asked: AskedDevice, volume: CinderVolume, zone: str | None) -> str | None:
        """Return where servers have to be, for one more volume's sake."""
        if self._rules.cross_zone_attach:
            return zone
        if zone is not None and volume.availability_zone != zone:
            raise _wrong_zone(_field(asked, "uuid"), volume, zone)
        return volume.availability_zone


def _check_state(where: str, volume: CinderVolume, *, multiattach: bool) -> None:
    """Raise BadRequest for a volume that no server may get now."""
    if volume.multiattach and not multiattach:
        raise invalid_field(where, volume.id, SHARED)
    if volume.status not in RESERVABLE and not (volume.multiattach and volume.status == IN_USE):
        raise invalid_field(where, volume.id, f"a volume that is available, this one is {volume.status}")


def _wrong_zone(where: str, volume: CinderVolume, zone: str) -> BadRequest:
    expected = f"a volume of availability zone {zone}, this one is of {volume.availability_zone}"
    return invalid_field(where, volume.id, expected)


def _field(asked: AskedDevice, key: str) -> str:
    """Return the field that says something of a disk."""
    if asked.where.startswith(f"{V1}[") and key == "uuid":
        return f"{asked.where}.{asked.device.source_type}_id"
    return f"{asked.where}.{key}" if asked.where.startswith((f"{V1}[", f"{V2}[")) else asked.where


def _sized(asked: AskedDevice, size: int) -> AskedDevice:
    return msgspec.structs.replace(asked, device=msgspec.structs.replace(asked.device, volume_size=size))


def _boot_volume(asked: AskedDevice, volume: CinderVolume) -> BootVolume:
    if not volume.is_bootable:
        raise invalid_field(_field(asked, "uuid"), volume.id, "a volume that is bootable, for boot_index 0")
    return BootVolume(
        properties={
            key: str(value) for key, value in volume.image.items() if key not in FIELDS | {"image_id", "image_name"}
        },
        min_disk=_whole(volume.image.get("min_disk")),
        min_ram=_whole(volume.image.get("min_ram")),
    )


def _whole(value: object) -> int:
    """Return a number that stands as text in metadata, which users may change; 0 for what is none."""
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
