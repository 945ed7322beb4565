"""One server: show, update, delete."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import sqlalchemy as sa
import structlog

from skep.api.handlers.server_lookup import CellUnreadable, change, find, not_found, refuse_if_locked
from skep.api.handlers.server_views import view_for
from skep.api.requests import Answer, ApiRequest
from skep.database.api import build_requests, quotas, server_groups
from skep.database.api import instance_mappings as mappings
from skep.domain.context import RequestContext
from skep.domain.errors import NotFound, SkepError
from skep.domain.ids import InstanceUuid
from skep.domain.instances import Instance
from skep.messages.to_super_conductor import DeleteInstances
from skep.transport.base import SUPER_CONDUCTOR

log = structlog.get_logger("skep.api.servers")

PARTIAL_SINCE = 69
"""From 2.69 on a server whose cell cannot be read is shown as far as it is known."""

_CHANGES = {
    "name": "name",
    "description": "description",
    "hostname": "hostname",
    "accessIPv4": "access_ip_v4",
    "accessIPv6": "access_ip_v6",
    "OS-DCF:diskConfig": "disk_config",
}
"""Key of the body -> attribute of the instance."""
_EMPTY_IS_NONE = frozenset({"accessIPv4", "accessIPv6"})


async def show(request: ApiRequest) -> Answer:
    """Show one server."""
    try:
        found = await find(request)
    except CellUnreadable as error:
        if request.version < PARTIAL_SINCE:
            raise
        return await _show_unknown(request, error)
    view = await view_for(request)
    return Answer({"server": view.whole(found.instance, found.groups)})


async def _show_unknown(request: ApiRequest, error: CellUnreadable) -> Answer:
    uuid = error.mapping.instance
    spec = await request.services.database.read(partial(build_requests.spec_of, instance=uuid))
    if spec is None:
        raise not_found(uuid)
    view = await view_for(request, hosts=False)
    return Answer({"server": view.unknown_whole(error.mapping, spec, error.groups)})


async def update(request: ApiRequest) -> Answer:
    """Change the name, the description, the addresses shown, the hostname."""
    wanted: dict[str, Any] = {
        _CHANGES[key]: (value or None) if key in _EMPTY_IS_NONE else value
        for key, value in request.body["server"].items()
    }

    def alter(instance: Instance) -> Instance:
        return msgspec.structs.replace(instance, **wanted) if wanted else instance

    found = await change(request, alter)
    view = await view_for(request)
    return Answer({"server": view.whole(found.instance, found.groups)})


async def delete(request: ApiRequest) -> Answer:
    """Delete a server: at once while it has no cell, else by an intent that is followed until nothing is left."""
    uuid = InstanceUuid(request.params["id"])
    try:
        found = await find(request)
    except CellUnreadable:
        log.info("delete of a server whose cell cannot be read", instance=uuid)
    else:
        refuse_if_locked(request, found.instance)
    services = request.services
    unit = partial(_delete, uuid=uuid, context=request.context, now=services.clock.now())
    await services.database.write(unit, intake=True)
    try:
        await services.transport.cast(SUPER_CONDUCTOR, DeleteInstances(), request.context)
    except (SkepError, OSError) as error:
        log.warning("super conductor not told", request=request.context.request_id, error=str(error))
    return Answer()


def _delete(connection: sa.Connection, uuid: InstanceUuid, context: RequestContext, now: int) -> None:
    """Delete a server that has no cell with all that hangs on it, or note that it is to be deleted."""
    mapping = mappings.get(connection, uuid)
    if mapping is None or mapping.deleted_at is not None:
        raise NotFound(f"Instance {uuid} could not be found.")
    if mappings.delete_unplaced(connection, uuid, now):
        quotas.credit(connection, [uuid])
        server_groups.remove_members(connection, [uuid])
    else:
        mappings.intend_delete(connection, uuid, context, now)
