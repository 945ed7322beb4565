"""Glance, or any other image service that speaks its v2 API."""

from __future__ import annotations

import urllib.parse
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from skep.domain.context import RequestContext
from skep.domain.decoding import convert
from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound, SkepError, TooLarge, Unavailable
from skep.domain.ids import is_uuid
from skep.domain.images import FIELDS, MOST_BACKUPS, Discarded, Image, NewImage, backup_properties
from skep.neighbours.answers import IMAGES, decode, nonsense
from skep.neighbours.connections import ServiceAnswer
from skep.neighbours.images.answers import asked, bytes_of
from skep.neighbours.images.checked import CheckedBytes, nothing
from skep.neighbours.service_session import ServiceSession

log = structlog.get_logger("skep.neighbours")

ImageT = TypeVar("ImageT", bound=Image)

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

DELETED = frozenset({"deleted", "pending_delete"})
"""Statuses of images that are deleted, whether their bytes are removed yet or not."""


class _Made(msgspec.Struct):
    id: str


class _Member(msgspec.Struct):
    member_id: str


class _Listed(msgspec.Struct):
    images: list[dict[str, Any]]


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
        fields = await self._shown(image_id)
        if fields is None or not await self._visible(fields, context):
            raise NotFound(f"image {image_id} could not be found")
        return described(fields, Image)

    async def create(self, new: NewImage) -> None:
        """Make an image that waits for its bytes."""
        response = await self._session.post(await self._url("/images"), new.fields())
        refused = NOT_MADE.get(response.status_code)
        if refused is not None:
            raise refused(f"{IMAGES} refused a new image ({response.status_code})")
        if response.status_code != 201:
            raise Unavailable(f"{IMAGES} answered {response.status_code} to a new image")
        if decode(IMAGES, response, _Made).id != new.id:
            raise nonsense(IMAGES, "the new image has another id")

    async def activate(self, image_id: str, context: RequestContext) -> None:
        """Have an image be active without bytes."""
        await self.upload(image_id, nothing(), context, most=0)

    async def discard(self, image_id: str) -> Discarded:
        """Delete an image unless it has its bytes or is protected."""
        fields = await self._shown(image_id)
        if fields is None:
            await self._absent(image_id)
            return Discarded.GONE
        if fields["status"] in DELETED:
            return Discarded.GONE
        if fields["status"] in WITH_BYTES:
            return Discarded.STORED
        try:
            if not fields.get("protected"):
                await self.delete(image_id)
                return Discarded.GONE
        except Forbidden:
            log.info("image protected while it was deleted", image=image_id)
        return Discarded.PROTECTED

    async def delete(self, image_id: str) -> None:
        """Delete an image with its bytes."""
        try:
            there = await self._session.delete(await self._url(f"/images/{urllib.parse.quote(image_id, safe='')}"))
        except Forbidden as error:
            fields = await self._shown(image_id)
            if fields is not None and fields["status"] in DELETED:
                return
            if fields is not None and fields.get("protected"):
                raise
            raise Unavailable(f"{IMAGES} does not let Skep's own user delete image {image_id}") from error
        if not there:
            await self._absent(image_id)

    async def _absent(self, image_id: str) -> None:
        """Raise Unavailable unless it is Glance that knows of no such image: what stands before it says 404, too.

        One answer shows that it is Glance and that the image is not there: between two, Glance may come back.
        """
        asked = {"id": image_id, "visibility": "all", "limit": "1"}
        if await self._listed(asked, "to a list of images"):
            raise nonsense(IMAGES, "an image that it does not find is there")

    async def backups(self, owner: str, instance: str, backup_type: str) -> list[str]:
        """Return the ids of a project's backups of this type of a server, the newest first."""
        wanted = backup_properties(instance, backup_type)
        asked = {"owner": owner, "status": "active", "sort": "created_at:desc", "limit": str(MOST_BACKUPS)}
        found = [checked(one) for one in await self._listed({**asked, **wanted}, f"for the backups of {instance}")]
        return [one["id"] for one in found if all(one.get(name) == value for name, value in wanted.items())]

    async def _listed(self, asked: dict[str, str], what: str) -> list[dict[str, Any]]:
        """Return images as Glance lists them. `what` ends the text of the error that it did not."""
        response = await self._get(f"/images?{urllib.parse.urlencode(asked)}")
        if response.status_code != 200:
            raise Unavailable(f"{IMAGES} answered {response.status_code} {what}")
        return decode(IMAGES, response, _Listed).images

    async def download(
        self, image_id: str, context: RequestContext, *, most: int, held: Path | None = None
    ) -> AsyncIterator[bytes]:
        """Give the bytes of an image that the caller may use."""
        image = await self.get(image_id, context)
        async with self._session.stream(await self._url(f"/images/{image.id}/file"), asked(held)) as response:
            async for piece in bytes_of(response, image, self._session.credentials.timeout, most, held):
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
            stored = await self._settle(before, counted, context)
            if stored is None:
                raise
            return stored

    async def _fill(self, image: Image, counted: CheckedBytes, context: RequestContext) -> Image:
        response = await self._session.put(await self._url(f"/images/{image.id}/file"), aiter(counted))
        refused = REFUSED.get(response.status_code)
        if refused is not None:
            raise refused(f"{IMAGES} refused the bytes of {image.id} ({response.status_code})")
        if response.status_code != 204:
            raise Unavailable(f"{IMAGES} answered {response.status_code} to the bytes of {image.id}")
        after = await self.get(image.id, context)
        counted.compare(after)
        return after

    async def _settle(self, image: Image, sent: CheckedBytes, context: RequestContext) -> Image | None:
        """Return an image that has all that was sent, although no good answer came; otherwise leave it no bytes.

        One that got others, or may yet, is deleted: Glance takes none out of an image. What is not deleted here is by
        whoever made the image.
        """
        try:
            after = await self.get(image.id, context)
            if after.status == "queued":
                return None
            if after.status == "active" and sent.ended and sent.differs(after) is None:
                return after
            await self.delete(image.id)
        except NotFound:
            return None
        except (Forbidden, Unavailable) as error:
            log.warning("image not deleted after a failed upload", image=image.id, error=str(error))
        else:
            log.warning("image deleted after a failed upload", image=image.id)
        return None

    async def _visible(self, fields: dict[str, Any], context: RequestContext) -> bool:
        visibility = fields.get("visibility")
        if context.is_admin or visibility in ("public", "community") or fields.get("owner") == context.project_id:
            return True
        if visibility != "shared" or not context.project_id:
            return False
        project = urllib.parse.quote(context.project_id, safe="")
        response = await self._get(f"/images/{fields['id']}/members/{project}")
        if response.status_code == 404:
            return False
        if response.status_code != 200:
            raise Unavailable(f"{IMAGES} answered {response.status_code} for the members of image {fields['id']}")
        if decode(IMAGES, response, _Member).member_id != context.project_id:
            raise nonsense(IMAGES, "the member is another one")
        return True

    async def _shown(self, image_id: str) -> dict[str, Any] | None:
        """Return what Glance says of an image, whoever may see it; None when there is none."""
        response = await self._get(f"/images/{urllib.parse.quote(image_id, safe='')}")
        if response.status_code == 404:
            return None
        if response.status_code != 200:
            raise Unavailable(f"{IMAGES} answered {response.status_code} for image {image_id}")
        return checked(decode(IMAGES, response, dict[str, Any]), image_id)

    async def _get(self, path: str) -> ServiceAnswer:
        return await self._session.get(await self._url(path))

    async def _url(self, path: str) -> str:
        return await address(self._session, self._endpoint, path)


