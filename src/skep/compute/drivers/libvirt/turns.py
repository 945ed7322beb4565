"""One call at a time for each server, in threads: a call whose caller has gone still ends before the next begins."""

from __future__ import annotations

import threading
from weakref import WeakValueDictionary


class ServerTurns:
    """Locks by name that are there while someone holds or awaits them."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()

    def turn(self, name: str) -> threading.Lock:
        """Return what one thread at a time holds of those that act on the same."""
        with self._guard:
            lock = self._locks.get(name)
            if lock is None:
                lock = self._locks[name] = threading.Lock()
            return lock
