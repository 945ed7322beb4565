"""Images as old clients ask the compute API for them: what the image service says, in the words of its first API.

Nova's rules are those of its API reference ("Images", "Image metadata"); what a caller may is for the image service to
say, who is asked with the caller's own token.
"""

from __future__ import annotations

from typing import Any

from skep.api.creating.contents import check_metadata
from skep.api.creating.disk_config import PROPERTY, is_yes
from skep.api.requests import Answer, ApiRequest
from skep.api.schemas.images import OWN_PROPERTY
from skep.database.api import quotas
from skep.domain.clock import isoformat, parse_iso
from skep.domain.errors import BadRequest, NotFound
from skep.domain.images import FIELDS, DescribedImage, ImageSelection

STATUSES = {
    "queued": "SAVING",
    "saving": "SAVING",
    "importing": "SAVING",
    "uploading": "SAVING",
    "active": "ACTIVE",
    "killed": "ERROR",
    "deleted": "DELETED",
    "pending_delete": "DELETED",
}
"""The image service's words -> those of the compute API; any other is UNKNOWN."""

PROGRESS = {"queued": 25, "saving": 50, "active": 100}
"""Per cent, as Nova guesses them; any other status is 0."""

SERVER, KIND = "instance_uuid", "image_type"

Json = dict[str, Any]


async def index(request: ApiRequest) -> Answer:
    """`GET /images`."""
    return await _listed(request, "images", _brief)


async def detail(request: ApiRequest) -> Answer:
    """`GET /images/detail`."""
    return await _listed(request, "images/detail", _view)


async def show(request: ApiRequest) -> Answer:
    """`GET /images/{image_id}`."""
    return Answer({"image": _view(request, await _image(request))})


async def delete(request: ApiRequest) -> Answer:
    """`DELETE /images/{image_id}`."""
    try:
        await request.services.images_of_users.remove(request.params["image_id"], request.context, request.token)
    except NotFound:
        raise _no_image() from None
    return Answer()


async def metadata(request: ApiRequest) -> Answer:
    """`GET /images/{image_id}/metadata`."""
    return Answer({"metadata": (await _image(request)).properties})


async def show_item(request: ApiRequest) -> Answer:
    """`GET /images/{image_id}/metadata/{key}`."""
    key, found = request.params["key"], (await _image(request)).properties
    if key not in found:
        raise _no_item()
    return Answer({"meta": {key: found[key]}})


async def add_items(request: ApiRequest) -> Answer:
    """`POST /images/{image_id}/metadata`: items that are there already get the new value."""
    image = await _image(request)
    return Answer({"metadata": await _set(request, image, {**image.properties, **request.body["metadata"]})})


async def replace_items(request: ApiRequest) -> Answer:
    """`PUT /images/{image_id}/metadata`."""
    return Answer({"metadata": await _set(request, await _image(request), request.body["metadata"])})


async def set_item(request: ApiRequest) -> Answer:
    """`PUT /images/{image_id}/metadata/{key}`."""
    meta = request.body["meta"]
    if request.params["key"] not in meta:
        raise BadRequest("Request body and URI mismatch")
    image = await _image(request)
    await _set(request, image, {**image.properties, **meta})
    return Answer({"meta": meta})


async def delete_item(request: ApiRequest) -> Answer:
    """`DELETE /images/{image_id}/metadata/{key}`."""
    image = await _image(request)
    key = request.params["key"]
    if key not in image.properties:
        raise _no_item()
    left = {name: value for name, value in image.properties.items() if name != key}
    await request.services.images_of_users.change(image, left, request.context, request.token)
    return Answer()


async def _listed(request: ApiRequest, path: str, view: Any) -> Answer:
    selection = _selection(request)
    page = await request.services.images_of_users.select(selection, request.context, request.token)
    body: Json = {"images": [view(request, one) for one in page.images]}
    if page.more and page.images:
        body["images_links"] = request.links.next(path, request.raw_query, page.images[-1].id)
    return Answer(body)


