"""Publishes that wait at the same time go together: a commit costs the same for one write as for hundreds."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from skep.synchronizer.base import Epoch, Key, Published, Refusal, Write

MOST_WRITES = 1000
"""In one transaction, so that none takes long; a single larger publish still goes as a whole."""

MOST_BYTES = 16 * 1024 * 1024
"""Of bodies in one transaction, likewise."""

Outcomes = dict[Key, Published | Refusal]


@dataclass(slots=True)
class _Waiting:
    writes: tuple[Write, ...]
    epoch: Epoch | None
    future: asyncio.Future[tuple[Published | Refusal, ...]]


class JoinedWrites:
    """Collects publishes while one is on its way."""

    def __init__(self, send: Callable[[Sequence[Write], Epoch | None], Awaitable[Outcomes]]) -> None:
        self._send = send
        self._queue: deque[_Waiting] = deque()
        self._sender: asyncio.Task[None] | None = None

    def publish(
        self, writes: tuple[Write, ...], epoch: Epoch | None
    ) -> asyncio.Future[tuple[Published | Refusal, ...]]:
        """Send these writes with all others of their epoch that wait."""
        future: asyncio.Future[tuple[Published | Refusal, ...]] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(writes, epoch, future))
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_all())
        return future

    async def _send_all(self) -> None:
        try:
            while self._queue:
                batch = self._take()
                try:
                    outcomes = await self._send(
                        [write for waiting in batch for write in waiting.writes], batch[0].epoch
                    )
                except Exception as error:  # noqa: BLE001  # whoever waits must hear of it, and the next batch go on
                    for waiting in batch:
                        if not waiting.future.done():
                            waiting.future.set_exception(error)
                    continue
                for waiting in batch:
                    if not waiting.future.done():
                        waiting.future.set_result(tuple(outcomes[write.key] for write in waiting.writes))
        finally:
            self._sender = None

    def _take(self) -> list[_Waiting]:
        """Take what goes together, in order: each key once, since the second write of a key knows of the first."""
        batch: list[_Waiting] = []
        keys: set[Key] = set()
        size = 0
        while self._queue:
            waiting = self._queue[0]
            size += sum(len(write.body) for write in waiting.writes)
            own = {write.key for write in waiting.writes}
            full = len(keys) + len(own) > MOST_WRITES or size > MOST_BYTES
            if batch and (full or waiting.epoch != batch[0].epoch or not keys.isdisjoint(own)):
                break
            keys |= own
            batch.append(self._queue.popleft())
        return batch
