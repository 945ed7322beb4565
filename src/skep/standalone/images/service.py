"""The image store itself: what may be done to an image, and by whom. HTTP is in `app.py`."""

from __future__ import annotations

import asyncio
import shutil
import uuid
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import structlog

from skep.database import Connection
from skep.database.api import images
from skep.database.api.images import ACTIVE, DEACTIVATED, ImagePage, ImageQuery, StoredImage, Viewer
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound, OutcomeUnknown, SkepError
from skep.domain.images import Discarded
from skep.standalone.images.access import own, visible
from skep.standalone.images.fields import PatchOperation, patched, with_fields
from skep.standalone.images.files import ImageFiles, Received, Space, file_name
from skep.standalone.images.members import ImageMembers
from skep.standalone.images.quotas import Arriving, check_bytes, check_number, has_room, kept_free
from skep.standalone.images.refusals import Beyond, told
from skep.standalone.images.settings import ImagesSettings

log = structlog.get_logger("skep.images")

WITH_BYTES = frozenset({ACTIVE, DEACTIVATED})

EVERYBODY = Viewer(project_id=None, is_admin=True)
"""Sees all images."""


def _to_nobody(_limit: str) -> None:
    return


class StandaloneImages:
    """Rows in the API database, bytes in a directory that belongs to this process."""

    def __init__(
        self,
        settings: ImagesSettings,
        database: Database,
        clock: Clock,
        space: Callable[[Path], Space] = shutil.disk_usage,
        *,
        refused: Callable[[str], None] = _to_nobody,
    ) -> None:
        """`space` says how large the disk of a directory is; `refused` is told the limit of each refusal (413)."""
        self.settings = settings
        self._refused = refused
        self._database = database
        self._clock = clock
        self._files = ImageFiles(settings.directory, lambda total: kept_free(total, settings), space)
        self._uploading: set[str] = set()
        self._in_doubt: set[str] = set()
        """Files that rows may name, for all that is known: the next sweep removes those that none does."""
        self.members = ImageMembers(settings, database, clock, refused)
        self._arriving = Arriving()

    async def open(self) -> None:
        """Remove what interrupted uploads and deletes left. To be called once, before anything is served."""
        kept = {file_name(*key) for key in await self._database.read(images.active)}
        removed = await asyncio.to_thread(self._files.sweep, kept)
        if removed:
            log.info("removed files that belong to no image", files=removed)

    async def get(self, image_id: str, viewer: Viewer) -> StoredImage:
        """Return an image.

        Raises NotFound when there is none that the viewer may see.
        """
        return await self._database.read(lambda connection: visible(connection, image_id, viewer))

    async def select(self, query: ImageQuery, marker: str | None, viewer: Viewer) -> ImagePage:
        """Return a page of images.

        Raises BadRequest when the marker is not an image that the viewer may see.
        """

        def unit(connection: Connection) -> ImagePage:
            if marker is None:
                return images.select(connection, query, viewer)
            found = images.get(connection, marker, viewer)
            if found is None:
                raise BadRequest(f"marker: there is no image {marker}")
            return images.select(connection, msgspec.structs.replace(query, marker=found), viewer)

        return await self._database.read(unit)

    async def create(self, said: dict[str, Any], viewer: Viewer) -> StoredImage:
        """Make an image without bytes.

        Raises BadRequest naming the field, Forbidden, Conflict when the id is taken or was, TooLarge beyond a quota.
        """
        with told(self._refused):
            return await self._create(said, viewer)

    async def _create(self, said: dict[str, Any], viewer: Viewer) -> StoredImage:
        now = self._clock.now()
        blank = StoredImage(id=str(uuid.uuid4()), owner=viewer.project_id, created_at=now, updated_at=now)
        image = _allowed(blank, with_fields(blank, said, self.settings), viewer)

        def unit(connection: Connection) -> None:
            check_number(image.owner, images.usage(connection, image.owner), self.settings)
            images.insert(connection, image)

        await self._database.write(unit, intake=True)
        return image

    async def patch(self, image_id: str, operations: list[PatchOperation], viewer: Viewer) -> StoredImage:
        """Change an image.

        Raises BadRequest naming the field, Forbidden, NotFound, Conflict.
        """
        return await self._change(image_id, viewer, lambda image: patched(image, operations, self.settings))

    async def add_tag(self, image_id: str, tag: str, viewer: Viewer) -> None:
        """Add a tag; adding it again changes nothing."""

        def change(image: StoredImage) -> StoredImage:
            return with_fields(image, {"tags": [*image.tags, tag]}, self.settings)

        await self._change(image_id, viewer, change)

    async def remove_tag(self, image_id: str, tag: str, viewer: Viewer) -> None:
        """Remove a tag.

        Raises NotFound when the image does not have it.
        """

        def change(image: StoredImage) -> StoredImage:
            if tag not in image.tags:
                raise NotFound(f"image {image_id} has no tag {tag!r}")
            return msgspec.structs.replace(image, tags=tuple(other for other in image.tags if other != tag))

        await self._change(image_id, viewer, change)

    async def set_deactivated(self, image_id: str, deactivated: bool, viewer: Viewer) -> None:
        """Keep the bytes of an image from all but admins, or give them out again; twice is once.

        Raises NotFound, and Forbidden for another project's image, or one that has no bytes yet.
        """
        wanted = DEACTIVATED if deactivated else ACTIVE

        def change(image: StoredImage) -> StoredImage:
            if image.status not in WITH_BYTES:
                raise Forbidden(f"Image status transition from {image.status} to {wanted} is not allowed")
            return msgspec.structs.replace(image, status=wanted)

        await self._change(image_id, viewer, change)

    async def delete(self, image_id: str, viewer: Viewer) -> None:
        """Delete an image and its bytes.

        Raises NotFound, and Forbidden when it is protected or another project's.
        """

        def unit(connection: Connection) -> StoredImage:
            image = own(visible(connection, image_id, viewer), viewer)
            if image.protected:
                raise Forbidden(f"Image {image_id} is protected and cannot be deleted.")
            images.delete(connection, image_id)
            return image

        deleted = await self._database.write(unit, intake=True)
        await self._files.remove(file_name(deleted.id, deleted.created_at))

    async def discard(self, image_id: str) -> Discarded:
        """Delete an image unless it has its bytes or is protected; return what became of it."""

        def unit(connection: Connection) -> Discarded:
            image = images.get(connection, image_id, EVERYBODY)
            if image is not None and image.status in WITH_BYTES:
                return Discarded.STORED
            if image is not None and image.protected:
                return Discarded.PROTECTED
            if image is not None:
                images.delete(connection, image_id)
            return Discarded.GONE

        return await self._database.write(unit)

    async def upload(
        self, image_id: str, chunks: AsyncIterator[bytes], viewer: Viewer, *, declared: int = 0
    ) -> StoredImage:
        """Store the bytes of an image, whole or not at all; return it as it is then.

        `declared` is how many bytes the client says that there are.

        Raises NotFound, Forbidden, Conflict when it has bytes already or gets them just now, BadRequest when its
        formats are not said, TooLarge beyond a quota or what the disk has room for, StorageUnavailable when it fails.
        """
        own(await self.get(image_id, viewer), viewer)
        if image_id in self._uploading:
            raise Conflict(f"image {image_id} is receiving its data")
        self._uploading.add(image_id)
        try:
            with told(self._refused):
                # Read again, now that nobody else can be storing it.
                return await self._store(_ready_for_data(await self.get(image_id, viewer)), chunks, declared)
        finally:
            self._uploading.discard(image_id)

    async def read(self, image_id: str, viewer: Viewer) -> tuple[StoredImage, BinaryIO | None]:
        """Return an image and its opened bytes, which the caller closes; None while it has none.

        Raises NotFound, and Forbidden for an image that is deactivated.
        """
        image = await self.get(image_id, viewer)
        if image.status not in WITH_BYTES:
            return image, None
        if image.status == DEACTIVATED and not viewer.is_admin:
            raise Forbidden("The requested image has been deactivated. Image data download is forbidden.")
        try:
            return image, await self._files.open(file_name(image.id, image.created_at))
        except FileNotFoundError as error:
            # Deleted since the row was read, or somebody removed the file by hand.
            log.warning("image has no file", image=image_id)
            raise NotFound(f"No image data could be found for image {image_id}.") from error

    async def _store(self, image: StoredImage, chunks: AsyncIterator[bytes], declared: int) -> StoredImage:
        with self._arriving.upload(image.owner) as count:
            await self._look_at_use(image.owner)
            self._check_declared(image.owner, declared)
            return await self._receive(image, self._within_quota(image.owner, chunks, count))

    async def _look_at_use(self, project: str | None) -> None:
        used = await self._database.read(lambda connection: images.usage(connection, project))
        self._arriving.know(project, used.bytes)

    def _check_declared(self, project: str | None, declared: int) -> None:
        """Refuse at once what could only be refused later."""
        most = self.settings.image_size_cap
        if declared > most:
            raise Beyond(
                "size", f"The incoming image is too large: it has {declared} bytes, at most {most} are accepted."
            )
        check_bytes(project, self._arriving.used(project), declared, self.settings)
        self._files.check_room(declared)

    async def _within_quota(
        self, project: str | None, chunks: AsyncIterator[bytes], count: Callable[[int], None]
    ) -> AsyncIterator[bytes]:
        """Give on the bytes of an upload for as long as its project may have more."""
        async for chunk in chunks:
            if not has_room(project, self._arriving.used(project), len(chunk), self.settings):
                await self._look_at_use(project)
                check_bytes(project, self._arriving.used(project), len(chunk), self.settings)
            count(len(chunk))
            yield chunk

    async def _receive(self, image: StoredImage, chunks: AsyncIterator[bytes]) -> StoredImage:
        name = file_name(image.id, image.created_at)
        async with self._files.receive(name, self.settings.image_size_cap) as incoming:
            async for chunk in chunks:
                await incoming.write(chunk)
            received = await incoming.keep()
        try:
            activated = await self._activate(image, received)
        except OutcomeUnknown:
            self._in_doubt.add(name)
            raise
        except SkepError:
            # Surely not committed. A caller that is cancelled here leaves the file to the row, or to the next sweep.
            await self._remove(name)
            raise
        if activated is None:
            await self._remove(name)
            if name in self._in_doubt:
                raise Conflict(f"image {image.id} was deleted, or has its data already")
            raise NotFound(f"image {image.id} was deleted while its data arrived")
        used, stored = activated
        self._arriving.know(image.owner, used)
        log.info("image stored", image=image.id, size=received.size)
        return stored

    async def _remove(self, name: str) -> None:
        """Remove the bytes of an upload that came to nothing, unless an earlier one may have come true with them."""
        if name not in self._in_doubt:
            await self._files.remove(name)

    async def _activate(self, image: StoredImage, received: Received) -> tuple[int, StoredImage] | None:
        """Say that the bytes are stored; return how many its project has then, and the image; None when it is gone."""
        unit = partial(_activate, image=image, received=received, settings=self.settings, now=self._clock.now())
        return await self._database.write(unit, intake=True)

    async def _change(self, image_id: str, viewer: Viewer, change: Callable[[StoredImage], StoredImage]) -> StoredImage:
        def unit(connection: Connection) -> StoredImage:
            before = own(visible(connection, image_id, viewer), viewer)
            after = _allowed(before, change(before), viewer)
            if after.owner != before.owner:
                used = images.usage(connection, after.owner)
                check_number(after.owner, used, self.settings)
                check_bytes(after.owner, used.bytes, after.size or 0, self.settings)
            after = msgspec.structs.replace(after, updated_at=self._clock.now())
            images.update(connection, after)
            return after

        with told(self._refused):
            return await self._database.write(unit, intake=True)


