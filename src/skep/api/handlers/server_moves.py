"""What the API asks before a server is moved to another host or another size, and the writes that begin it."""

from __future__ import annotations

from functools import partial
from typing import Any

import structlog

from skep.api.creating.disk_config import check_disk_config
from skep.api.creating.disks import check_memory, check_size
from skep.api.creating.inside import devices
from skep.api.handlers.server_hosts import host_states
from skep.api.handlers.server_lookup import LocatedServer
from skep.api.requests import ApiRequest
from skep.database import Connection
from skep.database.api import build_requests, flavors, host_mappings
from skep.database.cell import agents, cold_moves, instances, live_moves
from skep.domain import spread
from skep.domain.actions import Action, Over
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict, Unavailable
from skep.domain.flavors import Flavor
from skep.domain.ids import CellUuid
from skep.domain.instances import Instance
from skep.domain.leaving import CROSS_CELL
from skep.domain.moves import Size

log = structlog.get_logger("skep.api.servers")

TO_HOST = "os_compute_api:os-migrate-server:migrate:host"
HOSTS_SINCE = 56
NOT_ALLOWED = f"the policy `{CROSS_CELL}` does not allow it"


async def wanted_host(request: ApiRequest, found: LocatedServer, asked: Any, *, elsewhere: bool) -> str | None:
    """Return the host that the body names, None where it names none. `elsewhere`: the caller may have another cell.

    Raises Forbidden for callers who may name none; BadRequest for a host that is unknown, the server's own or out of
    reach.
    """
    host = (asked or {}).get("host") if request.version >= HOSTS_SINCE and isinstance(asked, dict) else None
    if host is None:
        return None
    refused = None if elsewhere else NOT_ALLOWED
    await check_wanted(request, found, host, TO_HOST, elsewhere_refused=refused)
    return str(host)


async def check_wanted(
    request: ApiRequest, found: LocatedServer, host: str, rule: str, *, elsewhere_refused: str | None
) -> None:
    """Raise Forbidden for callers who may name no host; BadRequest for one that is unknown or the server's own, and for
    one of another cell, where `elsewhere_refused` says why it cannot be."""
    server = found.instance
    request.authorize(rule=rule, project_id=server.project_id, user_id=server.user_id)
    unit = partial(check_within_reach, host=host, cell=found.cell, elsewhere_refused=elsewhere_refused)
    await request.services.database.read(unit)
    if host == server.host:
        raise BadRequest("The target host can't be the same one.")


def check_within_reach(connection: Connection, host: str, cell: CellUuid | None, elsewhere_refused: str | None) -> None:
    """Raise BadRequest for a host that is unknown, and for one of another cell than the server's, where
    `elsewhere_refused` says why it cannot be."""
    mapping = host_mappings.of_host(connection, host)
    if mapping is None:
        raise BadRequest(f"Compute host {host} could not be found.")
    if elsewhere_refused is not None and mapping.cell != cell:
        raise BadRequest(f"Compute host {host} is in another cell: {elsewhere_refused}.")


async def check_source(request: ApiRequest, server: Instance) -> None:
    """Raise Conflict when the host of a server is known to be down. While no scheduler answers, none is known to be."""
    try:
        states = await host_states(request.services)
    except Unavailable as error:
        log.warning("host states unknown", error=str(error))
        return
    for state in states:
        if state.usage.host == server.host and not state.up:
            raise Conflict(f"Compute service of {server.host} is unavailable at this time.")


async def new_size(request: ApiRequest, server: Instance, asked: dict[str, Any]) -> Size:
    """Return what the body makes of a server.

    Raises BadRequest for a flavor that is unknown or the server's own, and for one that has no room for its disks or
    contradicts its image or itself.
    """
    named = str(asked["flavorRef"]).rsplit("/", 1)[-1]
    project = None if request.context.is_admin else request.context.project_id
    flavor = await request.services.database.read(partial(flavors.get, flavorid=named, project=project))
    same = flavor is not None and flavor.flavorid == server.flavor.flavorid
    if flavor is None or (flavor.disabled and not same):
        raise BadRequest(f"Flavor {named[:80]} could not be found.")
    if same:
        raise BadRequest("When resizing, instances must change flavor!")
    if not _keeps_disks(server, flavor):
        raise BadRequest(
            "Server disk was unable to be resized because: Resize to a smaller disk, or to a zero disk flavor, is not "
            "allowed."
        )
    settings, image = request.services.settings, server.image
    check_disk_config(asked, image, "resize")
    if image is not None:
        check_size(image, flavor, "resize.flavorRef")
    elif server.is_volume_backed:
        spec = await request.services.database.read(partial(build_requests.spec_of, instance=server.uuid))
        image = None if spec is None else spec.image
    if server.is_volume_backed and image is not None:
        check_memory(image, flavor, "resize.flavorRef")
    spread.read_extra_specs(flavor.extra_specs)
    found = devices(flavor, {} if image is None else image.properties, settings)
    return Size(flavor=flavor, devices=found, disk_config=asked.get("OS-DCF:diskConfig", "MANUAL"))


def _keeps_disks(server: Instance, after: Flavor) -> bool:
    """Tell whether a flavor has room for the disks that a server has on its host: a volume is none of them."""
    before = server.flavor
    return (server.is_volume_backed or after.root_gb >= before.root_gb) and after.ephemeral_gb >= before.ephemeral_gb


def begin(
    connection: Connection,
    server: Instance,
    action: Action,
    context: RequestContext,
    now: int,
    host: str | None = None,
    size: Size | None = None,
    forced: bool = False,
    elsewhere: bool = False,
) -> list[Over] | None:
    """Begin a move or a revert of a server as it is in its cell; None when its row does not allow it.

    Raises Conflict when its host takes part in no move, BadRequest for a revert without a finished move.
    """
    row = instances.get(connection, server.uuid)
    if row is None or row.attempt != server.attempt:
        return None
    if action.name == "revert_resize":
        return cold_moves.begin_revert(connection, row, action, context, now)
    if row.node in agents.without(connection, "MoveStep", str(action.capability)):
        raise Conflict(
            f"Cannot '{action.record}' instance {row.uuid}: the requested functionality is not supported. Its host "
            f"lacks the capability `{action.capability}`."
        )
    if action.name == "live_migrate":
        return live_moves.begin(connection, row, action, context, now, wanted_host=host, forced=forced)
    return cold_moves.begin(connection, row, action, context, now, wanted_host=host, size=size, elsewhere=elsewhere)
