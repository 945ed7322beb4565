"""What is left of a detach once the row has decided it: the volume service lets go of the volume.

The process that wrote the row does it at once; a super conductor does what that has left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from skep.domain.ids import InstanceUuid, ProjectId
from skep.domain.volumes import ServerVolume
from skep.neighbours.volumes.base import ServerVolumes


async def release(
    volumes: ServerVolumes,
    instance: InstanceUuid,
    project_id: ProjectId,
    volume: ServerVolume,
    is_named: Callable[[], Awaitable[bool]],
) -> None:
    """Delete the attachments of a volume that leaves its server; one that was made for the server outlives it.

    `is_named` tells whether the row names the volume still: a server gets the volume again only once it does not, and
    then the attachments may be new ones. Raises Unavailable: then it is to be done again.
    """
    if volume.is_made:
        await volumes.let_go(project_id, volume.volume_id)
    there = (await volumes.of_servers([instance]))[instance]
    if await is_named():
        await volumes.detach([one.id for one in there if one.volume_id == volume.volume_id])
