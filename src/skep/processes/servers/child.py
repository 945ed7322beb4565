"""What servers beside us have in common: one child process, started until it answers, signalled, ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

from skep.processes.servers.programs import find_program

STOP_SECONDS = 5.0
"""A server that was asked to stop and has not within this time is killed."""

POLL_SECONDS = 0.01


class ChildServer(ABC):
    """One server; used as an async context manager, or by `start` and `stop`."""

    program: str
    """The name of its program."""
    start_seconds = 60.0
    """A server that does not answer within this time after its start has failed."""

    def __init__(self) -> None:
        self.port = 0
        """Where it listens on loopback; the first start takes one that is free, every other the same."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process, or None when none runs."""
        return self._process.pid if self._process else None

    @property
    def running(self) -> bool:
        """Whether the server was started and has not ended, by itself or by anybody."""
        return self._process is not None and self._process.poll() is None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    async def start(self) -> None:
        """Start the server and wait until it answers.

        Raises FileNotFoundError when the program is absent, and AssertionError when the server does not come up.
        """
        if self._process is not None:
            raise RuntimeError("the server runs already")
        found = find_program(self.program)
        if found is None:
            raise FileNotFoundError(self.program)
        self._process = self._launch(found)
        try:
            await self._until_it_answers()
        except BaseException:
            self.kill()
            raise

    async def restart(self) -> None:
        """Kill the server as a crash does, and start it again on what it has kept."""
        self.kill()
        await self.start()

    def kill(self) -> None:
        """End the server at once (SIGKILL); what the kernel was given of its files stays."""
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

    @abstractmethod
    def _launch(self, program: Path) -> subprocess.Popen[bytes]:
        """Start the process."""

    @abstractmethod
    def _answers(self, pid: int) -> bool:
        """Ask the server whether it serves; may block for a second."""

    def _last_words(self) -> str:
        """Return what the server wrote before it ended, if it writes."""
        return ""

    async def _until_it_answers(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self.start_seconds
        while True:
            process = self._process
            if process is None or process.poll() is not None:
                raise AssertionError(f"{self.program} ended before it served\n{self._last_words()}".rstrip())
            if await asyncio.to_thread(self._answers, process.pid):
                return
            if loop.time() > end:
                raise AssertionError(f"{self.program} does not answer: not within {self.start_seconds:g} s")
            await asyncio.sleep(POLL_SECONDS)

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