def _selection(request: ApiRequest) -> ImageSelection:
    limit, marker = request.page()
    own = {
        name.removeprefix(OWN_PROPERTY): values[-1]
        for name, values in request.raw_query.items()
        if name.startswith(OWN_PROPERTY) and len(name) > len(OWN_PROPERTY)
    }
    for name in own:
        _check_name(name)
    server, kind = request.first("server"), request.first("type")
    if server is not None:
        # Either the id of a server or the address of one.
        own[SERVER] = server.rpartition("/")[2]
    if kind is not None:
        own[KIND] = kind
    return ImageSelection(
        name=request.first("name"),
        statuses=_statuses(request.first("status")),
        min_disk=_number(request.first("minDisk")),
        min_ram=_number(request.first("minRam")),
        changed_since=_time(request.first("changes-since")),
        properties=own,
        limit=limit,
        marker=marker,
    )


def _statuses(asked: str | None) -> tuple[str, ...]:
    """Return the image service's words for a status; one that it has no other word for is its own, in small letters."""
    if asked is None:
        return ()
    return tuple(own for own, word in STATUSES.items() if word == asked.upper()) or (asked.lower(),)


def _number(text: str | None) -> int | None:
    return int(text[:18]) if text else None


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return parse_iso(text)
    except (ValueError, OverflowError):
        raise BadRequest(
            f"Invalid input for query parameters changes-since. Value: {text[:80]}. It is no time"
        ) from None


async def _image(request: ApiRequest) -> DescribedImage:
    try:
        return await request.services.images_of_users.describe(
            request.params["image_id"], request.context, request.token
        )
    except NotFound:
        raise _no_image() from None


async def _set(request: ApiRequest, image: DescribedImage, items: dict[str, str]) -> dict[str, str]:
    for name in items.keys() - image.properties.keys():
        _check_name(name)
    services, project = request.services, request.context.project_id
    defaults = await services.quotas_of(project)
    limits = await services.database.read(lambda connection: quotas.limits(connection, project, defaults=defaults))
    check_metadata(items, limits["metadata_items"])
    return (await services.images_of_users.change(image, items, request.context, request.token)).properties


def _check_name(name: str) -> None:
    """Raise BadRequest for a name that is no property of an image but something that its service says of all."""
    if name in FIELDS:
        raise BadRequest(f"metadata: expected names of an image's own properties, got {name}")


def _brief(request: ApiRequest, image: DescribedImage) -> Json:
    return {"id": image.id, "name": image.name, "links": _links(request, image)}


def _view(request: ApiRequest, image: DescribedImage) -> Json:
    view = {
        **_brief(request, image),
        "status": STATUSES.get(image.status, "UNKNOWN"),
        "progress": PROGRESS.get(image.status, 0),
        "created": isoformat(image.created_at),
        "updated": isoformat(image.updated_at),
        "minDisk": image.min_disk,
        "minRam": image.min_ram,
        "metadata": image.properties,
        "OS-EXT-IMG-SIZE:size": image.size,
    }
    server, disk_config = image.properties.get(SERVER), image.properties.get(PROPERTY)
    if server is not None:
        view["server"] = {"id": server, "links": request.links.both("servers", server)}
    if disk_config is not None:
        view["OS-DCF:diskConfig"] = "AUTO" if is_yes(disk_config) else "MANUAL"
    return view


def _links(request: ApiRequest, image: DescribedImage) -> list[dict[str, str]]:
    """Return the links of an image; `alternate` is where the image service has it."""
    alternate = {"rel": "alternate", "type": "application/vnd.openstack.image", "href": request.image_url(image.id)}
    return [*request.links.both("images", image.id), alternate]


def _no_image() -> NotFound:
    return NotFound("Image not found.")


def _no_item() -> NotFound:
    return NotFound("Invalid metadata key")
