"""One scheduler of the benchmark: the service itself with its handlers called directly, without a transport."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from skep.domain.clock import Clock
from skep.domain.context import RequestContext
from skep.messages.base import Call, Cast
from skep.placement.settings import SchedulerSettings
from skep.scheduler.service import SchedulerService
from skep.synchronizer.base import Backend
from skep.transport.base import Address, CellHandlers, Handlers

ReplyT = TypeVar("ReplyT")


class Conflicts:
    """Counts refused compare-and-swaps."""

    def __init__(self) -> None:
        self.met = 0

    def count(self) -> None:
        """Note one."""
        self.met += 1


class _Here:
    """A transport without a wire: what the service serves is called in place."""

    def __init__(self) -> None:
        self.proves_senders = self.connected = True
        self.reconnects = 0
        self.handlers: dict[type[Any], Any] = {}

    async def serve(self, _address: Address, handlers: Handlers) -> _Here:
        self.handlers.update(handlers)
        return self

    async def serve_cells(self, _role: Address, _handlers: CellHandlers) -> _Here:
        return self  # there is no cell here that would ask

    async def close(self) -> None:
        self.handlers.clear()

    async def cast(self, address: Address, message: Cast, context: RequestContext | None = None) -> None:
        raise NotImplementedError("a scheduler sends nothing")

    async def call(
        self,
        address: Address,  # noqa: ARG002 - there is one server
        message: Call[ReplyT],
        *,
        timeout: float = 10.0,  # noqa: ARG002 - nothing is waited for
        context: RequestContext | None = None,
    ) -> ReplyT:
        reply: ReplyT = await self.handlers[type(message)](message, context)
        return reply


class BenchScheduler:
    """A scheduler with its own handle on the backend."""

    def __init__(self, backend: Backend, *, partition: bool) -> None:
        self.backend = backend
        self.conflicts = Conflicts()
        self._transport = _Here()
        self.service = SchedulerService(
            self._transport,
            backend,
            SchedulerSettings(partition=partition),
            Clock(),
            on_conflict=self.conflicts.count,
        )

    async def start(self) -> None:
        """Open the backend and read all records."""
        await self.backend.open()
        await self.service.start()

    async def stop(self) -> None:
        """Stop the service and let go of the backend."""
        await self.service.stop()
        await self.backend.close()

    async def ask(self, message: Call[ReplyT]) -> ReplyT:
        """Have the service handle one message."""
        return await self._transport.call(Address("here"), message)


def in_batches(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """Return the items in pieces of at most `size`."""
    return [items[start : start + size] for start in range(0, len(items), size)]
