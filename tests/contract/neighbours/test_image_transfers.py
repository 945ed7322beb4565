"""What everything has to do that carries the bytes of images."""

from __future__ import annotations

import contextlib
import hashlib
import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from skep.contracts.eventually import PATIENCE
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, address, bound
from skep.database.api.images import Viewer
from skep.domain.context import RequestContext
from skep.domain.errors import Conflict, Forbidden, NotFound, StorageUnavailable, TooLarge, Unreachable
from skep.domain.ids import ProjectId, RequestId
from skep.domain.images import Image
from skep.neighbours.images.answers import bytes_of
from skep.neighbours.images.base import BrokenTransfer, ImageTransfers
from skep.neighbours.images.checked import whole
from skep.neighbours.images.glance import GlanceImages
from skep.neighbours.service_session import ServiceCredentials, ServiceSession
from skep.standalone.images.embedded import EmbeddedImages
from skep.standalone.images.handlers import files

DATA = bytes(range(256)) * 10_000
"""More than goes in one piece."""
MOST = len(DATA)


def context(project_id: str, *roles: str) -> RequestContext:
    return RequestContext(request_id=RequestId("req-1"), project_id=ProjectId(project_id), roles=roles)


MINE, THEIRS = context("mine", "member"), context("theirs", "member")


@pytest.fixture(params=["embedded", "glance"])
def transfers(
    request: pytest.FixtureRequest,
    cloud: ServedNeighbours,
    http: httpx.AsyncClient,
    credentials: ServiceCredentials,
    clock: SteppedClock,
) -> ImageTransfers:
    if request.param == "embedded":
        return EmbeddedImages(cloud.images)
    return GlanceImages(ServiceSession(credentials, http, clock))


async def pieces(data: bytes = DATA, length: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(data), length):
        yield data[start : start + length]


async def interrupted() -> AsyncIterator[bytes]:
    yield DATA[:1000]
    raise ConnectionResetError("the guest's disk is gone")


async def made(cloud: ServedNeighbours, visibility: str = "private", *, data: bytes | None = DATA) -> str:
    said = {"name": "of mine", "visibility": visibility, "disk_format": "raw", "container_format": "bare"}
    image = await cloud.images.create(said, Viewer(project_id="mine", is_admin=True))
    if data is not None:
        await cloud.images.upload(image.id, pieces(data), Viewer(project_id="mine"))
    return image.id


async def read(transfers: ImageTransfers, image_id: str, who: RequestContext = MINE, most: int = MOST) -> bytes:
    return b"".join([piece async for piece in transfers.download(image_id, who, most=most)])


def damage(directory: Path, image_id: str) -> None:
    [file] = directory.rglob(f"{image_id}.*")
    file.write_bytes(b"x" + DATA[1:])


async def test_what_was_uploaded_is_downloaded(cloud: ServedNeighbours, transfers: ImageTransfers) -> None:
    image_id = await made(cloud, data=None)
    image = await transfers.upload(image_id, pieces(), MINE, most=MOST)
    assert (image.status, image.size) == ("active", len(DATA))
    assert image.checksum == hashlib.md5(DATA).hexdigest()
    assert await read(transfers, image_id) == DATA


async def test_it_comes_in_pieces(cloud: ServedNeighbours, transfers: ImageTransfers) -> None:
    image_id = await made(cloud)
    async with contextlib.aclosing(transfers.download(image_id, MINE, most=MOST)) as coming:  # type: ignore[type-var]
        assert 0 < len(await anext(coming)) < len(DATA)


@pytest.mark.parametrize("there", [1, 1000, len(DATA) - 1])
async def test_what_is_there_does_not_come_again(
    cloud: ServedNeighbours, transfers: ImageTransfers, tmp_path: Path, there: int
) -> None:
    image_id = await made(cloud)
    held = tmp_path / "held"
    held.write_bytes(DATA[:there])
    coming = transfers.download(image_id, MINE, most=MOST, held=held)
    assert b"".join([piece async for piece in coming]) == DATA[there:]


async def test_what_is_there_and_is_not_the_image_s_is_no_image(
    cloud: ServedNeighbours, transfers: ImageTransfers, tmp_path: Path
) -> None:
    image_id = await made(cloud)
    held = tmp_path / "held"
    held.write_bytes(b"x" + DATA[1:1000])
    with pytest.raises(BrokenTransfer, match="checksum"):
        _ = [piece async for piece in transfers.download(image_id, MINE, most=MOST, held=held)]


