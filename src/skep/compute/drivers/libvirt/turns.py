"""Calls that change something of servers, in threads, one at a time for each server.

A call whose caller has gone still ends before the next of its server begins.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")

THREADS = 1024
"""More than the guests of a host: calls wait for guests (to shut down, to let go of a device) and for disks, for hours
some of them, and those about other servers go on meanwhile. They are made as they are needed."""


class ServerTurns:
    """Threads, and locks by name that are there while someone holds or awaits them."""

    def __init__(self, threads: int = THREADS) -> None:
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="libvirt")

    def turn(self, name: str) -> threading.Lock:
        """Return what one thread at a time holds of those that act on the same."""
        with self._guard:
            lock = self._locks.get(name)
            if lock is None:
                lock = self._locks[name] = threading.Lock()
            return lock

    async def run(self, name: str, work: Callable[[], T]) -> T:
        """Do something about a server once what is being done about it has ended."""
        return await self.beside(lambda: self._in_turn(name, work))

    def begin(self, name: str, work: Callable[[], None]) -> None:
        """Do the same for no one who waits: `work` raises nothing."""
        self._threads.submit(self._in_turn, name, work)

    def _in_turn(self, name: str, work: Callable[[], T]) -> T:
        with self.turn(name):
            return work()

    async def beside(self, work: Callable[[], T]) -> T:
        """Do something that is about no single server."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def close(self) -> None:
        """Begin nothing more; what a thread is doing comes to its end."""
        self._threads.shutdown(wait=False, cancel_futures=True)
