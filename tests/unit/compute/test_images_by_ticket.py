"""Images by tickets: the host asks for one for each transfer, and believes only what its conductor has announced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.compute.agent import JOURNAL_FILE
from skep.compute.drivers.fake import DISKS, FakeSettings
from skep.compute.drivers.fake_disks import FakeDisks
from skep.compute.image_cache import TRIES, ImageCache
from skep.compute.image_transfers import ByTicket
from skep.domain.images import Image
from skep.messages.to_cell_conductor import AttemptFailed, Built, MayBuild, RequestTicket
from skep.neighbours.images.tickets import HEADER, ImageTicket, TicketedImages
from tests.support.agents import AgentStage, uuid_of

IMAGE = Image(id="11111111-aaaa-4aaa-8aaa-111111111111", size=10, disk_format="raw")
TICKET = ImageTicket(url="http://images.example", ticket="of this transfer")


class ImagesOverHttp:
    """An image service that notes who asks; its first answers may be other statuses than 200."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.first: list[int] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002
        headers = dict(scope["headers"])
        self.asked.append((scope["path"], headers[HEADER.lower().encode()].decode()))
        status = self.first.pop(0) if self.first else 200
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b"boot bytes" if status == 200 else b""})


@pytest.fixture
async def service(stage: AgentStage, tmp_path: Path) -> AsyncIterator[ImagesOverHttp]:
    service = ImagesOverHttp()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(service)) as client:
        transfers = ByTicket(TicketedImages(client, timeout=10))
        stage.fake = FakeSettings(images=True)
        stage.images = ImageCache(tmp_path / "images", transfers, largest=100, kept=100, limit=30, pause=0)
        stage.conductor.ticket = TICKET
        yield service
        await stage.images.close()


async def test_a_transfer_has_a_ticket_which_is_written_nowhere(stage: AgentStage, service: ImagesOverHttp) -> None:
    await stage.start()
    await stage.build(image=IMAGE)
    await stage.conductor.hears(Built)
    assert FakeDisks(stage.directory / DISKS).content(uuid_of(1), 1) == b"boot bytes"
    assert service.asked == [(f"/v2/images/{IMAGE.id}/file", TICKET.ticket)]
    [asked] = stage.conductor.all(RequestTicket)
    assert (asked.instance, asked.attempt, asked.image) == (uuid_of(1), 1, IMAGE.id)
    assert TICKET.ticket not in (stage.directory / JOURNAL_FILE).read_text()
    heard = [type(one) for one in stage.conductor.heard if isinstance(one, RequestTicket | MayBuild)]
    assert heard == [MayBuild, RequestTicket], "only what may be built needs one"


async def test_each_try_asks_for_a_ticket_of_its_own(stage: AgentStage, service: ImagesOverHttp) -> None:
    """One that was over when the transfer began (401) is none for ever."""
    service.first = [401, 503]
    await stage.start()
    await stage.build(image=IMAGE)
    await stage.conductor.hears(Built)
    assert len(stage.conductor.all(RequestTicket)) == 3


@pytest.mark.parametrize(("status", "error"), [(404, "ImageUnacceptable"), (503, "ImageUnavailable")])
async def test_a_transfer_that_comes_to_nothing_fails_the_build(
    stage: AgentStage, service: ImagesOverHttp, status: int, error: str
) -> None:
    service.first = [status] * TRIES
    await stage.start()
    await stage.build(image=IMAGE)
    assert (await stage.conductor.hears(AttemptFailed)).failure.error == error


async def test_a_host_that_gets_no_ticket_says_why(stage: AgentStage, service: ImagesOverHttp) -> None:
    stage.conductor.ticket = None
    await stage.start()
    await stage.build(image=IMAGE)
    failed = (await stage.conductor.hears(AttemptFailed)).failure
    assert (failed.kind, failed.error) == ("reschedule", "ImageUnavailable")
    assert "the host does not build this server" in failed.message
    assert service.asked == []


async def test_a_conductor_that_did_not_announce_it_is_not_asked(stage: AgentStage, service: ImagesOverHttp) -> None:
    stage.conductor.takes_tickets = False
    await stage.start()
    await stage.build(image=IMAGE)
    failed = (await stage.conductor.hears(AttemptFailed)).failure
    assert (failed.kind, failed.error) == ("reschedule", "ImageUnavailable")
    assert stage.conductor.all(RequestTicket) == []
    assert service.asked == []


async def test_a_build_waits_while_nobody_answers_above_the_cell(stage: AgentStage, service: ImagesOverHttp) -> None:
    stage.conductor.withheld = {RequestTicket}
    await stage.start()
    await stage.build(image=IMAGE)
    await stage.conductor.until(lambda: len(stage.conductor.all(RequestTicket)) > 2)
    assert service.asked == []
    stage.conductor.withheld = set()
    await stage.conductor.hears(Built)


async def test_an_agent_that_stops_meanwhile_goes_on_at_its_next_start(
    stage: AgentStage, service: ImagesOverHttp
) -> None:
    stage.conductor.withheld = {RequestTicket}
    await stage.start()
    await stage.build(image=IMAGE)
    await stage.conductor.hears(RequestTicket)
    await stage.crash()
    assert stage.conductor.all(AttemptFailed) == []
    stage.conductor.withheld = set()
    await stage.start()
    await stage.conductor.hears(Built)
    assert len(service.asked) == 1
