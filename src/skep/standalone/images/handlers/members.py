"""Members of images: list, add, show, accept or reject, remove."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from skep.database.api.image_members import MemberStatus
from skep.http.answers import json_response
from skep.http.operations import Read, operation, takes
from skep.standalone.images import views
from skep.standalone.images.callers import ImagesApi, image_id, member, reader
from skep.standalone.texts import NAME


class NewMemberBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The project with which an image is to be shared."""

    member: Annotated[str, Meta(min_length=1, max_length=255, pattern=NAME)]


class StatusBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a project says to an image that is shared with it."""

    status: MemberStatus
    member: Annotated[str, Meta(max_length=255)] | None = None
    """What clients repeat from the path."""


@operation(shows=views.answered(views.members_schema()))
async def list_(api: ImagesApi, request: Request) -> Response:
    """List the members of an image."""
    found = await api.images.members.of_image(image_id(request), await reader(api, request))
    return json_response({"members": [views.member(one) for one in found], "schema": "/v2/schemas/members"})


@takes(NewMemberBody, shows=views.answered(views.member_schema()))
async def create(api: ImagesApi, request: Request, read: Read[NewMemberBody]) -> Response:
    """Share an image with a project."""
    viewer = await member(api, request)
    body = await read()
    return json_response(views.member(await api.images.members.add(image_id(request), body.member, viewer)))


@operation(shows=views.answered(views.member_schema()))
async def show(api: ImagesApi, request: Request) -> Response:
    """Show a member of an image."""
    viewer = await reader(api, request)
    found = await api.images.members.get(image_id(request), request.path_params["member_id"], viewer)
    return json_response(views.member(found))


@takes(StatusBody, shows=views.answered(views.member_schema()))
async def update(api: ImagesApi, request: Request, read: Read[StatusBody]) -> Response:
    """Accept or reject an image."""
    viewer = await member(api, request)
    status = (await read()).status
    found = await api.images.members.answer(image_id(request), request.path_params["member_id"], status, viewer)
    return json_response(views.member(found))


@operation(status=204)
async def delete(api: ImagesApi, request: Request) -> Response:
    """Share an image with a project no longer."""
    viewer = await member(api, request)
    await api.images.members.remove(image_id(request), request.path_params["member_id"], viewer)
    return Response(status_code=204)
