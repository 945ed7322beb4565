"""One server: show, update, delete."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import structlog

from skep.api.creating.addresses import access_address
from skep.api.handlers.migrations import progress_of
from skep.api.handlers.server_lookup import CellUnreadable, change, find, find_lost, not_found, refuse_if_locked
from skep.api.handlers.server_views import view_for
from skep.api.requests import Answer, ApiRequest
from skep.api.schemas.server_answers import PARTIAL_SINCE
from skep.database import Connection, clocks
from skep.database.api import build_requests, ends
from skep.database.api import instance_mappings as mappings
from skep.database.api.instance_mappings import Mapping
from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.domain.errors import BadRequest, Conflict, NotFound, SkepError
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance, Task
from skep.domain.states import BUILD_STATES
from skep.messages.to_super_conductor import DeleteInstances
from skep.transport.base import SUPER_CONDUCTOR

log = structlog.get_logger("skep.api.servers")

_CHANGES = {
    "name": "name",
    "description": "description",
    "hostname": "hostname",
    "accessIPv4": "access_ip_v4",
    "accessIPv6": "access_ip_v6",
    "OS-DCF:diskConfig": "disk_config",
    "pinned_availability_zone": "pinned_availability_zone",
}
"""Key of the body -> attribute of the instance."""
_READ: dict[str, Callable[[Any], Any]] = {"accessIPv4": access_address, "accessIPv6": access_address}
"""Key of the body -> how its value is read, where it is not taken as it is."""
_PIN = "pinned_availability_zone"


async def show(request: ApiRequest) -> Answer:
    """Show one server."""
    try:
        found = await find(request, going=True)
    except CellUnreadable as error:
        if request.version < PARTIAL_SINCE:
            raise
        return await _show_unknown(request, error.mapping, error.groups)
    except NotFound:
        lost = await find_lost(request) if request.version >= PARTIAL_SINCE else None
        if lost is None:
            raise
        return await _show_unknown(request, lost, ())
    view = await view_for(request)
    server = view.whole(found.instance, found.groups)
    if found.instance.task is Task.MIGRATING and "progress" in server:
        server["progress"] = await progress_of(request, found)
    return Answer({"server": server})


async def _show_unknown(request: ApiRequest, mapping: Mapping, groups: tuple[str, ...]) -> Answer:
    """Show what is known of a server without its row: its cell cannot be read, or has lost it."""
    spec = await request.services.database.read(partial(build_requests.spec_of, instance=mapping.instance))
    if spec is None:
        raise not_found(mapping.instance)
    view = await view_for(request, hosts=False)
    return Answer({"server": view.unknown_whole(mapping, spec, groups)})


async def update(request: ApiRequest) -> Answer:
    """Change the name, the description, the addresses shown, the hostname."""
    wanted = {_CHANGES[key]: _READ.get(key, _as_given)(value) for key, value in request.body["server"].items()}
    pins = _PIN in wanted

    def alter(instance: Instance) -> Instance:
        if pins:
            _check_pin(instance, wanted[_PIN])
        return msgspec.structs.replace(instance, **wanted) if wanted else instance

    found = await change(request, alter)
    if pins:
        # A failure in between is mended by asking again: what the row says already does not keep the spec from it.
        unit = partial(build_requests.pin, instance=found.instance.uuid, zone=wanted[_PIN])
        await request.services.database.write(unit, intake=True)
    view = await view_for(request)
    return Answer({"server": view.whole(found.instance, found.groups)})


def _as_given(value: Any) -> Any:
    return value


def _check_pin(instance: Instance, zone: str | None) -> None:
    """Raise unless the server may be pinned to the zone, or unpinned (2.104): only to the zone that it is in."""
    if zone == instance.pinned_availability_zone:
        return
    if instance.host is None or instance.state in BUILD_STATES:
        raise Conflict(
            f"Instance {instance.uuid} has no availability zone yet that it could be pinned to or unpinned from"
        )
    if zone is not None and zone != instance.availability_zone:
        raise BadRequest(
            f"Instance {instance.uuid} can be pinned only to the availability zone that it is in, "
            f"{instance.availability_zone}"
        )


async def delete(request: ApiRequest) -> Answer:
    """Delete a server: at once while it has no cell, else by an intent that is followed until nothing is left.

    Where its row cannot be read, a lock that binds the caller refuses it later, when the row is written.
    """
    uuid = InstanceUuid(request.params["id"])
    bound = not request.context.is_admin
    try:
        found = await find(request)
    except CellUnreadable:
        log.info(
            "delete accepted while the cell of the server was unreadable",
            request=request.context.request_id,
            instance=uuid,
        )
    except NotFound:
        if await find_lost(request) is None:
            raise
        log.warning("delete accepted of a server without a row", request=request.context.request_id, instance=uuid)
    else:
        refuse_if_locked(request, found.instance)
        bound = False
    services = request.services
    unit = partial(_delete, uuid=uuid, context=request.context, clock=services.clock, unless_locked=bound)
    await services.database.write(unit, intake=True)
    try:
        await services.transport.cast(SUPER_CONDUCTOR, DeleteInstances(), request.context)
    except (SkepError, OSError) as error:
        log.warning("super conductor not notified", request=request.context.request_id, error=str(error))
    return Answer()


def _delete(
    connection: Connection, uuid: InstanceUuid, context: RequestContext, clock: Clock, *, unless_locked: bool
) -> None:
    """Delete a server that has no cell with all that hangs on it, or note that it is to be deleted.

    By the database's clock, for a super conductor judges by it when what is under way for the server must have ended.
    """
    mapping = mappings.get(connection, uuid)
    if mapping is None or mapping.deleted_at is not None:
        raise NotFound(f"Instance {uuid} could not be found.")
    now = clocks.now(connection, clock)
    if not ends.end_unplaced(connection, uuid, now):
        mappings.intend_delete(connection, uuid, context, now, unless_locked=unless_locked)
