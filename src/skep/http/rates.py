"""How often, and how many at once: limits by name (a project, an address), in constant time and bounded memory."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from skep.domain.errors import TooManyRequests


class RateSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A rate that may be exceeded for a while."""

    per_second: float
    """Requests that each name may send on average; 0: any number."""
    burst: int
    """Requests that it may send at once after a pause."""


class Rate:
    """Lets each name through so many times a second, and as many more at once as it let pass before."""

    def __init__(self, settings: RateSettings, now: Callable[[], float], *, names: int = 10_000) -> None:
        """`now` counts seconds. `names`: of how many names it is remembered; of those silent for longest it is not."""
        self._each = 1 / settings.per_second if settings.per_second > 0 else 0.0
        self._ahead = self._each * (settings.burst - 1)
        self._now = now
        self._names = names
        self._free_at: OrderedDict[str, float] = OrderedDict()
        """Name -> when all that it sent would have been sent at the even rate."""

    def __len__(self) -> int:
        return len(self._free_at)

    def check(self, name: str) -> None:
        """Count nothing. Raises TooManyRequests where a request would not pass now."""
        now = self._now()
        over = self._free_at.get(name, now) - now - self._ahead
        if self._each and over > 0:
            raise TooManyRequests.until(math.ceil(over))

    def take(self, name: str) -> None:
        """Count one request. Raises TooManyRequests with the seconds after which the next one passes."""
        if not self._each:
            return
        now = self._now()
        free_at = max(self._free_at.get(name, now), now)
        over = free_at - now - self._ahead
        if over > 0:
            raise TooManyRequests.until(math.ceil(over))
        self._free_at[name] = free_at + self._each
        self._free_at.move_to_end(name)
        if len(self._free_at) > self._names:
            self._free_at.popitem(last=False)


class Concurrency:
    """Lets each name have so many requests under way."""

    def __init__(self, most: int) -> None:
        """`most`: of each name; 0: any number."""
        self._most = most
        self._under_way: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, name: str) -> None:
        """Count a request that begins. Raises TooManyRequests, and counts none, where there are as many as may be."""
        count = self._under_way.get(name, 0)
        if self._most and count >= self._most:
            raise TooManyRequests.until(1)
        self._under_way[name] = count + 1

    def end(self, name: str) -> None:
        """Count the end of one that had begun."""
        count = self._under_way.pop(name) - 1
        if count:
            self._under_way[name] = count