def _activate(
    connection: Connection, image: StoredImage, received: Received, settings: ImagesSettings, now: int
) -> tuple[int, StoredImage] | None:
    found = images.get(connection, image.id, EVERYBODY)
    if found is None:
        return None
    used = images.usage(connection, found.owner).bytes
    check_bytes(found.owner, used, received.size, settings)
    if not images.activate(connection, image, size=received.size, md5=received.md5, sha512=received.sha512, now=now):
        return None
    stored = images.get(connection, image.id, EVERYBODY)
    assert stored is not None
    return used + received.size, stored


def _ready_for_data(image: StoredImage) -> StoredImage:
    if image.status != "queued":
        raise Conflict(f"image {image.id} has its data already")
    for name in ("disk_format", "container_format"):
        if getattr(image, name) is None:
            raise BadRequest(f"{name}: expected a value before the data is uploaded")
    return image


def _allowed(before: StoredImage, after: StoredImage, viewer: Viewer) -> StoredImage:
    """Refuse what only admins may do: give an image away, publish it.

    Raises Forbidden.
    """
    if viewer.is_admin:
        return after
    if after.owner != before.owner:
        raise Forbidden("Only an admin may set the owner of an image.")
    if after.visibility == "public" and before.visibility != "public":
        raise Forbidden("Only an admin may make an image public.")
    return after