@pytest.mark.parametrize("status", [206, 400, 416])
async def test_a_part_that_is_refused_is_a_broken_transfer(tmp_path: Path, status: int) -> None:
    """So that the next try begins anew: Glance has 400 for images in stores that read from the beginning only."""
    held = tmp_path / "held"
    held.write_bytes(DATA[:1000])
    response = httpx.Response(status, request=httpx.Request("GET", "http://images/v2"))
    with pytest.raises(BrokenTransfer, match=str(status)):
        _ = [piece async for piece in bytes_of(response, Image(id="one", size=MOST), 1, MOST, held)]


async def test_a_service_that_gives_no_parts_gives_all(
    cloud: ServedNeighbours, transfers: ImageTransfers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image_id = await made(cloud)
    monkeypatch.setattr(files, "_REST", re.compile("no range"))
    held = tmp_path / "held"
    held.write_bytes(DATA[:1000])
    coming = transfers.download(image_id, MINE, most=MOST, held=held)
    assert b"".join([piece async for piece in coming]) == DATA[1000:]


async def test_who_may_have_it(cloud: ServedNeighbours, transfers: ImageTransfers) -> None:
    image_id = await made(cloud)
    with pytest.raises(NotFound):
        await read(transfers, image_id, THEIRS)
    public = await made(cloud, "public")
    assert await read(transfers, public, THEIRS) == DATA


@pytest.mark.parametrize("absent", ["0728a01f-33a5-40b8-b366-c070e4047662", "../images", ""])
async def test_what_is_not_there(transfers: ImageTransfers, absent: str) -> None:
    with pytest.raises(NotFound):
        await read(transfers, absent)
    with pytest.raises(NotFound):
        await transfers.upload(absent, pieces(), MINE, most=MOST)


async def test_an_image_without_bytes_has_none(cloud: ServedNeighbours, transfers: ImageTransfers) -> None:
    with pytest.raises(NotFound, match="has no bytes"):
        await read(transfers, await made(cloud, data=None))


async def test_more_than_is_wanted_does_not_come(cloud: ServedNeighbours, transfers: ImageTransfers) -> None:
    image_id = await made(cloud)
    coming = transfers.download(image_id, MINE, most=MOST - 1)
    with pytest.raises(TooLarge, match=f"{MOST} bytes, at most {MOST - 1}"):
        await anext(coming)


async def test_bytes_that_changed_are_no_image(
    cloud: ServedNeighbours, transfers: ImageTransfers, tmp_path: Path
) -> None:
    image_id = await made(cloud)
    damage(tmp_path, image_id)
    with pytest.raises(BrokenTransfer, match="checksum"):
        await read(transfers, image_id)


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, False),
        ({"checksum": None}, False),
        ({"checksum": "0" * 32}, False),
        ({"os_hash_value": "0" * 128}, True),
        ({"os_hash_value": None, "checksum": "0" * 32}, True),
        ({"os_hash_algo": "sha3_256", "os_hash_value": hashlib.sha3_256(DATA).hexdigest().upper()}, False),
        ({"os_hash_algo": "unheard_of", "os_hash_value": "0" * 128}, False),
        ({"os_hash_algo": "unheard_of", "checksum": "0" * 32}, True),
        ({"os_hash_algo": None, "os_hash_value": None, "checksum": None}, False),
    ],
)
async def test_the_strongest_hash_that_is_known_decides(
    cloud: ServedNeighbours, transfers: ImageTransfers, changes: dict[str, str | None], broken: bool
) -> None:
    image = msgspec.structs.replace(await transfers.get(await made(cloud), MINE), **changes)  # type: ignore[attr-defined]
    with pytest.raises(BrokenTransfer, match="checksum") if broken else contextlib.nullcontext():
        assert b"".join([piece async for piece in whole(pieces(), image, MOST)]) == DATA


async def test_an_image_has_its_bytes_once(cloud: ServedNeighbours, transfers: ImageTransfers) -> None:
    image_id = await made(cloud)
    others = pieces(b"others")
    with pytest.raises(Conflict):
        await transfers.upload(image_id, others, MINE, most=MOST)
    assert await anext(others) == b"others", "no byte is taken"
    assert await read(transfers, image_id) == DATA


async def test_nobody_fills_the_image_of_another_project(cloud: ServedNeighbours, transfers: ImageTransfers) -> None:
    image_id = await made(cloud, "public", data=None)
    with pytest.raises(Forbidden):
        await transfers.upload(image_id, pieces(), THEIRS, most=MOST)


