"""Who calls the image store, and what he may do there."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Protocol

import msgspec
from starlette.requests import Request

from skep.database.api.images import Viewer
from skep.domain.errors import Forbidden, NotFound, Unauthenticated
from skep.neighbours.identity.access_rules import Use
from skep.neighbours.identity.base import Identity, IdentityService
from skep.neighbours.images.tickets import HEADER
from skep.standalone.faults import UNAUTHENTICATED
from skep.standalone.images.fields import UUID
from skep.standalone.images.service import EVERYBODY, StandaloneImages

_UUID = re.compile(UUID)

FORBIDDEN = "You are not authorized to complete this action."
READERS = frozenset({"reader", "member", "admin", "service"})
"""Roles that see images. Another identity service need not imply `reader` for those above it."""
SERVICE_TYPE = "image"
"""Our name in the catalogue and in access rules of application credentials."""


class ImageOfTicket(Protocol):
    """Reads the tickets of hosts."""

    def __call__(self, ticket: str, *, store: bool = False) -> str | None:
        """Return the id of the image whose bytes a ticket gives, or lets store; None: it is not good for that."""
        ...


def no_tickets(ticket: str, *, store: bool = False) -> str | None:  # noqa: ARG001
    """Take no ticket."""
    return None


class ImagesApi(msgspec.Struct, frozen=True):
    """What the handlers need."""

    images: StandaloneImages
    identity: IdentityService
    image_of_ticket: ImageOfTicket = no_tickets


async def reader(api: ImagesApi, request: Request) -> Viewer:
    """Return the caller, who may see images.

    Raises Unauthenticated or Forbidden.
    """
    identity = await _identity(api, request)
    check_reader(identity.roles)
    return _viewer(identity)


def check_reader(roles: Collection[str]) -> None:
    """Raise Forbidden unless a caller with these roles may see images."""
    if READERS.isdisjoint(roles):
        raise Forbidden(FORBIDDEN)


def check_member(roles: Collection[str], project_id: str | None) -> None:
    """Raise Forbidden unless a caller with these roles may make and change images of the project of the token."""
    if "member" not in roles or (not project_id and "admin" not in roles):
        raise Forbidden(FORBIDDEN)


async def downloader(api: ImagesApi, request: Request) -> Viewer:
    """Return for whom the bytes of an image are given out: a caller who may see images, or a host with a ticket.

    Raises Unauthenticated or Forbidden.
    """
    return _bearer(api, request, store=False) or await reader(api, request)


async def uploader(api: ImagesApi, request: Request) -> Viewer:
    """Return for whom the bytes of an image are taken: a member of its project, or a host with a ticket.

    Raises Unauthenticated or Forbidden.
    """
    return _bearer(api, request, store=True) or await member(api, request)


async def beholder(api: ImagesApi, request: Request) -> Viewer:
    """Return for whom an image is shown: a caller who may see images, or a host that may store this one's bytes.

    Raises Unauthenticated or Forbidden.
    """
    return _bearer(api, request, store=True) or await reader(api, request)


def _bearer(api: ImagesApi, request: Request, *, store: bool) -> Viewer | None:
    """Return the viewer that a ticket makes of a host; None without a ticket. Raises Unauthenticated."""
    ticket = request.headers.get(HEADER)
    if ticket is None:
        return None
    if api.image_of_ticket(ticket, store=store) != image_id(request):
        raise Unauthenticated(UNAUTHENTICATED)
    return EVERYBODY


async def member(api: ImagesApi, request: Request) -> Viewer:
    """Return the caller, who may make and change images of his project.

    Raises Unauthenticated or Forbidden.
    """
    identity = await _identity(api, request)
    check_member(identity.roles, identity.project_id)
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
    use = Use(SERVICE_TYPE, request.method, request.scope["path"])
    identity = await api.identity.validate(request.headers.get("x-auth-token", ""), use)
    if identity is None:
        raise Unauthenticated(UNAUTHENTICATED)
    return identity


def _viewer(identity: Identity) -> Viewer:
    return Viewer(project_id=identity.project_id, is_admin=identity.is_admin)
