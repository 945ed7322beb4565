"""A sign-in in a file is replaced while calls are under way: each process signs in anew beside its old connection."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from skep.config.sections import TransportSettings
from skep.contracts.eventually import eventually
from skep.contracts.transport_server import LONG, QUESTION, Server
from skep.domain.errors import Misconfigured, Unreachable
from skep.messages.to_cell_conductor import Permission
from skep.processes.directory import write_private
from skep.processes.servers.nats import NatsServer
from skep.transport.base import Address
from skep.transport.nats import NatsTransport

pytestmark = pytest.mark.needs_part("nats-server")
HERE = Address("cell.c.conductor")
OLD, NEW = ("skep", "old"), ("skep_2", "new")


def users(*pairs: tuple[str, str]) -> str:
    return "authorization: " + json.dumps({"users": [{"user": user, "password": word} for user, word in pairs]})


def transport(server: NatsServer, file: Path) -> NatsTransport:
    return NatsTransport(TransportSettings(kind="nats", url=server.url, sign_in_file=str(file)))


async def test_no_call_is_lost_when_the_sign_in_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "sign-in"
    write_private(file, b"skep:old\n")
    async with NatsServer(tmp_path / "nats", jetstream=False, config=users(OLD)) as nats:
        caller, serving, server = transport(nats, file), transport(nats, file), Server()
        await caller.open()
        await serving.open()
        served = await serving.serve(HERE, server.handlers)
        ended = asyncio.Event()
        answered: list[Permission] = []

        async def calls() -> None:
            while not ended.is_set():
                answered.append(await caller.call(HERE, QUESTION, timeout=LONG))

        working = [asyncio.create_task(calls()) for _ in range(10)]
        nats.reconfigure(users(OLD, NEW))
        await eventually(lambda: accepts(nats, "skep_2:new", tmp_path), "the new user is taken")
        write_private(file, b"skep_2:new\n")
        logged_in = (caller._connection, serving._connection)
        before = [one.client for one in logged_in]

        async def moved() -> bool:
            return all(one.client not in before for one in logged_in)

        async def left() -> bool:
            return all(one is not None and one.is_closed for one in before)

        await eventually(moved, "both have signed in anew")
        await eventually(left, "the old connections are left")
        nats.reconfigure(users(NEW))
        await eventually(lambda: refuses(nats, "skep:old", tmp_path), "the old user is refused")
        count = len(answered)

        async def go_on() -> bool:
            return len(answered) > count + 20

        await eventually(go_on, "calls go on")
        ended.set()
        await asyncio.gather(*working)
        assert set(answered) == {Permission(granted=True)}
        assert (caller.reconnects, serving.reconnects) == (0, 0)
        await served.close()
        for one in (caller, serving):
            await one.close()


async def test_a_sign_in_that_is_refused_leaves_the_connection_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "sign-in"
    write_private(file, b"skep:old\n")
    async with NatsServer(tmp_path / "nats", jetstream=False, config=users(OLD)) as nats:
        caller, server = transport(nats, file), Server()
        await caller.open()
        await caller.serve(HERE, server.handlers)
        client = caller._connection.client
        for wrong in (b"skep:wrong\n", b"nothing\n"):
            write_private(file, wrong)
            failures = caller._connection.sign_ins.failures
            await eventually(partial(tried, caller, failures), "it was tried")
            assert await caller.call(HERE, QUESTION, timeout=LONG) == Permission(granted=True)
            assert caller._connection.client is client
        await caller.close()


async def test_a_sign_in_that_the_server_takes_later_is_followed_then(tmp_path: Path) -> None:
    file = tmp_path / "sign-in"
    write_private(file, b"skep:old\n")
    async with NatsServer(tmp_path / "nats", jetstream=False, config=users(OLD)) as nats:
        caller = transport(nats, file)
        await caller.open()
        client = caller._connection.client
        write_private(file, b"skep_2:new\n")
        await eventually(partial(tried, caller, 0), "it was tried")
        assert caller._connection.client is client
        nats.reconfigure(users(OLD, NEW))

        async def followed() -> bool:
            return caller._connection.client is not client

        await eventually(followed, "it has signed in anew")
        assert caller._connection.sign_ins.is_followed
        assert caller.reconnects == 0
        await caller.close()


@pytest.mark.parametrize("content", ["", "skep", "skep:", ":word", "skep:a\nskep:b"])
async def test_a_file_that_holds_no_sign_in_is_refused_without_showing_it(tmp_path: Path, content: str) -> None:
    file = tmp_path / "sign-in"
    file.write_text(content)
    settings = TransportSettings(kind="nats", sign_in_file=str(file))
    with pytest.raises(Misconfigured, match=r"transport\.sign_in_file: .*expected one line USER:PASSWORD") as caught:
        await NatsTransport(settings).open()
    assert "word" not in str(caught.value).replace("PASSWORD", "")
    file.unlink()
    with pytest.raises(Misconfigured, match="cannot be read: No such file"):
        await NatsTransport(settings).open()


async def tried(caller: NatsTransport, failures: int) -> bool:
    return caller._connection.sign_ins.failures > failures


async def accepts(nats: NatsServer, sign_in: str, folder: Path) -> bool:
    file = folder / "probe"
    write_private(file, sign_in.encode())
    probe = transport(nats, file)
    try:
        await probe.open()
    except (Misconfigured, Unreachable):
        return False
    await probe.close()
    return True


async def refuses(nats: NatsServer, sign_in: str, folder: Path) -> bool:
    return not await accepts(nats, sign_in, folder)
