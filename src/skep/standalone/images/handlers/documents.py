"""What is served where, and the schemas of it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from skep.http.answers import json_response
from skep.http.operations import operation
from skep.http.urls import base_url
from skep.standalone.images import views
from skep.standalone.images.callers import ImagesApi

VERSIONS = ("v2.7", "v2.5", "v2.4", "v2.3", "v2.2", "v2.1", "v2.0")
"""Glance's versions whose calls are here; 2.6 brought the import call, which is not."""


@operation(status=300, shows="versions", open_=True)
async def list_versions(_api: ImagesApi, request: Request) -> Response:
    """List the versions, with 300 as Glance does."""
    return _versions(request, 300)


@operation(shows="versions", open_=True)
async def versions(_api: ImagesApi, request: Request) -> Response:
    """List the versions, with 200."""
    return _versions(request, 200)


@operation(shows="properties", open_=True)
async def image_schema(_api: ImagesApi, _request: Request) -> Response:
    """Show the schema of an image."""
    return json_response(views.image_schema())


@operation(shows="properties", open_=True)
async def images_schema(_api: ImagesApi, _request: Request) -> Response:
    """Show the schema of a list of images."""
    return json_response(views.images_schema())


@operation(shows="properties", open_=True)
async def member_schema(_api: ImagesApi, _request: Request) -> Response:
    """Show the schema of a member of an image."""
    return json_response(views.member_schema())


@operation(shows="properties", open_=True)
async def members_schema(_api: ImagesApi, _request: Request) -> Response:
    """Show the schema of a list of members."""
    return json_response(views.members_schema())


def _versions(request: Request, status: int) -> Response:
    links = [{"rel": "self", "href": f"{base_url(request)}/v2/"}]
    shown = [
        {"id": version, "status": "CURRENT" if version == VERSIONS[0] else "SUPPORTED", "links": links}
        for version in VERSIONS
    ]
    return json_response({"versions": shown}, status)
