"""A process with one scheduler, or with several where the backend is the process's own memory.

It reads orders from standard input and answers on standard output, a line of JSON each. Times are its own; the order
`at` is the machine's monotonic clock, so that several workers begin together.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import sys
import time
from typing import Any

import msgspec
import uvloop

from skep.cli.benchmarks.sync import phases
from skep.cli.benchmarks.sync.scheduler import BenchScheduler
from skep.config.sections import SynchronizerSettings
from skep.domain.decoding import convert, json_decoder
from skep.domain.errors import SkepError
from skep.synchronizer.memory import MemoryBackend
from skep.synchronizer.registry import make_backend
from skep.telemetry.logs import configure


class WorkerOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do."""

    do: str
    arguments: dict[str, Any] = {}


class WorkerResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an order: one result for each scheduler of the process, and what it cost."""

    results: list[Any] = []
    cpu_seconds: float = 0.0
    error: str = ""


class Worker:
    """The schedulers of one process."""

    def __init__(self) -> None:
        self.schedulers: list[BenchScheduler] = []
        self._memory = MemoryBackend()
        self._beating: asyncio.Task[None] | None = None

    async def open(self, backend: dict[str, Any], schedulers: int, partition: bool) -> list[float]:
        """Start schedulers; return how many seconds each took until it knew all records."""
        settings = convert(backend, SynchronizerSettings)
        took = []
        for _ in range(schedulers):
            began = time.monotonic()
            handle = self._memory.another() if settings.backend == "memory" else make_backend(settings)
            scheduler = BenchScheduler(handle, partition=partition)
            await scheduler.start()
            took.append(time.monotonic() - began)
            self.schedulers.append(scheduler)
        gc.collect()
        gc.freeze()
        return took

    async def close(self) -> list[None]:
        """Stop all schedulers. The memory of the process stays."""
        while self.schedulers:
            await self.schedulers.pop().stop()
        return []

    async def fill(self, hosts: int, servers: int) -> list[None]:
        """Make the hosts, and let their cell beat from now on."""
        await phases.fill(self.schedulers[0], hosts, servers)
        self._beating = asyncio.create_task(phases.keep_beating(self.schedulers[0], hosts))
        return []

    async def wait_ready(self, hosts: int) -> list[Any]:
        """Wait until all schedulers know the hosts."""
        return await asyncio.gather(*(phases.wait_ready(scheduler, hosts) for scheduler in self.schedulers))

    async def watch(self, hosts: int, seconds: float, send: dict[str, Any] | None) -> list[Any]:
        """Watch reports come in; the first scheduler takes them from the hosts when told to `send`."""
        watching = [phases.watch(scheduler, hosts, seconds) for scheduler in self.schedulers]
        if send is None:
            return await asyncio.gather(*watching)
        sending = phases.send_reports(self.schedulers[0], hosts, **send, seconds=seconds)
        rate, *ages = await asyncio.gather(sending, *watching)
        return [rate, *ages]

    async def claim(self, in_flight: int, seconds: float) -> list[Any]:
        """Place as fast as it goes, at the first scheduler."""
        return [await phases.claim(self.schedulers[0], in_flight=in_flight, seconds=seconds)]

    async def offer(self, rate: float, seconds: float, hold: float, seed: int, at: float) -> list[Any]:
        """Offer requests to all schedulers, beginning at a reading of the monotonic clock."""
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        return await asyncio.gather(
            *(
                phases.offer(scheduler, rate=rate, seconds=seconds, hold=hold, seed=seed + number)
                for number, scheduler in enumerate(self.schedulers)
            )
        )

    async def compare(self, hosts: int) -> list[Any]:
        """Compare each scheduler with the backend."""
        return [await phases.compare(scheduler, hosts) for scheduler in self.schedulers]


async def obey() -> None:
    """Do what the lines of standard input say until it ends."""
    loop = asyncio.get_running_loop()
    worker = Worker()
    while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
        order = json_decoder(WorkerOrder).decode(line)
        before = time.process_time()
        try:
            done = WorkerResult(results=await getattr(worker, order.do)(**order.arguments))
        except SkepError as error:
            done = WorkerResult(error=f"{type(error).__name__}: {error}")
        done = msgspec.structs.replace(done, cpu_seconds=time.process_time() - before)
        sys.stdout.buffer.write(msgspec.json.encode(done) + b"\n")
        sys.stdout.buffer.flush()
    with contextlib.suppress(SkepError):
        await worker.close()


def main() -> None:
    """Run the worker. Logs go to standard error, warnings and worse."""
    configure("warning", "text")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(obey())
    os._exit(0)


if __name__ == "__main__":
    main()
