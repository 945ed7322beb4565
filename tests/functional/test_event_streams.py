"""Streams of events over HTTP: what a reader hears as it happens, what it misses not, and when it is sent away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from skep.admin import event_streams
from skep.config.events import EventsSettings
from skep.contracts.eventually import PATIENCE
from skep.contracts.http_cloud import ComputeSession, http_config, serving_cloud, signed_in
from skep.database import Connection
from skep.database.api import events
from skep.database.api.event_tables import events as rows
from skep.processes.all_in_one import AllInOneCloud
from tests.functional.admin.test_events import noted

Json = dict[str, Any]

SETTINGS = EventsSettings(streams=2, streams_of_project=1)


class Heard:
    """What a reader hears of one stream."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.cursor = ""
        self.comments = 0
        self._lines = answer.aiter_lines()

    async def until(self, type_: str) -> list[Json]:
        """Return the events up to the first of a type."""
        heard: list[Json] = []
        async with asyncio.timeout(PATIENCE):
            while not heard or heard[-1]["type"] != type_:
                one = await self._one()
                assert one is not None, "the stream ended"
                heard += [one] if one else []
        return heard

    async def end(self) -> None:
        """Hear the stream to its end."""
        async with asyncio.timeout(PATIENCE):
            while await self._one() is not None:
                pass

    async def told_where_it_is(self, before: str = "") -> None:
        """Wait until a cursor behind another is heard."""
        async with asyncio.timeout(PATIENCE):
            while self.cursor == before:
                assert await self._one() is not None, "the stream ended"

    async def comment(self) -> None:
        """Wait until the stream says that it goes on."""
        before = self.comments
        async with asyncio.timeout(PATIENCE):
            while self.comments == before:
                assert await self._one() is not None, "the stream ended"

    async def _one(self) -> Json | None:
        """Return one event; an empty one for what is none, None for the end."""
        said: dict[str, str] = {}
        async for line in self._lines:
            if not line:
                self.cursor = said.get("id", self.cursor)
                shown: Json = msgspec.json.decode(said["data"]) if "data" in said else {}
                assert not shown or (shown["cursor"], shown["type"]) == (said["id"], said["event"])
                return shown
            name, _, value = line.partition(":")
            if name:
                said[name] = value.removeprefix(" ")
            else:
                self.comments += 1
        return None


@asynccontextmanager
async def stream(
    cloud: AllInOneCloud, session: ComputeSession, path: str = "/v1/events", **headers: str
) -> AsyncIterator[Heard]:
    asked = {"X-Auth-Token": session.token, "Accept": "text/event-stream", **headers}
    url = cloud.api_url.removesuffix("/v2.1") + path
    async with session.client.stream("GET", url, headers=asked, timeout=PATIENCE) as answer:
        yield Heard(answer)


@asynccontextmanager
async def with_streams(root: Path, settings: EventsSettings = SETTINGS) -> AsyncIterator[AllInOneCloud]:
    config = replace(http_config(root), events=settings)
    async with serving_cloud(config, cells=1, hosts=1) as cloud:
        yield cloud


async def create(session: ComputeSession) -> str:
    server = {"name": "one", "flavorRef": "1", "imageRef": "", "networks": "none"}
    server["imageRef"] = (await session.ask("GET", "/images")).json()["images"][0]["id"]
    answer = await session.ask("POST", "/servers", {"server": server}, version="2.90")
    assert answer.status_code == 202, answer.text
    return str(answer.json()["server"]["id"])


async def test_a_reader_hears_what_happens_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async with (
        with_streams(tmp_path) as cloud,
        signed_in(cloud, "demo", "demo") as demo,
        signed_in(cloud, "admin", "admin") as admin,
    ):
        async with stream(cloud, demo) as heard:
            assert heard.answer.status_code == 200
            assert heard.answer.headers["Content-Type"].startswith("text/event-stream")
            first = await create(demo)
            seen = await heard.until("server.active")
        assert {one["server"] for one in seen} == {first}
        assert [one["type"] for one in seen] == ["server.requested", "server.host_chosen", "server.active"]
        assert not any("host" in one or "cell" in one for one in seen)
        second = await create(demo)
        again = await demo.client.get(
            cloud.api_url.removesuffix("/v2.1") + f"/v1/events?after={heard.cursor}",
            headers={"X-Auth-Token": demo.token},
        )
        assert all(one["server"] == second for one in again.json()["events"])
        async with stream(
            cloud, demo, f"/v1/events?after={seen[0]['cursor']}", **{"Last-Event-ID": heard.cursor}
        ) as heard:
            seen = await heard.until("server.active")
        assert {one["server"] for one in seen} == {second}, "the header says where a reader was that comes again"
        async with stream(cloud, admin, f"/admin/v1/events?server={first}") as heard:
            whole = await heard.until("server.active")
        assert whole[-1]["host"] == "cell1-host1"


