"""The image store itself: what may be done to an image, and by whom. HTTP is in `app.py`."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, BinaryIO

import msgspec
import sqlalchemy as sa
import structlog

from skep.database.api import images
from skep.database.api.images import ImageQuery, StoredImage, Viewer
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.domain.errors import BadRequest, Conflict, Forbidden, NotFound, SkepError
from skep.standalone.images.fields import Operation, patched, with_fields
from skep.standalone.images.files import ImageFiles, Received, file_name
from skep.standalone.images.settings import ImagesSettings

log = structlog.get_logger("skep.images")


class StandaloneImages:
    """Rows in the API database, bytes in a directory that belongs to this process."""

    def __init__(self, settings: ImagesSettings, database: Database, clock: Clock) -> None:
        self.settings = settings
        self._database = database
        self._clock = clock
        self._files = ImageFiles(settings.directory)
        self._uploading: set[str] = set()

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
        return await self._database.read(lambda connection: _visible(connection, image_id, viewer))

    async def select(self, query: ImageQuery, marker: str | None, viewer: Viewer) -> list[StoredImage]:
        """Return a page of images.

        Raises BadRequest when the marker is not an image that the viewer may see.
        """

        def unit(connection: sa.Connection) -> list[StoredImage]:
            if marker is None:
                return images.select(connection, query, viewer)
            found = images.get(connection, marker, viewer)
            if found is None:
                raise BadRequest(f"marker: there is no image {marker}")
            return images.select(connection, msgspec.structs.replace(query, marker=found), viewer)

        return await self._database.read(unit)

    async def create(self, said: dict[str, Any], viewer: Viewer) -> StoredImage:
        """Make an image without bytes.

        Raises BadRequest naming the field, Forbidden, Conflict when the id is taken.
        """
        now = self._clock.now()
        blank = StoredImage(id=str(uuid.uuid4()), owner=viewer.project_id, created_at=now, updated_at=now)
        image = _allowed(blank, with_fields(blank, said, self.settings), viewer)
        await self._database.write(lambda connection: images.insert(connection, image), intake=True)
        return image

    async def patch(self, image_id: str, operations: list[Operation], viewer: Viewer) -> StoredImage:
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

    async def delete(self, image_id: str, viewer: Viewer) -> None:
        """Delete an image and its bytes.

        Raises NotFound, and Forbidden when it is protected or another project's.
        """

        def unit(connection: sa.Connection) -> StoredImage:
            image = _own(_visible(connection, image_id, viewer), viewer)
            if image.protected:
                raise Forbidden(f"Image {image_id} is protected and cannot be deleted.")
            images.delete(connection, image_id)
            return image

        deleted = await self._database.write(unit, intake=True)
        await self._files.remove(file_name(deleted.id, deleted.created_at))

    async def upload(self, image_id: str, chunks: AsyncIterator[bytes], viewer: Viewer) -> None:
        """Store the bytes of an image, whole or not at all.

        Raises NotFound, Forbidden, Conflict when it has bytes already or gets them just now, BadRequest when its
        formats are not said, TooLarge, StorageUnavailable when the disk is full.
        """
        _own(await self.get(image_id, viewer), viewer)
        if image_id in self._uploading:
            raise Conflict(f"image {image_id} is just getting its data")
        self._uploading.add(image_id)
        try:
            # Read again, now that nobody else can be storing it.
            await self._store(_ready_for_data(await self.get(image_id, viewer)), chunks)
        finally:
            self._uploading.discard(image_id)

    async def read(self, image_id: str, viewer: Viewer) -> tuple[StoredImage, BinaryIO | None]:
        """Return an image and its opened bytes, which the caller closes; None while it has none.

        Raises NotFound.
        """
        image = await self.get(image_id, viewer)
        if image.status != "active":
            return image, None
        try:
            return image, await self._files.open(file_name(image.id, image.created_at))
        except FileNotFoundError as error:
            # Deleted since the row was read, or somebody removed the file by hand.
            log.warning("image has no file", image=image_id)
            raise NotFound(f"No image data could be found for image {image_id}.") from error

    async def _store(self, image: StoredImage, chunks: AsyncIterator[bytes]) -> None:
        name = file_name(image.id, image.created_at)
        async with self._files.receive(name, self.settings.image_size_cap) as incoming:
            async for chunk in chunks:
                await incoming.write(chunk)
            received = await incoming.keep()
        try:
            stored = await self._activate(image, received)
        except SkepError:
            # Surely not committed. A caller that is cancelled here leaves the file to the row, or to the next sweep.
            await self._files.remove(name)
            raise
        if not stored:
            await self._files.remove(name)
            raise NotFound(f"image {image.id} was deleted while its data arrived")
        log.info("image stored", image=image.id, size=received.size)

    async def _activate(self, image: StoredImage, received: Received) -> bool:
        now = self._clock.now()
        return await self._database.write(
            lambda connection: images.activate(
                connection, image, size=received.size, md5=received.md5, sha512=received.sha512, now=now
            ),
            intake=True,
        )

    async def _change(self, image_id: str, viewer: Viewer, change: Callable[[StoredImage], StoredImage]) -> StoredImage:
        def unit(connection: sa.Connection) -> StoredImage:
            before = _own(_visible(connection, image_id, viewer), viewer)
            after = _allowed(before, change(before), viewer)
            after = msgspec.structs.replace(after, updated_at=self._clock.now())
            images.update(connection, after)
            return after

        return await self._database.write(unit, intake=True)


def _visible(connection: sa.Connection, image_id: str, viewer: Viewer) -> StoredImage:
    image = images.get(connection, image_id, viewer)
    if image is None:
        raise NotFound(f"No image found with ID {image_id}")
    return image


def _ready_for_data(image: StoredImage) -> StoredImage:
    if image.status != "queued":
        raise Conflict(f"image {image.id} has its data already")
    for name in ("disk_format", "container_format"):
        if getattr(image, name) is None:
            raise BadRequest(f"{name}: must be set before the data is uploaded")
    return image


def _own(image: StoredImage, viewer: Viewer) -> StoredImage:
    if viewer.is_admin or (image.owner is not None and image.owner == viewer.project_id):
        return image
    raise Forbidden("You are not permitted to modify this image.")


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
