"""Makes what was appended to files durable: one round for all files that wait, in a few threads.

All agents of a process share one flusher, so two hundred of them need no two hundred threads, and many entries of
one journal go to the disk in one fdatasync. The threads are the flusher's own: those of the event loop may all be held
by calls of a driver that hang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from skep.domain.errors import StorageUnavailable

ResultT = TypeVar("ResultT")

LANES = 4
"""Files of one round that are synced at the same time; so many threads there are."""


class Syncable(Protocol):
    """Something with a file behind it."""

    def sync(self) -> None:
        """Make durable all that was appended so far. Called in a thread. Raises OSError."""


class Flusher:
    """Syncs files in rounds. What starts to wait during a round is done in the next."""

    def __init__(self) -> None:
        self._waiting: dict[Syncable, asyncio.Future[None]] = {}
        self._rounds: asyncio.Task[None] | None = None
        self._threads: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], ResultT]) -> ResultT:
        """Do other work on a host's files in one of the threads; what it raises is raised."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(LANES, thread_name_prefix="skep-journal")
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Let the threads end after what they have in hand. Whoever comes later gets fresh ones."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False)

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
        while self._waiting:
            batch, self._waiting = list(self._waiting.items()), {}
            lanes = [batch[start::LANES] for start in range(min(LANES, len(batch)))]
            for lane, results in zip(
                lanes,
                await asyncio.gather(*(self.run(partial(_sync_all, [file for file, _ in lane])) for lane in lanes)),
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
