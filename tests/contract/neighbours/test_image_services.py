"""Images in this process and by Glance's API: the contract, and a Glance that is away."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import httpx
import pytest

from skep.contracts.loopback import plain_client
from skep.contracts.neighbours.image_records import ImageRecordsContract
from skep.contracts.neighbours.images import ImagesContract
from skep.contracts.neighbours.images_of_users import ImagesOfUsersContract
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, address, bound
from skep.domain.context import RequestContext
from skep.domain.errors import Unauthenticated, Unreachable
from skep.domain.ids import ProjectId, RequestId
from skep.domain.images import ImageSelection, NewImage
from skep.neighbours.images.base import ImageRecords, ImageService, ImagesOfUsers
from skep.neighbours.images.glance import GlanceImages
from skep.neighbours.images.glance_of_users import GlanceOfUsers
from skep.neighbours.service_session import ServiceCredentials, ServiceSession
from skep.standalone.images.embedded import EmbeddedImages
from skep.standalone.images.of_users import EmbeddedOfUsers
from tests.contract.neighbours.conftest import credentials_of


def _context(project_id: str, *roles: str) -> RequestContext:
    return RequestContext(request_id=RequestId("req-1"), project_id=ProjectId(project_id), roles=roles)


class TestEmbedded(ImagesContract):
    @pytest.fixture
    async def images(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[ImageService]:  # noqa: ARG002  # it has the clock of its cloud
        yield EmbeddedImages(cloud.images)  # noqa: PT022  # as the contract says


class TestGlance(ImagesContract):
    """Over real HTTP, with Skep's own credentials."""

    @pytest.fixture
    async def images(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[ImageService]:
        async with plain_client() as client:
            yield GlanceImages(ServiceSession(credentials_of(cloud), client, clock))


class TestEmbeddedRecords(ImageRecordsContract):
    @pytest.fixture
    async def records(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[ImageRecords]:  # noqa: ARG002  # it has the clock of its cloud
        yield EmbeddedImages(cloud.images)  # noqa: PT022  # as the contract says


class TestGlanceRecords(ImageRecordsContract):
    """Over real HTTP, with Skep's own credentials."""

    @pytest.fixture
    async def records(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[ImageRecords]:
        async with plain_client() as client:
            yield GlanceImages(ServiceSession(credentials_of(cloud), client, clock))


class TestEmbeddedOfUsers(ImagesOfUsersContract):
    @pytest.fixture
    async def images(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[ImagesOfUsers]:  # noqa: ARG002  # it has the clock of its cloud
        yield EmbeddedOfUsers(cloud.images)  # noqa: PT022  # as the contract says


class TestGlanceOfUsers(ImagesOfUsersContract):
    """Over real HTTP, with the users' own tokens."""

    @pytest.fixture
    async def images(self, cloud: ServedNeighbours, clock: SteppedClock) -> AsyncIterator[ImagesOfUsers]:
        async with plain_client() as client:
            yield GlanceOfUsers(ServiceSession(credentials_of(cloud), client, clock))


async def test_a_token_that_glance_does_not_take(
    credentials: ServiceCredentials, http: httpx.AsyncClient, clock: SteppedClock
) -> None:
    images = GlanceOfUsers(ServiceSession(credentials, http, clock))
    with pytest.raises(Unauthenticated):
        await images.select(ImageSelection(limit=1), _context("mine"), "expired")


async def test_glance_that_does_not_answer(
    credentials: ServiceCredentials, http: httpx.AsyncClient, clock: SteppedClock
) -> None:
    with bound() as nobody:
        images = GlanceImages(ServiceSession(credentials, http, clock), address(nobody))
        new = NewImage(id=str(uuid.uuid4()), name="", owner="mine", disk_format="raw", container_format="bare")
        for asked in (
            images.get(new.id, _context("mine", "member")),
            images.create(new),
            images.discard(new.id),
            images.delete(new.id),
            images.backups("mine", "server", "daily"),
        ):
            with pytest.raises(Unreachable):
                await asked
