"""How a host reaches the volumes of a server: asked from above the cell whenever a guest is made, and told its driver.

Nothing of it is in the agent's journal: there may be passwords in it. A driver that connects no volumes is told
nothing; its guests have them on paper.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from skep.compute.drivers.volumes import VolumeDriver
from skep.compute.host import Host
from skep.compute.upcalls import NoConnections
from skep.domain.builds import BuildFailure, failure
from skep.domain.context import RequestContext
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance
from skep.domain.volumes import ConnectedVolume

NOT_CONNECTED = "VolumesNotConnected"
"""The error of a guest that cannot be made, because it is not known how its host reaches a volume."""

Volumes = tuple[ConnectedVolume, ...]


def needed(host: Host, server: Instance) -> bool:
    """Tell whether the driver of the host is to be told of volumes before the guest of a server is made."""
    return bool(server.volumes) and isinstance(host.driver, VolumeDriver)


async def asked(
    host: Host, server: InstanceUuid, attempt: int, context: RequestContext, attachments: Sequence[str] = ()
) -> Volumes | BuildFailure:
    """Return how the host reaches the volumes of a server, or those of the attachments. Raises Stopping."""
    try:
        return await host.upcalls.connections(server, attempt, context, attachments)
    except NoConnections as error:
        return failure(NOT_CONNECTED, f"it is not known how host {host.name} reaches volumes: {error}")


def connecting(host: Host, server: Instance, attempt: int, volumes: Volumes) -> Awaitable[None]:
    """Return the call of the driver that connects volumes for a guest which is made after it."""
    assert isinstance(host.driver, VolumeDriver)
    return host.driver.connect_volumes(server.uuid, attempt, volumes)


async def connect(host: Host, server: Instance, attempt: int, context: RequestContext) -> BuildFailure | None:
    """Connect the volumes of a server, if it has any, for a guest that is made after it."""
    if not needed(host, server):
        return None
    volumes = await asked(host, server.uuid, attempt, context)
    if isinstance(volumes, BuildFailure):
        return volumes
    return await host.calls.change("prepare", connecting(host, server, attempt, volumes), server.uuid)
