"""What users ask of Glance through the compute API: with their own tokens, so that Glance's own policy judges."""

from __future__ import annotations

import urllib.parse
from typing import Any

from skep.domain.clock import isoformat
from skep.domain.context import RequestContext
from skep.domain.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    NotFound,
    SkepError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from skep.domain.ids import is_uuid
from skep.domain.images import DescribedImage, ImageSelection, ImagesPage, changes, pointer
from skep.neighbours.answers import IMAGES, decode, nonsense, time_of
from skep.neighbours.connections import ServiceAnswer
from skep.neighbours.images.glance import address, checked, described
from skep.neighbours.service_session import ServiceSession

REFUSED: dict[int, type[SkepError]] = {
    400: BadRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
}
"""What a status means that answers a user's own token."""

PATCH = "application/openstack-images-v2.1-json-patch"


class GlanceOfUsers:
    """An `ImagesOfUsers` over Glance's v2 API."""

    def __init__(self, session: ServiceSession, endpoint: str = "") -> None:
        """`endpoint` is Glance's address without `/v2`; empty: what the catalogue says."""
        self._session = session
        self._endpoint = endpoint.rstrip("/")

    async def select(self, selection: ImageSelection, context: RequestContext, token: str) -> ImagesPage:  # noqa: ARG002 - the token says who asks
        """Return the images that the caller sees, the newest first."""
        if not selection.limit:
            return ImagesPage([], more=False)
        response = await self._ask("GET", f"/images?{urllib.parse.urlencode(_parameters(selection))}", token)
        if response.status_code == 400:
            raise BadRequest("the image service does not take these filters, or this marker")
        answer = decode(IMAGES, _checked(response, "images"), dict[str, Any])
        found = answer.get("images")
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise nonsense(IMAGES, "there is no list of images")
        return ImagesPage([_described(one) for one in found], more="next" in answer)

    async def describe(self, image_id: str, context: RequestContext, token: str) -> DescribedImage:  # noqa: ARG002 - likewise
        """Return an image."""
        response = await self._ask("GET", _path(image_id), token)
        return _described(decode(IMAGES, _checked(response, image_id), dict[str, Any]), image_id)

    async def change(
        self,
        image: DescribedImage,
        properties: dict[str, str],
        context: RequestContext,  # noqa: ARG002 - likewise
        token: str,
    ) -> DescribedImage:
        """Give an image these properties instead of those it was described with."""
        steps = [
            {"op": op, "path": pointer(name), **({"value": value} if op == "add" else {})}
            for op, name, value in changes(image.properties, properties)
        ]
        if not steps:
            return image
        response = await self._ask("PATCH", _path(image.id), token, body=steps)
        return _described(decode(IMAGES, _checked(response, image.id), dict[str, Any]), image.id)

    async def remove(self, image_id: str, context: RequestContext, token: str) -> None:  # noqa: ARG002 - likewise
        """Delete an image."""
        response = _checked(await self._ask("DELETE", _path(image_id), token), image_id)
        if response.status_code != 204:
            raise Unavailable(f"{IMAGES} answered {response.status_code} to the end of image {image_id}")

    async def _ask(self, method: str, path: str, token: str, *, body: Any = None) -> ServiceAnswer:
        url = await address(self._session, self._endpoint, path)
        headers = {} if body is None else {"Content-Type": PATCH}
        return await self._session.as_user(method, url, token, headers, body)


def _path(image_id: str) -> str:
    """Return the path of an image. Raises NotFound for what is no id: no other text gets into a path."""
    if not is_uuid(image_id):
        raise NotFound(f"image {image_id[:80]} could not be found")
    return f"/images/{urllib.parse.quote(image_id, safe='')}"


def _parameters(selection: ImageSelection) -> dict[str, str]:
    asked = dict(selection.properties)
    asked |= {"limit": str(selection.limit), "sort": "created_at:desc"}
    if selection.name is not None:
        # With the operator none is read in the name itself. Quotes of a list cannot hold every name.
        asked["name"] = f"eq:{selection.name}"
    if selection.statuses:
        asked["status"] = f"in:{','.join(selection.statuses)}"
    for name, value in (("min_disk", selection.min_disk), ("min_ram", selection.min_ram)):
        if value is not None:
            asked[name] = str(value)
    if selection.changed_since is not None:
        asked["updated_at"] = f"gte:{isoformat(selection.changed_since)}"
    if selection.marker is not None:
        asked["marker"] = selection.marker
    return asked


def _checked(response: ServiceAnswer, asked_for: str) -> ServiceAnswer:
    """Return an answer that is a success. Raises what a refusal means."""
    if response.is_success:
        return response
    refused = REFUSED.get(response.status_code)
    if refused is None:
        raise Unavailable(f"{IMAGES} answered {response.status_code} for {asked_for}")
    if refused is Unauthenticated:
        raise Unauthenticated("The request you have made requires authentication.")
    if refused is NotFound:
        raise NotFound(f"image {asked_for} could not be found")
    raise refused(f"{IMAGES} refuses it for {asked_for} ({response.status_code})")


def _described(fields: dict[str, Any], image_id: str | None = None) -> DescribedImage:
    times = {name: time_of(IMAGES, fields.get(name)) for name in ("created_at", "updated_at")}
    return described({**checked(fields, image_id), **times}, DescribedImage)