async def test_an_upload_that_is_too_large_or_ends_early_leaves_nothing(
    cloud: ServedNeighbours, transfers: ImageTransfers
) -> None:
    image_id = await made(cloud, data=None)
    with pytest.raises(TooLarge):
        await transfers.upload(image_id, pieces(), MINE, most=MOST - 1)
    with pytest.raises(ConnectionResetError):
        await transfers.upload(image_id, interrupted(), MINE, most=MOST)
    with pytest.raises(NotFound, match="has no bytes"):
        await read(transfers, image_id)


class Forgetful(EmbeddedImages):
    """Tells of no image that has its bytes."""

    async def get(self, image_id: str, context: RequestContext) -> Image:
        image = await super().get(image_id, context)
        if image.status == "active":
            raise StorageUnavailable("the database is away")
        return image


async def test_an_upload_is_over_when_its_bytes_are_stored(cloud: ServedNeighbours) -> None:
    image_id = await made(cloud, data=None)
    image = await Forgetful(cloud.images).upload(image_id, pieces(), MINE, most=MOST)
    assert (image.id, image.status, image.size) == (image_id, "active", len(DATA))


class Damaging(GlanceImages):
    """A Glance that stores other bytes than were sent, by its own word."""

    async def get(self, image_id: str, context: RequestContext) -> Image:
        image = await super().get(image_id, context)
        return msgspec.structs.replace(image, checksum="0" * 32) if image.status == "active" else image


async def test_an_image_with_other_bytes_than_were_sent_is_deleted(
    cloud: ServedNeighbours, credentials: ServiceCredentials, http: httpx.AsyncClient, clock: SteppedClock
) -> None:
    image_id = await made(cloud, data=None)
    transfers = Damaging(ServiceSession(credentials, http, clock))
    with pytest.raises(BrokenTransfer, match="checksum"):
        await transfers.upload(image_id, pieces(), MINE, most=MOST)
    with pytest.raises(NotFound):
        await cloud.images.get(image_id, Viewer(project_id="mine"))


class Failing(httpx.AsyncHTTPTransport):
    """Answers uploads as a proxy does that lost what is behind it."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            return httpx.Response(503, request=request)
        return await super().handle_async_request(request)


async def test_an_image_keeps_its_bytes_when_glance_fails_at_other_bytes_for_it(
    cloud: ServedNeighbours, credentials: ServiceCredentials, clock: SteppedClock
) -> None:
    image_id = await made(cloud)
    async with httpx.AsyncClient(transport=Failing(), timeout=PATIENCE) as client:
        transfers = GlanceImages(ServiceSession(credentials, client, clock))
        with pytest.raises(Conflict, match=f"image {image_id} is active, not queued"):
            await transfers.upload(image_id, pieces(), MINE, most=MOST)
        assert await read(transfers, image_id) == DATA


@pytest.mark.parametrize("status", ["saving", "importing", "deactivated"])
async def test_only_a_queued_image_takes_bytes(
    status: str, cloud: ServedNeighbours, credentials: ServiceCredentials, http: httpx.AsyncClient, clock: SteppedClock
) -> None:
    class Busy(GlanceImages):
        async def get(self, image_id: str, context: RequestContext) -> Image:
            return msgspec.structs.replace(await super().get(image_id, context), status=status)

    image_id = await made(cloud, data=None)
    with pytest.raises(Conflict, match=f"is {status}, not queued"):
        await Busy(ServiceSession(credentials, http, clock)).upload(image_id, pieces(), MINE, most=MOST)
    assert (await cloud.images.get(image_id, Viewer(project_id="mine"))).status == "queued"


async def test_glance_that_does_not_answer(
    credentials: ServiceCredentials, http: httpx.AsyncClient, clock: SteppedClock
) -> None:
    with bound() as nobody:
        images = GlanceImages(ServiceSession(credentials, http, clock), address(nobody))
        with pytest.raises(Unreachable):
            await read(images, str(uuid.uuid4()))
        with pytest.raises(Unreachable):
            await images.upload(str(uuid.uuid4()), pieces(), MINE, most=MOST)


@pytest.mark.parametrize("sent", [DATA[:-1], DATA + b"x", b""])
async def test_too_few_or_too_many_bytes_are_no_image(sent: bytes) -> None:
    image = Image(id="image", size=len(DATA))
    with pytest.raises(BrokenTransfer):
        [piece async for piece in whole(pieces(sent), image, MOST)]
