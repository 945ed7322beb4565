"""Images: list, make, show, change, delete, and their tags."""

from __future__ import annotations

import urllib.parse
from typing import Annotated, Any

from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from skep.http.answers import json_response
from skep.http.bodies import is_media_type, read_json
from skep.http.operations import Read, operation, takes
from skep.http.urls import base_url
from skep.standalone.images import fields, queries, views
from skep.standalone.images.callers import ImagesApi, beholder, image_id, member, reader
from skep.standalone.images.fields import BODY_PATCH, BODY_PATCH_BEFORE, OperationBefore, PatchOperation

MOST_OPERATIONS = Meta(max_length=1000)
PATCHES: dict[str, Any] = {
    BODY_PATCH: Annotated[list[PatchOperation], MOST_OPERATIONS],
    BODY_PATCH_BEFORE: Annotated[list[OperationBefore], MOST_OPERATIONS],
}
"""Media type of a JSON patch -> what it is."""


@operation(query=queries.KNOWN, shows=views.answered(views.images_schema()))
async def list_(api: ImagesApi, request: Request) -> Response:
    """List images, a page at a time."""
    viewer = await reader(api, request)
    given = request.query_params.multi_items()
    query, marker = queries.parse(given, api.images.settings)
    page = await api.images.select(query, marker, viewer)
    shown: dict[str, Any] = {
        "images": [views.image(item) for item in page.images],
        "schema": "/v2/schemas/images",
        "first": _page(given, None),
    }
    if page.ended_early or (page.images and len(page.images) == query.limit):
        shown["next"] = _page(given, page.images[-1].id)
    return json_response(shown)


@takes(dict[str, Any], schema=fields.schema(), status=201, shows=views.answered(views.image_schema()))
async def create(api: ImagesApi, request: Request, read: Read[dict[str, Any]]) -> Response:
    """Make an image; its data is uploaded afterwards."""
    viewer = await member(api, request)
    said = await read()
    image = await api.images.create(said, viewer)
    location = f"{base_url(request)}/v2/images/{image.id}"
    return json_response(views.image(image), 201, {"Location": location})


@operation(shows=views.answered(views.image_schema()))
async def show(api: ImagesApi, request: Request) -> Response:
    """Show an image."""
    viewer = await beholder(api, request)
    return json_response(views.image(await api.images.get(image_id(request), viewer)))


@operation(PATCHES, shows=views.answered(views.image_schema()), faults=(413,))
async def update(api: ImagesApi, request: Request) -> Response:
    """Change an image by a JSON patch."""
    viewer = await member(api, request)
    operations = await _operations(request)
    return json_response(views.image(await api.images.patch(image_id(request), operations, viewer)))


async def _operations(request: Request) -> list[PatchOperation]:
    """Read a JSON patch in the form that its content type names."""
    if is_media_type(request, BODY_PATCH_BEFORE):
        before: list[OperationBefore] = await read_json(request, PATCHES[BODY_PATCH_BEFORE], (BODY_PATCH_BEFORE,))
        return [one.operation() for one in before]
    operations: list[PatchOperation] = await read_json(request, PATCHES[BODY_PATCH], tuple(PATCHES))
    return operations


@operation(status=204)
async def delete(api: ImagesApi, request: Request) -> Response:
    """Delete an image."""
    viewer = await member(api, request)
    await api.images.delete(image_id(request), viewer)
    return Response(status_code=204)


@operation(status=204)
async def deactivate(api: ImagesApi, request: Request) -> Response:
    """Give the bytes of an image to admins alone."""
    viewer = await member(api, request)
    await api.images.set_deactivated(image_id(request), True, viewer)
    return Response(status_code=204)


@operation(status=204)
async def reactivate(api: ImagesApi, request: Request) -> Response:
    """Give the bytes of an image out again."""
    viewer = await member(api, request)
    await api.images.set_deactivated(image_id(request), False, viewer)
    return Response(status_code=204)


@operation(status=204, faults=(413,))
async def add_tag(api: ImagesApi, request: Request) -> Response:
    """Add a tag."""
    viewer = await member(api, request)
    await api.images.add_tag(image_id(request), request.path_params["tag"], viewer)
    return Response(status_code=204)


@operation(status=204)
async def remove_tag(api: ImagesApi, request: Request) -> Response:
    """Remove a tag."""
    viewer = await member(api, request)
    await api.images.remove_tag(image_id(request), request.path_params["tag"], viewer)
    return Response(status_code=204)


def _page(given: list[tuple[str, str]], marker: str | None) -> str:
    kept = [(name, value) for name, value in given if name != "marker"]
    if marker is not None:
        kept.append(("marker", marker))
    return f"/v2/images?{urllib.parse.urlencode(kept)}" if kept else "/v2/images"
