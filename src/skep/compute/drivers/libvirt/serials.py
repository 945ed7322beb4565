"""Connections to the serial line of a guest: what it sends is read from its console file, so any number may listen, and
each sees the last lines first; what is typed goes to the terminal that QEMU made for it. What the guest sends comes
there, too, and a terminal that is open and full stops the guest's line: it is taken off and thrown away."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from xml.etree import ElementTree as ET

from skep.compute.drivers.base import DriverError
from skep.domain.ids import InstanceUuid

BEFORE = 2048
"""Bytes that were sent before the connection and are shown first: a prompt is among them."""
MOST = 64 * 1024
"""Bytes of one piece."""
LOOK = 0.1
"""Seconds between two looks at the file."""
ALIVE = 10
"""After so many looks in which nothing came it is asked whether the guest runs."""
FULL = 0.05
"""Seconds after which is tried again what the guest did not take yet."""


def terminal_of(domain: str) -> str | None:
    """Return the terminal of the serial line in the XML of a domain that runs; None: it has none."""
    source = ET.fromstring(domain).find("devices/serial[@type='pty']/source")  # noqa: S314 - of libvirt
    return None if source is None else source.get("path")


class SerialLine:
    """One connection. Opening it, in the event loop, opens the terminal: raises OSError."""

    def __init__(
        self,
        instance: InstanceUuid,
        file: Path,
        terminal: str,
        look: Callable[[Path, int], Awaitable[tuple[int, bytes]]],
        runs: Callable[[], Awaitable[bool]],
    ) -> None:
        self._instance = instance
        self._file = file
        self._look = look
        self._runs = runs
        self._at = -BEFORE
        self._closed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._terminal = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._loop.add_reader(self._terminal, self._empty)

    async def read(self) -> bytes:
        """Return what the guest sent; empty when it is off, or the line was given back."""
        quiet = 0
        while not self._closed.is_set():
            self._at, data = await self._look(self._file, self._at)
            if data:
                return data
            quiet += 1
            if quiet % ALIVE == 0 and not await self._runs():
                return b""
            await self._pause(LOOK)
        return b""

    async def write(self, data: bytes) -> None:
        """Type on the line; waits while the guest takes nothing."""
        left = memoryview(data)
        while left and not self._closed.is_set():
            try:
                left = left[os.write(self._terminal, left) :]
            except BlockingIOError:
                await self._pause(FULL)
            except OSError as error:
                raise DriverError("InstanceNotRunning", f"{self._instance}: its serial line is gone") from error

    async def close(self) -> None:
        """Give the line back."""
        if not self._closed.is_set():
            self._closed.set()
            self._loop.remove_reader(self._terminal)
            os.close(self._terminal)

    def _empty(self) -> None:
        """Take off the terminal what the guest sent, however slowly this connection is read."""
        try:
            there = os.read(self._terminal, MOST)
        except BlockingIOError:
            return  # another connection took it
        except OSError:
            there = b""
        if not there:  # QEMU has ended: `read` and `write` find that out
            self._loop.remove_reader(self._terminal)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closed.wait()
        except TimeoutError:
            return


def piece_of(path: Path, at: int) -> tuple[int, bytes]:
    """Return what is in a file from a place on, and the place behind it. Raises OSError.

    A place below zero is counted from the end. A file that was cut meanwhile is gone on with at its new end.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size = os.fstat(file).st_size
        if at < 0:
            at = max(size + at, 0)
        at = min(at, size)
        data = os.pread(file, MOST, at)
        return at + len(data), data
    finally:
        os.close(file)
