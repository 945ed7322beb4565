"""The volumes of servers that are being placed: made and kept before a host is chosen, connected once it is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from skep.database.api import volume_holders
from skep.database.api.instance_mappings import Mapping as InstanceMapping
from skep.database.api.instance_mappings import Taken
from skep.domain.clock import SECOND
from skep.domain.errors import SkepError
from skep.domain.ids import CellUuid, InstanceUuid, new_uuid
from skep.domain.volumes import ServerVolume
from skep.neighbours.at_once import at_once
from skep.neighbours.volumes.base import DiskVolume, VolumesRefused, WantedAttachments, WantedVolumes
from skep.super_conductor.parts import Parts
from skep.super_conductor.volumes import VolumesOfServers
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

FIRST_POLL_SECONDS, POLL_SECONDS = 0.5, 5.0
"""Until volumes that are being made are looked at again: a quarter of the time that has passed, within these."""
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 30.0
"""Until a service that did not answer is asked again, likewise."""


class Awaited(msgspec.Struct, frozen=True):
    """What a server needs of a service is not there yet, or the service did not answer: it is asked again."""

    seconds: float


Prepared = Taken | VolumesRefused | Awaited

PAUSES_PER_SECOND = 4
"""Pauses end with a quarter of a second, so that servers which began at nearly the same time wait together."""


def has_volumes(one: Taken) -> bool:
    """Tell whether a server is to have volumes."""
    return any(device.destination_type == "volume" for device in one.instance.block_devices)


class BuildVolumes:
    """Gives servers that have no host yet their volumes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._volumes = VolumesOfServers(parts)

    async def prepare(self, taken: Sequence[Taken]) -> list[Prepared]:
        """Make and keep the volumes of servers; return each with them, in the order of `taken`, or why not.

        Volumes are made before a host is chosen: that may take long, and no claim is held meanwhile.
        """
        parts, now = self._parts, self._parts.clock.now()
        wanted = {one.instance.uuid: one.attempt for one in taken}
        may = set(await parts.api.write(partial(volume_holders.hold, wanted=wanted, now=now)))
        return await at_once(self._prepared(one, now, may_have=one.instance.uuid in may) for one in taken)

    async def _prepared(self, one: Taken, now: int, *, may_have: bool) -> Prepared:
        if not may_have:
            # It is another conductor's by now, or it is deleted.
            return Awaited(RETRY_SECONDS)
        try:
            return await self._made_and_kept(one, now)
        except SkepError as error:
            log.warning("no volumes", instance=one.instance.uuid, error=str(error))
            return unanswered(one, self._parts.clock.now())

    async def _made_and_kept(self, one: Taken, now: int) -> Prepared:
        volumes, server = self._parts.volumes, one.instance
        wanted = WantedVolumes(
            instance=server.uuid,
            project_id=server.project_id,
            devices=server.block_devices,
            zone=server.availability_zone if self._parts.volumes_in_zone else None,
        )
        [found] = await volumes.make([wanted])
        if isinstance(found, VolumesRefused):
            return found
        if not all(disk.is_ready for disk in found):
            limit = self._parts.volume_seconds
            # A service that was away has had no time: it counts from when it began.
            since = max(one.created_at, *(disk.made_at or 0 for disk in found if not disk.is_ready))
            if now > since + round(limit * SECOND):
                return VolumesRefused(f"The volumes of the server were not made within {limit:g} seconds.")
            return Awaited(pause((now - one.created_at) / SECOND, FIRST_POLL_SECONDS, POLL_SECONDS))
        kept = await self._kept(one, found)
        if isinstance(kept, VolumesRefused):
            return kept
        has = tuple(_server_volume(one, *pair) for pair in zip(found, kept, strict=True))
        return msgspec.structs.replace(one, instance=msgspec.structs.replace(server, volumes=has))

    async def _kept(self, one: Taken, disks: Sequence[DiskVolume]) -> tuple[str, ...] | VolumesRefused:
        """Return an attachment of each volume that no host uses: an attempt before may have connected its own."""
        volumes, instance = self._parts.volumes, one.instance.uuid
        are_free = all(disk.is_free for disk in disks)
        used: tuple[str, ...] = ()
        if one.attempt > 1 and not are_free:
            there = await volumes.of_servers([instance])
            used = await self._volumes.used(there[instance])
        asked = WantedAttachments(
            instance=instance,
            volume_ids=tuple(disk.volume_id for disk in disks),
            beside=used,
            are_free=are_free,
        )
        [kept] = await volumes.reserve([asked])
        if not isinstance(kept, VolumesRefused):
            await volumes.detach(used)
        return kept

    async def connect(self, members: Sequence[tuple[Taken, str]]) -> list[Prepared]:
        """Connect the volumes of servers to the hosts that were chosen; return each, in their order, or why not."""
        return await at_once(self._connected(one, host) for one, host in members)

    async def _connected(self, one: Taken, host: str) -> Prepared:
        has: list[ServerVolume] = []
        try:
            for volume in one.instance.volumes:
                connected = await self._volumes.connect(volume, host)
                if isinstance(connected, VolumesRefused):
                    return connected
                has.append(connected)
        except SkepError as error:
            log.warning("volumes not connected", instance=one.instance.uuid, host=host, error=str(error))
            return unanswered(one, self._parts.clock.now())
        return msgspec.structs.replace(one, instance=msgspec.structs.replace(one.instance, volumes=tuple(has)))

    async def release(self, members: Sequence[Taken]) -> list[Awaited | None]:
        """Release the volumes of servers that no host takes; None: it is done. In the order of `members`."""
        return await at_once(self._released(one) for one in members)

    async def _released(self, one: Taken) -> Awaited | None:
        try:
            await self._volumes.release([(one.instance.uuid, one.attempt)])
        except SkepError as error:
            log.warning("volumes not released", instance=one.instance.uuid, error=str(error))
            return unanswered(one, self._parts.clock.now())
        return None

    async def give_up(self, members: Sequence[Taken], found: Mapping[str, InstanceMapping]) -> None:
        """Have volumes connected anew that another conductor placed while this one connected them."""
        by_cell: dict[CellUuid, list[InstanceUuid]] = {}
        for one in members:
            mapping = found.get(one.instance.uuid)
            if mapping is not None and mapping.cell is not None and mapping.attempt != one.attempt:
                by_cell.setdefault(mapping.cell, []).append(one.instance.uuid)
        for cell, servers in by_cell.items():
            try:
                await self._volumes.connect_again(cell, servers)
            except SkepError as error:
                log.warning("volumes not connected anew", cell=str(cell), members=len(servers), error=str(error))


