"""Who may use a flavor that is not public."""

from __future__ import annotations

from typing import Any

from skep.api import telling
from skep.api.handlers.flavors import not_found
from skep.api.projects import check_project
from skep.api.requests import Answer, ApiRequest
from skep.database import Connection
from skep.database.api import flavors
from skep.domain.errors import Conflict, NotFound
from skep.domain.flavors import Flavor


async def index(request: ApiRequest) -> Answer:
    """`GET /flavors/{id}/os-flavor-access`."""
    flavorid = request.params["flavor_id"]
    flavor = await request.services.database.read(lambda c: flavors.get(c, flavorid))
    if flavor is None:
        raise not_found(flavorid)
    if flavor.is_public:
        raise NotFound("Access list not available for public flavors.")
    return await _answer(request, flavorid)


async def add(request: ApiRequest) -> Answer:
    """`addTenantAccess`."""
    flavorid = request.params["flavor_id"]
    project = request.body["addTenantAccess"]["tenant"]
    await check_project(request, project)

    def unit(connection: Connection) -> Flavor:
        flavor = flavors.get(connection, flavorid)
        if flavor is None:
            raise not_found(flavorid)
        if request.version >= 7 and flavor.is_public:
            raise Conflict("Can not add access to a public flavor.")
        if not flavors.grant(connection, flavorid, project):
            raise Conflict(f"Flavor access already exists for flavor {flavorid} and project {project} combination.")
        return flavor

    return await _changed(request, await request.services.database.write(unit))


async def remove(request: ApiRequest) -> Answer:
    """`removeTenantAccess`."""
    flavorid = request.params["flavor_id"]
    project = request.body["removeTenantAccess"]["tenant"]
    await check_project(request, project)
    flavor = await request.services.database.read(lambda c: flavors.get(c, flavorid))
    if flavor is None:
        raise not_found(flavorid)
    if not await request.services.database.write(lambda c: flavors.revoke(c, flavorid, project)):
        raise NotFound(f"Flavor access not found for {flavorid} / {project} combination.")
    return await _changed(request, flavor)


async def _changed(request: ApiRequest, flavor: Flavor) -> Answer:
    request.services.lookups.flavors.forget()
    await telling.flavor(request, "update", flavor)
    return await _answer(request, flavor.flavorid)


async def _answer(request: ApiRequest, flavorid: str) -> Answer:
    projects = await request.services.database.read(lambda c: flavors.projects(c, flavorid))
    access: list[dict[str, Any]] = [{"flavor_id": flavorid, "tenant_id": project} for project in projects]
    return Answer({"flavor_access": access})
