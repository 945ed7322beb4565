"""The routes of the image store."""

from __future__ import annotations

import structlog
from starlette.types import ASGIApp

from skep.http.application import application, paths
from skep.http.operations import Served
from skep.neighbours.identity.base import IdentityService
from skep.standalone.faults import form
from skep.standalone.images.callers import ImageOfTicket, ImagesApi, no_tickets
from skep.standalone.images.handlers import documents, files, images, imports, members
from skep.standalone.images.service import StandaloneImages

ROUTES: tuple[tuple[str, str, Served[ImagesApi]], ...] = (
    ("GET", "/", documents.list_versions),
    ("GET", "/v2", documents.list_versions),
    ("GET", "/versions", documents.versions),
    ("GET", "/v2/schemas/image", documents.image_schema),
    ("GET", "/v2/schemas/images", documents.images_schema),
    ("GET", "/v2/schemas/member", documents.member_schema),
    ("GET", "/v2/schemas/members", documents.members_schema),
    ("GET", "/v2/images", images.list_),
    ("POST", "/v2/images", images.create),
    ("GET", "/v2/images/{image_id}", images.show),
    ("PATCH", "/v2/images/{image_id}", images.update),
    ("DELETE", "/v2/images/{image_id}", images.delete),
    ("GET", "/v2/images/{image_id}/file", files.download),
    ("PUT", "/v2/images/{image_id}/file", files.upload),
    ("POST", "/v2/images/{image_id}/actions/deactivate", images.deactivate),
    ("POST", "/v2/images/{image_id}/actions/reactivate", images.reactivate),
    ("GET", "/v2/images/{image_id}/members", members.list_),
    ("POST", "/v2/images/{image_id}/members", members.create),
    ("GET", "/v2/images/{image_id}/members/{member_id}", members.show),
    ("PUT", "/v2/images/{image_id}/members/{member_id}", members.update),
    ("DELETE", "/v2/images/{image_id}/members/{member_id}", members.delete),
    ("GET", "/v2/info/import", imports.show_methods),
    ("GET", "/v2/info/stores", imports.show_stores),
    ("POST", "/v2/images/{image_id}/import", imports.start),
    ("PUT", "/v2/images/{image_id}/stage", imports.stage),
    ("GET", "/v2/images/{image_id}/tasks", imports.list_tasks),
    ("PUT", "/v2/images/{image_id}/tags/{tag}", images.add_tag),
    ("DELETE", "/v2/images/{image_id}/tags/{tag}", images.remove_tag),
)
"""Method, path, what answers. HEAD goes where GET goes."""


def images_app(
    store: StandaloneImages, identity: IdentityService, image_of_ticket: ImageOfTicket = no_tickets
) -> ASGIApp:
    """Return the store as an ASGI application that asks `identity` whose tokens it is shown.

    `image_of_ticket` reads the tickets of hosts.
    """
    routes = paths(ROUTES, ImagesApi(store, identity, image_of_ticket))
    return application(routes, structlog.get_logger("skep.images"), form(store.settings.identity_url))
