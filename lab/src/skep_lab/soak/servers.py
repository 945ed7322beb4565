"""The servers that a soak stands on, and what can happen to them: NATS for messages, and a synchronizer's backend."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from skep.config.sections import SynchronizerSettings
from skep.processes.servers.memcached import MemcachedServer
from skep.processes.servers.nats import NatsServer
from skep.processes.servers.postgres import PostgresServer

BACKENDS = ("sqlite", "postgresql", "memcached", "nats")
"""Those that processes share; each is killed and wiped in its own way."""

Fault = Callable[[], Awaitable[None]]


class SoakServers:
    """Starts what one backend needs; `faults` says what may be done to it while a cloud works on it."""

    def __init__(self, root: Path, backend: str) -> None:
        """Raises ValueError for a backend that is not one of BACKENDS."""
        if backend not in BACKENDS:
            raise ValueError(backend)
        self.backend = backend
        self.nats = NatsServer(root / "nats")
        self.faults: dict[str, Fault] = {"messages-restart": self.nats.restart}
        self._root = root
        self._memcached: MemcachedServer | None = None
        self._postgres: PostgresServer | None = None
        self._settings = SynchronizerSettings()

    @property
    def settings(self) -> SynchronizerSettings:
        """How schedulers find the backend; known once it has started."""
        return self._settings

    async def start(self) -> None:
        """Start the servers."""
        await self.nats.start()
        url = ""
        name = self.backend
        if self.backend == "sqlite":
            name, url = "sql", f"sqlite:///{self._root / 'states.db'}"
        elif self.backend == "postgresql":
            self._postgres = PostgresServer()
            await asyncio.to_thread(self._postgres.start)
            name, url = "sql", await asyncio.to_thread(self._postgres.create_database, "states")
            self.faults |= {"states-restart": self._restart_postgres, "states-wiped": self._wipe_postgres}
        elif self.backend == "memcached":
            self._memcached = MemcachedServer()
            await self._memcached.start()
            url = self._memcached.url
            self.faults |= {"states-wiped": self._memcached.restart}
        else:
            url = self.nats.url
            self.faults |= {"states-wiped": self._wipe_nats}
        self._settings = SynchronizerSettings(backend=name, url=url, expected_hosts=1000)

    async def stop(self) -> None:
        """Stop the servers and remove what they stored."""
        await asyncio.to_thread(self.nats.stop)
        if self._memcached is not None:
            await asyncio.to_thread(self._memcached.stop)
        if self._postgres is not None:
            await asyncio.to_thread(self._postgres.remove)

    async def _restart_postgres(self) -> None:
        assert self._postgres is not None
        await asyncio.to_thread(self._postgres.restart)

    async def _wipe_postgres(self) -> None:
        assert self._postgres is not None
        await asyncio.to_thread(self._postgres.drop_database, "states")
        await asyncio.to_thread(self._postgres.create_database, "states")

    async def _wipe_nats(self) -> None:
        self.nats.kill()
        self.nats.wipe()
        await self.nats.start()
