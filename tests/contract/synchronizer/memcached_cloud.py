"""What tests of the memcached backend share: records under a name of their own, connections that are cut, a raw one."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from skep.config.sections import SynchronizerSettings
from skep.contracts.synchronizer import Store
from skep.domain.clock import Clock, Timestamp
from skep.domain.errors import Unreachable
from skep.processes.servers.memcached import MemcachedServer
from skep.synchronizer.base import Backend, Changes, Key, Record
from skep.synchronizer.memcached import MemcachedBackend, make
from skep.synchronizer.memcached.connection import MemcachedConnection, MemcachedReply

_names = (f"cloud{number}" for number in itertools.count())


class MemcachedStore(Store):
    """Records under a name of their own; a wipe takes everybody's."""

    cannot_wipe = ""
    cannot_copy = "memcached keeps nothing that could be copied"

    def __init__(self, server: MemcachedServer, *, expected_hosts: int = 1000) -> None:
        super().__init__()
        self.server = server
        self.settings = SynchronizerSettings(
            backend="memcached", url=server.url, name=next(_names), expected_hosts=expected_hosts
        )

    def make(self) -> MemcachedBackend:
        return make(self.settings)

    async def handle(self) -> MemcachedBackend:
        """Return another handle, opened, as what it is."""
        handle = await self.open()
        assert isinstance(handle, MemcachedBackend)
        return handle

    def keep(self, handle: MemcachedBackend) -> None:
        """Close this handle too in the end."""
        self._handles.append(handle)

    async def wipe(self) -> None:
        await self.server.restart()

    async def raw(self) -> MemcachedConnection:
        """Return a connection to do what no handle does."""
        return await MemcachedConnection.open("127.0.0.1", self.server.port)


class Fuse:
    """How many more commands a writer executes before it is killed; None: it lives."""

    left: int | None = None
    meanwhile: Callable[[], Awaitable[None]] | None = None
    """What others do while this process is halted; it goes on then instead of being killed."""

    def take(self, wanted: int) -> int:
        if self.left is None:
            return wanted
        taken = min(self.left, wanted)
        self.left -= taken
        return taken


class CutConnection(MemcachedConnection):
    """A connection of a process that is killed in the middle of what it does."""

    fuse: Fuse

    async def execute(self, commands: Sequence[bytes]) -> list[MemcachedReply]:
        allowed = self.fuse.take(len(commands))
        if allowed == len(commands):
            return await super().execute(commands)
        first = await super().execute(commands[:allowed]) if allowed else []
        meanwhile, self.fuse.meanwhile = self.fuse.meanwhile, None
        if meanwhile is not None:
            self.fuse.left = None
            await meanwhile()
            return [*first, *await super().execute(commands[allowed:])]
        self.close()
        raise Unreachable("the process was killed")


class Time(Clock):
    """Both clocks of a handle, set by the test."""

    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0

    def now(self) -> Timestamp:
        return Timestamp(int(self.seconds * 1_000_000))

    def monotonic(self) -> float:
        return self.seconds


async def open_handle(store: MemcachedStore, *, fuse: Fuse | None = None, time: Time | None = None) -> MemcachedBackend:
    """Return a handle that can be killed, or whose time the test sets."""

    async def connect() -> MemcachedConnection:
        connection = await CutConnection.open("127.0.0.1", store.server.port)
        connection.fuse = fuse or Fuse()
        return connection

    make_handle = partial(MemcachedBackend, connect=connect, name=store.settings.name, expected_hosts=1000)
    handle = make_handle(clock=time, monotonic=time.monotonic) if time else make_handle()
    store.keep(handle)
    await handle.open()
    return handle


async def records(backend: Backend) -> dict[Key, Record]:
    """Return what a snapshot shows."""
    return {record.key: record for record in (await backend.snapshot()).records}


class Follower:
    """A reader that follows the changes of one handle."""

    def __init__(self, handle: MemcachedBackend) -> None:
        self.handle = handle
        self.known: dict[Key, Record] = {}

    async def begin(self) -> None:
        snapshot = await self.handle.snapshot()
        self.known = {record.key: record for record in snapshot.records}
        self.cursor = snapshot.cursor

    async def read(self) -> dict[Key, Record]:
        """Read what is told; return all living records."""
        changes = await self.handle.changes(self.cursor)
        assert isinstance(changes, Changes)
        self.known.update({record.key: record for record in changes.records})
        self.cursor = changes.cursor
        return {key: record for key, record in self.known.items() if record.body}
