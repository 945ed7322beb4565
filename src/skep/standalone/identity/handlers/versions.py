"""What is served where, for clients that find out by asking."""

from __future__ import annotations

from starlette.requests import Request

from skep.http.answers import JsonResponse, json_response
from skep.http.operations import operation
from skep.http.urls import base_url
from skep.standalone.identity import answers
from skep.standalone.identity.service import StandaloneIdentity


@operation(status=300, open_=True)
async def list_(_identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.ListedVersions]:
    """List the versions, with 300 as Keystone does."""
    base = base_url(request)
    return json_response({"versions": {"values": [_version(base)]}}, 300, {"Location": f"{base}/v3/"})


@operation(open_=True)
async def show(_identity: StandaloneIdentity, request: Request) -> JsonResponse[answers.OneVersion]:
    """Show version 3."""
    return json_response({"version": _version(base_url(request))})


def _version(base: str) -> answers.ShownVersion:
    return {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{base}/v3/"}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    }
