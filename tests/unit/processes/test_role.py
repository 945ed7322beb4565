"""What all roles do: wait for what they need, say what that is, stop their parts in reverse."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest
from starlette.responses import PlainTextResponse

from skep.config.http import HttpSettings
from skep.config.notifications import NotificationsSettings
from skep.config.sections import LOOPBACK, Config
from skep.contracts.eventually import eventually
from skep.domain.errors import Misconfigured, Unreachable
from skep.processes.front import Door
from skep.processes.ports import free_ports
from skep.processes.process import new_process
from skep.processes.role import Role


class Waiting(Role):
    """Needs a part that comes when it is let."""

    name = "waiting"

    def __init__(self, config: Config | None = None, *, health_port: int = 0) -> None:
        super().__init__(new_process(config or Config()), health_port=health_port, setting="waiting.health_port")
        self.here = False
        self.log: list[str] = []

    async def _open(self) -> None:
        self._on_stop("first", self._close("first"))
        await self._wait_for("database", self._look)
        self._on_stop("second", self._close("second"))

    async def _look(self) -> None:
        if not self.here:
            raise Unreachable("it is away")

    def _close(self, name: str) -> Callable[[], Awaitable[None]]:
        async def close() -> None:
            self.log.append(name)

        return close


async def test_it_says_what_it_waits_for_and_goes_on() -> None:
    role = Waiting()
    assert role.reasons() == ["it has not started"]
    starting = asyncio.create_task(role.start())

    async def waits() -> bool:
        return role.reasons() == ["database: it is away"]

    await eventually(waits, "the reason is told")
    role.here = True
    await starting
    assert role.reasons() == []
    await role.stop()
    assert role.log == ["second", "first"]
    assert role.reasons() == ["it is stopping"]


async def test_a_start_that_is_given_up_stops_what_was_opened() -> None:
    role = Waiting()
    starting = asyncio.create_task(role.start())

    async def waits() -> bool:
        return role.reasons() == ["database: it is away"]

    await eventually(waits, "the reason is told")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert role.log == ["first"]


async def test_what_can_never_work_ends_the_start() -> None:
    class Refusing(Waiting):
        async def _look(self) -> None:
            raise Misconfigured("no")

    role = Refusing()
    with pytest.raises(Misconfigured):
        await role.start()
    assert role.log == ["first"]


async def test_the_door_sends_away_until_somebody_is_inside() -> None:
    door = Door(lambda: ["database: it is away"], lambda: b"")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(door), base_url="http://here") as client:
        refused = await client.get("/v2.1/servers")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["reasons"]) == (503, ["database: it is away"])
        assert (await client.get("/healthz")).status_code == 200
        door.inside = PlainTextResponse("inside")
        assert (await client.get("/v2.1/servers")).text == "inside"


async def test_the_port_of_health_has_the_limits_of_all_ports() -> None:
    (port,) = free_ports(LOOPBACK, 1)
    role = Waiting(Config(http=HttpSettings(max_header_bytes=2000)), health_port=port)
    role.here = True
    await role.start()
    try:
        async with httpx.AsyncClient(base_url=f"http://{LOOPBACK}:{port}") as client:
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/healthz", headers={"X-Long": "a" * 2000})).status_code == 431
            assert 'skep_http_refused_total{port="waiting.health_port",reason="headers_too_large"} 1.0' in (
                (await client.get("/metrics")).text
            )
    finally:
        await role.stop()


class Telling(Waiting):
    """Tells of something."""

    name = "telling"
    notifies = True


async def test_a_second_process_with_the_same_health_port_says_what_to_set() -> None:
    (port,) = free_ports(LOOPBACK, 1)
    first, second = Waiting(health_port=port), Waiting(health_port=port)
    first.here = second.here = True
    await first.start()
    try:
        with pytest.raises(Misconfigured, match=r"`waiting\.health_port`; 0: none; one port for each process"):
            await second.start()
    finally:
        await first.stop()


async def test_a_broker_that_cannot_be_used_is_refused_by_roles_that_need_it() -> None:
    wrong = Config(notifications=NotificationsSettings(transport_url="rabbit://skep:secret@host:0/"))
    telling, waiting = Telling(wrong), Waiting(wrong)
    with pytest.raises(Misconfigured, match=r"notifications\.transport_url: a port"):
        await telling.start()
    assert telling.log == []
    waiting.here = True
    await waiting.start()
    await waiting.stop()


async def test_notifications_end_last() -> None:
    away = NotificationsSettings(transport_url=f"rabbit://127.0.0.1:{free_ports(LOOPBACK, 1)[0]}/", flush_seconds=0)
    role = Telling(Config(notifications=away))
    role.here = True
    await role.start()
    await role.stop()
    assert role.log == ["second", "first"]
    assert role.process.metrics.registry.get_sample_value("skep_notifications_waiting") == 0
