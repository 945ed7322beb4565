"""What every image service has to do."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import httpx
import pytest

from skep.contracts.neighbours.served import Neighbours, SteppedClock, address, bound
from skep.database.api.images import Viewer
from skep.domain.context import RequestContext
from skep.domain.errors import NotFound, Unreachable
from skep.domain.ids import ProjectId, RequestId
from skep.neighbours.images.base import ImageService
from skep.neighbours.images.glance import GlanceImages
from skep.neighbours.service_session import ServiceCredentials, ServiceSession


def _context(project_id: str, *roles: str) -> RequestContext:
    return RequestContext(request_id=RequestId("req-1"), project_id=ProjectId(project_id), roles=roles)


async def _made(cloud: Neighbours, project_id: str, visibility: str) -> str:
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


async def test_what_a_build_has_to_know(cloud: Neighbours, images: ImageService) -> None:
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
async def test_who_may_use_it(cloud: Neighbours, images: ImageService, visibility: str) -> None:
    image_id = await _made(cloud, "theirs", visibility)
    for context in (_context("theirs"), _context("mine", "admin")):
        assert (await images.get(image_id, context)).id == image_id
    for context in (_context("mine", "member"), _context("", "member")):
        if visibility in ("public", "community"):
            assert (await images.get(image_id, context)).id == image_id
        else:
            with pytest.raises(NotFound):
                await images.get(image_id, context)


@pytest.mark.parametrize("absent", ["0728a01f-33a5-40b8-b366-c070e4047662", "x", "../images", "a\0b", ""])
async def test_what_is_not_there(images: ImageService, absent: str) -> None:
    with pytest.raises(NotFound):
        await images.get(absent, _context("mine", "admin"))


async def test_glance_that_does_not_answer(
    credentials: ServiceCredentials, http: httpx.AsyncClient, clock: SteppedClock
) -> None:
    with bound() as nobody:
        images = GlanceImages(ServiceSession(credentials, http, clock), address(nobody))
        with pytest.raises(Unreachable):
            await images.get(str(uuid.uuid4()), _context("mine", "member"))