async def test_who_gets_no_stream_is_told_why(tmp_path: Path) -> None:
    async with (
        with_streams(tmp_path) as cloud,
        signed_in(cloud, "demo", "demo") as demo,
        signed_in(cloud, "admin", "admin") as admin,
    ):
        for path, status in (
            ("/v1/events?after=nonsense", 400),
            ("/v1/events?limit=0", 400),
            ("/v1/events?type=server.unheard", 400),
            ("/admin/v1/events", 403),
        ):
            async with stream(cloud, demo, path) as heard:
                assert heard.answer.status_code == status, path
                assert heard.answer.headers["Content-Type"] == "application/json"
        async with stream(cloud, demo, **{"Last-Event-ID": "nonsense"}) as heard:
            assert heard.answer.status_code == 400
        async with stream(cloud, demo, **{"X-Auth-Token": "forged"}) as heard:
            assert heard.answer.status_code == 401
        async with stream(cloud, demo):
            async with stream(cloud, demo) as other:
                assert other.answer.status_code == 429, "its project has one"
                assert int(other.answer.headers["Retry-After"]) >= 1
            async with stream(cloud, admin), stream(cloud, admin, "/admin/v1/events") as other:
                assert other.answer.status_code == 429, "the process has two"
        async with stream(cloud, demo) as heard:
            assert heard.answer.status_code == 200, "a place that is left is free"


async def test_a_quiet_stream_says_that_it_goes_on_and_ends_in_time(tmp_path: Path) -> None:
    settings = replace(SETTINGS, stream_heartbeat_seconds=0.05, stream_seconds=1.0)
    async with (
        with_streams(tmp_path, settings) as cloud,
        signed_in(cloud, "demo", "demo") as demo,
        stream(cloud, demo) as heard,
    ):
        await heard.comment()
        await heard.comment()
        await heard.end()


async def test_a_stream_ends_with_its_process(tmp_path: Path) -> None:
    async with (
        with_streams(tmp_path) as cloud,
        signed_in(cloud, "demo", "demo") as demo,
        stream(cloud, demo) as heard,
    ):
        await heard.told_where_it_is()
        stopping = asyncio.create_task(cloud.stop())
        await heard.end()
        await stopping


async def test_a_reader_that_missed_something_is_told_when_it_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_streams, "POLL_SECONDS", 0.01)
    async with with_streams(tmp_path) as cloud, signed_in(cloud, "demo", "demo") as demo:
        api = cloud.plane.databases.api

        async with stream(cloud, demo, "/v1/events?type=server.error") as heard:
            await heard.told_where_it_is()
            await api.write(lambda connection: events.add(connection, [noted("lost", "p")], 1))
            await heard.told_where_it_is(heard.cursor)

            def restore(connection: Connection) -> None:
                connection.execute(rows.delete())
                events.add(connection, [noted("other", "p"), noted("more", "p")], 1)

            await api.write(restore)
            await heard.end()
        async with stream(cloud, demo, **{"Last-Event-ID": heard.cursor}) as again:
            assert again.answer.status_code == 410


async def test_reads_of_events_and_of_servers_have_one_measure(tmp_path: Path) -> None:
    config = http_config(tmp_path)
    config = replace(config, api=replace(config.api, requests_per_second=0.001, requests_burst=3))
    async with serving_cloud(config, cells=1, hosts=1) as cloud, signed_in(cloud, "demo", "demo") as session:
        url = cloud.api_url.removesuffix("/v2.1") + "/v1/events"
        for _ in range(2):
            assert (await session.ask("GET", "/servers")).status_code == 200
        statuses = [
            (await session.client.get(url, headers={"X-Auth-Token": session.token})).status_code for _ in range(2)
        ]
        assert statuses == [200, 429]
        assert (await session.ask("GET", "/servers")).status_code == 429
