"""Lines to the consoles of guests, given out on a port of the host: one connection for each door that is opened for it.

A door is opened by a question that came through the cell's conductor. Its secret is good once and for a while. A line
ends with the guest, with the attempt that made it, or with the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import structlog

from skep.compute.drivers.base import ConsoleLine, Driver, DriverError, SerialConsoleDriver, VncConsoleDriver
from skep.compute.host import Host
from skep.domain.consoles import CHUNK, MOST_OF_GUEST, MOST_OF_HOST, MOST_SECONDS, ConsoleDoor
from skep.domain.ids import InstanceUuid
from skep.domain.questions import Topic
from skep.http.closing import stop_accepting

log = structlog.get_logger("skep.compute")

SAYING_SECONDS = 5.0
"""Within which a connection says its secret."""
LOOK_SECONDS = 0.5
"""Between two looks whether the guest of a line is still there."""
ANSWER = b"ok\n"
"""What a connection hears when its secret is good."""


async def _serial(driver: SerialConsoleDriver, instance: InstanceUuid) -> ConsoleLine:
    return await driver.serial_line(instance)


async def _vnc(driver: VncConsoleDriver, instance: InstanceUuid) -> ConsoleLine:
    return await driver.vnc_line(instance)


LINES: Mapping[Topic, Callable[[Any, InstanceUuid], Awaitable[ConsoleLine]]] = MappingProxyType(
    {Topic.SERIAL_LINE: _serial, Topic.VNC_LINE: _vnc}
)
"""What is asked for -> how a driver with the capability is asked for a line."""


class _Door(msgspec.Struct, frozen=True):
    secret: str
    topic: Topic
    instance: InstanceUuid
    attempt: int
    until: float


async def line_of(driver: Driver, topic: Topic, instance: InstanceUuid) -> ConsoleLine:
    """Connect to a guest, one of `LINES`; the driver has the capability. Raises DriverError."""
    return await LINES[topic](driver, instance)


class TooManyLines(Exception):
    """The host has as many lines and open doors as it may."""


class ConsoleLines:
    """The lines of one host."""

    def __init__(self, host: Host, address: str) -> None:
        """`address`: of this machine, where connections are taken."""
        self._host = host
        self._address = address
        self._doors: list[_Door] = []
        self._lines: set[asyncio.Task[None]] = set()
        self._of_guests: Counter[InstanceUuid] = Counter()
        """How many lines each guest has."""
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()

    async def open(self, topic: Topic, instance: InstanceUuid, attempt: int, seconds: float) -> ConsoleDoor:
        """Open a door to a line of a guest, one of `LINES`. Raises TooManyLines, OSError when no port can be had."""
        now = time.monotonic()
        self._doors = [door for door in self._doors if door.until > now]
        unused = [door for door in self._doors if door.instance == instance]
        for oldest in unused[: len(unused) + 1 - MOST_OF_GUEST]:
            self._doors.remove(oldest)
        if len(self._doors) + len(self._lines) >= MOST_OF_HOST:
            raise TooManyLines
        async with self._opening:
            if self._server is None:
                self._server = await asyncio.start_server(self._connected, self._address, 0, limit=CHUNK)
        door = _Door(secrets.token_hex(32), topic, instance, attempt, now + min(max(seconds, 1.0), MOST_SECONDS))
        self._doors.append(door)
        port: int = self._server.sockets[0].getsockname()[1]
        return ConsoleDoor(address=self._address, port=port, secret=door.secret)

    async def close(self) -> None:
        """Shut all doors and end all lines."""
        self._doors.clear()
        if self._server is not None:
            server, self._server = self._server, None
            await stop_accepting(server)
        for line in tuple(self._lines):
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A connection that was on its way while the lines were closed comes without a server.
        if self._server is None or len(self._lines) >= MOST_OF_HOST:
            writer.close()
            return
        task = asyncio.create_task(self._line(reader, writer), name=f"console line {self._host.name}")
        self._lines.add(task)
        task.add_done_callback(self._lines.discard)
        # A line that is cancelled before it begins closes nothing by itself.
        task.add_done_callback(lambda _line: writer.close())

    async def _line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (OSError, DriverError, TimeoutError, ValueError, asyncio.IncompleteReadError) as error:
            log.info("console line ended", host=self._host.name, error=f"{type(error).__name__}: {error}")
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(SAYING_SECONDS):
            said = (await reader.readline()).strip().decode("ascii")
        door = self._through(said)
        if door is None or not self._is_there(door):
            return
        if self._of_guests[door.instance] >= MOST_OF_GUEST:
            log.info("console line refused: too many", host=self._host.name, instance=door.instance)
            return
        self._of_guests[door.instance] += 1
        try:
            await self._attend(door, reader, writer)
        finally:
            self._of_guests[door.instance] -= 1
            if not self._of_guests[door.instance]:
                del self._of_guests[door.instance]

    async def _attend(self, door: _Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await line_of(self._host.driver, door.topic, door.instance)
        log.info("console line begun", host=self._host.name, instance=door.instance, attempt=door.attempt)
        try:
            writer.write(ANSWER)
            await writer.drain()
            await self._carry(door, line, reader, writer)
        finally:
            await line.close()

    async def _carry(
        self, door: _Door, line: ConsoleLine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Carry bytes both ways until one side ends."""

        async def to_guest() -> None:
            while data := await reader.read(CHUNK):
                await line.write(data)

        async def to_user() -> None:
            while data := await line.read():
                writer.write(data)
                await writer.drain()

        async def watch() -> None:
            while self._is_there(door):  # noqa: ASYNC110 - guests come and go without a word
                await asyncio.sleep(LOOK_SECONDS)

        tasks = [asyncio.create_task(one()) for one in (to_guest, to_user, watch)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _through(self, secret: str) -> _Door | None:
        """Return the door that a secret opens, and shut it behind."""
        now = time.monotonic()
        found = next((door for door in self._doors if hmac.compare_digest(door.secret, secret)), None)
        if found is None:
            return None
        self._doors.remove(found)
        return found if found.until > now else None

    def _is_there(self, door: _Door) -> bool:
        return self._host.guests.get(door.instance) == door.attempt
