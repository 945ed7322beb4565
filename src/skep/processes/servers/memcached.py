"""A memcached of one's own: started on a free loopback port, paused, killed and started anew, which is a wipe.

async with MemcachedServer(memory_mb=64) as server:
    ... server.url ...
    await server.restart()  # the same port, nothing kept
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Self

from skep.processes.servers.programs import find_program
from skep.processes.servers.waiting import until

START_SECONDS = 20.0
"""A server that does not answer within this time after its start has failed."""

STOP_SECONDS = 5.0
"""A server that was asked to stop and has not within this time is killed."""


class MemcachedServer:
    """One `memcached`; used as an async context manager, or by `start` and `stop`."""

    def __init__(self, *, memory_mb: int = 64, options: tuple[str, ...] = ()) -> None:
        """Prepare a server with a memory limit; `options` are further ones of its command line."""
        self.port = 0
        self._memory_mb = memory_mb
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients connect; the same after each start."""
        return f"memcached://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process, or None when none runs."""
        return self._process.pid if self._process else None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    async def start(self) -> None:
        """Start the server and wait until it answers.

        The first start takes a port that is free, every other the same. Raises FileNotFoundError when the program is
        absent, and AssertionError when it does not come up.
        """
        self._process = self._launch()
        try:
            await until(self._answers, "memcached answers", seconds=START_SECONDS)
        except BaseException:
            self.kill()
            raise

    async def restart(self) -> None:
        """Kill the server as a crash does, and start it again: it has kept nothing."""
        self.kill()
        await self.start()

    def kill(self) -> None:
        """End the server at once (SIGKILL)."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the server in order; nothing happens when none runs."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Halt the server with its connections open (SIGSTOP): it takes bytes and answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a halted server go on."""
        self._signal(signal.SIGCONT)

    def flush(self) -> None:
        """Have the server forget all items, as somebody's `flush_all` does; connections stay."""
        if self._ask(b"flush_all\r\n") != b"OK\r\n":
            raise AssertionError("memcached did not forget")

    def _launch(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            raise RuntimeError("the server runs already")
        program = find_program("memcached")
        if program is None:
            raise FileNotFoundError("memcached")
        self.port = self.port or _free_port()
        command = [str(program), "-l", "127.0.0.1", "-p", str(self.port), "-U", "0", "-m", str(self._memory_mb)]
        user = ["-u", "root"] if os.geteuid() == 0 else []
        return subprocess.Popen(
            [*command, *user, "-t", "2", *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=Path("/"),
        )

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("no server runs")
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
            process.send_signal(signal.SIGCONT)  # a halted process takes no SIGTERM
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ask(self, command: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1.0) as connection:
            connection.settimeout(1.0)
            connection.sendall(command)
            return connection.recv(4096)

    async def _answers(self) -> bool:
        process = self._process
        if process is None or process.poll() is not None:
            raise AssertionError("memcached ended before it served")
        return await asyncio.to_thread(self._answers_now)

    def _answers_now(self) -> bool:
        try:
            return self._ask(b"version\r\n").startswith(b"VERSION")
        except OSError:
            return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
