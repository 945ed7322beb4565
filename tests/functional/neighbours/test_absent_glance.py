"""A real Glance that is paused or killed: who waits is told so, and what is under way ends whole, or leaves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from skep.api import awaited_images as awaiting
from skep.compute import snapshots
from skep.contracts.eventually import eventually
from skep.database.api import awaited_images
from skep.domain.images import Discarded
from skep.neighbours.images.glance import GlanceImages
from skep_lab.neighbours.identity_and_images import IMAGE, IMAGE_BYTES, PART
from tests.functional.neighbours.test_faulty_keystone import unavailable
from tests.support.cloud_beside_real import Both, cloud_beside_both

pytestmark = [pytest.mark.needs_part(PART), pytest.mark.timeout(900)]

TRIES_OF_A_REQUEST = 2
SECONDS_OF_A_TRY = 2.0
"""As the cloud beside both is configured."""
BOUND = 3 * TRIES_OF_A_REQUEST * SECONDS_OF_A_TRY
"""Seconds within which an answer comes: a slow machine may take thrice what the tries do."""


@contextmanager
def _paused(both: Both) -> Iterator[None]:
    """Halt Glance with its connections open for the length of a block."""
    both.neighbours.glance.pause()
    try:
        yield
    finally:
        both.neighbours.glance.resume()


class _Transfers:
    """Transfers of hosts, before the first of which something happens."""

    def __init__(self) -> None:
        self.first: Callable[[], None] | None = None
        self.begun = 0

    def arm(self, first: Callable[[], None]) -> None:
        """Let this happen at the next transfer, and count from it on."""
        self.first, self.begun = first, 0

    def meet(self) -> None:
        """A transfer begins."""
        first, self.first = self.first, None
        if first is not None:
            first()
        self.begun += 1

    async def again(self) -> None:
        """Wait until a transfer was tried in vain, and begun again."""

        async def twice() -> bool:
            return self.begun > 1

        await eventually(twice, "the host tries again")


@pytest.fixture
def discards(monkeypatch: pytest.MonkeyPatch) -> _Transfers:
    """Those of no bytes: images that may have none are looked for."""
    found, discard = _Transfers(), GlanceImages.discard

    async def met(self: GlanceImages, image_id: str) -> Discarded:
        found.meet()
        return await discard(self, image_id)

    monkeypatch.setattr(GlanceImages, "discard", met)
    return found


@pytest.fixture
def downloads(monkeypatch: pytest.MonkeyPatch) -> _Transfers:
    """Those of the bytes of images, each from its beginning."""
    found, download = _Transfers(), GlanceImages.download

    async def met(self: GlanceImages, *given: Any, **more: Any) -> AsyncIterator[bytes]:
        found.meet()
        async for piece in download(self, *given, **more):
            yield piece

    monkeypatch.setattr(GlanceImages, "download", met)
    return found


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> _Transfers:
    """Those of the bytes of snapshots: what is armed happens when Glance has the headers, the tries are counted."""
    found, upload = _Transfers(), GlanceImages.upload

    async def met(self: GlanceImages, image_id: str, pieces: AsyncIterator[bytes], *given: Any, **more: Any) -> Any:
        found.begun += 1
        return await upload(self, image_id, _meeting(pieces, found), *given, **more)

    monkeypatch.setattr(GlanceImages, "upload", met)
    return found


async def _meeting(pieces: AsyncIterator[bytes], found: _Transfers) -> AsyncIterator[bytes]:
    async for piece in pieces:
        first, found.first = found.first, None
        if first is not None:
            first()
        yield piece


class _Glance:
    """What a user does with a cloud beside Glance, and what an admin finds there."""

    def __init__(self, both: Both, token: str, admin: str) -> None:
        self.both, self.user, self.admin = both, token, admin

    async def ask(self, method: str, path: str, body: Any = None, version: str = "2.45") -> httpx.Response:
        """Ask the compute API; an answer comes within bounds, whoever is away."""
        async with asyncio.timeout(BOUND):
            return await self.both.compute(method, path, body, token=self.user, version=version)

    async def create(self, name: str, image_id: str) -> httpx.Response:
        """Ask for a server."""
        body = {"server": {"name": name, "imageRef": image_id, "flavorRef": "1", "networks": "none"}}
        return await self.ask("POST", "/servers", body)

    async def built(self, name: str, image_id: str) -> str:
        """Ask for a server that is built; return its id."""
        answer = await self.create(name, image_id)
        assert answer.status_code == 202, answer.text
        uuid = str(answer.json()["server"]["id"])
        await self.both.calm(uuid, self.user)
        return uuid

    async def snapshot(self, uuid: str, name: str) -> httpx.Response:
        """Ask for an image of a server."""
        return await self.ask("POST", f"/servers/{uuid}/action", {"createImage": {"name": name}})

    async def begun(self, uuid: str, name: str) -> str:
        """Ask for an image of a server that is made; return its id."""
        answer = await self.snapshot(uuid, name)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["image_id"])

    async def held(self) -> dict[str, Any]:
        """Return what the project and the hosts hold."""
        limits = (await self.ask("GET", "/limits")).json()["limits"]["absolute"]
        servers = (await self.ask("GET", "/servers/detail")).json()["servers"]
        guests = [str(guest) for driver in self.both.cloud.plane.drivers.values() for guest in await driver.guests()]
        return {
            "used": {name: used for name, used in limits.items() if name.endswith("Used")},
            "servers": sorted(
                (one["name"], one["status"], one["OS-EXT-STS:task_state"], one["OS-EXT-STS:power_state"])
                for one in servers
            ),
            "guests": sorted(guests),
        }

    async def last_action(self, uuid: str) -> tuple[str | None, str]:
        """Return the message of a server's last action and the result of its event."""
        path = f"/servers/{uuid}/os-instance-actions"
        newest = (await self.ask("GET", path)).json()["instanceActions"][0]["request_id"]
        action = (await self.ask("GET", f"{path}/{newest}", version="2.51")).json()["instanceAction"]
        [event] = action["events"]
        return action["message"], event["result"]

    async def nothing_awaited(self) -> None:
        """Wait until no image is awaited."""

        async def none() -> bool:
            return not await self.both.cloud.plane.databases.api.read(awaited_images.read_all)

        await eventually(none, "no image is awaited")

    async def images(self) -> list[str]:
        """Return the names of all images of Glance, each of which has all its bytes; no others stay on its disk."""
        answer = await self.both.glance("GET", "", token=self.admin)
        assert answer.status_code == 200, answer.text
        found = answer.json()["images"]
        assert [(one["name"], one["status"], one["size"]) for one in found] == [
            (one["name"], "active", len(IMAGE_BYTES)) for one in found
        ]
        kept = sorted(one["id"] for one in found)

        async def no_others() -> bool:
            # Glance takes the bytes of an upload away only after the image that was deleted meanwhile.
            folder = self.both.neighbours.folder / "images"
            return sorted(file.name for file in folder.iterdir()) == kept

        await eventually(no_others, f"the disk of Glance holds {kept}")
        return sorted(one["name"] for one in found)

    async def bytes_of(self, image_id: str) -> bytes:
        """Return the bytes of an image."""
        answer = await self.both.glance("GET", f"/{image_id}/file", token=self.user)
        assert answer.status_code == 200, answer.text
        return answer.content

    async def is_refused(self, uuid: str, image_id: str) -> None:
        """See that who waits for Glance is told that it is away, and that nothing is held for who was refused."""
        before = await self.held()
        answers = await asyncio.gather(
            self.create("refused", image_id), self.snapshot(uuid, "refused"), self.ask("GET", "/images", version="2.1")
        )
        for answer in answers:
            unavailable(answer, "the image service")
        assert await self.held() == before


