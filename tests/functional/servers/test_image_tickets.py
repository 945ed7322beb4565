"""Tickets for images in a whole cloud: for the host that builds a server, for that server's image, and for no more."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx
import pytest

from skep.compute.drivers.fake import DISKS, FakeDriver
from skep.config.compute import FakeFailure
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, plain_client, serving_cloud, signed_in
from skep.domain.context import RequestContext
from skep.domain.errors import Forbidden
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

    async def ticket(self, **other: str | int) -> ImageTicket:
        """Ask as the host does, or as `other` hosts, for other attempts and images."""
        asked = {"instance": self.uuid, "attempt": 1, "image": self.image, "host": self.host, **other}
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
