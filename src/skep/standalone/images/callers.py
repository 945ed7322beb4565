"""Who calls the image store, and what he may do there."""

from __future__ import annotations

import re

import msgspec
from starlette.requests import Request

from skep.database.api.images import Viewer
from skep.domain.errors import Forbidden, NotFound, Unauthenticated
from skep.neighbours.identity.base import Identity, IdentityService
from skep.standalone.faults import UNAUTHENTICATED
from skep.standalone.images.fields import UUID
from skep.standalone.images.service import StandaloneImages

_UUID = re.compile(UUID)


class ImagesApi(msgspec.Struct, frozen=True):
    """What the handlers need."""

    images: StandaloneImages
    identity: IdentityService


async def reader(api: ImagesApi, request: Request) -> Viewer:
    """Return the caller, who may see images.

    Raises Unauthenticated.
    """
    return _viewer(await _identity(api, request))


async def member(api: ImagesApi, request: Request) -> Viewer:
    """Return the caller, who may make and change images of his project.

    Raises Unauthenticated or Forbidden.
    """
    identity = await _identity(api, request)
    if "member" not in identity.roles or (identity.project_id is None and not identity.is_admin):
        raise Forbidden("You are not authorized to complete this action.")
    return _viewer(identity)


def image_id(request: Request) -> str:
    """Return the image's id from the path; no other text ever reaches a file's name.

    Raises NotFound.
    """
    text = str(request.path_params["image_id"])
    if not _UUID.match(text):
        raise NotFound(f"No image found with ID {text}")
    return text.lower()


async def _identity(api: ImagesApi, request: Request) -> Identity:
    identity = await api.identity.validate(request.headers.get("x-auth-token", ""))
    if identity is None:
        raise Unauthenticated(UNAUTHENTICATED)
    return identity


def _viewer(identity: Identity) -> Viewer:
    return Viewer(project_id=identity.project_id, is_admin=identity.is_admin)