async def test_a_glance_that_goes_away(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    discards: _Transfers,
    downloads: _Transfers,
    uploads: _Transfers,
) -> None:
    # What may be made late is looked for soon: Glance is away for longer than that.
    forget_seconds = awaiting.FORGET_SECONDS
    monkeypatch.setattr(awaiting, "FORGET_SECONDS", 1)
    async with cloud_beside_both(tmp_path) as both:
        glance = _Glance(both, await both.token(), await both.token("admin", "admin"))
        one = await glance.built("one", both.neighbours.image_id)
        names = ["first", "second", "third"]
        first, second, third = [await both.image(glance.user, name=name) for name in names]
        names = sorted([IMAGE, *names])

        # Paused, it takes requests and answers none; what it makes of them later goes.
        with _paused(both):
            discards.begun = 0
            await glance.is_refused(one, first)
            await discards.again()
        await glance.nothing_awaited()
        assert await glance.images() == names

        # A server whose bytes are on their way is built when it goes on.
        downloads.arm(both.neighbours.glance.pause)
        try:
            created = await glance.create("two", second)
            assert created.status_code == 202, created.text
            await downloads.again()
        finally:
            both.neighbours.glance.resume()
        await both.calm(str(created.json()["server"]["id"]), glance.user)

        await _snapshot_while_paused(glance, uploads, one)
        await glance.nothing_awaited()
        left = await glance.images()
        assert [name for name in left if name != "while-paused"] == names

        # Killed in the middle of a snapshot, it leaves an image without bytes, which goes once it is back.
        monkeypatch.setattr(snapshots, "TRIES", 2)
        before = await glance.held()
        uploads.arm(both.neighbours.glance.kill)
        image_id = await glance.begun(one, "while-killed")
        await both.calm(one, glance.user)
        message, result = await glance.last_action(one)
        assert result == "Error"
        assert message is not None
        assert message.startswith("ImageUnavailable: the image service")
        assert await glance.held() == before
        await glance.is_refused(one, third)
        await both.neighbours.glance.start()
        await glance.nothing_awaited()
        assert (await both.glance("GET", f"/{image_id}", token=glance.admin)).status_code == 404
        assert await glance.images() == left

        # All is as before: a server is built from what was asked for in vain, and an image made of it, however long.
        monkeypatch.setattr(awaiting, "FORGET_SECONDS", forget_seconds)
        three = await glance.built("three", third)
        image_id = await glance.begun(three, "of-three")
        await both.calm(three, glance.user)
        assert await glance.last_action(three) == (None, "Success")
        assert await glance.bytes_of(image_id) == IMAGE_BYTES
        await glance.nothing_awaited()
        assert await glance.images() == sorted([*left, "of-three"])


async def _snapshot_while_paused(glance: _Glance, uploads: _Transfers, uuid: str) -> None:
    """A snapshot of which Glance has a part when it is paused is stored whole, or fails and leaves none."""
    before = await glance.held()
    uploads.arm(glance.both.neighbours.glance.pause)
    try:
        image_id = await glance.begun(uuid, "while-paused")
        await uploads.again()
        shown = (await glance.ask("GET", f"/servers/{uuid}")).json()["server"]
        assert (shown["status"], shown["OS-EXT-STS:task_state"]) == ("ACTIVE", "image_uploading")
    finally:
        glance.both.neighbours.glance.resume()
    await glance.both.calm(uuid, glance.user)
    message, result = await glance.last_action(uuid)
    assert await glance.held() == before
    if result == "Success":
        assert await glance.bytes_of(image_id) == IMAGE_BYTES
        return
    assert message is not None
    assert message.startswith("ImageUnavailable: ")
    await glance.nothing_awaited()
    assert (await glance.both.glance("GET", f"/{image_id}", token=glance.admin)).status_code == 404
