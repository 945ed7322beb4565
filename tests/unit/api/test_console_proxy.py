"""The websocket of a console, beside an application server and a host that behave as they like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import Message

from skep.api import console_proxy
from skep.api.console_proxy import ConsoleLimits, ConsoleProxy
from skep.api.console_tokens import ConsoleToken, end_of, write_token
from skep.api.services import ApiServices
from skep.contracts.eventually import PATIENCE, eventually
from skep.domain.consoles import ConsoleDoor
from skep.domain.errors import Unavailable
from skep.domain.ids import CellUuid, InstanceUuid, ProjectId
from skep.http.rates import RateSettings
from skep.http.request_limits import RequestLimits, RequestLimitSettings

NOW = 1_800_000_000_000_000
SECRET = "a" * 64


async def is_here(_services: ApiServices, instance: InstanceUuid) -> Any:
    """Return a server of the project that the first letter of its id names."""
    return SimpleNamespace(
        cell=CellUuid("c1"),
        instance=SimpleNamespace(host="host-1", attempt=1, task=None),
        mapping=SimpleNamespace(project_id=ProjectId(instance[0])),
    )


class Host:
    """The port of a host whose guest says much, as long as somebody listens."""

    def __init__(self) -> None:
        self.connections = 0
        self.welcome = b"ok\n"
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await reader.readline()
            writer.write(self.welcome)
            while not writer.is_closing():
                writer.write(b"x" * 10_000)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()
            self.ended.set()


class Client:
    """A websocket client, as an application sees it."""

    def __init__(self, *, reads: bool) -> None:
        self.sent: list[Message] = []
        self._reads = reads
        self._connected = False

    async def receive(self) -> Message:
        if not self._connected:
            self._connected = True
            return {"type": "websocket.connect"}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(self, message: Message) -> None:
        if not self._reads and message["type"] != "websocket.accept" and self.sent:
            await asyncio.Event().wait()
        self.sent.append(message)


@pytest.fixture
async def host() -> AsyncIterator[tuple[Host, int]]:
    served = Host()
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    yield served, server.sockets[0].getsockname()[1]
    server.close()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> ConsoleProxy:
    monkeypatch.setattr(console_proxy, "look_up", is_here)
    monkeypatch.setattr(console_proxy, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(console_proxy, "FAREWELL_SECONDS", 0.05)
    limits = RequestLimits(RequestLimitSettings(of_address=RateSettings(per_second=1, burst=2)), now=lambda: 0.0)
    services = SimpleNamespace(
        unseal=lambda sealed: bytes.fromhex(sealed.decode()), clock=SimpleNamespace(now=lambda: NOW), limits=limits
    )
    return ConsoleProxy(cast(ApiServices, services), ConsoleLimits(most=1, idle=0.2, longest=PATIENCE))


def scope(
    port: int, headers: tuple[tuple[bytes, bytes], ...] = (), *, instance: str = "s1", **door: Any
) -> dict[str, Any]:
    token = ConsoleToken(
        instance=InstanceUuid(instance),
        cell=CellUuid("c1"),
        host="host-1",
        attempt=1,
        kind="serial",
        door=ConsoleDoor(**{"address": "127.0.0.1", "port": port, "secret": SECRET, **door}),
        until=end_of(NOW, 600),
    )
    text = write_token(lambda plain: plain.hex().encode(), token)
    return {
        "type": "websocket",
        "path": "/consoles/serial",
        "query_string": b"token=" + text.encode(),
        "headers": [(b"host", b"api.example:8774"), *headers],
        "client": ("192.0.2.1", 4711),
        "subprotocols": [],
    }


async def test_a_client_that_reads_nothing_is_idle(proxy: ConsoleProxy, host: tuple[Host, int]) -> None:
    served, port = host
    client = Client(reads=False)
    async with asyncio.timeout(PATIENCE):
        await proxy(scope(port), client.receive, client.send)
        await served.ended.wait()
    assert [one["type"] for one in client.sent] == ["websocket.accept"]
    assert proxy.open == 0


@pytest.mark.parametrize(
    "headers",
    [
        ((b"origin", b"http://["),),
        ((b"origin", b"http://api.example:99999"),),
        ((b"origin", b"http://api.example"),),
        ((b"origin", b"http://api.example:80"),),
        ((b"origin", b"null"),),
        ((b"origin", b"http://api.example:8774"), (b"host", b"[")),
    ],
)
async def test_other_origins_are_refused(
    proxy: ConsoleProxy, host: tuple[Host, int], headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    served, port = host
    client = Client(reads=True)
    await proxy(scope(port, headers), client.receive, client.send)
    assert [one["type"] for one in client.sent] == ["websocket.close"]
    assert served.connections == 0


@pytest.mark.parametrize(
    "door",
    [
        {"address": ""},
        {"address": "127.0.0.1\n"},
        {"address": "a/b"},
        {"port": 0},
        {"port": 65536},
        {"secret": "A" * 64},
        {"secret": "a" * 64 + "\n"},
        # A name with an empty label, and what nobody serves.
        {"address": "a..b"},
        {"address": "a" * 100},
        {"address": "127.0.0.1", "port": 1},
    ],
)
async def test_a_door_that_leads_nowhere_is_refused(
    proxy: ConsoleProxy, host: tuple[Host, int], door: dict[str, Any]
) -> None:
    served, port = host
    client = Client(reads=True)
    await proxy(scope(**{"port": port, **door}), client.receive, client.send)
    assert [one["type"] for one in client.sent] == ["websocket.close"]
    assert served.connections == 0


@pytest.mark.parametrize("welcome", [b"no\n", b""])
async def test_a_host_that_does_not_welcome_is_left(
    proxy: ConsoleProxy, host: tuple[Host, int], welcome: bytes
) -> None:
    served, port = host
    served.welcome = welcome
    client = Client(reads=True)
    async with asyncio.timeout(PATIENCE):
        await proxy(scope(port), client.receive, client.send)
        await served.ended.wait()
    assert [one["type"] for one in client.sent] == ["websocket.close"]


@pytest.mark.parametrize("name", [b"http://api.example:8774", b"https://api.example:8774"])
async def test_the_own_origin_is_taken(proxy: ConsoleProxy, host: tuple[Host, int], name: bytes) -> None:
    _, port = host
    client = Client(reads=False)
    await proxy(scope(port, ((b"origin", name),)), client.receive, client.send)
    assert [one["type"] for one in client.sent] == ["websocket.accept"]


async def asked(proxy: ConsoleProxy, request: dict[str, Any]) -> tuple[str, str]:
    """Return what a client hears first, and why it was refused."""
    client = Client(reads=False)
    async with asyncio.timeout(PATIENCE):
        await proxy(request, client.receive, client.send)
    return client.sent[0]["type"], client.sent[0].get("reason", "")


async def test_a_used_token_does_not_reach_its_host(proxy: ConsoleProxy, host: tuple[Host, int]) -> None:
    served, port = host
    assert (await asked(proxy, scope(port)))[0] == "websocket.accept"
    assert await asked(proxy, scope(port)) == ("websocket.close", "The token was used before.")
    assert (await asked(proxy, scope(port, secret="b" * 64)))[0] == "websocket.accept"
    assert served.connections == 2


async def test_refused_websockets_count_for_their_address(proxy: ConsoleProxy, host: tuple[Host, int]) -> None:
    _, port = host
    bad = scope(port, ((b"origin", b"null"),))
    reasons = [(await asked(proxy, bad))[1] for _ in range(3)]
    assert reasons == ["Pages of this origin may not open consoles."] * 2 + ["This request was rate-limited."]


async def test_consoles_that_are_being_opened_count(
    proxy: ConsoleProxy, host: tuple[Host, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = host
    looked, proceed = asyncio.Event(), asyncio.Event()

    async def fails_late(_services: ApiServices, _instance: InstanceUuid) -> Any:
        looked.set()
        await proceed.wait()
        raise Unavailable("The database does not answer.")

    monkeypatch.setattr(console_proxy, "look_up", fails_late)
    first = asyncio.create_task(asked(proxy, scope(port)))
    await looked.wait()
    assert await asked(proxy, scope(port, secret="b" * 64)) == ("websocket.close", "Too many consoles are open.")
    proceed.set()
    assert (await first)[1] == "The database does not answer."
    # What failed for a reason that passes may be tried again, with the same token.
    monkeypatch.setattr(console_proxy, "look_up", is_here)
    assert (await asked(proxy, scope(port)))[0] == "websocket.accept"


async def test_one_project_leaves_consoles_to_others(
    proxy: ConsoleProxy, host: tuple[Host, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, port = host
    monkeypatch.setattr(proxy, "_limits", ConsoleLimits(most=4, of_project=2, idle=PATIENCE, longest=PATIENCE))

    async def opened(instance: str, secret: str) -> asyncio.Task[None]:
        client = Client(reads=True)
        task = asyncio.create_task(
            proxy(scope(port, instance=instance, secret=secret * 64), client.receive, client.send)
        )

        async def is_accepted() -> bool:
            return bool(client.sent)

        await eventually(is_accepted, "the console is open")
        assert client.sent[0]["type"] == "websocket.accept"
        return task

    open_ = [await opened("s1", "b"), await opened("s2", "c")]
    third = scope(port, instance="s3", secret="d" * 64)
    assert await asked(proxy, third) == ("websocket.close", "Too many consoles of the project are open.")
    open_.append(await opened("other", "e"))
    open_[0].cancel()
    await asyncio.wait(open_[:1])
    open_[0] = await opened("s3", "d")
    assert proxy.open == 3, "the token that was refused is good again once there is room"
    for one in open_:
        one.cancel()
    await asyncio.wait(open_)
    assert (proxy.open, proxy._of_projects) == (0, {})
