"""A terminal at the serial line of a server: bytes go both ways until either side ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import threading
import tty
from collections.abc import Iterator

import click
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from skep.cli.failures import Failed

ESCAPE = b"\x1d"
"""Ctrl-]: leaves the console."""
QUIET_SECONDS = 2.0
"""Where the input has ended, the console is left once it has been silent for so long."""
AS_BEFORE = b"\x1b[?7h\x1b[0m\r\n"
"""Long lines wrap again and have no colour, whatever the guest has said to the terminal."""
PIECE = 4096


def attend(url: str) -> None:
    """Carry bytes between this terminal (or a pipe) and the console at an address. Raises Failed.

    A terminal is told how to leave.
    """
    if sys.stdin.isatty():
        click.echo("Ctrl-] leaves the console.", err=True)
    with _raw_terminal():
        asyncio.run(_attend(url))


async def _attend(url: str) -> None:
    try:
        async with connect(url, subprotocols=["binary"], open_timeout=10) as console:  # type: ignore[list-item]
            typed: asyncio.Queue[bytes] = asyncio.Queue()
            heard = asyncio.Event()
            _read_input(typed)
            tasks = [asyncio.create_task(_type(console, typed, heard)), asyncio.create_task(_show(console, heard))]
            done, left = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for one in left:
                one.cancel()
            for one in done:
                one.result()
    except InvalidStatus as error:
        raise Failed(f"the console was refused ({error.response.status_code})") from error
    except (OSError, TimeoutError, WebSocketException) as error:
        raise Failed(f"the console cannot be reached: {error}") from error


async def _type(console: ClientConnection, typed: asyncio.Queue[bytes], heard: asyncio.Event) -> None:
    """Send what is typed, until it leaves the console; at the end of the input let the guest answer first."""
    with contextlib.suppress(ConnectionClosed):
        while data := await typed.get():
            before, left, _ = data.partition(ESCAPE)
            if before:
                await console.send(before)
            if left:
                return
    with contextlib.suppress(TimeoutError):
        while True:
            heard.clear()
            await asyncio.wait_for(heard.wait(), QUIET_SECONDS)


async def _show(console: ClientConnection, heard: asyncio.Event) -> None:
    with contextlib.suppress(ConnectionClosed):
        async for said in console:
            heard.set()
            sys.stdout.buffer.write(said.encode() if isinstance(said, str) else said)
            sys.stdout.buffer.flush()


def _read_input(typed: asyncio.Queue[bytes]) -> None:
    """Put what is typed into the queue, and nothing at its end. A read of a terminal cannot be given up: the thread
    ends with the process."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        while True:
            try:
                data = os.read(0, PIECE)
            except OSError:
                data = b""
            with contextlib.suppress(RuntimeError):
                # The console may have ended, and the loop with it.
                loop.call_soon_threadsafe(typed.put_nowait, data)
            if not data:
                return

    threading.Thread(target=read, daemon=True, name="console input").start()


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Hand each key on as it is pressed, where there is a terminal."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        if sys.stdout.isatty():
            sys.stdout.buffer.write(AS_BEFORE)
            sys.stdout.buffer.flush()