def unanswered(one: Taken, now: int) -> Awaited:
    """Return until when a server waits for a service that did not answer: the longer it has waited, the longer."""
    return Awaited(pause((now - one.created_at) / SECOND, RETRY_SECONDS, LONGEST_RETRY_SECONDS))


def pause(waited: float, least: float, most: float) -> float:
    """Return for how many seconds a server waits that has waited so many already: a quarter of them, within limits."""
    return min(most, max(least, math.ceil(waited / 4 * PAUSES_PER_SECOND) / PAUSES_PER_SECOND))


def together(awaited: Sequence[tuple[Taken, Awaited]]) -> dict[float, list[Taken]]:
    """Return servers by the seconds for which they wait: those of one number are given back at once."""
    found: dict[float, list[Taken]] = {}
    for one, until in awaited:
        found.setdefault(until.seconds, []).append(one)
    return found


def _server_volume(one: Taken, disk: DiskVolume, attachment_id: str) -> ServerVolume:
    device = one.instance.block_devices[disk.position]
    return ServerVolume(
        id=new_uuid(),
        volume_id=disk.volume_id,
        attachment_id=attachment_id,
        device=device.device_name or "",
        delete_on_termination=device.delete_on_termination,
        boot_index=device.boot_index,
        tag=device.tag,
        is_made=disk.is_made,
    )
