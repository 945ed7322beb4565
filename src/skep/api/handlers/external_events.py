"""Events that other services tell of servers: of a port, a volume, the power of a machine.

Each is taken or refused for itself, as Nova does (API reference, "Create external events"). What is taken is in the
log. The row of a server is told what became of its interfaces after an event of a port, and a build that waits for its
ports goes on by what the row says; its guest loses the interface of a port that was deleted. A rebuild goes on when its
volume is filled. The host of a server is told of a volume that has grown. The instance actions of a server tell of
that, and of a power that changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any

import structlog

from skep.api.cells import read_cell, write_cell
from skep.api.handlers import interface_plugs, volume_extensions
from skep.api.requests import Answer, ApiRequest
from skep.api.schemas.external_events import TAGGED
from skep.database import Connection
from skep.database.api import instance_mappings as mappings
from skep.database.api import server_ports
from skep.database.api.instance_mappings import Mapping
from skep.database.cell import actions, whereabouts
from skep.domain.errors import SkepError
from skep.domain.ids import CellUuid, InstanceUuid
from skep.messages.to_super_conductor import CellChanged
from skep.transport.base import SUPER_CONDUCTOR

log = structlog.get_logger("skep.api.events")

MAX_NAMED = 500
"""Servers named in one statement."""

RECORDS = {"volume-extended": "extend_volume", "power-update": "power_update"}
"""Event -> Nova's name of the instance action that it leaves."""

REIMAGED = "volume-reimaged"
"""A rebuild waits for this one, or for what a look at the volume tells."""

OF_PORTS = "network-"
"""What the names of events begin with that tell of the ports of a server."""

TAKEN, NO_TAG, NO_SERVER, NO_HOST = 200, 400, 404, 422
PARTLY = 207
"""The status of an answer to events that are not all taken."""

Json = dict[str, Any]


async def create(request: ApiRequest) -> Answer:
    """`POST /os-server-external-events`: 200 when all events are taken, 207 when one is not."""
    events: list[Json] = request.body["events"]
    uuids = sorted({event["server_uuid"] for event in events})
    located = await _located(request, uuids)
    hosts = await _hosts(request, located)
    answers = [_answer(event, event["server_uuid"] in located, hosts.get(event["server_uuid"])) for event in events]
    taken = [one for one in answers if one["code"] == TAKEN]
    await _record(request, located, taken)
    await _note_interfaces(request, located, taken)
    await _tell_of_volumes(request, located, taken)
    for one in taken:
        log.info(
            "event of another service taken",
            instance=one["server_uuid"],
            name=one["name"],
            tag=one.get("tag"),
            request=request.context.request_id,
        )
    return Answer({"events": answers}, status=200 if len(taken) == len(answers) else PARTLY)


def _answer(event: Json, known: bool, host: str | None) -> Json:
    if not known:
        code = NO_SERVER
    elif host is None:
        code = NO_HOST
    elif event["name"] in TAGGED and not event.get("tag"):
        code = NO_TAG
    else:
        code = TAKEN
    return {**event, "status": "completed" if code == TAKEN else "failed", "code": code}


async def _located(request: ApiRequest, uuids: Sequence[str]) -> dict[str, Mapping]:
    """Return the living servers by their ids."""

    def unit(connection: Connection) -> dict[str, Mapping]:
        found: dict[str, Mapping] = {}
        for first in range(0, len(uuids), MAX_NAMED):
            found |= mappings.get_many(connection, uuids[first : first + MAX_NAMED])
        return {uuid: one for uuid, one in found.items() if one.deleted_at is None}

    return await request.services.database.read(unit)


async def _hosts(request: ApiRequest, located: dict[str, Mapping]) -> dict[str, str | None]:
    """Return the host of each server that a cell has.

    Raises Unavailable when a cell cannot be read: who sends events sends them again.
    """
    hosts: dict[str, str | None] = {}
    for cell, uuids in _by_cell(located, located).items():
        hosts |= await read_cell(request.services, cell, partial(whereabouts.hosts_of, uuids=uuids))
    return hosts


async def _note_interfaces(request: ApiRequest, located: dict[str, Mapping], taken: Sequence[Json]) -> None:
    """Have the rows of servers told of their interfaces that another service says have changed, and guests lose those
    that are gone.
    """
    of_ports = sorted({one["server_uuid"] for one in taken if one["name"].startswith(OF_PORTS)})
    for cell, of_cell in _by_cell(located, of_ports).items():
        # Their rows say what the interfaces are until they are told.
        await interface_plugs.lose(request, cell, [one for one in taken if one["server_uuid"] in of_cell])
    if of_ports:
        now = request.services.clock.now()
        await request.services.database.write(partial(server_ports.note_servers, now=now, instances=of_ports))


async def _tell_of_volumes(request: ApiRequest, located: dict[str, Mapping], taken: Sequence[Json]) -> None:
    """Have super conductors look at volumes that are said to be filled anew: they look by themselves, too, later."""
    for cell in _by_cell(located, sorted({one["server_uuid"] for one in taken if one["name"] == REIMAGED})):
        try:
            await request.services.transport.cast(SUPER_CONDUCTOR, CellChanged(cell=cell), request.context)
        except (SkepError, OSError) as error:
            log.warning("super conductor not notified", request=request.context.request_id, error=str(error))


async def _record(request: ApiRequest, located: dict[str, Mapping], taken: Sequence[Json]) -> None:
    now = request.services.clock.now()
    records = {one["server_uuid"]: RECORDS[one["name"]] for one in taken if one["name"] in RECORDS}
    for cell, of_cell in _by_cell(located, records).items():
        begun = await volume_extensions.begin(request, cell, [one for one in taken if one["server_uuid"] in of_cell])
        uuids = [uuid for uuid in of_cell if uuid not in begun]
        new = [actions.action_of(InstanceUuid(uuid), records[uuid], request.context, now) for uuid in uuids]
        await write_cell(request.services, cell, partial(actions.begin, new=new))


def _by_cell(located: dict[str, Mapping], uuids: Iterable[str]) -> dict[CellUuid, Collection[str]]:
    by_cell: dict[CellUuid, list[str]] = {}
    for uuid in uuids:
        cell = located[uuid].cell
        if cell is not None:
            by_cell.setdefault(cell, []).append(uuid)
    return {cell: tuple(some) for cell, some in by_cell.items()}
