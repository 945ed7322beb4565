"""Makes what was appended to files durable: one round for all files that wait, in a few threads of the event loop.

All agents of a process share one flusher, so two hundred of them need no two hundred threads, and many entries of
one journal go to the disk in one fdatasync.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from skep.domain.errors import StorageUnavailable

LANES = 4
"""Files of one round that are synced at the same time."""


class Syncable(Protocol):
    """Something with a file behind it."""

    def sync(self) -> None:
        """Make durable all that was appended so far. Called in a thread. Raises OSError."""


class Flusher:
    """Syncs files in rounds. What starts to wait during a round is done in the next."""

    def __init__(self) -> None:
        self._waiting: dict[Syncable, asyncio.Future[None]] = {}
        self._rounds: asyncio.Task[None] | None = None

    async def sync(self, file: Syncable) -> None:
        """Wait until all that was appended to `file` before is durable.

        Raises StorageUnavailable when the disk cannot store it.
        """
        waiting = self._waiting.get(file)
        if waiting is None:
            waiting = self._waiting[file] = asyncio.get_running_loop().create_future()
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._run(), name="flusher")
        # Others may wait for the same future: being cancelled here must not cancel it for them.
        await asyncio.shield(waiting)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = list(self._waiting.items()), {}
            lanes = [batch[start::LANES] for start in range(min(LANES, len(batch)))]
            for lane, results in zip(
                lanes,
                await asyncio.gather(
                    *(loop.run_in_executor(None, _sync_all, [file for file, _ in lane]) for lane in lanes)
                ),
                strict=True,
            ):
                for (_, waiting), error in zip(lane, results, strict=True):
                    _answer(waiting, error)


def _sync_all(files: list[Syncable]) -> list[OSError | None]:
    results: list[OSError | None] = []
    for file in files:
        try:
            file.sync()
        except OSError as error:
            results.append(error)
        else:
            results.append(None)
    return results


def _answer(waiting: asyncio.Future[None], error: OSError | None) -> None:
    if error is None:
        waiting.set_result(None)
    else:
        waiting.set_exception(StorageUnavailable(f"the host's journal cannot be stored: {error.strerror or error}"))
        waiting.exception()  # read once here: whoever waited may have been cancelled meanwhile
