"""Webhooks: a program that fails, hangs, dies and comes again gets every event, in order and signed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from skep.config.events import EventsSettings, WebhookSettings
from skep.contracts.cloud import Cloud, quick_config, running_cloud
from skep.contracts.eventually import eventually
from skep.contracts.neighbours.served import address, bound, serving
from skep.database import Connection
from skep.database.api import event_webhooks, events
from skep.domain.ids import Incarnation
from skep.domain.instances import State
from skep.super_conductor import webhooks
from tests.functional.admin.test_events import noted
from tests.functional.test_server_events import read

Json = dict[str, Any]

SECRET = "sixteen characters"
SKEW_SECONDS = 60


class Program:
    """What is told events; `answer` says how it takes a request."""

    def __init__(self) -> None:
        self.bodies: list[Json] = []
        """Those that it took."""
        self.refused = 0
        self.answer: Callable[[], Response] | None = None
        self.hangs = asyncio.Event()
        self.hangs.set()
        self.app = Starlette(routes=[Route("/skep", self._take, methods=["POST"])])

    @property
    def events(self) -> list[Json]:
        """All that it took, each once, as they came first."""
        known = {one["cursor"]: one for body in reversed(self.bodies) for one in reversed(body["events"])}
        return list(reversed(known.values()))

    def types(self, server: str) -> list[str]:
        """Return what it was told of a server."""
        return [one["type"] for one in self.events if one["server"] == server]

    async def _take(self, request: Request) -> Response:
        body = await request.body()
        said = request.headers
        assert said["Content-Type"] == "application/json"
        assert abs(int(said[webhooks.TIMESTAMP]) - time.time()) < SKEW_SECONDS
        assert said[webhooks.SIGNATURE] == webhooks.signature(SECRET, said[webhooks.TIMESTAMP], body)
        if not self.hangs.is_set():
            self.refused += 1
            await self.hangs.wait()
        if self.answer is not None:
            self.refused += 1
            return self.answer()
        self.bodies.append(msgspec.json.decode(body))
        return PlainTextResponse("thanks")


@asynccontextmanager
async def told(root: Path, **settings: Any) -> AsyncIterator[tuple[Cloud, Program]]:
    """Run a cloud that tells a program of its events."""
    program, listener = Program(), bound()
    url = f"{address(listener)}/skep"
    hook = WebhookSettings(name="one", url=url, secret=SECRET, **{"timeout": 0.5, **settings})
    config = replace(quick_config(), events=EventsSettings(webhooks=(hook,)))
    async with serving((program.app, listener)), running_cloud(root, config, cells=1, hosts=2) as cloud:
        await has_place(cloud)
        yield cloud, program


async def has_place(cloud: Cloud) -> None:
    """Wait until the webhook is known: it is told what happens from then on."""

    async def is_so() -> bool:
        found = await cloud.plane.databases.api.read(lambda connection: event_webhooks.find(connection, "one"))
        return found is not None

    await eventually(is_so, "the webhook has a place in the log")


async def hears(program: Program, server: str, type_: str) -> None:
    async def is_so() -> bool:
        return type_ in program.types(server)

    await eventually(is_so, f"the program is told {type_}")


async def is_refused(program: Program, times: int) -> None:
    async def is_so() -> bool:
        return program.refused >= times

    await eventually(is_so, f"{times} requests are refused")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "FIRST_PAUSE", 0.05)


async def test_a_program_is_told_everything_in_order(tmp_path: Path) -> None:
    async with told(tmp_path) as (cloud, program):
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        await hears(program, uuid, "server.active")
        assert program.types(uuid) == ["server.requested", "server.host_chosen", "server.active"]
        assert {(body["webhook"], body["missed"]) for body in program.bodies} == {("one", False)}
        assert not any("host" in one or "cell" in one for one in program.events)
        listed = await read(cloud, uuid, "server.active")
        assert [one["cursor"] for one in program.events if one["server"] == uuid] == [one.cursor for one in listed]


async def test_only_what_is_asked_for_is_sent(tmp_path: Path) -> None:
    async with told(tmp_path, types=("server.active",), whole=True, batch=1) as (cloud, program):
        uuids = await cloud.create(3)
        await cloud.settled(uuids)
        for uuid in uuids:
            await hears(program, uuid, "server.active")
        assert {one["type"] for one in program.events} == {"server.active"}
        assert {one["host"] for one in program.events} <= {"cell1-host1", "cell1-host2"}
        assert all(len(body["events"]) == 1 for body in program.bodies)


@pytest.mark.parametrize("status", [301, 404, 500])
async def test_what_is_refused_is_sent_again(tmp_path: Path, status: int) -> None:
    async with told(tmp_path) as (cloud, program):
        program.answer = lambda: PlainTextResponse("no", status_code=status, headers={"Location": "/elsewhere"})
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        await is_refused(program, 3)
        assert program.bodies == []
        program.answer = None
        await hears(program, uuid, "server.active")
        assert program.types(uuid) == ["server.requested", "server.host_chosen", "server.active"]


async def test_an_address_that_no_client_takes_is_tried_with_pauses(tmp_path: Path) -> None:
    """Whatever a try fails with, it counts as one, and the next waits its time."""
    hook = WebhookSettings(name="one", url="http://xn--a/", secret=SECRET)
    config = replace(quick_config(), events=EventsSettings(webhooks=(hook,)))
    async with running_cloud(tmp_path, config, cells=1, hosts=1) as cloud:
        await has_place(cloud)
        await cloud.create()

        async def has_failed() -> bool:
            found = await cloud.plane.databases.api.read(lambda connection: event_webhooks.find(connection, "one"))
            return found is not None and found.failures >= 3 and found.next_at > 0

        await eventually(has_failed, "three tries are counted")


async def test_a_program_that_hangs_holds_up_neither_builds_nor_a_stop(tmp_path: Path) -> None:
    async with told(tmp_path, timeout=30.0) as (cloud, program):
        program.hangs.clear()
        [first] = await cloud.create()
        assert [one.state for one in await cloud.settled([first])] == [State.ACTIVE]
        await is_refused(program, 1)
        began = time.monotonic()
        await cloud.restart()
        assert time.monotonic() - began < 25.0
        program.hangs.set()
        await hears(program, first, "server.active")
        assert program.types(first)[0] == "server.requested"


async def test_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    async with told(tmp_path) as (cloud, program):
        [first] = await cloud.create()
        await cloud.settled([first])
        await hears(program, first, "server.active")
        before = len(program.events)
        await cloud.restart()
        [second] = await cloud.create()
        await cloud.settled([second])
        await hears(program, second, "server.active")
        new = [one for body in program.bodies for one in body["events"]]
        assert len(new) == len(program.events), "nothing was refused, so nothing comes again"
        assert {one["server"] for one in program.events[before:]} == {second}


async def test_who_missed_something_is_told_so(tmp_path: Path) -> None:
    async with told(tmp_path) as (cloud, program):
        program.answer = lambda: PlainTextResponse("no", status_code=500)
        [uuid] = await cloud.create()
        await cloud.settled([uuid])
        await read(cloud, uuid, "server.active")
        await is_refused(program, 1)

        def lose(connection: Connection) -> None:
            events.prune(connection, 1 << 60, 1 << 60, 1000)
            events.add(connection, [noted("after", "p")], time.time_ns() // 1000)

        await cloud.plane.databases.api.write(lose)
        # A request that is under way may hold what was there before; the one behind it was read since.
        await is_refused(program, program.refused + 2)
        program.answer = None

        async def is_told() -> bool:
            return bool(program.bodies)

        await eventually(is_told, "the program is told something")
        assert [body["missed"] for body in program.bodies] == [True]
        assert [one["type"] for one in program.events] == ["server.error"]


async def test_one_super_conductor_tells_at_a_time(tmp_path: Path) -> None:
    async with running_cloud(tmp_path, cells=1, hosts=1) as cloud:
        api = cloud.plane.databases.api
        one, other = Incarnation("one"), Incarnation("other")

        def story(connection: Connection) -> None:
            assert event_webhooks.hold(connection, "w", one, 10, 20)
            assert event_webhooks.hold(connection, "w", one, 15, 25), "it says that it goes on"
            assert not event_webhooks.hold(connection, "w", other, 24, 34)
            assert not event_webhooks.advance(connection, "w", other, "5-x")
            assert event_webhooks.hold(connection, "w", other, 25, 35)
            assert not event_webhooks.advance(connection, "w", one, "6-x"), "another tells by now"
            assert not event_webhooks.fail(connection, "w", one, 1, 9)
            assert event_webhooks.fail(connection, "w", other, 1, 9)
            found = event_webhooks.find(connection, "w")
            assert found is not None
            assert (found.failures, found.next_at, found.holder) == (1, 9, other)

        await api.write(story)
