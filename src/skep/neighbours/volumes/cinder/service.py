"""Cinder behind both of Skep's ports towards volumes."""

from __future__ import annotations

from collections.abc import Sequence

from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid, ProjectId
from skep.neighbours.at_once import at_once
from skep.neighbours.service_session import ServiceSession
from skep.neighbours.volumes.base import (
    AskedAttachment,
    AskedVolumes,
    ChosenVolumes,
    DiskVolume,
    EndedVolumes,
    LeftVolume,
    UsersVolume,
    VolumeAttachment,
    VolumeConnection,
    VolumesRefused,
    WantedAttachments,
    WantedBeside,
    WantedConnection,
    WantedVolumes,
)
from skep.neighbours.volumes.cinder.attachments import AttachedVolumes
from skep.neighbours.volumes.cinder.calls import CinderCalls
from skep.neighbours.volumes.cinder.forms import CinderAttachment
from skep.neighbours.volumes.cinder.kept import KeptVolumes
from skep.neighbours.volumes.cinder.of_servers import MadeVolumes
from skep.neighbours.volumes.cinder.of_users import VolumeChooser, ZoneRules
from skep.neighbours.volumes.cinder.proxies import CinderProxies
from skep.neighbours.volumes.cinder.refusals import told_to_skep, told_to_users

ANYWHERE = ZoneRules()


class CinderVolumes(CinderProxies):
    """A `VolumesOfUsers` and `ServerVolumes` over Cinder's v3 API.

    What users name is looked up with their own tokens. Skep's own user has to be an admin there with the role
    `service`, since only a service takes a volume from a server. Cinder makes a volume in the project of the token
    alone, so that Skep's user needs a role in the projects of servers too: one that is inherited from their domain.
    """

    elsewhere = True

    def __init__(self, session: ServiceSession, endpoint: str = "", rules: ZoneRules = ANYWHERE) -> None:
        """`endpoint` is Cinder's address with `/v3`; empty: what the catalogue says."""
        super().__init__(CinderCalls(session, endpoint))
        self._rules = rules
        self._made = MadeVolumes(self._skep)
        self._attached = AttachedVolumes(self._skep)
        self._kept = KeptVolumes(self._skep)

    async def choose(self, asked: AskedVolumes, _context: RequestContext, token: str) -> ChosenVolumes:
        """Return what the servers of a create are to have."""
        with told_to_users():
            return await VolumeChooser(self._skep.of_user(token), self._rules).choose(asked)

    async def attachable(self, asked: AskedAttachment, _context: RequestContext, token: str) -> UsersVolume:
        """Return a volume that a server may get now."""
        with told_to_users():
            return await VolumeChooser(self._skep.of_user(token), self._rules).attachable(asked)

    async def make(self, wanted: Sequence[WantedVolumes]) -> list[tuple[DiskVolume, ...] | VolumesRefused]:
        """Make what is missing of the volumes of servers."""
        with told_to_skep():
            return await at_once(self._made.make(one) for one in wanted)

    async def reserve(self, wanted: Sequence[WantedAttachments]) -> list[tuple[str, ...] | VolumesRefused]:
        """Keep volumes for servers."""
        with told_to_skep():
            return await at_once(self._attached.reserve(one) for one in wanted)

    async def connect(self, wanted: Sequence[WantedConnection]) -> list[VolumeConnection | VolumesRefused]:
        """Tell which hosts use attachments."""
        return await at_once(self._attached.connect(one) for one in wanted)

    async def connect_beside(self, wanted: Sequence[WantedBeside]) -> list[VolumeConnection | VolumesRefused]:
        """Connect volumes to second hosts."""
        return await at_once(self._attached.connect_beside(one) for one in wanted)

    async def connections(self, attachments: Sequence[str]) -> list[VolumeConnection | VolumesRefused]:
        """Return how hosts reach volumes."""
        return await at_once(self._attached.connection(one) for one in attachments)

    async def complete(self, attachments: Sequence[str]) -> list[VolumesRefused | None]:
        """Tell that volumes are in use."""
        return await at_once(self._attached.complete(one) for one in attachments)

    async def detach(self, attachments: Sequence[str]) -> None:
        """Delete attachments."""
        await at_once(self._attached.detach(one) for one in attachments)

    async def of_servers(self, servers: Sequence[InstanceUuid]) -> dict[InstanceUuid, tuple[VolumeAttachment, ...]]:
        """Return the attachments of servers."""
        with told_to_skep():
            found = await at_once(self._attached.of_server(one) for one in servers)
        return {server: _told(of_it) for server, of_it in zip(servers, found, strict=True)}

    async def held(self) -> dict[InstanceUuid, tuple[VolumeAttachment, ...]]:
        """Return the attachments of all servers."""
        with told_to_skep():
            return {server: _told(of_it) for server, of_it in (await self._attached.held()).items()}

    async def status(self, volume_id: str) -> str | None:
        """Return the status of a volume."""
        with told_to_skep():
            return await self._kept.status(volume_id)

    async def begin_detaching(self, volume_id: str) -> VolumesRefused | None:
        """Say that a volume is taken from a server."""
        return await self._kept.begin_detaching(volume_id)

    async def roll_detaching(self, volume_id: str) -> None:
        """Say that a volume stays."""
        await self._kept.roll_detaching(volume_id)

    async def reimage(self, volume_id: str, image_id: str) -> VolumesRefused | None:
        """Begin to fill a volume anew."""
        return await self._kept.reimage(volume_id, image_id)

    async def end_move(self, volume_id: str, other_id: str, *, failed: bool) -> VolumesRefused | None:
        """Say what came of the copying of a volume that Cinder moves."""
        with told_to_skep():
            return await self._kept.end_move(volume_id, other_id, failed=failed)

    async def assisted(self, snapshot_id: str, *, deletes: bool, failed: bool) -> VolumesRefused | None:
        """Say what came of a snapshot that Cinder had a host make or delete."""
        return await self._kept.assisted(snapshot_id, deletes=deletes, failed=failed)

    async def let_go(self, project_id: ProjectId, volume_id: str) -> None:
        """Leave a volume that was made for a server to its project."""
        await self._made.let_go(project_id, volume_id)

    async def is_let_go(self, instance: InstanceUuid, volume_id: str) -> bool:
        """Tell whether a volume that was made for a server is its project's by now."""
        with told_to_skep():
            return await self._made.is_let_go(instance, volume_id)

    async def discard(self, servers: Sequence[EndedVolumes]) -> list[tuple[LeftVolume, ...]]:
        """Delete the volumes that were made for servers and end with them."""
        with told_to_skep():
            return await at_once(self._made.discard(one) for one in servers)


def _told(attachments: Sequence[CinderAttachment]) -> tuple[VolumeAttachment, ...]:
    return tuple(VolumeAttachment(id=one.id, volume_id=one.volume_id, status=one.status) for one in attachments)
