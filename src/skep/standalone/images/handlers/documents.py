"""What is served where, and the schemas of it."""

from __future__ import annotations

from typing import Literal, TypedDict

from starlette.requests import Request

from skep.http.answers import JsonResponse, json_response
from skep.http.operations import operation
from skep.http.urls import base_url
from skep.standalone.images import views
from skep.standalone.images.callers import ImagesApi

VERSIONS = ("v2.7", "v2.5", "v2.4", "v2.3", "v2.2", "v2.1", "v2.0")
"""Glance's versions whose calls are here; 2.6 brought the import call, which is not."""


class LinkOfVersion(TypedDict):
    """Where a version is."""

    rel: Literal["self"]
    href: str


class VersionOfImages(TypedDict):
    """A version of Glance's API."""

    id: str
    status: Literal["CURRENT", "SUPPORTED"]
    links: list[LinkOfVersion]


class ListedVersionsOfImages(TypedDict):
    """The answer with all versions."""

    versions: list[VersionOfImages]


@operation(status=300, open_=True)
async def list_versions(_api: ImagesApi, request: Request) -> JsonResponse[ListedVersionsOfImages]:
    """List the versions, with 300 as Glance does."""
    return _versions(request, 300)


@operation(open_=True)
async def versions(_api: ImagesApi, request: Request) -> JsonResponse[ListedVersionsOfImages]:
    """List the versions, with 200."""
    return _versions(request, 200)


@operation(open_=True)
async def image_schema(_api: ImagesApi, _request: Request) -> JsonResponse[views.PublishedSchema]:
    """Show the schema of an image."""
    return json_response(views.image_schema())


@operation(open_=True)
async def images_schema(_api: ImagesApi, _request: Request) -> JsonResponse[views.PublishedSchema]:
    """Show the schema of a list of images."""
    return json_response(views.images_schema())


@operation(open_=True)
async def member_schema(_api: ImagesApi, _request: Request) -> JsonResponse[views.PublishedSchema]:
    """Show the schema of a member of an image."""
    return json_response(views.member_schema())


@operation(open_=True)
async def members_schema(_api: ImagesApi, _request: Request) -> JsonResponse[views.PublishedSchema]:
    """Show the schema of a list of members."""
    return json_response(views.members_schema())


def _versions(request: Request, status: int) -> JsonResponse[ListedVersionsOfImages]:
    links: list[LinkOfVersion] = [{"rel": "self", "href": f"{base_url(request)}/v2/"}]
    shown: list[VersionOfImages] = [
        {"id": version, "status": "CURRENT" if version == VERSIONS[0] else "SUPPORTED", "links": links}
        for version in VERSIONS
    ]
    return json_response({"versions": shown}, status)
