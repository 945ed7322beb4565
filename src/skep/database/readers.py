"""Threads that read a database. Each thread runs one unit at a time and returns its result.

An executor of the standard library does the same. It makes two futures, two locks and four callbacks for each unit,
which cost more than a short statement.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from skep.domain.errors import StorageUnavailable

T = TypeVar("T")

_Waiting = tuple["asyncio.Future[Any]", Callable[[], Any]]


class Readers:
    """Up to `count` threads, begun with the first unit; those of one database of one process."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._waiting: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._doing: dict[int, asyncio.Future[Any]] = {}
        """By thread: who waits for what it does now."""
        self._stopping = False
        self._lock = threading.Lock()
        """Held while something is queued, so that nothing is queued behind the end."""

    def submit(self, act: Callable[[], T]) -> asyncio.Future[T]:
        """Have a thread do something; one that is cancelled before it began is never done.

        Raises StorageUnavailable once stopped.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._stopping:
                raise StorageUnavailable(f"database {self._name} is closed")
            if not self._threads:
                self._begin()
            self._waiting.put((future, act))
        return future

    def is_left(self, thread: int) -> bool:
        """Tell whether this is a thread that does what nobody waits for any more."""
        future = self._doing.get(thread)
        return future is not None and future.cancelled()

    def stop(self) -> None:
        """End the threads, each after what it does now; what waits is answered with StorageUnavailable."""
        with self._lock:
            self._stopping = True
            for _ in self._threads:
                self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _begin(self) -> None:
        self._threads = [
            threading.Thread(target=self._run, name=f"{self._name}-read_{number}", daemon=True)
            for number in range(self._count)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            future, act = waiting
            if not future.cancelled():
                self._do(future, act)
            # Neither is held while the thread waits for the next one.
            del waiting, future, act

    def _do(self, future: asyncio.Future[T], act: Callable[[], T]) -> None:
        loop = future.get_loop()
        self._doing[threading.get_ident()] = future
        try:
            if self._stopping:
                raise StorageUnavailable(f"database {self._name} is closed")
            value = act()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the caller
            _tell(loop, _refuse, future, error)
        else:
            _tell(loop, _answer, future, value)
        finally:
            del self._doing[threading.get_ident()]


def _tell(loop: asyncio.AbstractEventLoop, how: Callable[..., None], future: asyncio.Future[Any], what: Any) -> None:
    try:
        loop.call_soon_threadsafe(how, future, what)
    except RuntimeError:
        # The loop is closed: the caller has ended.
        return


def _answer(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def _refuse(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
