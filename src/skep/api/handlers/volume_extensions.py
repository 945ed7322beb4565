"""Volumes that have become larger while servers have them: their hosts are told, so that the guests see it.

The volume service tells of them by the event `volume-extended` (Nova: "Create external events", since 2.51). It
is asked how large a volume is now. Where it does not answer, or the server is in no state for it, the event stays a
record among the actions of the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import structlog

from skep.api.cells import read_cell, write_cell
from skep.api.handlers.server_actions import tell_cell
from skep.api.requests import ApiRequest
from skep.database import Connection
from skep.database.cell import agents, tasks, whereabouts
from skep.database.cell import volumes as cell_volumes
from skep.domain.actions import ACTIONS, EXTEND
from skep.domain.context import RequestContext
from skep.domain.errors import SkepError
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.volumes import ExtendedVolume, ExtendVolumes, ServerVolume
from skep.neighbours.at_once import at_once

log = structlog.get_logger("skep.api.events")

EXTENDED = "volume-extended"


async def begin(request: ApiRequest, cell: CellUuid, events: Iterable[dict[str, Any]]) -> set[str]:
    """Have the hosts of servers in a cell told of volumes that have grown; return the servers of which that has begun.

    Raises Unavailable where the cell cannot be read.
    """
    named: dict[str, list[str]] = {}
    for event in events:
        if event["name"] == EXTENDED:
            named.setdefault(event["server_uuid"], []).append(event["tag"])
    if not named:
        return set()
    rows = await read_cell(request.services, cell, partial(cell_volumes.told, uuids=[*named]))
    wanted = {
        server: [one for one in row.volumes if one.volume_id in named[server] and _grows(one, row.host)]
        for server, row in rows.items()
    }
    sizes = await _sizes(request, sorted({one.volume_id for some in wanted.values() for one in some}))
    told = {
        server: ExtendVolumes(
            volumes=tuple(
                ExtendedVolume(
                    device=one.device,
                    volume_id=one.volume_id,
                    attachment_id=one.attachment_id,
                    size=sizes[one.volume_id],
                )
                for one in some
                if one.volume_id in sizes
            )
        )
        for server, some in wanted.items()
    }
    unit = partial(_begin, told=told, context=request.context, now=request.services.clock.now())
    begun = await write_cell(request.services, cell, unit)
    for server in named.keys() - begun:
        log.warning("guest not told of its volume", instance=server, request=request.context.request_id)
    if begun:
        await tell_cell(request, cell, ("actions",))
    return begun


def _grows(volume: ServerVolume, host: str | None) -> bool:
    """Tell whether the host of a server has a volume, and nothing becomes of it meanwhile."""
    return volume.swap is None and not volume.leaving and bool(volume.host) and volume.host == host


async def _sizes(request: ApiRequest, volumes: Sequence[str]) -> dict[str, int]:
    """Return how large volumes are now, in GiB, as far as the service says."""

    async def size(volume_id: str) -> int | None:
        try:
            return (await request.services.volumes.volume(volume_id, request.context, request.token)).size
        except SkepError as error:
            log.warning("size of a volume not known", volume=volume_id, error=str(error))
            return None

    found = await at_once(size(one) for one in volumes)
    return {one: known for one, known in zip(volumes, found, strict=True) if known is not None}


def _begin(
    connection: Connection, told: dict[InstanceUuid, ExtendVolumes], context: RequestContext, now: int
) -> set[str]:
    """Begin the action of each server that rests, and whose host did not say that its driver cannot do it."""
    action, begun = ACTIONS[EXTEND], set()
    hosts = whereabouts.hosts_of(connection, [*told])
    for server, arguments in told.items():
        host = hosts.get(server)
        if not arguments.volumes or host is None or any(agents.lacks(connection, host, one) for one in action.needs):
            continue
        if tasks.begin(connection, server, action, context, now, arguments=arguments):
            begun.add(str(server))
    return begun
