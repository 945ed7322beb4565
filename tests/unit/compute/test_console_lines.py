"""Lines to consoles of a host, over real connections to its port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from skep.compute.console_lines import ConsoleLines, TooManyLines
from skep.compute.drivers.base import DriverError, Guest
from skep.compute.drivers.fake_serial import LONGEST_LINE, FakeSerialLine
from skep.compute.host import Host
from skep.contracts.eventually import PATIENCE
from skep.domain.consoles import MOST_OF_GUEST, MOST_OF_HOST, ConsoleDoor
from skep.domain.ids import InstanceUuid
from skep.domain.instances import PowerState
from skep.domain.questions import Topic

ONE = InstanceUuid("11111111-0000-4000-8000-000000000001")
GUEST = Guest(instance=ONE, attempt=1, name="one", resources={}, power_state=PowerState.RUNNING, whole=True)


class _Driver:
    def __init__(self, find: Callable[[], Guest]) -> None:
        self._find = find

    async def serial_line(self, instance: InstanceUuid) -> FakeSerialLine:  # noqa: ARG002 - the port says so
        return FakeSerialLine(self._find)


class _Host:
    """What lines need of a host."""

    def __init__(self) -> None:
        self.name = "host-1"
        self.guests = {ONE: 1}
        self.driver = _Driver(lambda: GUEST)


@pytest.fixture
def host() -> _Host:
    return _Host()


@pytest.fixture
async def lines(host: _Host) -> AsyncIterator[ConsoleLines]:
    opened = ConsoleLines(cast(Host, host), "127.0.0.1")
    yield opened
    await opened.close()


Connect = Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@pytest.fixture
async def connected() -> AsyncIterator[Connect]:
    """Give what connects to a door and says its secret, or another one."""
    writers: list[asyncio.StreamWriter] = []

    async def connect(
        door: ConsoleDoor, secret: str | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(door.address, door.port)
        writers.append(writer)
        writer.write((door.secret if secret is None else secret).encode() + b"\n")
        return reader, writer

    yield connect
    for writer in writers:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def said(reader: asyncio.StreamReader, end: bytes) -> bytes:
    async with asyncio.timeout(PATIENCE):
        return await reader.readuntil(end)


async def test_a_door_is_gone_through_once(lines: ConsoleLines, connected: Connect) -> None:
    door = await lines.open(Topic.SERIAL_LINE, ONE, 1, 60)
    reader, writer = await connected(door)
    assert await said(reader, b"one:~# ") == f"ok\nConnected to one ({ONE}).\r\none:~# ".encode()
    again, _ = await connected(door)
    assert await again.read() == b""
    writer.write(b"id\r")
    assert ONE.encode() in await said(reader, b"one:~# ")
    writer.write(b"\x04")
    assert await reader.read() == b""


@pytest.mark.parametrize("secret", ["", "x", "é", "x" * 100_000])
async def test_another_secret_opens_nothing(lines: ConsoleLines, connected: Connect, secret: str) -> None:
    door = await lines.open(Topic.SERIAL_LINE, ONE, 1, 60)
    reader, _ = await connected(door, secret)
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""


async def test_a_line_ends_with_its_attempt(lines: ConsoleLines, host: _Host, connected: Connect) -> None:
    reader, _ = await connected(await lines.open(Topic.SERIAL_LINE, ONE, 1, 60))
    await said(reader, b"one:~# ")
    host.guests[ONE] = 2
    async with asyncio.timeout(PATIENCE):
        assert await reader.read() == b""
    late, _ = await connected(await lines.open(Topic.SERIAL_LINE, ONE, 1, 60))
    assert await late.read() == b""


async def test_lines_and_doors_are_bounded(lines: ConsoleLines) -> None:
    for number in range(MOST_OF_HOST):
        await lines.open(Topic.SERIAL_LINE, InstanceUuid(f"guest-{number}"), 1, 60)
    with pytest.raises(TooManyLines):
        await lines.open(Topic.SERIAL_LINE, ONE, 1, 60)


async def test_a_new_door_replaces_the_oldest_of_its_guest(lines: ConsoleLines, connected: Connect) -> None:
    doors = [await lines.open(Topic.SERIAL_LINE, ONE, 1, 60) for _ in range(2 * MOST_OF_HOST)]
    first, _ = await connected(doors[-MOST_OF_GUEST - 1])
    assert await first.read() == b""
    for door in doors[-MOST_OF_GUEST:]:
        reader, _ = await connected(door)
        await said(reader, b"one:~# ")
    # This guest has no further line until one of its own ends.
    reader, _ = await connected(await lines.open(Topic.SERIAL_LINE, ONE, 1, 60))
    async with asyncio.timeout(PATIENCE):
        assert await reader.read() == b""


async def test_an_ended_line_makes_room_for_another(lines: ConsoleLines, connected: Connect) -> None:
    for _ in range(2 * MOST_OF_GUEST):
        reader, writer = await connected(await lines.open(Topic.SERIAL_LINE, ONE, 1, 60))
        await said(reader, b"one:~# ")
        writer.write(b"\x04")
        async with asyncio.timeout(PATIENCE):
            await reader.read()


async def test_closing_ends_lines(lines: ConsoleLines, connected: Connect) -> None:
    reader, _ = await connected(await lines.open(Topic.SERIAL_LINE, ONE, 1, 60))
    await said(reader, b"one:~# ")
    await lines.close()
    assert await reader.read() == b""


async def typed(line: FakeSerialLine, data: bytes) -> bytes:
    await line.read()
    await line.write(data)
    return await line.read()


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"echo hi\r", b"echo hi\r\nhi\r\none:~# "),
        (b"\r\n", b"\r\none:~# "),
        (b"x\x7fid\n", b"x\b \bid\r\n" + ONE.encode() + b"\r\none:~# "),
        (b"x\x03", b"x^C\r\none:~# "),
        (b"reboot\r", b"reboot\r\nreboot: not found; this guest knows echo, exit, hostname, id\r\none:~# "),
        (b"exit\r", b"exit\r\nlogout\r\n"),
    ],
)
async def test_a_fake_guest_answers(data: bytes, answer: bytes) -> None:
    assert await typed(FakeSerialLine(lambda: GUEST), data) == answer


async def test_what_is_typed_is_bounded() -> None:
    line = FakeSerialLine(lambda: GUEST)
    assert len(await typed(line, b"x" * 1_000_000)) == LONGEST_LINE
    await line.close()
    assert await line.read() == b""


async def test_a_guest_that_is_off_takes_nothing() -> None:
    state: list[Any] = [GUEST]

    def find() -> Guest:
        if not state:
            raise DriverError("InstanceNotRunning", "it is off")
        return GUEST

    line = FakeSerialLine(find)
    state.clear()
    with pytest.raises(DriverError):
        await line.write(b"x")


@pytest.mark.parametrize("turns", range(8))
async def test_who_has_just_connected_is_let_go_when_lines_are_closed(lines: ConsoleLines, turns: int) -> None:
    """Whatever the loop has done with the connection by then."""
    door = await lines.open(Topic.SERIAL_LINE, ONE, 1, 60.0)
    with socket.socket() as client:
        client.connect((door.address, door.port))
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await lines.close()
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