async def address(session: ServiceSession, endpoint: str, path: str) -> str:
    """Return the URL of a path of Glance, whose address is `endpoint` or, where that is empty, in the catalogue."""
    base = endpoint or await session.endpoint("image")
    return f"{base.removesuffix('/v2')}/v2{path}"


def checked(fields: dict[str, Any], image_id: str | None = None) -> dict[str, Any]:
    """Return what Glance says of an image, once it says what it says of each; `image_id` is the one asked for.

    Raises Unavailable when it does not.
    """
    for name in ("id", "status", "visibility"):
        if not isinstance(fields.get(name), str):
            raise nonsense(IMAGES, f"an image has no {name}")
    if not is_uuid(fields["id"]) or (image_id is not None and uuid.UUID(fields["id"]) != uuid.UUID(image_id)):
        raise nonsense(IMAGES, "the image is another one")
    return fields


def described(fields: dict[str, Any], kind: type[ImageT]) -> ImageT:
    """Return what Glance says of an image. Raises Unavailable when it is not what its API promises."""
    known = {name: fields[name] for name in kind.__struct_fields__ if fields.get(name) is not None}
    known["properties"] = {
        name: value for name, value in fields.items() if name not in FIELDS and isinstance(value, str)
    }
    try:
        return convert(known, kind)
    except msgspec.ValidationError as error:
        raise nonsense(IMAGES, str(error)) from error
