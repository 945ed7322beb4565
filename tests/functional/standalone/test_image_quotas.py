"""What one project may have of the image store, and what all of them leave of its disk."""

from __future__ import annotations

import asyncio
import contextlib
from collections import namedtuple
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from skep.config import Config
from skep.contracts.neighbours.served import ServedNeighbours, SteppedClock, neighbours, token
from skep.processes.directory import StateDirectory
from skep.processes.mapping import images_settings
from skep.standalone.images.fields import BODY_PATCH
from skep.standalone.images.quotas import kept_free
from skep.standalone.images.settings import ImagesSettings

RAW = {"disk_format": "raw", "container_format": "bare"}
PIECE = 1 << 20


class Store:
    """The image store as a user sees it."""

    def __init__(self, cloud: ServedNeighbours, http: httpx.AsyncClient, user_token: str, project: str) -> None:
        self.cloud = cloud
        self.project = project
        self._http = http
        self._token = {"X-Auth-Token": user_token}

    async def ask(self, method: str, path: str, kind: str = "application/json", **said: Any) -> httpx.Response:
        return await self._http.request(method, path, headers={**self._token, "Content-Type": kind}, **said)

    async def make(self, **fields: Any) -> httpx.Response:
        return await self.ask("POST", "/v2/images", json={**RAW, **fields})

    async def made(self, **fields: Any) -> str:
        answer = await self.make(**fields)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def upload(self, image: str, content: Any) -> httpx.Response:
        return await self.ask("PUT", f"/v2/images/{image}/file", "application/octet-stream", content=content)

    async def change(self, image: str, **values: Any) -> httpx.Response:
        steps = [{"op": "add", "path": f"/{name}", "value": value} for name, value in values.items()]
        return await self.ask("PATCH", f"/v2/images/{image}", BODY_PATCH, json=steps)

    def files(self) -> list[Path]:
        return [path for path in self.cloud.images.settings.directory.rglob("*") if path.is_file()]


@contextlib.asynccontextmanager
async def store(tmp_path: Path, user: str = "demo", **settings: Any) -> AsyncIterator[Store]:
    async with (
        neighbours(tmp_path, SteppedClock(), **settings) as cloud,
        cloud.identity_client() as identity,
        cloud.images_client() as http,
    ):
        signed_in = await token(identity, user, user)
        known = await cloud.identity.validate(signed_in)
        assert known is not None
        yield Store(cloud, http, signed_in, known.project_id or "")


def refused(answer: httpx.Response) -> str:
    assert answer.status_code == 413, answer.text
    return str(answer.json()["error"]["message"])


async def in_pieces(pieces: int, size: int = PIECE) -> AsyncIterator[bytes]:
    for _ in range(pieces):
        yield b"x" * size


async def test_a_project_has_so_many_images_and_no_race_gets_more(tmp_path: Path) -> None:
    async with store(tmp_path, images_per_project=3) as demo:
        answers = await asyncio.gather(*(demo.make() for _ in range(8)))
        assert sorted(answer.status_code for answer in answers) == [201] * 3 + [413] * 5
        assert demo.cloud.refused == ["images"] * 5
        text = (
            f"Project {demo.project} is over a limit for "
            "[Resource image_count_total is over limit of 3 due to current usage 3 and delta 1]"
        )
        assert refused(await demo.make()) == text
        one = next(answer.json()["id"] for answer in answers if answer.status_code == 201)
        assert (await demo.ask("DELETE", f"/v2/images/{one}")).status_code == 204
        assert (await demo.make()).status_code == 201


async def test_a_project_has_so_many_bytes(tmp_path: Path) -> None:
    async with store(tmp_path, bytes_per_project=5 * PIECE) as demo:
        first, second = await demo.made(), await demo.made()
        assert (await demo.upload(first, in_pieces(3))).status_code == 204
        for content in (b"x" * 3 * PIECE, in_pieces(3)):
            text = refused(await demo.upload(second, content))
            assert text.startswith("Image exceeds the storage quota: The size of the data ")
            assert text.endswith(" bytes remaining.")
        assert demo.cloud.refused == ["bytes"] * 2
        assert len(demo.files()) == 1
        assert (await demo.upload(second, in_pieces(2))).status_code == 204
        await demo.ask("DELETE", f"/v2/images/{first}")
        assert (await demo.upload(await demo.made(), in_pieces(3))).status_code == 204


async def test_uploads_at_once_have_one_quota_together(tmp_path: Path) -> None:
    """Also on the disk, and not only at their end: one that finishes meanwhile still counts."""
    async with store(tmp_path, bytes_per_project=4 * PIECE) as demo:
        finished, half = asyncio.Event(), asyncio.Event()
        largest = 0

        async def slow() -> AsyncIterator[bytes]:
            nonlocal largest
            yield b"x" * PIECE
            half.set()
            await finished.wait()
            for _ in range(8):
                yield b"x" * PIECE
                largest = max(largest, sum(path.stat().st_size for path in demo.files()))

        waiting = asyncio.create_task(demo.upload(await demo.made(), slow()))
        await half.wait()
        assert (await demo.upload(await demo.made(), in_pieces(4))).status_code == 413
        assert (await demo.upload(await demo.made(), in_pieces(3))).status_code == 204
        finished.set()
        refused(await waiting)
        assert largest <= 4 * PIECE


