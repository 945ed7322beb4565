"""What handlers of servers need to know of elsewhere, remembered for a moment: flavors, images, states of hosts.

A change made through this process is seen at once (whoever makes it calls `forget`), one made elsewhere within
`REMEMBERED_SECONDS`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from skep.domain.flavors import Flavor
from skep.domain.hosts import HostState
from skep.domain.images import Image

T = TypeVar("T")

REMEMBERED_SECONDS = 1.0
MAX_REMEMBERED = 1000
"""Things kept; when there are more, all are forgotten."""


class RecentReads(Generic[T]):
    """Things that were read lately. That there is no such thing is never remembered."""

    def __init__(self, seconds: float = REMEMBERED_SECONDS, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._monotonic = monotonic
        self._known: dict[Hashable, tuple[float, T]] = {}
        self._forgotten = 0

    async def get(self, key: Hashable, read: Callable[[], Awaitable[T | None]]) -> T | None:
        """Return what is remembered under `key`, or else what `read` returns."""
        known = self._known.get(key)
        if known is not None and known[0] > self._monotonic():
            return known[1]
        forgotten = self._forgotten
        value = await read()
        if value is not None and forgotten == self._forgotten:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            self._known[key] = (self._monotonic() + self._seconds, value)
        return value

    def forget(self) -> None:
        """Forget all, and what is being read just now too."""
        self._forgotten += 1
        self._known.clear()


class Lookups:
    """What the server handlers of one process remember."""

    def __init__(self) -> None:
        self.flavors: RecentReads[Flavor] = RecentReads()
        """Call `forget` after a flavor, its extra specs or its access changed."""
        self.images: RecentReads[Image] = RecentReads()
        self.hosts: RecentReads[tuple[HostState, ...]] = RecentReads()
