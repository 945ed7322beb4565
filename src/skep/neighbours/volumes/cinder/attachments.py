"""Attachments: which volumes servers have, and from which hosts they are reached."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec
import structlog

from skep.domain.errors import Unavailable
from skep.domain.ids import InstanceUuid
from skep.neighbours.answers import VOLUMES as SERVICE
from skep.neighbours.answers import nonsense
from skep.neighbours.volumes.base import (
    ATTACHED,
    KEPT,
    VolumeConnection,
    VolumesRefused,
    WantedAttachments,
    WantedBeside,
    WantedConnection,
)
from skep.neighbours.volumes.cinder.calls import CinderCalls, CinderRefused
from skep.neighbours.volumes.cinder.forms import (
    ATTACHED_FIRST,
    ATTACHMENTS,
    DELETING,
    PASSING,
    RESERVED,
    VOLUMES,
    CinderAttachment,
)

log = structlog.get_logger("skep.neighbours")

DRIVER = "driver_volume_type"

INVALID = 400
"""The status with which Cinder refuses an attachment for what the volume is."""


class AttachedVolumes:
    """Reserves, connects and releases volumes in Skep's own name, whichever project they are of."""

    def __init__(self, skep: CinderCalls) -> None:
        self._skep = skep

    async def of_server(self, instance: InstanceUuid) -> list[CinderAttachment]:
        """Return the attachments of a server. Raises CinderRefused, Unavailable."""
        found = await self._skep.listed(ATTACHMENTS, ("all_tenants", "1"), ("instance_id", instance))
        return [one for one in found if one.instance == instance]

    async def held(self) -> dict[InstanceUuid, list[CinderAttachment]]:
        """Return the attachments of all servers. Raises CinderRefused, Unavailable."""
        found: dict[InstanceUuid, list[CinderAttachment]] = defaultdict(list)
        for one in await self._skep.listed(ATTACHMENTS, ("all_tenants", "1")):
            if one.instance is not None:
                found[InstanceUuid(one.instance)].append(one)
        return found

    async def reserve(self, wanted: WantedAttachments) -> tuple[str, ...] | VolumesRefused:
        """Keep volumes for a server; return the attachment of each. All of them, or none. Raises Unavailable."""
        there = defaultdict(list) if wanted.are_free else await self._there(wanted)
        try:
            return tuple([await self._kept(wanted, volume_id, there[volume_id]) for volume_id in wanted.volume_ids])
        except CinderRefused as error:
            await self._give_up([one for some in there.values() for one in some])
            return VolumesRefused(str(error), is_passing=error.status == INVALID and await self._are_passing(wanted))

    async def connect(self, wanted: WantedConnection) -> VolumeConnection | VolumesRefused:
        """Tell which host uses an attachment. Raises Unavailable."""
        try:
            changed = await self._skep.changed(ATTACHMENTS, wanted.attachment_id, {"connector": wanted.connector})
        except CinderRefused as error:
            return VolumesRefused(str(error))
        return _connection(changed)

    async def connect_beside(self, wanted: WantedBeside) -> VolumeConnection | VolumesRefused:
        """Connect a volume to a second host of its server. Raises Unavailable.

        Cinder connects a second attachment only where it is made so: one that is there already is refused.
        """
        fields = {"volume_uuid": wanted.volume_id, "instance_uuid": wanted.instance, "connector": wanted.connector}
        try:
            made = await self._skep.made(ATTACHMENTS, **fields)
        except CinderRefused as error:
            return VolumesRefused(str(error))
        if (made.volume_id, made.instance) != (wanted.volume_id, wanted.instance):
            raise nonsense(SERVICE, "the new attachment is that of others")
        return _connection(made)

    async def connection(self, attachment_id: str) -> VolumeConnection | VolumesRefused:
        """Return how a host reaches a volume. Raises Unavailable."""
        try:
            found = await self._skep.shown(ATTACHMENTS, attachment_id)
            volume = None if found is None else await self._skep.shown(VOLUMES, found.volume_id)
        except CinderRefused as error:
            return VolumesRefused(str(error))
        if found is None or volume is None or found.status == KEPT:
            return VolumesRefused(f"attachment {attachment_id} is connected to no host")
        return msgspec.structs.replace(_connection(found), shared=volume.multiattach)

    async def complete(self, attachment_id: str) -> VolumesRefused | None:
        """Tell that a volume is in use. Raises Unavailable."""
        try:
            await self._skep.act(ATTACHMENTS, attachment_id, "os-complete")
        except CinderRefused as error:
            return VolumesRefused(str(error))
        return None

    async def detach(self, attachment_id: str) -> None:
        """Delete an attachment. Raises Unavailable, also where that is refused."""
        try:
            await self._skep.deleted(ATTACHMENTS, attachment_id)
        except CinderRefused as error:
            raise Unavailable(f"{SERVICE} does not release a volume: {error}") from error

    async def _are_passing(self, wanted: WantedAttachments) -> bool:
        """Tell whether something is just done to volumes that their server has, or was a moment ago.

        A volume of several servers takes no attachment while another one gets or loses it, for one.
        """
        found = [await self._skep.shown(VOLUMES, volume_id) for volume_id in wanted.volume_ids if wanted.beside]
        return any(one is not None and one.status in PASSING - {DELETING} for one in found)

    async def _there(self, wanted: WantedAttachments) -> dict[str, list[CinderAttachment]]:
        """Return what the server has of each of these volumes, what it depends on first."""
        found: dict[str, list[CinderAttachment]] = defaultdict(list)
        for one in await self.of_server(wanted.instance):
            if one.volume_id in wanted.volume_ids and one.id not in wanted.beside:
                found[one.volume_id].append(one)
        for some in found.values():
            some.sort(key=_order)
        return found

    async def _kept(self, wanted: WantedAttachments, volume_id: str, there: list[CinderAttachment]) -> str:
        """Return the attachment of a volume, which is added to what is there. Raises CinderRefused, Unavailable."""
        for surplus in there[1:]:
            # Asked for twice: the first request was slow, and its answer lost.
            if surplus.status == RESERVED:
                await self._skep.deleted(ATTACHMENTS, surplus.id)
        if not there:
            there.append(await self._made(wanted, volume_id))
        return there[0].id

    async def _made(self, wanted: WantedAttachments, volume_id: str) -> CinderAttachment:
        try:
            made = await self._skep.made(ATTACHMENTS, volume_uuid=volume_id, instance_uuid=wanted.instance)
            if (made.volume_id, made.instance) != (volume_id, wanted.instance):
                raise nonsense(SERVICE, "the new attachment is that of others")
            return made
        except Unavailable:
            unseen = (await self._there(wanted))[volume_id]
            if not unseen:
                raise
            log.info("attachment found whose making had no answer", instance=wanted.instance, attachment=unseen[0].id)
            return unseen[0]

    async def _give_up(self, attachments: Sequence[CinderAttachment]) -> None:
        """Delete what was reserved in vain; what a guest uses stays."""
        for attachment_id in {one.id for one in attachments if one.status != ATTACHED}:
            await self.detach(attachment_id)


def _connection(attachment: CinderAttachment) -> VolumeConnection:
    info = attachment.connection_info or {}
    if not isinstance(info.get(DRIVER), str):
        raise nonsense(SERVICE, f"the connection of attachment {attachment.id} has no {DRIVER}")
    data = {key: value for key, value in info.items() if key != DRIVER}
    return VolumeConnection(attachment_id=attachment.id, driver=info[DRIVER], data=data)


def _order(attachment: CinderAttachment) -> tuple[int, str]:
    known = attachment.status in ATTACHED_FIRST
    return ATTACHED_FIRST.index(attachment.status) if known else len(ATTACHED_FIRST), attachment.id
