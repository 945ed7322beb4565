"""One thread with one connection: operations one after the other, each with an end."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from skep.domain.errors import Unavailable
from skep.synchronizer.sql.server import SqlServer, Wiped

C = TypeVar("C")
T = TypeVar("T")


class _Job:
    """One operation; `late` once nobody may wait for it any longer."""

    __slots__ = ("late",)

    def __init__(self) -> None:
        self.late = False


class Lane(Generic[C]):
    """Runs operations on a connection of its own, which it makes anew after any error.

    A server that stops answering while its connection stays open would hold the thread for ever; so what takes too
    long is aborted from outside.
    """

    def __init__(self, server: SqlServer[C], name: str, seconds: float) -> None:
        self._server = server
        self._seconds = seconds
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"synchronizer-{name}")
        self._lock = threading.Lock()
        self._connection: C | None = None
        self._running: _Job | None = None
        self._closed = False

    async def run(self, operation: Callable[[C], T]) -> T:
        """Run it in the thread.

        Raises Unavailable when the server is away or does not answer in time: then it may have been done, or may not.
        Raises Wiped when there are no tables.
        """
        if self._closed:
            raise Unavailable("the synchronizer's backend is closed")
        loop = asyncio.get_running_loop()
        job = _Job()
        answer: asyncio.Future[T] = loop.create_future()
        timer = loop.call_later(self._seconds, self._abort, job, answer)

        def settled(future: Future[T]) -> None:
            # A loop that has ended meanwhile waits for nothing.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, future, answer, timer)

        self._executor.submit(self._do, job, operation).add_done_callback(settled)
        return await answer

    async def close(self) -> None:
        """End what runs and close the connection; what waits finds it closed."""
        self._closed = True
        with self._lock:
            if self._running is not None and self._connection is not None:
                self._server.abort(self._connection)
        await asyncio.to_thread(self._executor.shutdown)
        self._drop()

    def _do(self, job: _Job, operation: Callable[[C], T]) -> T:
        try:
            return operation(self._begin(job))
        except (Unavailable, Wiped):
            raise
        except Exception as error:
            self._drop()
            if self._server.is_wiped(error):
                raise Wiped(str(error)) from error
            if job.late or self._closed or self._server.is_away(error):
                raise Unavailable(f"the synchronizer's database is away: {_first_line(error)}") from error
            raise
        finally:
            with self._lock:
                self._running = None

    def _begin(self, job: _Job) -> C:
        """Return the connection, made anew if need be; from now on it may be aborted."""
        if self._connection is None and not (job.late or self._closed):
            self._connection = self._server.connect()
        with self._lock:
            if job.late or self._closed or self._connection is None:
                raise Unavailable("the synchronizer's database does not answer")
            self._running = job
            return self._connection

    def _abort(self, job: _Job, answer: asyncio.Future[T]) -> None:
        """End what runs; what has not begun, since it waits for its turn or a connection, never will."""
        with self._lock:
            job.late = True
            if self._running is job:
                if self._connection is not None:
                    self._server.abort(self._connection)
            elif not answer.done():
                answer.set_exception(Unavailable("the synchronizer's database does not answer"))

    def _drop(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            self._server.close(connection)


def _settle(future: Future[T], answer: asyncio.Future[T], timer: asyncio.TimerHandle) -> None:
    timer.cancel()
    if answer.done():
        return
    error = future.exception()
    if error is None:
        answer.set_result(future.result())
    else:
        answer.set_exception(error)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
