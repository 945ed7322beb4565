"""The worker processes of one run, and orders to them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from skep.cli.benchmarks.sync.worker import WorkerOrder, WorkerResult
from skep.domain.decoding import json_decoder
from skep.domain.errors import Misconfigured

LINE_BYTES = 1 << 26
"""Longest answer of a worker: some hundred thousand ages of reports."""


class Crew:
    """Workers that do the same at the same time; one process where the backend is its own memory."""

    def __init__(self, backend: dict[str, Any], schedulers: int) -> None:
        self.backend = backend
        self.schedulers = schedulers
        self._in_one = backend["backend"] == "memory"
        self._workers: list[asyncio.subprocess.Process] = []

    async def start(self) -> None:
        """Start the processes; no scheduler yet."""
        for _ in range(1 if self._in_one else self.schedulers):
            await self.hire()

    async def hire(self) -> int:
        """Start one more process; return its number."""
        command = (sys.executable, "-m", "skep.cli.benchmarks.sync.worker")
        pipe = asyncio.subprocess.PIPE
        self._workers.append(await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=LINE_BYTES))
        return len(self._workers) - 1

    async def stop(self) -> None:
        """Let the processes end; end those that do not."""
        for worker in self._workers:
            if worker.stdin is not None:
                worker.stdin.close()
        for worker in self._workers:
            try:
                await asyncio.wait_for(worker.wait(), 15)
            except TimeoutError:
                worker.kill()
                await worker.wait()
        self._workers.clear()

    async def open(self, *, partition: bool) -> list[float]:
        """Start all schedulers; return the seconds that each took."""
        each = self.schedulers if self._in_one else 1
        return self.results(await self.all("open", backend=self.backend, schedulers=each, partition=partition))

    async def first(self, do: str, **arguments: Any) -> WorkerResult:
        """Have the first process do something."""
        return await self.one(0, do, **arguments)

    async def all(self, do: str, **arguments: Any) -> list[WorkerResult]:
        """Have all processes do the same."""
        return await asyncio.gather(*(self.one(number, do, **arguments) for number in range(len(self._workers))))

    async def one(self, number: int, do: str, **arguments: Any) -> WorkerResult:
        """Have one process do something. Raises Misconfigured when it failed or died."""
        worker = self._workers[number]
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(msgspec.json.encode(WorkerOrder(do=do, arguments=arguments)) + b"\n")
        await worker.stdin.drain()
        line = await worker.stdout.readline()
        if not line:
            raise Misconfigured(f"a scheduler of the benchmark died during `{do}`; its log is above")
        done = json_decoder(WorkerResult).decode(line)
        if done.error:
            raise Misconfigured(f"`{do}` failed: {done.error}")
        return done

    @property
    def count(self) -> int:
        """Number of processes."""
        return len(self._workers)

    @staticmethod
    def results(done: Sequence[WorkerResult]) -> list[Any]:
        """Return the results of all schedulers of all processes."""
        return [result for one in done for result in one.results]
