"""Extra specs of flavors."""

from __future__ import annotations

from typing import Any

import msgspec

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

    def unit(connection: Connection) -> Flavor | None:
        found = flavors.get(connection, flavorid)
        if found is not None and key in found.extra_specs:
            rest = {name: value for name, value in found.extra_specs.items() if name != key}
            flavors.save(connection, msgspec.structs.replace(found, extra_specs=rest))
        return found

    found = await request.services.database.write(unit)
    if found is None:
        raise not_found(flavorid)
    if key not in found.extra_specs:
        raise _no_such_key(flavorid, key)
    request.services.lookups.flavors.forget()
    return Answer()


async def _merge(request: ApiRequest, asked: dict[str, Any]) -> dict[str, str]:
    flavorid = request.params["flavor_id"]
    specs = {name: str(value) for name, value in asked.items()}
    if request.version >= 86:
        check_extra_specs(specs, volumes="VolumeFilter" in request.services.settings.filters)

    def unit(connection: Connection) -> bool:
        found = flavors.get(connection, flavorid)
        if found is None:
            return False
        flavors.save(connection, msgspec.structs.replace(found, extra_specs={**found.extra_specs, **specs}))
        return True

    if not await request.services.database.write(unit):
        raise not_found(flavorid)
    request.services.lookups.flavors.forget()
    return specs


def _no_such_key(flavorid: str, key: str) -> NotFound:
    return NotFound(f"Flavor {flavorid} has no extra specs with key {key}.")
