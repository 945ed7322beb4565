"""The metadata of a server."""

from __future__ import annotations

import msgspec

from skep.api.creating.contents import check_metadata
from skep.api.handlers.server_lookup import change, find, refuse_if_locked
from skep.api.requests import Answer, ApiRequest
from skep.database.api import quotas
from skep.domain.errors import BadRequest, NotFound
from skep.domain.instances import Instance


async def index(request: ApiRequest) -> Answer:
    """Return all items."""
    found = await find(request)
    return Answer({"metadata": found.instance.metadata})


async def show(request: ApiRequest) -> Answer:
    """Return one item."""
    found = await find(request)
    key = request.params["key"]
    if key not in found.instance.metadata:
        raise _no_item()
    return Answer({"meta": {key: found.instance.metadata[key]}})


async def create(request: ApiRequest) -> Answer:
    """Add items; those that are there already get the new value."""
    changed = await _change(request, request.body["metadata"], keep=True)
    return Answer({"metadata": changed})


async def update_all(request: ApiRequest) -> Answer:
    """Replace all items."""
    changed = await _change(request, request.body["metadata"], keep=False)
    return Answer({"metadata": changed})


async def update(request: ApiRequest) -> Answer:
    """Set one item."""
    meta = request.body["meta"]
    if request.params["key"] not in meta:
        raise BadRequest("Request body and URI mismatch")
    await _change(request, meta, keep=True)
    return Answer({"meta": meta})


async def delete(request: ApiRequest) -> Answer:
    """Remove one item."""
    key = request.params["key"]

    def alter(instance: Instance) -> Instance:
        refuse_if_locked(request, instance)
        if key not in instance.metadata:
            raise _no_item()
        left = {name: value for name, value in instance.metadata.items() if name != key}
        return msgspec.structs.replace(instance, metadata=left)

    await change(request, alter)
    return Answer()


async def _change(request: ApiRequest, items: dict[str, str], *, keep: bool) -> dict[str, str]:
    services, project = request.services, request.context.project_id
    defaults = await services.quotas_of(project)
    limits = await services.database.read(lambda connection: quotas.limits(connection, project, defaults=defaults))

    def alter(instance: Instance) -> Instance:
        refuse_if_locked(request, instance)
        metadata = {**instance.metadata, **items} if keep else items
        check_metadata(metadata, limits["metadata_items"])
        return instance if metadata == instance.metadata else msgspec.structs.replace(instance, metadata=metadata)

    return (await change(request, alter)).instance.metadata


def _no_item() -> NotFound:
    return NotFound("Metadata item was not found")
