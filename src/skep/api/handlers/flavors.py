"""Flavors."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.api import telling
from skep.api.requests import Answer, ApiRequest
from skep.api.schemas.fields import FALSE_WORDS, TRUE_WORDS
from skep.api.schemas.flavors import SORT_KEYS
from skep.database import Connection
from skep.database.api import flavors
from skep.database.api.flavors import FlavorQuery
from skep.domain.errors import BadRequest, Conflict, NotFound
from skep.domain.flavors import Flavor
from skep.domain.ids import new_uuid

EXTRA_SPECS_RULE = "os_compute_api:os-flavor-extra-specs:index"


async def index(request: ApiRequest) -> Answer:
    """`GET /flavors`."""
    page = await _page(request)
    items = [
        {
            "id": one.flavorid,
            "name": one.name,
            "description": one.description,
            "links": request.links.both("flavors", one.flavorid),
        }
        for one in page
    ]
    return _list(request, "flavors", page, items)


async def detail(request: ApiRequest) -> Answer:
    """`GET /flavors/detail`."""
    page = await _page(request)
    return _list(request, "flavors/detail", page, [view(request, one) for one in page])


async def show(request: ApiRequest) -> Answer:
    """`GET /flavors/{id}`."""
    return Answer({"flavor": view(request, await visible(request, request.params["flavor_id"]))})


async def create(request: ApiRequest) -> Answer:
    """`POST /flavors`."""
    new = _from_body(request.body["flavor"])
    now = request.services.clock.now()

    def unit(connection: Connection) -> str | None:
        taken = flavors.taken(connection, new)
        if taken is None:
            flavors.add(connection, new, now)
        return taken

    taken = await request.services.database.write(unit)
    if taken == "name":
        raise Conflict(f"Flavor with name {new.name} already exists.")
    if taken is not None:
        raise Conflict(f"Flavor with ID {new.flavorid} already exists.")
    await telling.flavor(request, "create", new)
    return Answer({"flavor": view(request, new)})


async def update(request: ApiRequest) -> Answer:
    """`PUT /flavors/{id}`: the description (2.55)."""
    flavorid = request.params["flavor_id"]
    description = request.body["flavor"]["description"]

    def unit(connection: Connection) -> Flavor | None:
        found = flavors.get(connection, flavorid)
        if found is None:
            return None
        changed = msgspec.structs.replace(found, description=description)
        flavors.save(connection, changed)
        return changed

    changed = await request.services.database.write(unit)
    if changed is None:
        raise not_found(flavorid)
    request.services.lookups.flavors.forget()
    await telling.flavor(request, "update", changed)
    return Answer({"flavor": view(request, changed)})


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /flavors/{id}`."""
    flavorid = request.params["flavor_id"]

    def unit(connection: Connection) -> Flavor | None:
        found = flavors.get(connection, flavorid)
        return found if flavors.remove(connection, flavorid) else None

    removed = await request.services.database.write(unit)
    if removed is None:
        raise not_found(flavorid)
    request.services.lookups.flavors.forget()
    await telling.flavor(request, "delete", removed)
    return Answer()


async def visible(request: ApiRequest, flavorid: str) -> Flavor:
    """Return a flavor that the caller may use.

    Raises NotFound.
    """
    project = None if request.context.is_admin else request.context.project_id
    found = await request.services.database.read(lambda c: flavors.get(c, flavorid, project=project))
    if found is None:
        raise not_found(flavorid)
    return found


def not_found(flavorid: str) -> NotFound:
    """Return the error for a flavor that is not there."""
    return NotFound(f"Flavor {flavorid} could not be found.")


def view(request: ApiRequest, one: Flavor) -> dict[str, Any]:
    """Return all that the API says of a flavor."""
    shown: dict[str, Any] = {
        "id": one.flavorid,
        "name": one.name,
        "ram": one.memory_mb,
        "disk": one.root_gb,
        "vcpus": one.vcpus,
        "swap": one.swap_mb,
        "OS-FLV-EXT-DATA:ephemeral": one.ephemeral_gb,
        "OS-FLV-DISABLED:disabled": one.disabled,
        "os-flavor-access:is_public": one.is_public,
        "rxtx_factor": one.rxtx_factor,
        "description": one.description,
        "links": request.links.both("flavors", one.flavorid),
    }
    if request.version >= 61 and request.allowed(EXTRA_SPECS_RULE):
        shown["extra_specs"] = one.extra_specs
    return shown


def _from_body(body: dict[str, Any]) -> Flavor:
    given = body.get("id")
    return Flavor(
        flavorid=new_uuid() if given is None or given == "" else str(given),
        name=body["name"],
        vcpus=body["vcpus"],
        memory_mb=body["ram"],
        root_gb=body["disk"],
        ephemeral_gb=body.get("OS-FLV-EXT-DATA:ephemeral", 0),
        swap_mb=body.get("swap", 0),
        rxtx_factor=body.get("rxtx_factor", 1.0),
        is_public=body.get("os-flavor-access:is_public", True),
        description=body.get("description"),
    )


async def _page(request: ApiRequest) -> list[Flavor]:
    query = FlavorQuery(
        project=request.context.project_id,
        everything=request.context.is_admin,
        public=_is_public(request.first("is_public")) if request.context.is_admin else True,
        min_memory_mb=_at_least(request, "minRam"),
        min_root_gb=_at_least(request, "minDisk"),
        name=request.first("name"),
    )
    found = list(await request.services.database.read(lambda c: flavors.find(c, query)))
    key = SORT_KEYS[request.first("sort_key") or "flavorid"] or "flavorid"
    found.sort(key=lambda one: _sortable(one, key), reverse=request.first("sort_dir") == "desc")
    limit, marker = request.page()
    if marker is not None:
        ids = [one.flavorid for one in found]
        if marker not in ids:
            raise BadRequest(f"marker [{marker[:255]}] not found")
        found = found[ids.index(marker) + 1 :]
    return found[:limit]


def _sortable(one: Flavor, key: str) -> tuple[bool, Any, str]:
    value = getattr(one, key)
    return (value is not None, 0 if value is None else value, one.flavorid)


def _list(request: ApiRequest, path: str, page: list[Flavor], items: list[dict[str, Any]]) -> Answer:
    body: dict[str, Any] = {"flavors": items}
    more = request.next_link(path, len(page), page[-1].flavorid) if page else None
    if more is not None:
        body["flavors_links"] = more
    return Answer(body)


def _is_public(text: str | None) -> bool | None:
    """Read the filter as Nova does: public ones unless told, all with `none`."""
    if text is None:
        return True
    if text.lower() == "none":
        return None
    if text in TRUE_WORDS or text.lower() in {"t", "y"}:
        return True
    if text in FALSE_WORDS or text.lower() in {"f", "n"}:
        return False
    raise BadRequest(f"Invalid is_public filter [{text[:255]}]")


def _at_least(request: ApiRequest, name: str) -> int | None:
    text = request.first(name)
    if text is None:
        return None
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) <= 18):
        raise BadRequest(f"Invalid {name} filter [{text[:255]}]")
    return int(text)
