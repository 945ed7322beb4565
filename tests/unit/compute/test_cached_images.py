"""Images that one host fetches before a server needs them: by tickets, once, and as many as its cache keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from skep.compute.drivers.fake import FakeSettings
from skep.compute.image_cache import ImageCache
from skep.compute.image_transfers import ByTicket
from skep.domain.decoding import json_decoder
from skep.domain.ids import InstanceUuid
from skep.domain.image_caching import CachedImage
from skep.domain.images import Image
from skep.domain.questions import Topic
from skep.messages.to_cell_conductor import AnswerAboutGuest, RequestTicket
from skep.messages.to_compute import AskAboutGuest
from skep.neighbours.images.tickets import ImageTicket, TicketedImages
from skep.transport.base import compute
from tests.support.agents import CELL, HOST, AgentStage
from tests.unit.compute.test_images_by_ticket import ImagesOverHttp

IMAGES = [Image(id=f"{number}1111111-aaaa-4aaa-8aaa-111111111111", size=10) for number in range(4)]


@pytest.fixture
async def service(stage: AgentStage, tmp_path: Path) -> AsyncIterator[ImagesOverHttp]:
    service = ImagesOverHttp()
    async with httpx.AsyncClient(transport=httpx.ASGITransport(service)) as client:
        transfers = ByTicket(TicketedImages(client, timeout=10))
        stage.fake = FakeSettings(images=True)
        stage.images = ImageCache(tmp_path / "images", transfers, largest=100, kept=25, limit=30, pause=0)
        stage.conductor.ticket = ImageTicket(url="http://images.example", ticket="of this transfer")
        yield service
        await stage.images.close()


async def ask(stage: AgentStage, name: str, images: Any) -> AnswerAboutGuest:
    question = AskAboutGuest(
        question=name,
        instance=InstanceUuid(name),
        attempt=0,
        topic=Topic.CACHE_IMAGES,
        arguments={"images": images, "sealed": ""},
    )
    await stage.transport.cast(compute(CELL, HOST), question)
    return await stage.conductor.hears(AnswerAboutGuest, lambda one: one.question == name)


async def outcomes(stage: AgentStage, name: str, *images: Image) -> list[tuple[str, str]]:
    said = await ask(stage, name, [msgspec.to_builtins(image) for image in images])
    assert said.error is None
    found = json_decoder(list[CachedImage]).decode(said.content)
    assert [one.id for one in found] == [image.id for image in images]
    return [(one.outcome.value, one.reason.partition(":")[0]) for one in found]


async def test_each_is_fetched_once_with_a_ticket_of_its_question(stage: AgentStage, service: ImagesOverHttp) -> None:
    await stage.start()
    assert await outcomes(stage, "q1", *IMAGES[:2]) == [("cached", ""), ("cached", "")]
    assert await outcomes(stage, "q2", *IMAGES[:2]) == [("existing", ""), ("existing", "")]
    assert len(service.asked) == 2
    asked = stage.conductor.all(RequestTicket)
    assert [(one.question, one.image, one.attempt) for one in asked] == [("q1", image.id, 0) for image in IMAGES[:2]]


async def test_what_the_cache_has_no_room_for_is_not_said_to_be_there(
    stage: AgentStage, service: ImagesOverHttp
) -> None:
    await stage.start()
    said = await outcomes(stage, "q1", *IMAGES)
    assert said == [("error", "NoSpaceLeft"), ("error", "NoSpaceLeft"), ("cached", ""), ("cached", "")]
    assert len(service.asked) == 4


async def test_why_an_image_is_not_there(stage: AgentStage, service: ImagesOverHttp) -> None:
    await stage.start()
    service.first = [404]
    assert await outcomes(stage, "q1", *IMAGES[:2]) == [("error", "ImageUnacceptable"), ("cached", "")]
    stage.conductor.ticket = None
    assert await outcomes(stage, "q2", IMAGES[0]) == [("error", "ImageUnavailable")]


async def test_a_host_that_cannot_says_so(stage: AgentStage) -> None:
    await stage.start()
    for name, images in (("q1", []), ("q2", "nonsense")):
        said = await ask(stage, name, images)
        assert said.error is not None
        assert said.error.startswith("NotSupported")


async def test_images_that_cannot_be_read(stage: AgentStage, service: ImagesOverHttp) -> None:
    await stage.start()
    for number, images in enumerate(("nonsense", 5, [5], [{}], {"id": 5})):
        said = await ask(stage, f"q{number}", images)
        assert said.error is not None
        assert said.error.startswith("NotSupportedByAgent"), images
    assert service.asked == []
