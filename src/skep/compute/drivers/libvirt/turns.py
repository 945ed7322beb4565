"""One call at a time for each server, in threads: a call whose caller has gone still ends before the next begins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ServerTurns:
    """Locks by name that are there while someone holds or awaits them."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Wait until no other has this name, and have it."""
        with self._guard:
            lock, users = self._locks.get(name, (threading.Lock(), 0))
            self._locks[name] = lock, users + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                users = self._locks[name][1] - 1
                if users:
                    self._locks[name] = lock, users
                else:
                    del self._locks[name]
