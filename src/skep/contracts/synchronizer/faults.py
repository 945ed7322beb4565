"""A backend whose answers get lost, and the writer that stores for certain all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from skep.domain.errors import Unavailable
from skep.synchronizer.base import (
    Backend,
    Changes,
    Cursor,
    CursorTooOld,
    Epoch,
    Published,
    Record,
    Refusal,
    Snapshot,
    Write,
)

Loss = Literal["none", "call", "answer"]


class LosesAnswers:
    """A proxy before a backend: `lose` says of each publish whether its call or its answer is lost, or neither."""

    def __init__(self, behind: Backend, lose: Callable[[], Loss]) -> None:
        self.behind = behind
        self._lose = lose

    async def open(self) -> None:
        """Open what is behind."""
        await self.behind.open()

    async def close(self) -> None:
        """Close what is behind."""
        await self.behind.close()

    async def epoch(self) -> Epoch:
        """Ask what is behind."""
        return await self.behind.epoch()

    async def begin_epoch(self, expected: Epoch) -> Epoch:
        """Tell what is behind."""
        return await self.behind.begin_epoch(expected)

    async def snapshot(self) -> Snapshot:
        """Ask what is behind."""
        return await self.behind.snapshot()

    async def changes(self, cursor: Cursor, *, wait: float = 0.0) -> Changes | CursorTooOld:
        """Ask what is behind."""
        return await self.behind.changes(cursor, wait=wait)

    async def publish(
        self, writes: tuple[Write, ...], *, epoch: Epoch | None = None
    ) -> tuple[Published | Refusal, ...]:
        """Publish, or not, and answer, or not.

        Raises Unavailable when the call or its answer is lost.
        """
        loss = self._lose()
        if loss == "call":
            raise Unavailable("the call was lost")
        outcomes = await self.behind.publish(writes, epoch=epoch)
        if loss == "answer":
            raise Unavailable("the answer was lost")
        return outcomes

    async def trim(self) -> int:
        """Tell what is behind."""
        return await self.behind.trim()


async def store_for_certain(backend: Backend, writes: tuple[Write, ...]) -> tuple[Published | Refusal, ...]:
    """Publish until there is an answer; a write that was taken in a lost call counts as published, once.

    For a writer without rivals: after others have written too, only the value itself can tell what it contains.
    """
    lost = False
    while True:
        try:
            outcomes = await backend.publish(writes)
        except Unavailable:
            lost = True
            continue
        return tuple(
            Published(write.expected + 1) if lost and _shows(outcome, write) else outcome
            for write, outcome in zip(writes, outcomes, strict=True)
        )


def _shows(outcome: Published | Refusal, write: Write) -> bool:
    """Tell whether a refusal shows just what was to be written."""
    return outcome == Refusal(Record(key=write.key, generation=write.expected + 1, body=write.body))
