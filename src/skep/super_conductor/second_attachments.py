"""The story of second attachments: a server that goes to another host live has its volumes on both for a while.

Its target asks how it reaches them (`connections.py`); they are connected to it then, once, and the row says so before
the target is told. So whatever ends on the way, what was made and the row does not name goes before it is made anew.

A target asks again when it hears nothing for a few seconds, and then another process may be asked. The one that makes
them has said so in the row; the others have the target wait for it, until all that it asked for has ended.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import msgspec

from skep.database.api import holders, volume_holders
from skep.database.cell import second_attachments
from skep.database.cell import volumes as cell_volumes
from skep.database.cell.volumes import VolumesOfRow
from skep.domain.errors import Unavailable
from skep.domain.ids import InstanceUuid, new_uuid
from skep.domain.volumes import ServerVolume, VolumeBeside, connector
from skep.neighbours.volumes.base import VolumeAttachment, VolumesRefused, WantedBeside
from skep.super_conductor.parts import CellAccess, Parts
from skep.telemetry.logs import get_logger

log = get_logger(__name__)

DELETED = VolumesRefused("the server is being deleted")


class SecondAttachments:
    """Connects volumes to the targets of live migrations."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._under_way: set[InstanceUuid] = set()
        self._me = new_uuid()
        """What rows call this process."""

    async def made(
        self, access: CellAccess, instance: InstanceUuid, host: str, attempt: int
    ) -> tuple[ServerVolume, ...] | VolumesRefused:
        """Connect the volumes of a server to a target as well; return them as the target has them.

        Raises Unavailable where that is to be asked for again.
        """
        if instance in self._under_way:
            raise _being_connected(instance)
        self._under_way.add(instance)
        try:
            return await self._made(access, instance, host, attempt)
        finally:
            self._under_way.discard(instance)

    async def _made(
        self, access: CellAccess, instance: InstanceUuid, host: str, attempt: int
    ) -> tuple[ServerVolume, ...] | VolumesRefused:
        parts, volumes = self._parts, self._parts.volumes
        if not await parts.api.write(partial(volume_holders.hold_those, servers=[instance], now=parts.clock.now())):
            return DELETED
        there = (await volumes.of_servers([instance]))[instance]
        # Read after that: what another process has made since the agent asked it before is named.
        row = (await access.read(partial(cell_volumes.told, uuids=[instance]))).get(instance)
        if row is None:
            return DELETED
        if any(one.leaving or one.is_promised for one in row.volumes):
            raise Unavailable(f"What was done to the volumes of server {instance} is not over yet.")
        apart = next((one for one in row.volumes if one.host != row.host or not one.attachment_id), None)
        if apart is not None:
            return VolumesRefused(f"volume {apart.volume_id} is not connected to host {row.host}, which has the server")
        kept = _kept(row, there, host)
        if len(kept) < len(row.volumes):
            row = await self._taken(access, row, kept, host, attempt)
        await volumes.detach(_surplus(row, there, kept))
        made = await self._connected(row, [one for one in row.volumes if one.id not in kept], host)
        if isinstance(made, VolumesRefused):
            await self._leave(access, instance)
            return made
        beside = kept | made
        after = [msgspec.structs.replace(one, beside=beside[one.id]) for one in row.volumes]
        noting = partial(
            second_attachments.note, before=row, after=after, attempt=attempt, host=host, now=parts.clock.now()
        )
        if made and not await access.write(noting):
            await volumes.detach([one.attachment_id for one in made.values()])
            await self._leave(access, instance)
            raise _changed(instance)
        return tuple(
            msgspec.structs.replace(one, attachment_id=beside[one.id].attachment_id, host=host, beside=None)
            for one in row.volumes
        )

    async def _taken(
        self, access: CellAccess, row: VolumesOfRow, kept: Collection[str], host: str, attempt: int
    ) -> VolumesOfRow:
        """Have the row say that this process makes what is missing; return it as it is then. Raises Unavailable."""
        now = self._parts.clock.now()
        if any(self._is_made_elsewhere(one.beside, host, now) for one in row.volumes if one.beside is not None):
            raise _being_connected(row.instance)
        making = VolumeBeside(attachment_id="", host=host, maker=self._me, since=now)
        missing = {one.id for one in row.volumes} - {*kept}
        taking = partial(second_attachments.take, before=row, missing=missing, attempt=attempt, making=making, now=now)
        taken = await access.write(taking)
        if taken is None:
            raise _changed(row.instance)
        return taken

    def _is_made_elsewhere(self, beside: VolumeBeside, host: str, now: int) -> bool:
        """Tell whether another process may be making this one. Times that are to come do not count: a clock was set."""
        others = bool(beside.maker) and beside.maker != self._me and beside.host == host
        return others and abs(now - beside.since) < holders.SETTLE

    async def _leave(self, access: CellAccess, instance: InstanceUuid) -> None:
        leaving = partial(second_attachments.leave, instance=instance, maker=self._me, now=self._parts.clock.now())
        await access.write(leaving)

    async def _connected(
        self, row: VolumesOfRow, missing: list[ServerVolume], host: str
    ) -> dict[str, VolumeBeside] | VolumesRefused:
        """Connect these volumes to a second host, all or none; return by which attachments. Raises Unavailable."""
        volumes = self._parts.volumes
        wanted = [
            WantedBeside(instance=row.instance, volume_id=one.volume_id, connector=dict(connector(host, one)))
            for one in missing
        ]
        found = await volumes.connect_beside(wanted)
        made = [one.attachment_id for one in found if not isinstance(one, VolumesRefused)]
        refused = next((one for one in found if isinstance(one, VolumesRefused)), None)
        if refused is None:
            refused = next((one for one in await volumes.complete(made) if one is not None), None)
        if refused is not None:
            log.warning("volume not connected to a target", instance=row.instance, host=host, error=refused.message)
            await volumes.detach(made)
            return refused
        attached = zip(missing, made, strict=True)
        return {one.id: VolumeBeside(attachment_id=attachment_id, host=host) for one, attachment_id in attached}


def _kept(row: VolumesOfRow, there: tuple[VolumeAttachment, ...], host: str) -> dict[str, VolumeBeside]:
    """Return the second attachments that the row names, of this host, and the service has; by `ServerVolume.id`."""
    ids = {one.id for one in there}
    found = {one.id: one.beside for one in row.volumes if one.beside is not None}
    return {id_: one for id_, one in found.items() if one.host == host and one.attachment_id in ids}


def _surplus(row: VolumesOfRow, there: tuple[VolumeAttachment, ...], kept: dict[str, VolumeBeside]) -> list[str]:
    """Return the attachments of the server's volumes that are neither its own nor kept: of targets before this one, and
    such as a process has made that ended before the row named them."""
    mine = {one.attachment_id for one in row.volumes} | {one.attachment_id for one in kept.values()}
    volumes = {one.volume_id for one in row.volumes}
    return [one.id for one in there if one.volume_id in volumes and one.id not in mine]


def _being_connected(instance: InstanceUuid) -> Unavailable:
    return Unavailable(f"The volumes of server {instance} are being connected.")


def _changed(instance: InstanceUuid) -> Unavailable:
    return Unavailable(f"The volumes of server {instance} have changed meanwhile.")
