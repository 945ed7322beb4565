"""Sharing images with single projects."""

from __future__ import annotations

from collections.abc import Callable

from skep.database import Connection
from skep.database.api import image_members
from skep.database.api.image_members import ImageMember, MemberStatus
from skep.database.api.images import StoredImage, Viewer
from skep.database.engine import Database
from skep.domain.clock import Clock
from skep.domain.errors import Forbidden, NotFound
from skep.standalone.images.access import own, owns, visible
from skep.standalone.images.refusals import Beyond, told
from skep.standalone.images.settings import UNLIMITED, ImagesSettings


class ImageMembers:
    """Who shares an image is its owner; what is said to it is the member's word."""

    def __init__(
        self, settings: ImagesSettings, database: Database, clock: Clock, refused: Callable[[str], None]
    ) -> None:
        """`refused` is told the limit of each refusal."""
        self._refused = refused
        self._settings = settings
        self._database = database
        self._clock = clock

    async def of_image(self, image_id: str, viewer: Viewer) -> list[ImageMember]:
        """Return the members of an image: to its owner all, to a member itself.

        Raises NotFound, and Forbidden for an image that is not shared.
        """

        def unit(connection: Connection) -> list[ImageMember]:
            image = _shared(visible(connection, image_id, viewer))
            found = image_members.of_image(connection, image_id)
            return found if owns(image, viewer) else [one for one in found if one.member_id == viewer.project_id]

        return await self._database.read(unit)

    async def get(self, image_id: str, member_id: str, viewer: Viewer) -> ImageMember:
        """Return one member of an image, to its owner and to the member itself.

        Raises NotFound.
        """

        def unit(connection: Connection) -> ImageMember:
            image = visible(connection, image_id, viewer)
            known = owns(image, viewer) or member_id == viewer.project_id
            found = image_members.get(connection, image_id, member_id) if known else None
            return _there(found, image_id, member_id)

        return await self._database.read(unit)

    async def add(self, image_id: str, member_id: str, viewer: Viewer) -> ImageMember:
        """Share an image with a project.

        Raises NotFound, Conflict when it is shared with it already, TooLarge beyond the quota, Forbidden for another
        project's image, or one that is not of the visibility `shared`.
        """
        now = self._clock.now()
        member = ImageMember(image_id=image_id, member_id=member_id, created_at=now, updated_at=now)

        def unit(connection: Connection) -> None:
            _shared(own(visible(connection, image_id, viewer), viewer))
            most, used = self._settings.image_member_quota, len(image_members.of_image(connection, image_id))
            image_members.insert(connection, member)
            if most != UNLIMITED and used >= most:
                raise Beyond("members", f"The limit has been exceeded on the number of allowed image members: {most}.")

        with told(self._refused):
            await self._database.write(unit, intake=True)
        return member

    async def answer(self, image_id: str, member_id: str, status: MemberStatus, viewer: Viewer) -> ImageMember:
        """Store what a project says to an image that is shared with it.

        Raises NotFound, and Forbidden for anybody but the member and admins.
        """

        def unit(connection: Connection) -> ImageMember:
            image = visible(connection, image_id, viewer)
            if not viewer.is_admin and member_id != viewer.project_id:
                if owns(image, viewer):
                    raise Forbidden("Only the member itself may accept or reject an image.")
                raise _missing(image_id, member_id)
            _shared(image)
            image_members.set_status(connection, image_id, member_id, status, self._clock.now())
            return _there(image_members.get(connection, image_id, member_id), image_id, member_id)

        return await self._database.write(unit, intake=True)

    async def remove(self, image_id: str, member_id: str, viewer: Viewer) -> None:
        """Share an image with a project no longer.

        Raises NotFound, and Forbidden for another project's image, or one that is not shared.
        """

        def unit(connection: Connection) -> None:
            _shared(own(visible(connection, image_id, viewer), viewer))
            if not image_members.delete(connection, image_id, member_id):
                raise _missing(image_id, member_id)

        await self._database.write(unit, intake=True)


def _shared(image: StoredImage) -> StoredImage:
    if image.visibility != "shared":
        raise Forbidden("Only shared images have members.")
    return image


def _there(member: ImageMember | None, image_id: str, member_id: str) -> ImageMember:
    if member is None:
        raise _missing(image_id, member_id)
    return member


def _missing(image_id: str, member_id: str) -> NotFound:
    return NotFound(f"{member_id} not found in the member list of the image {image_id}.")
