"""Interfaces that the host of a server gives to its guest, or takes from it, while the server is there.

So it is where the driver of the host can do that (capability `attach_interface`). A port is there first; then the row
names the interface, in the unit that begins the action of the host. What the guest did not get, or has no more, leaves
the server: its row says so when the action ends, and a super conductor has the port released.

A port may also be deleted where it is. The network service tells of that (`network-vif-deleted`), and the guest loses
the interface likewise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

import structlog

from skep.api.cells import write_cell
from skep.api.handlers.server_actions import begin_with, tell_cell
from skep.api.handlers.server_lookup import LocatedServer
from skep.api.requests import ApiRequest
from skep.database import Connection
from skep.database.cell import agents, interfaces, tasks, whereabouts
from skep.domain.actions import ACTIONS, PLUG_INTERFACE, UNPLUG_INTERFACE
from skep.domain.capabilities import Capability
from skep.domain.context import RequestContext
from skep.domain.ids import CellUuid, InstanceUuid
from skep.domain.vifs import PlugInterface, Vif

log = structlog.get_logger("skep.api.events")

DELETED = "network-vif-deleted"


async def plug(request: ApiRequest, found: LocatedServer, vif: Vif) -> None:
    """Have the host of a server give its guest an interface. Raises Conflict where the row does not allow it."""
    write = partial(interfaces.plug, uuid=found.instance.uuid, vif=vif)
    await begin_with(request, found, ACTIONS[PLUG_INTERFACE], PlugInterface(vif=vif), write)


async def unplug(request: ApiRequest, found: LocatedServer, vif: Vif) -> None:
    """Have the host of a server take an interface from its guest. Raises Conflict where the row does not allow it."""
    write = partial(interfaces.has, uuid=found.instance.uuid, port_id=vif.id)
    await begin_with(request, found, ACTIONS[UNPLUG_INTERFACE], PlugInterface(vif=vif), write)


async def lose(request: ApiRequest, cell: CellUuid, events: Iterable[Mapping[str, Any]]) -> None:
    """Have hosts of servers in a cell take interfaces from guests whose ports are said to be deleted.

    A server that does something else meanwhile, or whose host cannot do it, has such an interface until its next
    rebuild or move. Raises Unavailable where the cell cannot be written.
    """
    named: dict[InstanceUuid, set[str]] = {}
    for event in events:
        if event["name"] == DELETED and event.get("tag"):
            named.setdefault(InstanceUuid(event["server_uuid"]), set()).add(event["tag"])
    if not named:
        return
    unit = partial(_begin_losing, ports=named, context=request.context, now=request.services.clock.now())
    begun = await write_cell(request.services, cell, unit)
    for server in begun:
        log.info("guest loses the interface of a deleted port", instance=server, request=request.context.request_id)
    if begun:
        await tell_cell(request, cell, ("actions",))


def _begin_losing(
    connection: Connection, ports: Mapping[InstanceUuid, Collection[str]], context: RequestContext, now: int
) -> list[InstanceUuid]:
    """Begin the action of each server that rests, and whose host has said that it can do it; return those."""
    hosts, begun = whereabouts.hosts_of(connection, list(ports)), []
    for server, vif in interfaces.first_of(connection, ports).items():
        host = hosts.get(server)
        able = host is not None and agents.is_able(connection, host, Capability.ATTACH_INTERFACE)
        arguments = PlugInterface(vif=vif)
        if able and tasks.begin(connection, server, ACTIONS[UNPLUG_INTERFACE], context, now, arguments=arguments):
            begun.append(server)
    return begun
