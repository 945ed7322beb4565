"""Extra specs of flavors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from skep.api import telling
from skep.api.extra_specs import check_extra_specs
from skep.api.handlers.flavors import not_found, visible
from skep.api.requests import Answer, ApiRequest
from skep.database import Connection
from skep.database.api import flavors
from skep.domain.errors import BadRequest, NotFound
from skep.domain.flavors import Flavor


async def index(request: ApiRequest) -> Answer:
    """`GET /flavors/{id}/os-extra_specs`."""
    return Answer({"extra_specs": (await visible(request, request.params["flavor_id"])).extra_specs})


async def show(request: ApiRequest) -> Answer:
    """`GET /flavors/{id}/os-extra_specs/{key}`."""
    flavor = await visible(request, request.params["flavor_id"])
    key = request.params["key"]
    if key not in flavor.extra_specs:
        raise _no_such_key(flavor.flavorid, key)
    return Answer({key: flavor.extra_specs[key]})


async def create(request: ApiRequest) -> Answer:
    """`POST /flavors/{id}/os-extra_specs`: add or replace these."""
    return Answer({"extra_specs": await _merge(request, request.body["extra_specs"])})


async def update(request: ApiRequest) -> Answer:
    """`PUT /flavors/{id}/os-extra_specs/{key}`."""
    if request.params["key"] not in request.body:
        raise BadRequest("Request body and URI mismatch")
    return Answer(await _merge(request, request.body))


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /flavors/{id}/os-extra_specs/{key}`."""
    flavorid, key = request.params["flavor_id"], request.params["key"]

    def change(specs: dict[str, str]) -> dict[str, str]:
        if key not in specs:
            raise _no_such_key(flavorid, key)
        return {name: value for name, value in specs.items() if name != key}

    await _change(request, change)
    return Answer()


async def _merge(request: ApiRequest, asked: dict[str, Any]) -> dict[str, str]:
    specs = {name: str(value) for name, value in asked.items()}
    if request.version >= 86:
        check_extra_specs(specs, volumes="VolumeFilter" in request.services.settings.filters)

    await _change(request, lambda before: {**before, **specs})
    return specs


async def _change(request: ApiRequest, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Give a flavor other extra specs. `change` may raise. Raises NotFound."""
    flavorid = request.params["flavor_id"]

    def unit(connection: Connection) -> Flavor:
        found = flavors.get(connection, flavorid)
        if found is None:
            raise not_found(flavorid)
        changed = msgspec.structs.replace(found, extra_specs=change(found.extra_specs))
        flavors.save(connection, changed)
        return changed

    changed = await request.services.database.write(unit)
    request.services.lookups.flavors.forget()
    await telling.flavor(request, "update", changed)


def _no_such_key(flavorid: str, key: str) -> NotFound:
    return NotFound(f"Flavor {flavorid} has no extra specs with key {key}.")
