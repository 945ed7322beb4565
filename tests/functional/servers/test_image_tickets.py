"""Tickets for images in a whole cloud: for the host that builds a server, for that server's image, and for no more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from skep.compute.drivers.fake import DISKS, FakeDriver
from skep.config.compute import FakeFailure
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.contracts.loopback import plain_client
from skep.database.api import awaited_images
from skep.domain.context import RequestContext
from skep.domain.errors import Conflict, Forbidden, TooLarge
from skep.domain.ids import CellUuid, InstanceUuid, RequestId, new_uuid
from skep.domain.images import Image
from skep.messages.to_super_conductor import IssueTicket
from skep.neighbours.images.tickets import HEADER, ImageTicket, NoTicket, TicketedImages
from skep.processes.all_in_one import AllInOneCloud
from skep.super_conductor.tickets import Tickets

CONTEXT = RequestContext(request_id=RequestId("req-1"))
HANGS = FakeFailure(operation="prepare", hangs=True)


@dataclass
class Building:
    """A server that its host prepares, and for ever."""

    cloud: AllInOneCloud
    session: ComputeSession
    uuid: InstanceUuid
    host: str
    image: str
    task_id: str = ""
    """Of the action that makes the image; empty: the server is built from it."""

    async def ticket(self, **other: str | int) -> ImageTicket:
        """Ask as the host does, or as `other` hosts, for other attempts, actions and images."""
        own: dict[str, str | int] = {"instance": self.uuid, "attempt": 1, "image": self.image, "host": self.host}
        asked: dict[str, str | int] = {**own, "task_id": self.task_id, "store": bool(self.task_id), **other}
        upcalls = self.cloud.plane.agents[str(asked.pop("host"))]._started.upcalls
        return await upcalls.ticket(**asked, context=CONTEXT)  # type: ignore[arg-type]


async def stored(cloud: AllInOneCloud, session: ComputeSession, content: bytes) -> str:
    """Store an image that only the project of the session sees."""
    images, token = f"{cloud.images_url}/v2/images", {"X-Auth-Token": session.token}
    said = {"name": "own", "disk_format": "raw", "container_format": "bare", "visibility": "private"}
    image = str((await session.client.post(images, json=said, headers=token)).json()["id"])
    headers = {**token, "Content-Type": "application/octet-stream"}
    assert (await session.client.put(f"{images}/{image}/file", content=content, headers=headers)).status_code == 204
    return image


@pytest.fixture
async def building(tmp_path: Path) -> AsyncIterator[Building]:
    config = http_config(tmp_path, failures=[HANGS])
    async with serving_cloud(config, cells=1, hosts=2) as cloud, signed_in(cloud) as session:
        image = await stored(cloud, session, b"what it boots from")
        body = {"server": {"name": "one", "imageRef": image, "flavorRef": "1", "networks": "none"}}
        answer = await session.ask("POST", "/servers", body, version="2.37")
        assert answer.status_code == 202, answer.text
        uuid = InstanceUuid(answer.json()["server"]["id"])

        async def host() -> str:
            made = cloud.directory.root.glob(f"hosts/*/*/{DISKS}/{uuid}_1")
            return next((path.parents[1].name for path in made), "")

        yield Building(cloud, session, uuid, await eventually(host, "a host prepares the server"), image)
        for driver in cloud.plane.drivers.values():
            assert isinstance(driver, FakeDriver)
            driver.release()


async def test_the_host_that_builds_a_server_reads_its_image_and_nothing_else(building: Building) -> None:
    cloud = building.cloud
    given = await building.ticket()
    assert given.url == cloud.images_url
    other = await stored(cloud, building.session, b"of another server")
    async with plain_client(cloud.images_url) as client:
        pieces = TicketedImages(client, timeout=10).download(Image(id=building.image, size=18), given, most=100)
        assert b"".join([piece async for piece in pieces]) == b"what it boots from"
        image = f"/v2/images/{building.image}"
        bearing: dict[str, str] = {HEADER: given.ticket}
        refused: list[httpx.Response] = [
            await client.get(f"/v2/images/{other}/file", headers=bearing),
            await client.get(image, headers=bearing),
            await client.get("/v2/images", headers=bearing),
            await client.put(f"{image}/file", content=b"x", headers=bearing),
            await client.delete(image, headers=bearing),
            await client.get(f"{image}/file", headers={HEADER: given.ticket[:-4]}),
            await client.get(f"{image}/file", headers={HEADER: ""}),
        ]
        assert [answer.status_code for answer in refused] == [401] * len(refused)


async def test_nobody_else_gets_a_ticket(building: Building) -> None:
    other_host = next(name for name in building.cloud.plane.agents if name != building.host)
    other_image = await stored(building.cloud, building.session, b"of another server")
    for other, reason in (
        ({"host": other_host}, "does not build this server"),
        ({"attempt": 2}, "does not build this server"),
        ({"image": other_image}, "not requested with this image"),
        ({"instance": new_uuid()}, "not requested with this image"),
    ):
        with pytest.raises(NoTicket, match=reason):
            await building.ticket(**other)
    assert (await building.ticket()).ticket


async def test_a_cell_gets_no_ticket_for_another_one(building: Building) -> None:
    cloud = building.cloud
    conductor = cloud.plane._super_conductor
    assert conductor is not None
    [cell] = (uuid for uuid, one in cloud.plane.cells.items() if not one.is_cell0)
    asked = partial(IssueTicket, instance=building.uuid, attempt=1, host=building.host, image=building.image)
    tickets = Tickets(conductor._parts)
    assert (await tickets.issue(cell, asked(cell=cell), None)).sealed is not None
    with pytest.raises(Forbidden):
        await tickets.issue(CellUuid(new_uuid()), asked(cell=cell), None)


@pytest.fixture
async def imaging(tmp_path: Path) -> AsyncIterator[Building]:
    """A server of which its host copies the disk, and for ever."""
    hangs = FakeFailure(operation="snapshot", hangs=True)
    async with (
        serving_cloud(http_config(tmp_path, failures=[hangs]), cells=1, hosts=2) as cloud,
        signed_in(cloud) as session,
    ):
        own = await stored(cloud, session, b"what it boots from")
        body = {"server": {"name": "one", "imageRef": own, "flavorRef": "1", "networks": "none"}}
        answer = await session.ask("POST", "/servers", body, version="2.37")
        assert answer.status_code == 202, answer.text
        uuid = InstanceUuid(answer.json()["server"]["id"])

        async def task() -> str:
            server = (await session.ask("GET", f"/servers/{uuid}")).json()["server"]
            return str(server["OS-EXT-STS:task_state"] if server["status"] == "ACTIVE" else "building")

        await eventually(lambda: _is(task, "None"), "the server is there")
        made = await session.ask("POST", f"/servers/{uuid}/action", {"createImage": {"name": "of it"}}, version="2.45")
        await eventually(lambda: _is(task, "image_snapshot"), "its host copies the disk")
        server = (await session.ask("GET", f"/servers/{uuid}")).json()["server"]
        image = made.json()["image_id"]
        noted = await cloud.plane.databases.api.read(partial(awaited_images.get, image_id=image))
        assert noted is not None
        yield Building(cloud, session, uuid, server["OS-EXT-SRV-ATTR:host"], image, noted.image.task_id)
        for driver in cloud.plane.drivers.values():
            assert isinstance(driver, FakeDriver)
            driver.release()


async def _is(said: Callable[[], Awaitable[str]], wanted: str) -> bool:
    return await said() == wanted


async def test_the_host_stores_the_image_that_it_makes_and_nothing_else(imaging: Building) -> None:
    cloud = imaging.cloud
    given = await imaging.ticket()
    other = await stored(cloud, imaging.session, b"of another server")
    image, bearing = f"/v2/images/{imaging.image}", {HEADER: given.ticket}
    binary = {**bearing, "Content-Type": "application/octet-stream"}
    async with plain_client(cloud.images_url) as client:
        refused: list[httpx.Response] = [
            await client.put(f"/v2/images/{other}/file", content=b"x", headers=binary),
            await client.get(f"/v2/images/{other}", headers=bearing),
            await client.get(f"{image}/file", headers=bearing),
            await client.get("/v2/images", headers=bearing),
            await client.patch(image, content=b"[]", headers=bearing),
            await client.delete(image, headers=bearing),
        ]
        assert [answer.status_code for answer in refused] == [401] * len(refused)
        images = TicketedImages(client, timeout=10)
        assert not await images.is_stored(imaging.image, given)
        with pytest.raises(TooLarge):
            await images.upload(imaging.image, _pieces(b"disk"), given, most=3)
        assert not await images.is_stored(imaging.image, given)

        async def taken() -> bool:
            try:
                await images.upload(imaging.image, _pieces(b"disk"), given, most=4)
            except Conflict:
                return False  # the service has not noticed yet that the upload before broke off
            return True

        await eventually(taken, "the image takes bytes again")
        assert await images.is_stored(imaging.image, given)
        with pytest.raises(Conflict):
            await images.upload(imaging.image, _pieces(b"more"), given, most=4)


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_nobody_else_gets_a_ticket_to_store(imaging: Building) -> None:
    other_host = next(name for name in imaging.cloud.plane.agents if name != imaging.host)
    other_image = await stored(imaging.cloud, imaging.session, b"of another server")
    for other, reason in (
        ({"host": other_host}, "does not run the action"),
        ({"attempt": 2}, "does not run the action"),
        ({"image": other_image}, "no image of this id is made"),
        ({"task_id": "req-of-another"}, "no image of this id is made"),
        ({"instance": new_uuid()}, "no image of this id is made"),
    ):
        with pytest.raises(NoTicket, match=reason):
            await imaging.ticket(**other)
    with pytest.raises(NoTicket, match="not requested with this image"):
        await imaging.ticket(store=False, task_id="")
    with pytest.raises(NoTicket, match="does not rescue"):
        await imaging.ticket(store=False)
    assert (await imaging.ticket()).ticket
