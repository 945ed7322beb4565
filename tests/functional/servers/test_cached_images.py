"""Images that the hosts of an aggregate fetch before servers need them: outcomes, notifications, and who may not."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.api.app import ComputeApi
from skep.api.services import ApiServices
from skep.compute.image_transfers import Taker
from skep.contracts.eventually import eventually
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.database import Connection
from skep.database.cell import guest_questions
from skep.domain.context import RequestContext
from skep.domain.errors import NotFound, Unavailable
from skep.domain.ids import InstanceUuid, RequestId, new_uuid
from skep.domain.image_caching import SealedCaching
from skep.domain.images import Image
from skep.domain.questions import GuestAnswer, GuestQuestion, Topic
from skep.neighbours.images.tickets import NoTicket
from skep.processes.all_in_one import AllInOneCloud
from skep.telemetry.notifier import Notification
from tests.functional.servers.test_image_tickets import stored

CONTEXT = RequestContext(request_id=RequestId("req-1"))
CACHING = "aggregate.cache_images."
START, PROGRESS, END = (f"{CACHING}{when}" for when in ("start", "progress", "end"))


@dataclass
class Racks:
    """A cloud with an aggregate of all its hosts."""

    cloud: AllInOneCloud
    session: ComputeSession
    aggregate: int
    heard: list[Notification] = field(default_factory=list)

    @property
    def compute(self) -> ComputeApi:
        """The compute API, whose settings a test may change."""
        front = self.cloud.http._front
        assert front is not None
        assert isinstance(front._compute, ComputeApi)
        return front._compute

    @property
    def services(self) -> ApiServices:
        """What the compute API works with."""
        return self.compute.services

    async def cache(self, *images: str, **other: Any) -> int:
        """Ask for images on all hosts; return the status of the answer."""
        body = other.get("body", {"cache": [{"id": image} for image in images]})
        path = f"/os-aggregates/{other.get('aggregate', self.aggregate)}/images"
        answer = await self.session.ask("POST", path, body, version=other.get("version", "2.81"))
        assert answer.status_code != 202 or not answer.content
        return answer.status_code

    async def force_down(self, host: str) -> None:
        """Say that a host is down."""
        body = {"host": host, "binary": "nova-compute", "forced_down": True}
        assert (await self.session.ask("PUT", "/os-services/force-down", body, version="2.11")).status_code == 200

    async def ended(self) -> list[dict[str, Any]]:
        """Wait for the end of what was asked; return what was told of each host."""

        async def probe() -> bool:
            return any(one.event_type == END for one in self.heard)

        await eventually(probe, "the images are cached")
        kinds = [one.event_type for one in self.heard if one.event_type.startswith(CACHING)]
        assert (kinds[0], kinds[-1], set(kinds[1:-1]) <= {PROGRESS}) == (START, END, True)
        told = [dict(one.payload["nova_object.data"]) for one in self.heard if one.event_type == PROGRESS]
        self.heard.clear()
        return told

    def counted(self) -> dict[str, float]:
        """Return what the metrics say, by outcome."""
        [metric] = self.cloud.metrics.images_precached.collect()
        return {one.labels["outcome"]: one.value for one in metric.samples}

    def files(self) -> set[str]:
        """Return the images whose files the hosts have."""
        found = self.cloud.directory.root.glob("images-of-hosts/*")
        return {path.name.partition("_")[0] for path in found if not path.name.endswith(".part")}


@pytest.fixture
async def racks(tmp_path: Path) -> AsyncIterator[Racks]:
    async with serving_cloud(http_config(tmp_path), cells=1, hosts=2) as cloud, signed_in(cloud) as session:
        made = await session.ask("POST", "/os-aggregates", {"aggregate": {"name": "racks"}})
        identifier = made.json()["aggregate"]["id"]
        for host in cloud.plane.agents:
            added = {"add_host": {"host": host}}
            assert (await session.ask("POST", f"/os-aggregates/{identifier}/action", added)).status_code == 200
        found = Racks(cloud, session, identifier)
        notifier = cloud.process.notifier
        notifier._sinks = (*notifier._sinks, found.heard.append)
        yield found


async def test_hosts_fetch_what_they_lack_and_say_what_they_have(racks: Racks) -> None:
    one, two = [await stored(racks.cloud, racks.session, content) for content in (b"first", b"second")]
    assert racks.files() == set()
    assert await racks.cache(one, two) == 202
    told = await racks.ended()
    assert [(host["index"], host["total"], host["images_failed"]) for host in told] == [(1, 2, []), (2, 2, [])]
    assert {host["host"] for host in told} == set(racks.cloud.plane.agents)
    assert all(host["images_cached"] == [one, two] for host in told)
    # The agents of one process share their files: the second host finds what the first has fetched.
    assert racks.counted() == {"cached": 2.0, "existing": 2.0}
    assert racks.files() == {one, two}
    for database in racks.cloud.plane.databases.cells.values():
        assert not await database.read(partial(guest_questions.any_due, now=10**18)), "no question is left"


async def test_one_image_that_is_not_to_be_had_keeps_no_other_away(racks: Racks, monkeypatch: Any) -> None:
    good, bad = [await stored(racks.cloud, racks.session, content) for content in (b"first", b"second")]
    images = racks.cloud.plane._images
    assert images is not None
    assert images.cache is not None
    transfers = images.cache._transfers
    download = transfers.download

    def gone(image: Image, taker: Taker, *, most: int, held: Path | None = None) -> AsyncIterator[bytes]:
        if image.id == bad:
            raise NotFound(f"Image {bad} could not be found.")
        return download(image, taker, most=most, held=held)

    monkeypatch.setattr(transfers, "download", gone)
    assert await racks.cache(bad, good) == 202
    told = await racks.ended()
    assert {(tuple(host["images_cached"]), tuple(host["images_failed"])) for host in told} == {((good,), (bad,))}
    assert racks.counted() == {"cached": 1.0, "existing": 1.0, "error": 2.0}


async def test_hosts_that_cannot_and_hosts_that_are_down(racks: Racks) -> None:
    image = await stored(racks.cloud, racks.session, b"first")
    without, down = sorted(racks.cloud.plane.agents)
    racks.cloud.plane.agents[without]._started.images = None
    await racks.force_down(down)
    assert await racks.cache(image) == 202
    assert [host["images_failed"] for host in await racks.ended()] == [[image], [image]]
    assert racks.counted() == {"unsupported": 1.0, "error": 1.0}
    assert racks.files() == set()


async def test_what_is_refused(racks: Racks) -> None:
    image = await stored(racks.cloud, racks.session, b"first")
    listed = {"id": image}
    bodies: tuple[Any, ...] = (
        None,
        {},
        {"cache": []},
        {"cache": [image]},
        {"cache": [{}]},
        {"cache": [{"id": "no-uuid"}]},
        {"cache": [{**listed, "more": 1}]},
        {"cache": [listed], "more": 1},
        {"cache": [listed, listed]},
        {"cache": [listed, {"id": new_uuid()}]},
        {"cache": [{"id": new_uuid()} for _ in range(101)]},
    )
    for body in bodies:
        assert await racks.cache(body=body) == 400, body
    queued = await racks.session.client.post(
        f"{racks.cloud.images_url}/v2/images",
        json={"name": "empty", "disk_format": "raw", "container_format": "bare"},
        headers={"X-Auth-Token": racks.session.token},
    )
    assert await racks.cache(queued.json()["id"]) == 400
    assert await racks.cache(image, aggregate=racks.aggregate + 1) == 404
    assert await racks.cache(image, aggregate="x") == 400
    assert await racks.cache(image, version="2.80") == 404
    async with signed_in(racks.cloud, "demo", "demo") as member:
        answer = await member.ask(
            "POST", f"/os-aggregates/{racks.aggregate}/images", {"cache": [listed]}, version="2.81"
        )
        assert answer.status_code == 403
    assert racks.heard == []


async def test_an_aggregate_without_hosts_ends_at_once(racks: Racks) -> None:
    made = await racks.session.ask("POST", "/os-aggregates", {"aggregate": {"name": "empty"}})
    image = await stored(racks.cloud, racks.session, b"first")
    assert await racks.cache(image, aggregate=made.json()["aggregate"]["id"]) == 202
    assert await racks.ended() == []


async def test_so_many_requests_are_under_way_and_no_more(racks: Racks) -> None:
    image = await stored(racks.cloud, racks.session, b"first")
    background = racks.cloud.http._image_cachings
    for _ in range(background._most):
        background.begin(asyncio.Event().wait(), "waits")  # type: ignore[arg-type]
    path, body = f"/os-aggregates/{racks.aggregate}/images", {"cache": [{"id": image}]}
    answer = await racks.session.ask("POST", path, body, version="2.81")
    assert (answer.status_code, "Retry-After" in answer.headers) == (429, True)
    await background.stop()
    assert await racks.cache(image) == 202
    assert len(await racks.ended()) == 2


async def test_a_ticket_is_for_the_host_and_the_images_that_the_api_named(racks: Racks) -> None:
    cloud = racks.cloud
    image, other = [await stored(cloud, racks.session, content) for content in (b"first", b"second")]
    host, another = sorted(cloud.plane.agents)
    [cell] = [database for name, database in cloud.plane.databases.cells.items() if name != "cell0"]

    async def asked(meant: object = None, **arguments: str) -> str:
        """Note a question in the cell, as whoever can write there may."""
        identifier = new_uuid()
        if not arguments:
            named = meant or SealedCaching(question=identifier, host=host, images=(image,))
            sealed = base64.b64encode(cloud.http._seal.encrypt(msgspec.json.encode(named)))
            arguments = {"sealed": sealed.decode()}
        question = GuestQuestion(
            id=identifier,
            instance=InstanceUuid(identifier),
            attempt=0,
            host="of no agent",
            topic=Topic.CACHE_IMAGES,
            context=CONTEXT,
            arguments=dict(arguments),
        )
        now = cloud.clock.now()

        def unit(connection: Connection) -> None:
            assert guest_questions.ask(connection, question, now)
            # As if its host had been told: a conductor that finds no such host would answer.
            guest_questions.due(connection, now, 1)

        await cell.write(unit)
        return identifier

    async def ticket(question: str, of: str = host, wanted: str = image) -> None:
        upcalls = cloud.plane.agents[of]._started.upcalls
        given = await upcalls.ticket(InstanceUuid(question), 0, wanted, CONTEXT, question=question)
        assert given.ticket

    good = await asked()
    await ticket(good)
    refused = [
        ticket(good, of=another),
        ticket(good, wanted=other),
        ticket(new_uuid()),
        ticket(await asked(SealedCaching(question=good, host=host, images=(image,)))),
        ticket(await asked({"question": good})),
        ticket(await asked(sealed="nonsense")),
        ticket(await asked(images="none")),
    ]
    for one in refused:
        with pytest.raises(NoTicket, match=r"not asked to cache|no keys/secrets"):
            await one
    assert await cell.write(
        partial(guest_questions.answer, question=good, host="of no agent", said=GuestAnswer(content=b"[]"))
    )
    with pytest.raises(NoTicket, match="not asked to cache"):
        await ticket(good)


async def test_a_cell_that_cannot_be_written_is_no_host_less_told(racks: Racks, monkeypatch: Any) -> None:
    image = await stored(racks.cloud, racks.session, b"first")

    async def away(*_: object, **__: object) -> object:
        raise Unavailable("the cell is away")

    monkeypatch.setattr("skep.api.image_caching.write_cell", away)
    assert await racks.cache(image) == 202
    assert [host["images_failed"] for host in await racks.ended()] == [[image], [image]]


async def test_what_a_host_answers_that_makes_no_sense(racks: Racks, monkeypatch: Any) -> None:
    image = await stored(racks.cloud, racks.session, b"first")
    for content in (b"nonsense", b"{}", b"[]", b'[{"id": "other", "outcome": "cached"}]', b'[{"id": 1}]', b"\xff"):

        async def said(*_: object, content: bytes = content) -> bytes:
            return content

        monkeypatch.setattr("skep.compute.guest_questions.cache_images", said)
        assert await racks.cache(image) == 202
        assert [host["images_failed"] for host in await racks.ended()] == [[image], [image]], content


@pytest.mark.parametrize("dies", [True, False])
async def test_a_host_that_does_not_answer_holds_up_no_other(racks: Racks, monkeypatch: Any, dies: bool) -> None:
    image = await stored(racks.cloud, racks.session, b"first")
    images = racks.cloud.plane._images
    assert images is not None
    assert images.cache is not None
    transfers, held, goes_on = images.cache._transfers, asyncio.Event(), asyncio.Event()

    async def hangs(_image: Image, _taker: Taker, *, most: int, **_more: Path | None) -> AsyncIterator[bytes]:
        held.set()
        await goes_on.wait()
        yield b"first"[:most]

    monkeypatch.setattr(transfers, "download", hangs)
    monkeypatch.setattr("skep.api.image_caching.CHECK_SECONDS", 0.0)
    if not dies:
        settings = msgspec.structs.replace(racks.services.settings, precache_seconds=0.5)
        racks.compute.services = dataclasses.replace(racks.services, settings=settings)
    assert await racks.cache(image) == 202
    await held.wait()
    if dies:
        await racks.force_down(min(racks.cloud.plane.agents))

        async def told_of_first() -> bool:
            return any(one.event_type == PROGRESS for one in racks.heard)

        await eventually(told_of_first, "it is said that the first host is down")
        goes_on.set()
    told = await racks.ended()
    assert [host["images_failed"] for host in told] == [[image], [] if dies else [image]]
