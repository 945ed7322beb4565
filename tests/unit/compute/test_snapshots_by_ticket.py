"""Images of guests stored by tickets: one is asked for before each transfer; what the service answers is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from skep.compute.drivers.fake import DISKS
from skep.compute.image_transfers import StoredByTicket
from skep.compute.snapshots import Snapshots
from skep.messages.to_cell_conductor import Built, RequestTicket, TaskDone
from skep.neighbours.images.tickets import HEADER, ImageTicket, TicketedImages
from tests.support.agents import AgentStage, uuid_of

IMAGE = "33333333-aaaa-4aaa-8aaa-333333333333"
DISK = b"what the guest has written"
TICKET = ImageTicket(url="http://images.example", ticket="of this transfer")


class StoringImages:
    """An image service that takes the bytes of one image."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.bytes: bytes | None = None
        self.refuses = 0
        """The status with which it refuses bytes; 0: it takes them."""
        self.status = "queued"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        bearing = dict(scope["headers"])[HEADER.lower().encode()].decode()
        self.asked.append((scope["method"], scope["path"], bearing))
        status, body = 200, msgspec.json.encode({"id": IMAGE, "status": self.status})
        if scope["method"] == "PUT":
            received, more = b"", True
            while more:
                piece = await receive()
                received += piece.get("body", b"")
                more = piece.get("more_body", False)
            status, body = self.refuses or 204, b""
            if not self.refuses:
                self.bytes = received
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def service(stage: AgentStage) -> AsyncIterator[StoringImages]:
    service = StoringImages()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(service)) as client:
        store = StoredByTicket(TicketedImages(client, timeout=10))
        stage.snapshots = Snapshots(stage.directory / "snapshots", store, largest=100, limit=30, pause=0)
        stage.conductor.ticket = TICKET
        yield service


async def snapshot(stage: AgentStage) -> str | None:
    """Make an image of a guest and return what its host says of the failure."""
    await stage.start()
    await stage.build()
    await stage.conductor.hears(Built)
    (stage.directory / DISKS / f"{uuid_of(1)}_1").write_bytes(DISK)
    await stage.run_action("snapshot", "task-1", arguments={"image_id": IMAGE, "disk_format": "raw"})
    return (await stage.conductor.hears(TaskDone)).error


async def test_the_bytes_go_with_a_ticket_to_store_them(stage: AgentStage, service: StoringImages) -> None:
    assert await snapshot(stage) is None
    assert service.bytes == DISK
    assert service.asked == [("PUT", f"/v2/images/{IMAGE}/file", TICKET.ticket)]
    [asked] = stage.conductor.all(RequestTicket)
    assert (asked.instance, asked.attempt, asked.image, asked.store) == (uuid_of(1), 1, IMAGE, True)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, "ImageUnavailable"),
        (403, "ImageNotAuthorized"),
        (404, "ImageNotFound"),
        (413, "ImageTooLarge"),
        (503, "ImageUnavailable"),
    ],
)
async def test_what_the_service_refuses_ends_the_action(
    stage: AgentStage, service: StoringImages, status: int, error: str
) -> None:
    service.refuses = status
    assert str(await snapshot(stage)).startswith(error)


@pytest.mark.parametrize(("status", "error"), [("active", None), ("queued", "ImageUnavailable")])
async def test_an_image_that_takes_no_bytes_may_have_them(
    stage: AgentStage, service: StoringImages, status: str, error: str | None
) -> None:
    service.refuses, service.status = 409, status
    assert str(await snapshot(stage)).partition(":")[0] == str(error)
    assert [method for method, _, _ in service.asked] == ["PUT", "GET"]


async def test_a_host_that_gets_no_ticket_says_why(stage: AgentStage, service: StoringImages) -> None:
    stage.conductor.ticket = None
    said = str(await snapshot(stage))
    assert said.startswith("ImageNotAuthorized")
    assert "the host does not build this server" in said
    assert service.asked == []
