"""What Skep makes of a Keystone and a Glance whose answers never come or mean nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable

import httpx
import msgspec
import pytest

from skep.contracts.eventually import PATIENCE, eventually
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, token
from skep.database.api.images import Viewer
from skep.domain.context import RequestContext
from skep.domain.errors import Unavailable
from skep.domain.ids import ProjectId, RequestId
from skep.domain.images import Discarded, NewImage
from skep.neighbours.identity.keystone import KeystoneIdentity, KeystoneSettings
from skep.neighbours.images.glance import GlanceImages
from skep.neighbours.service_session import ServiceCredentials, ServiceSession
from skep.standalone.images.service import EVERYBODY
from skep_lab.faulty_service import SUCCESSES, FaultyService, Mishap, every, faulty_service
from tests.support.service_clients import unencrypted_client

SECONDS = 2.0
MEMBER = RequestContext(request_id=RequestId("req-1"), project_id=ProjectId("theirs"), roles=("member",))


@pytest.fixture
async def keystone(cloud: ServedNeighbours) -> AsyncIterator[FaultyService]:
    async with faulty_service(cloud.identity_url) as service:
        yield service


@pytest.fixture
async def glance(cloud: ServedNeighbours) -> AsyncIterator[FaultyService]:
    async with faulty_service(cloud.images_url) as service:
        yield service


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with unencrypted_client() as client:
        yield client


@pytest.fixture
def own(keystone: FaultyService, credentials: ServiceCredentials) -> ServiceCredentials:
    return msgspec.structs.replace(credentials, auth_url=keystone.url, timeout=PATIENCE)


@pytest.fixture
def hasty(own: ServiceCredentials) -> ServiceCredentials:
    """Waits a short time only: for tests in which nothing is answered."""
    return msgspec.structs.replace(own, timeout=SECONDS)


@pytest.fixture
def identity(own: ServiceCredentials, client: httpx.AsyncClient, clock: SteppedClock) -> KeystoneIdentity:
    return KeystoneIdentity(KeystoneSettings(credentials=own), client, clock)


@pytest.fixture
def images(identity: KeystoneIdentity, glance: FaultyService) -> GlanceImages:
    return GlanceImages(identity.session, glance.url)


async def _token(cloud: ServedNeighbours) -> str:
    async with cloud.identity_client() as signing_in:
        return await token(signing_in, "demo", "demo")


@pytest.mark.parametrize("fault", list(Mishap), ids=lambda fault: fault.name)
async def test_signing_in_again(
    cloud: ServedNeighbours,
    keystone: FaultyService,
    hasty: ServiceCredentials,
    client: httpx.AsyncClient,
    clock: SteppedClock,
    fault: Mishap,
) -> None:
    identity = KeystoneIdentity(KeystoneSettings(credentials=hasty), client, clock)
    assert await identity.validate(await _token(cloud)) is not None
    clock.advance(4000)
    known = await _token(cloud)
    await keystone.fail(fault)
    with pytest.raises(Unavailable, match="the identity service"):
        await identity.validate(known)
    await keystone.heal()
    assert await identity.validate(known) is not None


async def test_requests_that_wait_for_a_silent_keystone_wait_together(
    keystone: FaultyService, hasty: ServiceCredentials, client: httpx.AsyncClient, clock: SteppedClock
) -> None:
    session = ServiceSession(hasty, client, clock)
    await keystone.fail(Mishap.SILENT)
    waiting = [session.endpoint("image") for _ in range(10)]
    for outcome in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(outcome, Unavailable)
    assert keystone.met == ["POST /v3/auth/tokens"]
    await keystone.heal()
    assert await session.endpoint("image")


async def test_a_silent_glance_takes_no_connection_from_keystone(
    cloud: ServedNeighbours,
    glance: FaultyService,
    own: ServiceCredentials,
    client: httpx.AsyncClient,
    clock: SteppedClock,
) -> None:
    identity = KeystoneIdentity(KeystoneSettings(credentials=own), client, clock)
    images = GlanceImages(identity.session, glance.url)
    await identity.session.sign_in()
    await glance.fail(Mishap.SILENT)
    waiting = [asyncio.create_task(images.get(str(uuid.uuid4()), MEMBER)) for _ in range(150)]

    async def all_wait() -> bool:
        return len(glance.met) == len(waiting)

    await eventually(all_wait, "Glance is asked by all")
    assert await identity.validate(await _token(cloud)) is not None
    for one in waiting:
        assert not one.done()
        one.cancel()
    await asyncio.wait(waiting)


@pytest.mark.parametrize("fault", list(SUCCESSES), ids=lambda fault: fault.name)
async def test_nonsense_about_members_shows_nobody_an_image(
    cloud: ServedNeighbours, glance: FaultyService, images: GlanceImages, fault: Mishap
) -> None:
    said = {"name": "of mine", "visibility": "shared", "disk_format": "raw", "container_format": "bare"}
    image = await cloud.images.create(said, Viewer(project_id="mine", is_admin=True))
    await glance.fail(fault, lambda _method, path: "/members/" in path)
    with pytest.raises(Unavailable, match="the image service"):
        await images.get(image.id, MEMBER)


@pytest.mark.parametrize("fault", list(SUCCESSES), ids=lambda fault: fault.name)
async def test_nonsense_about_an_image_deletes_none(
    cloud: ServedNeighbours, glance: FaultyService, images: GlanceImages, fault: Mishap
) -> None:
    new = NewImage(id=str(uuid.uuid4()), name="", owner="mine", disk_format="raw", container_format="bare")
    await images.create(new)
    await glance.fail(fault, lambda method, _path: method == "GET")
    with pytest.raises(Unavailable, match="the image service"):
        await images.discard(new.id)
    with pytest.raises(Unavailable, match="the image service"):
        await images.backups("mine", "server", "daily")
    assert (await cloud.images.get(new.id, EVERYBODY)).status == "queued"
    await glance.heal()
    assert await images.discard(new.id) is Discarded.GONE


@pytest.mark.parametrize("fault", list(SUCCESSES), ids=lambda fault: fault.name)
async def test_nonsense_about_a_project_does_not_make_it_one(
    keystone: FaultyService, identity: KeystoneIdentity, fault: Mishap
) -> None:
    await keystone.fail(fault, lambda _method, path: "/projects/" in path)
    with pytest.raises(Unavailable, match="the identity service"):
        await identity.project_exists("absent")


def _deletes(method: str, _path: str) -> bool:
    return method == "DELETE"


def _of_one(_method: str, path: str) -> bool:
    return "/images/" in path


@pytest.mark.parametrize(
    ("refusal", "meets"),
    [(403, every), (403, _deletes), (404, every), (404, _deletes), (404, _of_one), (409, _deletes)],
)
async def test_an_image_is_owed_its_end_until_glance_says_that_it_is_gone(
    cloud: ServedNeighbours,
    glance: FaultyService,
    images: GlanceImages,
    refusal: int,
    meets: Callable[[str, str], bool],
) -> None:
    new = NewImage(id=str(uuid.uuid4()), name="", owner="mine", disk_format="raw", container_format="bare")
    await images.create(new)
    await glance.refuse(refusal, meets)
    with pytest.raises(Unavailable, match="the image service"):
        await images.discard(new.id)
    with pytest.raises(Unavailable, match="the image service"):
        await images.delete(new.id)
    assert (await cloud.images.get(new.id, EVERYBODY)).status == "queued"
    await glance.heal()
    assert await images.discard(new.id) is Discarded.GONE


async def test_an_image_of_which_glance_knows_nothing_is_gone(glance: FaultyService, images: GlanceImages) -> None:
    await glance.refuse(404, _of_one)
    absent = str(uuid.uuid4())
    assert await images.discard(absent) is Discarded.GONE
    await images.delete(absent)
