"""What every image service must do: inherit `ImagesContract` in a test module and give it an `images` fixture.

The images are those of Skep's own image service, which answers over HTTP meanwhile (`cloud`).
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator

import pytest

from skep.contracts.neighbours.contract import ServedContract
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock
from skep.database.api.images import Viewer
from skep.domain.context import RequestContext
from skep.domain.errors import NotFound
from skep.domain.ids import ProjectId, RequestId
from skep.neighbours.images.base import ImageService


class ImagesContract(ServedContract, abc.ABC):
    """Tests of the port `skep.neighbours.images.base.ImageService`."""

    @pytest.fixture
    @abc.abstractmethod
    async def images(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[ImageService]:
        """Give a service that tells of the images of `cloud`."""
        yield  # type: ignore[misc]  # abstract: inheritors give the service

    async def test_an_image_says_what_a_build_has_to_know(self, cloud: ServedNeighbours, images: ImageService) -> None:
        """Before and after its bytes are there."""
        image_id = await _made(cloud, "mine", "private")
        assert (await images.get(image_id, _context("mine"))).status == "queued"
        await cloud.images.upload(image_id, _bytes(), Viewer(project_id="mine"))
        image = await images.get(image_id, _context("mine", "member"))
        assert (image.id, image.name, image.status, image.owner) == (image_id, "private", "active", "mine")
        assert (image.min_disk, image.min_ram, image.size) == (2, 64, 5)
        assert (image.disk_format, image.container_format) == ("qcow2", "bare")
        assert image.checksum == "827ccb0eea8a706c4c34a16891f84e7b"
        assert image.properties == {"hw_rng_model": "virtio"}

    @pytest.mark.parametrize("visibility", ["public", "community", "shared", "private"])
    async def test_who_may_use_an_image(self, cloud: ServedNeighbours, images: ImageService, visibility: str) -> None:
        """Its owner and admins, and all projects where it is public or of the community."""
        image_id = await _made(cloud, "theirs", visibility)
        for context in (_context("theirs"), _context("mine", "admin")):
            assert (await images.get(image_id, context)).id == image_id
        for context in (_context("mine", "member"), _context("", "member")):
            if visibility in ("public", "community"):
                assert (await images.get(image_id, context)).id == image_id
            else:
                with pytest.raises(NotFound):
                    await images.get(image_id, context)

    async def test_members_may_use_a_shared_image(self, cloud: ServedNeighbours, images: ImageService) -> None:
        """Whether they have accepted it or not, until it is shared with them no longer."""
        image_id = await _made(cloud, "theirs", "shared")
        owner = Viewer(project_id="theirs")
        await cloud.images.members.add(image_id, "mine", owner)
        assert (await images.get(image_id, _context("mine", "member"))).id == image_id
        with pytest.raises(NotFound):
            await images.get(image_id, _context("others", "member"))
        await cloud.images.members.remove(image_id, "mine", owner)
        with pytest.raises(NotFound):
            await images.get(image_id, _context("mine", "member"))

    @pytest.mark.parametrize("absent", ["0728a01f-33a5-40b8-b366-c070e4047662", "x", "../images", "a\0b", ""])
    async def test_what_is_not_there_is_not_found(self, images: ImageService, absent: str) -> None:
        """A name that is a path leads nowhere."""
        with pytest.raises(NotFound):
            await images.get(absent, _context("mine", "admin"))


def _context(project_id: str, *roles: str) -> RequestContext:
    return RequestContext(request_id=RequestId("req-1"), project_id=ProjectId(project_id), roles=roles)


async def _made(cloud: ServedNeighbours, project_id: str, visibility: str) -> str:
    said = {
        "name": visibility,
        "visibility": visibility,
        "disk_format": "qcow2",
        "container_format": "bare",
        "min_disk": 2,
        "min_ram": 64,
        "hw_rng_model": "virtio",
    }
    image = await cloud.images.create(said, Viewer(project_id=project_id, is_admin=True))
    return image.id


async def _bytes() -> AsyncIterator[bytes]:
    yield b"12345"
