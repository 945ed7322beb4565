"""Deleting a server where the operator keeps deleted servers for a while."""

from __future__ import annotations

from functools import partial

from skep.api.cells import read_cell
from skep.api.handlers import server_actions, servers
from skep.api.handlers.server_lookup import LocatedServer, find, refuse_if_locked
from skep.api.requests import Answer, ApiRequest
from skep.database.cell import soft_deletes
from skep.domain.errors import Conflict, NotFound
from skep.domain.instances import Instance, State, Task


async def delete(request: ApiRequest) -> Answer:
    """Delete a server: for good, or (`reclaim_instance_interval`) softly if its host has its guest and can stop it.

    A server that is soft-deleted already stays as it is. Raises CellUnreadable where it is not known which of them.
    """
    services = request.services
    if services.settings.reclaim_instance_interval <= 0:
        return await servers.delete(request)
    try:
        found = await find(request)
    except NotFound:
        return await servers.delete(request)
    refuse_if_locked(request, found.instance)
    if _is_under_way(found.instance):
        return Answer()
    being_restored = found.instance.state is State.SOFT_DELETED
    if found.mapping.delete_intent_at is not None or not (being_restored or await _can_be_kept(request, found)):
        return await servers.delete(request)
    try:
        return await server_actions.begin(request, soft_deletes.SOFT_DELETE)
    except Conflict:
        if not _is_under_way((await find(request)).instance):
            raise
        return Answer()


def _is_under_way(instance: Instance) -> bool:
    return instance.task is Task.SOFT_DELETING or (instance.state is State.SOFT_DELETED and instance.task is None)


async def _can_be_kept(request: ApiRequest, found: LocatedServer) -> bool:
    if found.cell is None:
        return False
    return await read_cell(request.services, found.cell, partial(soft_deletes.can_be_kept, instance=found.instance))
