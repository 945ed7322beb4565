"""How many more servers of a flavor fit, where, and what runs out first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skep.admin.placement_answers import AnsweredCapacity, ShownRoom
from skep.admin.requested import HypotheticalServer, cell_of, spec_of
from skep.admin.requests import AdminRequest, operation
from skep.database import Connection
from skep.database.api import aggregates
from skep.domain.capacity import PartRoom
from skep.domain.errors import BadRequest, NotFound
from skep.domain.ids import CellUuid
from skep.http.operations import STRING, whole
from skep.messages.to_scheduler_capacity import GetCapacity
from skep.transport.base import SCHEDULER

MOST_KEPT_FREE = 1_000_000
_DEFAULT_ZONE = "nova"
"""Of hosts that no aggregate puts into a zone."""


@operation(
    query={"flavor": STRING, "availability_zone": STRING, "cell": STRING, "keep_free_hosts": whole(0, MOST_KEPT_FREE)},
)
async def show(request: AdminRequest) -> AnsweredCapacity:
    """Answer how many more servers fit. Parameters: `flavor`, `availability_zone`, `cell`, `keep_free_hosts`.

    Raises BadRequest or NotFound, naming the parameter, for what there is not.
    """
    services, flavor = request.services, request.query.get("flavor")
    if not flavor:
        raise BadRequest("flavor: expected the id or name of a flavor.")
    zone = request.query.get("availability_zone")
    message = GetCapacity(
        spec=await spec_of(request, HypotheticalServer(flavor=flavor, availability_zone=zone)),
        cell=cell_of(services, request.query.get("cell")),
        keep_free_hosts=request.number("keep_free_hosts") or 0,
    )
    reply = await services.transport.call(SCHEDULER, message)
    found = reply.capacity
    if zone is not None and not found.suitable and not await services.database.read(_zone_is_known(zone)):
        raise NotFound(f"availability_zone: there is no zone {zone[:80]!r}.")
    names = await services.database.read(_names_of_aggregates)
    return {
        "capacity": {
            "flavor": message.spec.flavor.name,
            "availability_zone": zone,
            "cell": services.cell_name(message.cell),
            "servers": found.servers,
            "hosts": found.hosts,
            "considered": found.considered,
            "stages": [{"stage": stage.stage, "left": stage.left} for stage in found.stages],
            "suitable": found.suitable,
            "too_small": found.too_small,
            "not_ready": found.not_ready,
            "kept_free": found.kept_free,
            "asked": found.asked,
            "runs_out_first": found.runs_out_first or None,
            "limits": found.limits,
            "left_over": found.left_over,
            "sizes": [{"servers": servers, "hosts": hosts} for servers, hosts in sorted(found.sizes.items())],
            "not_counted": found.not_counted,
            "zones": [_room(room, room.name) for room in found.zones],
            "cells": _by_name(found.cells, lambda uuid: services.cell_name(CellUuid(uuid))),
            "aggregates": _by_name(found.aggregates, names.get),
        },
        "epoch": reply.epoch,
    }


def _by_name(rooms: Sequence[PartRoom], name_of: Callable[[str], str | None]) -> list[ShownRoom]:
    """Return parts of the cloud by the names that operators gave them; the most room first, then by name."""
    named = [_room(room, name_of(room.name) or room.name) for room in rooms]
    return sorted(named, key=lambda room: (-room["servers"], room["name"]))


def _room(room: PartRoom, name: str) -> ShownRoom:
    return {"name": name, "servers": room.servers, "hosts": room.hosts, "suitable": room.suitable}


def _zone_is_known(zone: str) -> Callable[[Connection], bool]:
    def unit(connection: Connection) -> bool:
        return zone == _DEFAULT_ZONE or any(one.zone == zone for one in aggregates.every(connection))

    return unit


def _names_of_aggregates(connection: Connection) -> dict[str, str]:
    return {str(one.id): one.name for one in aggregates.every(connection)}