async def test_an_admin_gives_no_project_more_than_its_quota(tmp_path: Path) -> None:
    async with store(tmp_path, "admin", images_per_project=1, bytes_per_project=PIECE) as admin:
        image = await admin.made(owner="another")
        assert (await admin.upload(image, in_pieces(1))).status_code == 204
        assert "image_count_total" in refused(await admin.make(owner="another"))
        own = await admin.made()
        assert "image_count_total" in refused(await admin.change(own, owner="another"))
        assert (await admin.make(owner=None)).status_code == 201, "what belongs to no project has no quota"


async def test_descriptions_of_an_image_are_bounded(tmp_path: Path) -> None:
    async with store(tmp_path, image_property_quota=3, image_tag_quota=2, property_bytes=1000) as demo:
        limit = "The limit has been exceeded on the number of allowed "
        properties = {f"p{number}": "x" for number in range(4)}
        assert refused(await demo.make(**properties)) == f"{limit}image properties. Attempted: 4, Maximum: 3"
        assert refused(await demo.make(tags=["a", "b", "c"])) == f"{limit}image tags. Attempted: 3, Maximum: 2"
        large = {"p": "é" * 500}
        assert refused(await demo.make(**large)) == f"{limit}bytes in image properties. Attempted: 1001, Maximum: 1000"
        image = await demo.made(p="x" * 900)
        assert "bytes in image properties" in refused(await demo.change(image, q="x" * 200))
        assert (await demo.change(image, q="x" * 50)).status_code == 200
        assert demo.cloud.refused == ["properties", "tags", "property_bytes", "property_bytes"]


async def test_what_is_larger_from_before_may_stay_but_not_grow(tmp_path: Path) -> None:
    async with store(tmp_path) as before:
        image = await before.made(**{f"p{number}": "x" * 100 for number in range(20)})
    async with store(tmp_path, image_property_quota=3, property_bytes=1000) as demo:
        assert (await demo.change(image, name="new", p0="y" * 90)).status_code == 200
        refused(await demo.change(image, p0="y" * 101))
        refused(await demo.change(image, another="y"))


@pytest.mark.parametrize("limit", [3, 1000])
async def test_pages_are_bounded_by_bytes_and_hold_all_images_together(tmp_path: Path, limit: int) -> None:
    async with store(tmp_path, page_bytes=50_000, api_limit_max=1000) as demo:
        made = {await demo.made(tags=["é" * 10], p="é" * size) for size in (10, 20_000, 15_000, 30_000, 40, 50, 60)}
        seen: list[str] = []
        path = f"/v2/images?limit={limit}"
        while path:
            answer = await demo.ask("GET", path)
            page = answer.json()
            assert len(answer.content) <= 50_000 or len(page["images"]) == 1
            seen += [image["id"] for image in page["images"]]
            path = page.get("next", "")
        assert len(seen) == len(made)
        assert set(seen) == made


async def test_a_page_does_not_read_what_it_does_not_show(tmp_path: Path) -> None:
    async with store(tmp_path, page_bytes=50_000) as demo:
        for _ in range(20):
            await demo.made(p="x" * 40_000)
        read: list[int] = []

        @sa.event.listens_for(demo.cloud.database.engine, "before_cursor_execute")
        def note(_c: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
            if "image_properties.value" in statement and "CAST" not in statement:
                read.append(len(parameters))

        assert len((await demo.ask("GET", "/v2/images")).json()["images"]) == 1
        assert read == [1]


Space = namedtuple("Space", "total free")


async def test_an_upload_is_refused_while_the_disk_has_room_for_others(tmp_path: Path) -> None:
    def space(directory: Path) -> Space:
        used = sum(path.stat().st_size for path in directory.parent.rglob("*") if path.is_file())
        return Space(100 * PIECE, 20 * PIECE - used)

    async with store(tmp_path, free_bytes=10 * PIECE, space=space) as demo:
        image = await demo.made()
        assert (await demo.upload(await demo.made(), in_pieces(5))).status_code == 204
        for content in (b"x" * (7 * PIECE), in_pieces(7)):
            text = refused(await demo.upload(image, content))
            assert text == "Image storage media is full: the rest of the disk is not for images."
            assert len(demo.files()) == 1
        assert demo.cloud.refused == ["disk"] * 2
        assert (await demo.upload(image, in_pieces(4))).status_code == 204


def test_of_a_small_disk_a_quarter_stays_free() -> None:
    settings = ImagesSettings(directory=Path(), identity_url="", free_bytes=1000)
    assert kept_free(100_000, settings) == 1000
    assert kept_free(2000, settings) == 500


def test_a_cloud_has_quotas_and_a_reserve_unless_it_says_otherwise(tmp_path: Path) -> None:
    settings = images_settings(Config(), StateDirectory(tmp_path), "http://identity/v3")
    assert settings.images_per_project == 100
    assert settings.bytes_per_project == 100 << 30
    assert settings.free_bytes == 1 << 30
    assert settings.property_bytes == 65_536
