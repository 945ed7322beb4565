"""Glance, or any other image service that speaks its v2 API."""

from __future__ import annotations

import urllib.parse
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import httpx
import msgspec
import structlog

from skep.domain.context import RequestContext
from skep.domain.decoding import convert
from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound, SkepError, TooLarge, Unavailable
from skep.domain.ids import is_uuid
from skep.domain.images import FIELDS, MOST_BACKUPS, Image, NewImage, backup_properties
from skep.neighbours.images.checked import CheckedBytes, whole
from skep.neighbours.service_session import ServiceSession, decode

log = structlog.get_logger("skep.neighbours")

ImageT = TypeVar("ImageT", bound=Image)

PIECE = 1 << 20
"""Bytes that are held in memory."""

REFUSED: dict[int, type[SkepError]] = {
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
}
"""What a status means that answers an upload."""

NOT_MADE: dict[int, type[SkepError]] = {400: BadRequest, 403: Forbidden, 409: Conflict, 413: TooLarge}
"""What a status means that answers a new image."""

WITH_BYTES = frozenset({"active", "deactivated"})
"""Statuses of images that have all their bytes."""


class GlanceImages:
    """Reads, makes and fills images with Skep's own user (which must be allowed to see all of them) and applies
    Glance's rule of visibility for the caller itself: queued work has no token of its user any more.
    """

    def __init__(self, session: ServiceSession, endpoint: str = "") -> None:
        """`endpoint` is Glance's address without `/v2`; empty: what the catalogue says."""
        self._session = session
        self._endpoint = endpoint.rstrip("/")

    async def get(self, image_id: str, context: RequestContext) -> Image:
        """Return an image that the caller may use."""
        if not is_uuid(image_id):
            raise NotFound(f"image {image_id} could not be found")
        response = await self._get(f"/images/{urllib.parse.quote(image_id, safe='')}")
        if response.status_code == 404:
            raise NotFound(f"image {image_id} could not be found")
        if response.status_code != 200:
            raise Unavailable(f"the image service answered {response.status_code} for image {image_id}")
        fields = decode(response, dict[str, Any])
        if not await self._visible(fields, context):
            raise NotFound(f"image {image_id} could not be found")
        return described(fields, Image)

    async def create(self, new: NewImage) -> None:
        """Make an image that waits for its bytes."""
        response = await self._session.post(await self._url("/images"), new.fields())
        refused = NOT_MADE.get(response.status_code)
        if refused is not None:
            raise refused(f"the image service refused a new image ({response.status_code})")
        if response.status_code != 201:
            raise Unavailable(f"the image service answered {response.status_code} to a new image")

    async def discard(self, image_id: str) -> bool:
        """Delete an image unless it has its bytes."""
        response = await self._get(f"/images/{urllib.parse.quote(image_id, safe='')}")
        if response.status_code == 404:
            return True
        if response.status_code != 200:
            raise Unavailable(f"the image service answered {response.status_code} for image {image_id}")
        fields = decode(response, dict[str, Any])
        if fields.get("status") in WITH_BYTES or fields.get("protected"):
            return False
        try:
            await self._session.delete(await self._url(f"/images/{urllib.parse.quote(image_id, safe='')}"))
        except Forbidden as error:
            log.error("image not discarded", image=image_id, error=str(error))
            return False
        return True

    async def delete(self, image_id: str) -> None:
        """Delete an image with its bytes."""
        await self._session.delete(await self._url(f"/images/{urllib.parse.quote(image_id, safe='')}"))

    async def backups(self, owner: str, instance: str, backup_type: str) -> list[str]:
        """Return the ids of a project's backups of this type of a server, the newest first."""
        wanted = backup_properties(instance, backup_type)
        asked = {"owner": owner, "status": "active", "sort": "created_at:desc", "limit": str(MOST_BACKUPS)}
        response = await self._get(f"/images?{urllib.parse.urlencode({**asked, **wanted})}")
        if response.status_code != 200:
            raise Unavailable(f"the image service answered {response.status_code} for the backups of {instance}")
        found: list[dict[str, Any]] = decode(response, dict[str, Any]).get("images", [])
        return [one["id"] for one in found if all(one.get(name) == value for name, value in wanted.items())]

    async def download(self, image_id: str, context: RequestContext, *, most: int) -> AsyncIterator[bytes]:
        """Give the bytes of an image that the caller may use."""
        image = await self.get(image_id, context)
        async with self._session.stream(await self._url(f"/images/{image.id}/file")) as response:
            if response.status_code in (204, 404):
                raise NotFound(f"image {image_id} has no bytes")
            if response.status_code != 200:
                raise Unavailable(f"the image service answered {response.status_code} for the bytes of {image_id}")
            async for piece in whole(response.aiter_raw(PIECE), image, most):
                yield piece

    async def upload(self, image_id: str, pieces: AsyncIterator[bytes], context: RequestContext, *, most: int) -> Image:
        """Store the bytes of an image of the caller's project."""
        before = await self.get(image_id, context)
        if not context.is_admin and before.owner != context.project_id:
            raise Forbidden(f"image {image_id} is of another project")
        if before.status != "queued":
            # Before anything is sent: what fails after it deletes the image, and these bytes are not ours.
            raise Conflict(f"image {image_id} is {before.status}, not queued: it takes no bytes")
        counted = CheckedBytes(pieces, most)
        try:
            return await self._fill(before, counted, context)
        except Unavailable:
            await self._leave_no_bytes(before, context)
            raise

    async def _fill(self, image: Image, counted: CheckedBytes, context: RequestContext) -> Image:
        response = await self._session.put(await self._url(f"/images/{image.id}/file"), aiter(counted))
        refused = REFUSED.get(response.status_code)
        if refused is not None:
            raise refused(f"the image service refused the bytes of {image.id} ({response.status_code})")
        if response.status_code != 204:
            raise Unavailable(f"the image service answered {response.status_code} to the bytes of {image.id}")
        after = await self.get(image.id, context)
        counted.compare(after)
        return after

    async def _leave_no_bytes(self, image: Image, context: RequestContext) -> None:
        """Delete an image that got bytes which are not known to be right: Glance takes none out of an image."""
        try:
            if (await self.get(image.id, context)).status == "queued":
                return
            await self._session.delete(await self._url(f"/images/{image.id}"))
        except NotFound:
            return
        except (Forbidden, Unavailable) as error:
            log.error("an image may hold bytes of a failed upload", image=image.id, error=str(error))
        else:
            log.warning("image deleted after a failed upload", image=image.id)

    async def _visible(self, fields: dict[str, Any], context: RequestContext) -> bool:
        visibility = fields.get("visibility")
        if context.is_admin or visibility in ("public", "community") or fields.get("owner") == context.project_id:
            return True
        if visibility != "shared" or not context.project_id:
            return False
        project = urllib.parse.quote(context.project_id, safe="")
        return (await self._get(f"/images/{fields['id']}/members/{project}")).status_code == 200

    async def _get(self, path: str) -> httpx.Response:
        return await self._session.get(await self._url(path))

    async def _url(self, path: str) -> str:
        return await address(self._session, self._endpoint, path)


async def address(session: ServiceSession, endpoint: str, path: str) -> str:
    """Return the URL of a path of Glance, whose address is `endpoint` or, where that is empty, in the catalogue."""
    base = endpoint or await session.endpoint("image")
    return f"{base.removesuffix('/v2')}/v2{path}"


def described(fields: dict[str, Any], kind: type[ImageT]) -> ImageT:
    """Return what Glance says of an image. Raises Unavailable when it is not what its API promises."""
    known = {name: fields[name] for name in kind.__struct_fields__ if fields.get(name) is not None}
    known["properties"] = {
        name: value for name, value in fields.items() if name not in FIELDS and isinstance(value, str)
    }
    try:
        return convert(known, kind)
    except msgspec.ValidationError as error:
        raise Unavailable(f"the image service did not answer as its API specifies: {error}") from error
