"""The backend's server of one run: started for it, or somebody's own; and what it costs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skep.processes.servers.memcached import MemcachedServer
from skep.processes.servers.nats import NatsServer
from skep.processes.servers.postgres import PostgresServer

_TICKS = os.sysconf("SC_CLK_TCK")
BYTES_EACH = 4096
"""Room that a record is given in memcached, with all that is kept beside it."""


def _nothing() -> float:
    return 0.0


@dataclass(frozen=True)
class RunningBackend:
    """A backend that can be used now."""

    settings: dict[str, Any]
    """For `SynchronizerSettings`."""
    cpu_seconds: Callable[[], float] = _nothing
    """User and system time of the server's processes so far; nothing for a server that is somebody else's."""


@asynccontextmanager
async def running_server(backend: str, url: str, folder: Path, hosts: int) -> AsyncIterator[RunningBackend]:
    """Have a server for the length of a block; without a `url` it is started in `folder`.

    Raises FileNotFoundError when its program is absent.
    """
    name = {"sqlite": "sql", "postgresql": "sql"}.get(backend, backend)
    settings = {"backend": name, "url": url, "expected_hosts": hosts}
    if url or backend == "memory":
        yield RunningBackend(settings)
    elif backend == "sqlite":
        yield RunningBackend(settings | {"url": f"sqlite:///{folder / 'states.db'}"})
    elif backend == "nats":
        async with NatsServer(folder) as nats:
            yield RunningBackend(settings | {"url": nats.url}, _counter(nats.pid))
    elif backend == "memcached":
        megabytes = 64 + 3 * hosts * BYTES_EACH // 1_000_000
        async with MemcachedServer(memory_mb=megabytes) as memcached:
            yield RunningBackend(settings | {"url": memcached.url}, _counter(memcached.pid))
    else:
        postgres = PostgresServer(fsync="on")
        try:
            await asyncio.to_thread(postgres.start)
            made = await asyncio.to_thread(postgres.create_database, "states")
            yield RunningBackend(settings | {"url": made}, _counter(postgres.pid))
        finally:
            await asyncio.to_thread(postgres.remove)


def _counter(pid: int | None) -> Callable[[], float]:
    """Return a function that counts the CPU seconds of a process and all its children, also those that have ended."""
    assert pid is not None

    def count() -> float:
        total = 0.0
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for number in (pid, *map(int, children)):
            try:
                fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
            except FileNotFoundError:
                continue
            mine = int(fields[11]) + int(fields[12])
            ended = int(fields[13]) + int(fields[14]) if number == pid else 0
            total += (mine + ended) / _TICKS
        return total

    return count
